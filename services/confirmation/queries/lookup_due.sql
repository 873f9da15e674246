-- $1 chain, $2 rows
SELECT
    w.job_id, w.version, t.hashes,
    (extract(epoch FROM clock_timestamp() - w.waiting_since) * 1000)::bigint AS waited_ms,
    -- What could show one day that it can no longer land.
    w.nonce IS NOT NULL OR t.all_expire AS is_bound
FROM watches AS w
-- One aggregate for each row, because the planner would answer NOT EXISTS by reading the whole table of transactions.
CROSS JOIN LATERAL (
    SELECT coalesce(array_agg(hash ORDER BY position), '{}') AS hashes, count(*) = count(expires_at) AS all_expire
    FROM watched_transactions
    WHERE job_id = w.job_id AND round = w.round
) AS t
WHERE w.chain = $1 AND w.status = 'waiting' AND w.check_due_at <= clock_timestamp()
ORDER BY w.check_due_at
LIMIT $2
