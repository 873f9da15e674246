-- $1 queue
SELECT
    ready.due, ready.future, leased.live, leased.expired,
    CASE WHEN ready.oldest <= statement_timestamp()
         THEN (extract(epoch FROM statement_timestamp() - ready.oldest) * 1000)::bigint END AS oldest_due_ms
FROM (
    SELECT
        count(*) FILTER (WHERE due_at <= statement_timestamp()) AS due,
        count(*) FILTER (WHERE due_at > statement_timestamp()) AS future,
        min(due_at) AS oldest
    FROM job_ready WHERE queue = $1
) AS ready,
(
    SELECT
        count(*) FILTER (WHERE lease_until > statement_timestamp()) AS live,
        count(*) FILTER (WHERE lease_until <= statement_timestamp()) AS expired
    FROM job_lease WHERE queue = $1
) AS leased
