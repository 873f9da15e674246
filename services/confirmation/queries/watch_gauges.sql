-- A row for every chain and open status, so that a gauge goes back to zero.
SELECT
    c.name AS chain, s.status, l.halted_at IS NOT NULL AS halted,
    coalesce(w.count, 0)::float8 AS count,
    coalesce(extract(epoch FROM now() - w.oldest), 0)::float8 AS oldest_seconds,
    coalesce(w.delayed, 0)::float8 AS delayed
FROM chains AS c
CROSS JOIN unnest(ARRAY['waiting', 'included']) AS s (status)
LEFT JOIN chain_loops AS l ON l.chain = c.name
LEFT JOIN (
    SELECT
        chain, status, count(*) AS count, min(created_at) AS oldest,
        count(*) FILTER (WHERE delayed_reason <> '') AS delayed
    FROM watches WHERE status IN ('waiting', 'included')
    GROUP BY chain, status
) AS w ON w.chain = c.name AND w.status = s.status
