-- Lists of one customer.
CREATE INDEX withdrawal_requests_by_user ON withdrawal_requests (user_id, created_at DESC, id DESC);
