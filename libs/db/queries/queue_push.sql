-- $1 queue, $2 job ids, $3 ranks, $4 delays in milliseconds
WITH pushed AS (
    INSERT INTO job_ready (job_id, queue, rank, due_at)
    SELECT n.job_id, $1, n.rank, statement_timestamp() + n.delay_ms * interval '1 ms'
    FROM unnest($2::uuid[], $3::smallint[], $4::bigint[]) AS n (job_id, rank, delay_ms)
    -- A job that waits already becomes no later and no less urgent; its tries stay.
    ON CONFLICT (job_id, queue) DO UPDATE
        SET due_at = LEAST(job_ready.due_at, excluded.due_at), rank = GREATEST(job_ready.rank, excluded.rank)
    RETURNING due_at <= statement_timestamp() AS due, xmax = 0 AS fresh
)
SELECT
    count(*) FILTER (WHERE fresh) AS fresh,
    -- NOTIFY makes commits queue up behind each other, on the whole server, until their flush is done. So it is sent only
    -- when somebody waits, which waiting processes announce by a shared lock on the queue's name.
    CASE
        WHEN NOT coalesce(bool_or(due), false) THEN NULL
        WHEN pg_try_advisory_lock(1114993267, hashtext($1)) THEN pg_advisory_unlock(1114993267, hashtext($1))::text
        ELSE pg_notify('bursar_wake', $1)::text
    END AS wake
FROM pushed
