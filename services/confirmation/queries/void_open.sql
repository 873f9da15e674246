-- $1 chain, $2 sender, $3 the lowest nonce that is open, $4 the final block as of which it is
UPDATE watches
SET since_block = greatest(since_block, $4),
    delayed_reason = '',
    version = version + CASE WHEN delayed_reason = '' THEN 0 ELSE 1 END
WHERE chain = $1 AND from_address = $2 AND status = 'waiting' AND nonce >= $3
  AND (since_block < $4 OR delayed_reason <> '')
