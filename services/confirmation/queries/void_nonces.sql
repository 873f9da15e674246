-- $1 chain, $2 rows, $3 where the last look ended
SELECT w.job_id
FROM (
    -- The lowest waiting nonce of each sender decides for all above it.
    SELECT DISTINCT ON (from_address) job_id
    FROM watches
    WHERE chain = $1 AND status = 'waiting' AND nonce IS NOT NULL
    ORDER BY from_address, nonce
) AS w
WHERE $3::uuid IS NULL OR w.job_id > $3
ORDER BY w.job_id
LIMIT $2
