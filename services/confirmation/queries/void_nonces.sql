-- $1 chain, $2 rows
SELECT w.job_id
FROM (
    -- The lowest waiting nonce of each sender decides for all above it.
    SELECT DISTINCT ON (from_address) job_id, created_at
    FROM watches
    WHERE chain = $1 AND status = 'waiting' AND nonce IS NOT NULL
    ORDER BY from_address, nonce
) AS w
ORDER BY w.created_at
LIMIT $2
