-- $1 queue, $2 job ids, $3 tokens
SELECT job_id
FROM job_lease
WHERE job_id = ANY ((SELECT $2::uuid[])::uuid[]) AND queue IS NOT DISTINCT FROM $1 AND token = ANY ($3)
  AND lease_until > clock_timestamp()
ORDER BY job_id
FOR UPDATE
