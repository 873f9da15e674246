-- $1 chain, $2 numbers, $3 hashes of undone blocks
UPDATE watched_transactions AS t
SET block_number = NULL, block_hash = NULL
FROM (
    SELECT chain, hash, block_number, block_hash
    FROM watched_transactions
    WHERE chain = $1 AND block_number = ANY($2) AND block_hash = ANY($3) AND final_at IS NULL
) AS undone
WHERE t.chain = undone.chain AND t.hash = undone.hash
RETURNING t.job_id, undone.block_number, undone.block_hash
