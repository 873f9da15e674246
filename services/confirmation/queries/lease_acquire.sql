-- $1 chain, $2 owner, $3 milliseconds
UPDATE chain_loops
SET lease_owner = $2,
    lease_token = lease_token + 1,
    lease_until = clock_timestamp() + $3 * interval '1 millisecond'
WHERE chain = $1
  -- A process that was restarted need not wait for itself: whatever is left of it has the older token.
  AND (lease_until IS NULL OR lease_until <= clock_timestamp() OR lease_owner = $2)
RETURNING lease_token
