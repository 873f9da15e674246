-- $1 attempts, $2 whether a node has it for certain, $3 what was said otherwise, $4 whether all refused it for good (NULL: no
-- certain answer, so what was known stays)
UPDATE attempts AS t SET
    status = CASE WHEN n.in_pool AND t.status = 'signed' THEN 'broadcast' ELSE t.status END,
    sends = t.sends + 1,
    last_error = n.error,
    rejected = coalesce(n.rejected, t.rejected),
    broadcast_at = coalesce(t.broadcast_at, now()),
    last_sent_at = now()
FROM unnest($1::uuid[], $2::boolean[], $3::text[], $4::boolean[]) AS n (id, in_pool, error, rejected)
WHERE t.id = n.id
