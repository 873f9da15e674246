-- $1 window in seconds
SELECT
    (SELECT count(*) FROM withdrawal_requests WHERE status = 'pending') AS pending_approvals,
    approved.average_ms AS approval_ms,
    finished.average_ms AS completion_ms,
    finished.completed,
    finished.total AS finished
FROM (
    SELECT (extract(epoch FROM avg(approved_at - created_at)) * 1000)::bigint AS average_ms
    FROM withdrawal_requests
    WHERE approved_at > now() - $1 * interval '1 second'
) AS approved,
(
    SELECT (extract(epoch FROM avg(finished_at - approved_at) FILTER (WHERE status = 'completed')) * 1000)::bigint
               AS average_ms,
           count(*) FILTER (WHERE status = 'completed') AS completed,
           count(*) AS total
    FROM withdrawal_requests
    WHERE finished_at > now() - $1 * interval '1 second'
) AS finished
