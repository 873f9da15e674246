-- $1 queue, $2 how many, $3 where to start; wrapped in SELECT, so that one plan serves all
WITH expired AS (
    DELETE FROM job_lease
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM job_lease
        WHERE queue = (SELECT $1::text)
          AND lease_until <= statement_timestamp() AND lease_until >= (SELECT $3::timestamptz)
        ORDER BY lease_until
        LIMIT (SELECT $2::bigint)
        -- A lease that is locked is being used this moment, by an owner who passed its guard in time.
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING job_id, rank, tries, lapses
), back AS (
    INSERT INTO job_ready (job_id, queue, rank, due_at, tries, lapses)
    SELECT job_id, $1, rank, statement_timestamp(), tries, lapses + 1 FROM expired
    ON CONFLICT (job_id, queue) DO UPDATE
        SET due_at = LEAST(job_ready.due_at, excluded.due_at), rank = GREATEST(job_ready.rank, excluded.rank),
            tries = GREATEST(job_ready.tries, excluded.tries), lapses = GREATEST(job_ready.lapses, excluded.lapses)
    RETURNING 1
)
SELECT count(*) AS moved, statement_timestamp() AS looked_at FROM back
