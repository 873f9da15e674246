-- $1 id if new, $2 scope, $3 chain, $4 asset, $5 window in seconds, $6 most, $7 decimals, $8 by whom
INSERT INTO limits (id, scope, chain, asset, window_seconds, max_amount_raw, decimals, updated_by, updated_at)
VALUES ($1, $2, $3, $4, $5, $6::numeric, $7, $8, now())
ON CONFLICT ON CONSTRAINT limits_one_per_window DO UPDATE SET
    max_amount_raw = excluded.max_amount_raw, decimals = excluded.decimals, updated_by = excluded.updated_by,
    updated_at = excluded.updated_at
RETURNING id
