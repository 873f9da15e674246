-- Requests that are not finished, by status: the gauges, and lists such as "what waits for me". Stays small however long
-- the history grows.
CREATE INDEX withdrawal_requests_open ON withdrawal_requests (status, created_at DESC, id DESC)
    WHERE status IN ('pending', 'approved', 'queued');
