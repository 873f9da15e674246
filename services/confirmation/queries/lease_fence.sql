-- $1 chain, $2 token, $3 milliseconds
UPDATE chain_loops
SET lease_until = clock_timestamp() + $3 * interval '1 millisecond'
WHERE chain = $1 AND lease_token = $2 AND lease_until > clock_timestamp()
RETURNING now() AS now, final_number, final_hash, halted_reason
