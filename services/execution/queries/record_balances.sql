-- $1 wallet ids, $2 asset ids, $3 balances, $4 the block before which the chain was certainly read
WITH before AS (
    SELECT h.wallet_id, h.asset_id, h.balance_raw AS known, n.balance::numeric AS balance
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS n (wallet_id, asset_id, balance)
    JOIN wallet_holdings AS h USING (wallet_id, asset_id)
    -- An answer from a node that lags must not undo a newer one. One that nobody has come up to for a minute was never newer:
    -- some node named a block that did not exist, and to wait for it would stop balances until the chain has grown as far.
    WHERE h.block_number <= $4 OR h.refreshed_at < now() - interval '1 minute'
    ORDER BY h.wallet_id, h.asset_id
    FOR UPDATE OF h
), written AS (
    UPDATE wallet_holdings AS h
    SET balance_raw = before.balance, block_number = $4, refreshed_at = now()
    FROM before
    WHERE h.wallet_id = before.wallet_id AND h.asset_id = before.asset_id
    RETURNING h.asset_id, before.balance > before.known AS grew
)
SELECT DISTINCT asset_id FROM written WHERE grew
