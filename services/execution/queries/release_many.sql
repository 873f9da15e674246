-- $1 wallets, $2 assets, $3 amounts, $4 blocks in which they left
WITH n AS (
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::bigint[]) AS n (wallet_id, asset_id, amount, block_number)
), locked AS MATERIALIZED (
    -- In the order in which everybody locks holdings, so that nobody waits in a circle.
    SELECT wallet_id, asset_id, block_number FROM wallet_holdings
    WHERE (wallet_id, asset_id) IN (SELECT wallet_id, asset_id FROM n)
    ORDER BY wallet_id, asset_id
    FOR UPDATE
), gone AS (
    SELECT
        h.wallet_id, h.asset_id,
        sum(n.amount::numeric) AS reserved,
        -- A balance that was read in a later block has lost it already.
        coalesce(sum(n.amount::numeric) FILTER (WHERE n.block_number > h.block_number), 0) AS spent
    FROM n JOIN locked AS h USING (wallet_id, asset_id)
    GROUP BY h.wallet_id, h.asset_id
)
UPDATE wallet_holdings AS h
SET reserved_raw = h.reserved_raw - gone.reserved, balance_raw = GREATEST(h.balance_raw - gone.spent, 0)
FROM gone
WHERE h.wallet_id = gone.wallet_id AND h.asset_id = gone.asset_id
