-- $1 name .. $13 revision, in the order of the columns
INSERT INTO chains (
    name, kind, network_id, nodes, finality, depth, dynamic_fees, max_gas_price, max_fee, bump_after_seconds, enabled,
    native_asset, revision
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8::numeric, $9::numeric, $10, $11, $12, $13)
-- What a stored job depends on is left alone even here; the application refuses such a change with words.
ON CONFLICT (name) DO UPDATE SET
    nodes = excluded.nodes, finality = excluded.finality, depth = excluded.depth, dynamic_fees = excluded.dynamic_fees,
    max_gas_price = excluded.max_gas_price, max_fee = excluded.max_fee,
    bump_after_seconds = excluded.bump_after_seconds, enabled = excluded.enabled, revision = excluded.revision,
    updated_at = now()
