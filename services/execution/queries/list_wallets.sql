-- $1 chain or NULL, $2 role or NULL, $3 address or NULL
SELECT
    w.id, w.chain, w.address, w.role, w.status, w.wallet_group_id, w.derivation_index, w.label, w.last_used_at, c.kind,
    a.symbol, a.decimals, h.balance_raw::text, h.reserved_raw::text, h.block_number
FROM operation_wallets AS w
JOIN chains AS c ON c.name = w.chain
LEFT JOIN wallet_holdings AS h ON h.wallet_id = w.id
LEFT JOIN assets AS a ON a.id = h.asset_id
WHERE ($1::text IS NULL OR w.chain = $1)
  AND ($2::text IS NULL OR w.role = $2)
  AND ($3::text IS NULL OR w.address = $3)
ORDER BY w.chain, w.role, w.id, a.symbol
