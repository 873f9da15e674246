-- $1 jobs, $2 hashes, $3 gas used, $4 gas prices, $5 blocks. The winner gets its receipt, everybody else can never land.
WITH n AS (
    SELECT * FROM unnest($1::uuid[], $2::bytea[], $3::text[], $4::text[], $5::bigint[])
        AS n (job_id, hash, gas_used, gas_price, block_number)
), won AS (
    UPDATE attempts AS t
    SET status = 'settled', gas_used = n.gas_used::numeric, gas_price = n.gas_price::numeric, block_number = n.block_number
    FROM n WHERE t.job_id = n.job_id AND t.tx_hash = n.hash
)
UPDATE attempts AS t SET status = 'void'
FROM n
WHERE t.job_id = n.job_id AND t.tx_hash IS DISTINCT FROM n.hash AND t.status IN ('reserved', 'signed', 'broadcast')
