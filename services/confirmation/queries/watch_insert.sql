-- One array for each column: $1 jobs, $2 withdrawals, $3 chains, $4 from, $5 to, $6 amounts, $7 contracts, $8 traces, $9 effects that are no transfers
INSERT INTO watches (
    job_id, withdrawal_id, chain, from_address, to_address, amount_raw, contract_address, trace, effect,
    since_block, status, waiting_since, check_due_at
)
SELECT
    n.job_id, n.withdrawal_id, n.chain, n.from_address, n.to_address, n.amount::numeric, n.contract_address, n.trace, n.effect,
    coalesce((SELECT final_number FROM chain_loops AS l WHERE l.chain = n.chain), 0), 'waiting', now(), now()
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[], $8::jsonb[], $9::jsonb[])
    AS n (job_id, withdrawal_id, chain, from_address, to_address, amount, contract_address, trace, effect)
-- Two requests for one job at once: the second waits here and then finds the first one's row. In one order always, so that
-- two of these never wait for each other in a circle.
ORDER BY n.job_id
ON CONFLICT (job_id) DO NOTHING
RETURNING job_id
