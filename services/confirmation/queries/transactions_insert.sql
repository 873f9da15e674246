-- One array for each column
INSERT INTO watched_transactions
    (chain, hash, job_id, round, position, is_cancellation, nonce, expires_at, reference_block, proven, effect)
SELECT * FROM unnest(
    $1::text[], $2::bytea[], $3::uuid[], $4::integer[], $5::integer[], $6::boolean[], $7::bigint[], $8::timestamptz[],
    $9::bigint[], $10::boolean[], $11::jsonb[]
)
