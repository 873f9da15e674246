-- $1 requests, $2 approvers, $3 reasons, $4 how many more
INSERT INTO approval_refusals AS known (request_id, approver, reason, times, first_at, last_at)
SELECT request, approver, reason, more, now(), now()
FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bigint[]) AS refused (request, approver, reason, more)
ON CONFLICT ON CONSTRAINT approval_refusals_pkey
    DO UPDATE SET times = known.times + excluded.times, last_at = excluded.last_at
