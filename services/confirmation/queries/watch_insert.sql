-- $1 job, $2 withdrawal, $3 chain, $4 from, $5 to, $6 amount, $7 contract, $8 trace
INSERT INTO watches (
    job_id, withdrawal_id, chain, from_address, to_address, amount_raw, contract_address, trace,
    since_block, status, waiting_since, check_due_at
)
SELECT
    $1, $2, $3, $4, $5, $6::numeric, $7, $8,
    coalesce((SELECT final_number FROM chain_loops WHERE chain = $3), 0), 'waiting', now(), now()
-- Two requests for one job at once: the second waits here and then finds the first one's row.
ON CONFLICT (job_id) DO NOTHING
