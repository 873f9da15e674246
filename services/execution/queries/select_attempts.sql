-- $1 jobs
SELECT
    t.id, t.job_id, t.number, t.kind, t.status, t.nonce, t.price_kind, t.gas_limit, t.max_fee_per_gas::text,
    t.max_priority_fee_per_gas::text, t.void_proof, t.raw_transaction, t.tx_hash, t.last_error, t.rejected,
    t.reference_block, t.reference_hash, t.expiration_ms, t.made_ms, t.sends, t.created_at, t.broadcast_at,
    t.gas_used::text, t.gas_price::text, t.block_number
FROM attempts AS t
WHERE t.job_id = ANY ($1)
ORDER BY t.job_id, t.number
