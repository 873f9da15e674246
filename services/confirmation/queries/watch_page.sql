-- $1 chain or null, $2 statuses or null, $3 and $4 the last row of the page before or null, $5 rows
SELECT
    w.job_id, w.withdrawal_id, w.chain, c.kind, w.from_address, w.to_address, w.amount_raw::text AS amount_raw,
    w.contract_address, w.effect AS watch_effect, w.round, w.since_block, w.status, w.tx_hash, w.block_number, w.block_hash, w.value_moved,
    w.contradicted_at, w.delayed_reason, w.trace, w.version, w.created_at, w.finished_at,
    (extract(epoch FROM clock_timestamp() - w.waiting_since) * 1000)::bigint AS waited_ms
FROM watches AS w
JOIN chains AS c ON c.name = w.chain
WHERE ($1::text IS NULL OR w.chain = $1)
  AND ($2::text[] IS NULL OR w.status = ANY($2))
  AND ($3::timestamptz IS NULL OR (w.created_at, w.job_id) < ($3, $4::uuid))
ORDER BY w.created_at DESC, w.job_id DESC
LIMIT $5
