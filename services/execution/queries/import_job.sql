-- $1 job, $2 withdrawal, $3 chain, $4 asset, $5 wallet, $6 destination, $7 amount, $8 rank, $9 tries allowed, $10 hash,
-- $11 when the other system created it, $12 attempt, $13 payer
WITH job AS (
    INSERT INTO jobs (
        id, queue, withdrawal_id, chain, asset_id, wallet_id, to_address, amount_raw, rank, status, max_tries, tx_hash,
        requested_by, approvals, imported, created_at, broadcast_at
    )
    VALUES (
        $1, 'withdrawal', $2, $3, $4, $5, $6, $7::numeric, $8, 'confirming', $9, $10, 'import', '[]', true, $11, now()
    )
)
INSERT INTO attempts (id, job_id, number, kind, status, chain, address, tx_hash, broadcast_at)
VALUES ($12, $1, 1, 'pay', 'broadcast', $3, $13, $10, now())
