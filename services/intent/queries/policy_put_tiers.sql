-- $1 chain, $2 asset, $3 from amounts, $4 required approvals
INSERT INTO approval_tiers (chain, asset, from_amount_raw, required_approvals)
SELECT $1, $2, tier.from_amount::numeric, tier.required
FROM unnest($3::text[], $4::integer[]) AS tier (from_amount, required)
