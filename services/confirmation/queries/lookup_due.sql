-- $1 chain, $2 rows
SELECT
    w.job_id,
    w.version,
    (extract(epoch FROM clock_timestamp() - w.waiting_since) * 1000)::bigint AS waited_ms,
    (
        SELECT coalesce(array_agg(t.hash ORDER BY t.position), '{}')
        FROM watched_transactions AS t
        WHERE t.job_id = w.job_id AND t.round = w.round
    ) AS hashes,
    -- What could show one day that it can no longer land.
    w.nonce IS NOT NULL OR NOT EXISTS (
        SELECT FROM watched_transactions AS t
        WHERE t.job_id = w.job_id AND t.round = w.round AND t.expires_at IS NULL
    ) AS is_bound
FROM watches AS w
WHERE w.chain = $1 AND w.status = 'waiting' AND w.check_due_at <= clock_timestamp()
ORDER BY w.check_due_at
LIMIT $2
