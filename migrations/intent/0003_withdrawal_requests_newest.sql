-- Lists, newest first, with the id to make the order total: a page goes on exactly where the last one ended.
CREATE INDEX withdrawal_requests_newest ON withdrawal_requests (created_at DESC, id DESC);
