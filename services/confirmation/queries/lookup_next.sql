-- $1 jobs, $2 their versions, $3 milliseconds until each is looked up again
UPDATE watches AS w
SET check_due_at = clock_timestamp() + n.after_ms * interval '1 millisecond'
FROM unnest($1::uuid[], $2::bigint[], $3::bigint[]) AS n (job_id, version, after_ms)
-- One to which a transaction was added since it was read stays due.
WHERE w.job_id = n.job_id AND w.version = n.version
