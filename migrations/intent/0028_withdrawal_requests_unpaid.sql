-- Lists of what ended without payment, by status: few among the many that were paid.
CREATE INDEX withdrawal_requests_unpaid ON withdrawal_requests (status, created_at DESC, id DESC)
    WHERE status IN ('failed', 'rejected', 'cancelled');
