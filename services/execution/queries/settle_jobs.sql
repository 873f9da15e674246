-- $1 jobs, $2 hashes, $3 fees
UPDATE jobs AS j SET
    status = 'confirmed', tx_hash = n.hash, fee_paid_raw = j.fee_paid_raw + n.fee::numeric, reserved = false, error = NULL,
    wanted = NULL, waits = 0, processing_since = NULL, finished_at = now(), updated_at = now()
FROM unnest($1::uuid[], $2::bytea[], $3::text[]) AS n (id, hash, fee)
WHERE j.id = n.id AND j.status = 'confirming'
