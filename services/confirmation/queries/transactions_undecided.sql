-- $1 chain, $2 final block, $3 and $4 the last row of the page before, $5 rows
SELECT
    t.hash, t.job_id, t.is_cancellation, t.effect, t.block_number, t.block_hash,
    c.kind, w.from_address, w.to_address, w.amount_raw::text AS amount_raw, w.contract_address,
    w.effect AS watch_effect
FROM watched_transactions AS t
JOIN watches AS w ON w.job_id = t.job_id
JOIN chains AS c ON c.name = t.chain
WHERE t.chain = $1 AND t.block_number <= $2 AND t.final_at IS NULL AND (t.block_number, t.hash) > ($3, $4)
ORDER BY t.block_number, t.hash
LIMIT $5
