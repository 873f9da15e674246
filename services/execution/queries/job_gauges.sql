-- $1 chain. A row for every queue and status that is not an end, so that a gauge goes back to zero.
SELECT
    q.queue, s.status,
    count(j.id) AS count,
    coalesce(extract(epoch FROM now() - min(j.created_at))::bigint, 0) AS oldest_s,
    count(j.id) FILTER (WHERE j.blocked_reason IS NOT NULL) AS blocked
FROM unnest(ARRAY['withdrawal', 'consolidation', 'gas']) AS q (queue)
CROSS JOIN unnest(ARRAY['pending', 'processing', 'confirming', 'parked']) AS s (status)
LEFT JOIN jobs AS j
    ON j.queue = q.queue AND j.status = s.status AND j.chain = $1 AND j.finished_at IS NULL
GROUP BY q.queue, s.status
