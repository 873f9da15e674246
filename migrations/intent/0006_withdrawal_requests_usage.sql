-- What counts against limits, in the order of the window, with the amounts inside the index: adding up a window reads no
-- table. What ended without payment does not count.
CREATE INDEX withdrawal_requests_usage ON withdrawal_requests (chain, asset, created_at) INCLUDE (user_id, amount_raw)
    WHERE status IN ('pending', 'approved', 'queued', 'completed');
