-- The same for one customer: the busiest asset must not make each customer's limit as dear as the sum of all.
CREATE INDEX withdrawal_requests_user_usage ON withdrawal_requests (user_id, chain, asset, created_at)
    INCLUDE (amount_raw)
    WHERE status IN ('pending', 'approved', 'queued', 'completed');
