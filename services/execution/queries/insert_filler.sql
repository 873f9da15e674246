-- $1 job, $2 chain, $3 address, $4 reason, $5 rank. Pays nobody: it is given up from the start, and its amount is a mere unit.
INSERT INTO jobs (
    id, queue, chain, asset_id, wallet_id, to_address, amount_raw, rank, status, max_tries, requested_by, approvals, wanted,
    cancel_reason, filler
)
SELECT $1, 'consolidation', $2, a.id, w.id, w.address, 1, $5, 'pending', 1000, 'lane repair', '[]', 'cancel', $4, true
FROM operation_wallets AS w
JOIN assets AS a ON a.chain = w.chain AND a.is_native
WHERE w.chain = $2 AND w.address = $3
