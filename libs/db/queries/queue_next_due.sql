-- $1 queue, $2 ranks. Each branch reads one entry of an index.
SELECT (extract(epoch FROM min(at) - clock_timestamp()) * 1000)::bigint
FROM (
    SELECT (
        SELECT ready.due_at FROM job_ready AS ready
        WHERE ready.queue = (SELECT $1::text) AND ready.rank = known.rank
          AND NOT EXISTS (
              SELECT FROM job_lease AS lease
              WHERE lease.job_id = ready.job_id AND lease.queue IS NOT DISTINCT FROM ready.queue
              OFFSET 0
          )
        ORDER BY ready.due_at, ready.job_id
        LIMIT 1
    ) AS at
    FROM unnest((SELECT $2::smallint[])) AS known (rank)
    UNION ALL
    SELECT (SELECT lease_until FROM job_lease WHERE queue = (SELECT $1::text) ORDER BY lease_until LIMIT 1)
) AS moments
