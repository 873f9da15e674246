-- $1 queue, $2 job ids, $3 tokens, $4 lease in milliseconds
UPDATE job_lease
SET lease_until = clock_timestamp() + $4 * interval '1 ms'
WHERE job_id = ANY ((SELECT $2::uuid[])::uuid[]) AND queue IS NOT DISTINCT FROM $1 AND token = ANY ($3)
  AND lease_until > clock_timestamp()
RETURNING job_id, lease_until
