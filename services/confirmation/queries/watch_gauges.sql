-- $1 chain
SELECT
    status,
    count(*)::float8 AS count,
    extract(epoch FROM now() - min(created_at))::float8 AS oldest_seconds,
    (count(*) FILTER (WHERE delayed_reason <> ''))::float8 AS delayed
FROM watches
WHERE chain = $1 AND status IN ('waiting', 'included')
GROUP BY status
