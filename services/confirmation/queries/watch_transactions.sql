-- $1 jobs
SELECT job_id, hash, is_cancellation, effect, nonce, expires_at, reference_block, proven, round
FROM watched_transactions
WHERE job_id = ANY($1)
ORDER BY job_id, position
