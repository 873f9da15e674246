-- $1 attempts, $2 whether a node has it for certain, $3 what was said otherwise
UPDATE attempts AS t SET
    status = CASE WHEN n.in_pool AND t.status = 'signed' THEN 'broadcast' ELSE t.status END,
    sends = t.sends + 1,
    last_error = n.error,
    broadcast_at = coalesce(t.broadcast_at, now()),
    last_sent_at = now()
FROM unnest($1::uuid[], $2::boolean[], $3::text[]) AS n (id, in_pool, error)
WHERE t.id = n.id
