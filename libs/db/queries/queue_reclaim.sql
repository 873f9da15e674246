-- $1 queue, $2 how many
WITH expired AS (
    DELETE FROM job_lease
    WHERE ctid = ANY (ARRAY(
        SELECT ctid
        FROM job_lease
        WHERE queue = $1 AND lease_until <= statement_timestamp()
        ORDER BY lease_until
        LIMIT $2
        -- A lease that is locked is being used this moment, by an owner who passed its guard in time.
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING job_id, rank, tries, lapses
)
INSERT INTO job_ready (job_id, queue, rank, due_at, tries, lapses)
SELECT job_id, $1, rank, statement_timestamp(), tries, lapses + 1 FROM expired
ON CONFLICT (job_id, queue) DO UPDATE
    SET due_at = LEAST(job_ready.due_at, excluded.due_at), rank = GREATEST(job_ready.rank, excluded.rank),
        tries = GREATEST(job_ready.tries, excluded.tries), lapses = GREATEST(job_ready.lapses, excluded.lapses)
