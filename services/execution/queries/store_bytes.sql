-- $1 attempts, $2 bytes, $3 hashes
UPDATE attempts AS t
SET raw_transaction = n.raw, tx_hash = n.hash, status = 'signed', signed_at = now()
FROM unnest($1::uuid[], $2::bytea[], $3::bytea[]) AS n (id, raw, hash)
JOIN attempts AS own ON own.id = n.id
JOIN jobs AS j ON j.id = own.job_id
WHERE t.id = n.id AND t.status = 'reserved'
  -- Bytes of a job that ended or was given up meanwhile are not to be sent, so they are not stored.
  AND j.status IN ('processing', 'confirming')
  -- With a window they are stored all the same: only a known hash can be watched until it has expired.
  AND (t.kind = 'cancel' OR t.expiration_ms IS NOT NULL OR j.cancel_reason IS NULL)
RETURNING t.id, j.cancel_reason IS NOT NULL
