-- $1 chain, $2 address, $3 the chain's next nonce, $4 pause in milliseconds, $5 how many, $6 time of the newest block
SELECT id, job_id, raw_transaction, tx_hash, blocked FROM (
    SELECT DISTINCT ON (n.nonce)
        t.id, t.job_id, t.raw_transaction, t.tx_hash, t.last_sent_at, n.nonce, j.blocked_reason IS NOT NULL AS blocked
    FROM lane_nonces AS n
    JOIN jobs AS j ON j.id = n.job_id
    JOIN attempts AS t ON t.job_id = n.job_id AND t.nonce = n.nonce
    WHERE n.chain = $1 AND n.address = $2 AND n.nonce >= $3 AND n.state = 'open'
      -- Whoever stopped for a person is sent all the same, so that the nonces above are not jammed; but not beside a payment that
      -- was ruled out and may come back.
      AND (j.status = 'confirming' OR (j.status = 'parked' AND NOT EXISTS (
          SELECT FROM verdicts AS v WHERE v.job_id = j.id AND v.finding = 'contradicted'
      )))
      AND t.status IN ('signed', 'broadcast') AND t.raw_transaction IS NOT NULL
      -- After its expiration nobody takes it, and what is given up is only watched until then.
      AND (t.expiration_ms IS NULL OR (t.expiration_ms > $6 AND j.cancel_reason IS NULL))
    ORDER BY n.nonce, t.number DESC
) AS newest
WHERE last_sent_at IS NULL OR last_sent_at < now() - $4 * interval '1 ms'
ORDER BY nonce
LIMIT $5
