-- $1 chain, $2 time of the final block in milliseconds, $3 rows, $4 where the last look ended
SELECT w.job_id
FROM watches AS w
WHERE w.chain = $1
  AND w.status = 'waiting'
  AND ($4::uuid IS NULL OR w.job_id > $4)
  AND NOT EXISTS (
      SELECT FROM watched_transactions AS t
      WHERE t.job_id = w.job_id AND t.round = w.round
        AND (t.expires_at IS NULL OR extract(epoch FROM t.expires_at) * 1000 > $2)
  )
ORDER BY w.job_id
LIMIT $3
