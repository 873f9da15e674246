-- $1 chains, $2 assets; NULL for all
SELECT policy.chain, policy.asset, policy.decimals, policy.approvers,
       tier.from_amount_raw::text AS from_amount_raw, tier.required_approvals
FROM approval_policies AS policy
JOIN approval_tiers AS tier ON tier.chain = policy.chain AND tier.asset = policy.asset
WHERE $1::text[] IS NULL OR (policy.chain, policy.asset) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY policy.chain, policy.asset, tier.from_amount_raw
