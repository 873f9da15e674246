-- $1 chain, $2 rows, $3 where the last look ended, $4 jobs whose nonce is used up by something that may have paid them
SELECT w.job_id
FROM (
    -- The lowest waiting nonce of each sender decides for all above it, unless it is used up and waits for something else.
    (
        SELECT DISTINCT ON (from_address) job_id
        FROM watches
        WHERE chain = $1 AND status = 'waiting' AND nonce IS NOT NULL AND job_id <> ALL($4)
        ORDER BY from_address, nonce
    )
    UNION ALL
    SELECT job_id FROM watches WHERE chain = $1 AND status = 'waiting' AND job_id = ANY($4)
) AS w
WHERE $3::uuid IS NULL OR w.job_id > $3
ORDER BY w.job_id
LIMIT $2
