-- $1 queue, $2 job id, $3 token, $4 delay in milliseconds, $5 tries to add
WITH given_back AS (
    DELETE FROM job_lease
    WHERE job_id = $2 AND queue IS NOT DISTINCT FROM $1 AND token = $3 AND lease_until > clock_timestamp()
    RETURNING job_id, rank, tries, lapses
), ready AS (
    INSERT INTO job_ready (job_id, queue, rank, due_at, tries, lapses)
    SELECT job_id, $1, rank, statement_timestamp() + $4 * interval '1 ms', tries + $5, lapses FROM given_back
    ON CONFLICT (job_id, queue) DO UPDATE
        SET due_at = LEAST(job_ready.due_at, excluded.due_at), rank = GREATEST(job_ready.rank, excluded.rank),
            tries = GREATEST(job_ready.tries, excluded.tries), lapses = GREATEST(job_ready.lapses, excluded.lapses)
    RETURNING tries, due_at <= statement_timestamp() AS due
)
SELECT
    tries,
    CASE
        WHEN NOT due THEN NULL
        WHEN pg_try_advisory_lock(1114993267, hashtext($1)) THEN pg_advisory_unlock(1114993267, hashtext($1))::text
        ELSE pg_notify('bursar_wake', $1)::text
    END AS wake
FROM ready
