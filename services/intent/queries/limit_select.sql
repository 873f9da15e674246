-- $1 chains, $2 assets; NULL for all
SELECT id, scope, chain, asset, window_seconds, max_amount_raw::text AS max_amount_raw, decimals
FROM limits
WHERE $1::text[] IS NULL OR (chain, asset) IN (SELECT * FROM unnest($1::text[], $2::text[]))
ORDER BY chain, asset, scope, window_seconds
