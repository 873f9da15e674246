-- $1 window in seconds
SELECT
    (SELECT count(*) FROM jobs
     WHERE finished_at IS NULL AND status = 'processing' AND processing_since < now() - interval '5 minutes') AS stuck,
    coalesce((10000 * sum(greatest(j.tries, 0)) / nullif(count(*), 0))::bigint, 0) AS retry_rate,
    (1000 * extract(epoch FROM avg(j.finished_at - j.broadcast_at) FILTER (WHERE j.status = 'confirmed')))::bigint
        AS confirmation_ms,
    coalesce((
        SELECT round(avg(t.gas_used)) FROM attempts AS t JOIN jobs AS own ON own.id = t.job_id
        WHERE t.status = 'settled' AND own.status = 'confirmed' AND own.created_at >= now() - $1 * interval '1 s'
    ), 0)::numeric(78,0)::text AS average_gas
FROM jobs AS j
WHERE j.created_at >= now() - $1 * interval '1 s'
