-- $1 request, $2 approver, $3 reason
INSERT INTO approval_refusals AS known (request_id, approver, reason, times, first_at, last_at)
VALUES ($1, $2, $3, 1, now(), now())
ON CONFLICT ON CONSTRAINT approval_refusals_pkey DO UPDATE SET times = known.times + 1, last_at = excluded.last_at
RETURNING times
