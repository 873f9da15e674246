-- One array for each column; $13 tries allowed, $14 on whose behalf, $15 queue
INSERT INTO jobs (
    id, queue, withdrawal_id, chain, asset_id, wallet_id, to_address, amount_raw, rank, status, max_tries,
    blocked_reason, requested_by, approvals, trace, reserved, on_behalf_of
)
SELECT
    n.id, $15, n.withdrawal_id, n.chain, n.asset_id, n.wallet_id, n.to_address, n.amount::numeric, n.rank,
    'pending', $13, n.blocked, n.requested_by, n.approvals, n.trace, n.wallet_id IS NOT NULL,
    n.on_behalf_of
FROM unnest(
    $1::uuid[], $2::uuid[], $3::text[], $4::uuid[], $5::uuid[], $6::text[], $7::text[], $8::smallint[], $9::text[],
    $10::text[], $11::jsonb[], $12::jsonb[], $14::text[]
) AS n (
    id, withdrawal_id, chain, asset_id, wallet_id, to_address, amount, rank, blocked, requested_by, approvals, trace,
    on_behalf_of
)
