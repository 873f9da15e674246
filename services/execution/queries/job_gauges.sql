-- $1 queues. A row for every chain, queue and status that is not an end, so that a gauge goes back to zero.
SELECT
    c.name AS chain, q.queue, s.status,
    coalesce(j.count, 0) AS count,
    coalesce(extract(epoch FROM now() - j.oldest)::bigint, 0) AS oldest_s,
    coalesce(j.blocked, 0) AS blocked
FROM chains AS c
CROSS JOIN unnest($1::text[]) AS q (queue)
CROSS JOIN unnest(ARRAY['pending', 'processing', 'confirming', 'parked']) AS s (status)
LEFT JOIN (
    SELECT
        chain, queue, status, count(*) AS count, min(created_at) AS oldest,
        count(*) FILTER (WHERE blocked_reason IS NOT NULL) AS blocked
    FROM jobs WHERE finished_at IS NULL
    GROUP BY chain, queue, status
) AS j ON j.chain = c.name AND j.queue = q.queue AND j.status = s.status
