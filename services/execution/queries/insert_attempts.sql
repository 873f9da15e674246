-- One array for each column; $11 chain, $12 reference block (0: that of the attempt before), $13 to $15 windows
INSERT INTO attempts (
    id, job_id, number, kind, status, chain, address, nonce, gas_limit, max_fee_per_gas, max_priority_fee_per_gas,
    void_proof, reference_block, reference_hash, expiration_ms, made_ms, price_kind
)
SELECT
    n.id, n.job_id, n.number, n.kind, 'reserved', $11, n.address, n.nonce, n.gas_limit, n.max_fee::numeric,
    n.max_tip::numeric, n.void_proof,
    CASE WHEN $12 > 0 THEN $12 ELSE coalesce(
        (SELECT min(t.reference_block) FROM attempts AS t WHERE t.job_id = n.job_id AND t.nonce = n.nonce), 0
    ) END,
    n.reference_hash, n.expiration_ms, n.made_ms, n.price_kind
FROM unnest(
    $1::uuid[], $2::uuid[], $3::integer[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[], $9::text[],
    $10::jsonb[], $13::bytea[], $14::bigint[], $15::bigint[], $16::text[]
) AS n (
    id, job_id, number, kind, address, nonce, gas_limit, max_fee, max_tip, void_proof, reference_hash, expiration_ms,
    made_ms, price_kind
)
