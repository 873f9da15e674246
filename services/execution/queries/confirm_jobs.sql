-- $1 jobs, $2 hashes, $3 kinds of attempt, $4 errors, $5 blocked reasons, $6 wanted
UPDATE jobs AS j SET
    status = 'confirming',
    tx_hash = n.hash,
    error = n.error,
    blocked_reason = n.blocked,
    -- A cancellation asked for while a payment was on its way out stays asked for.
    wanted = CASE WHEN j.wanted = 'cancel' AND n.kind = 'pay' THEN 'cancel' ELSE n.wanted END,
    waits = 0,
    processing_since = NULL,
    broadcast_at = coalesce(j.broadcast_at, now()),
    updated_at = now()
FROM unnest($1::uuid[], $2::bytea[], $3::text[], $4::text[], $5::text[], $6::text[])
    AS n (id, hash, kind, error, blocked, wanted)
WHERE j.id = n.id AND j.status IN ('processing', 'confirming')
RETURNING j.id
