-- $1 chain, $2 owner, $3 milliseconds
UPDATE chain_loops
SET lease_owner = $2,
    lease_token = lease_token + 1,
    lease_until = clock_timestamp() + $3 * interval '1 millisecond'
WHERE chain = $1 AND (lease_until IS NULL OR lease_until <= clock_timestamp())
RETURNING lease_token
