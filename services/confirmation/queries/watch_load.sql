-- $1 jobs; locks them in one order, so that two writers cannot wait for each other in a circle
SELECT
    w.job_id, w.withdrawal_id, w.chain, c.kind, w.from_address, w.to_address, w.amount_raw::text AS amount_raw,
    w.contract_address, w.effect AS watch_effect, w.round, w.since_block, w.status, w.tx_hash, w.block_number, w.block_hash, w.value_moved,
    w.contradicted_at, w.delayed_reason, w.trace, w.version, w.created_at, w.finished_at,
    (extract(epoch FROM clock_timestamp() - w.waiting_since) * 1000)::bigint AS waited_ms
FROM watches AS w
JOIN chains AS c ON c.name = w.chain
WHERE w.job_id = ANY($1)
ORDER BY w.job_id
FOR UPDATE OF w
