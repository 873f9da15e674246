-- $1 chains, $2 assets, $3 customers or NULL for all, $4 windows in seconds, $5 most
-- What is left, in the order of the parameters; below zero when the limit is already exceeded. The sum may exceed 2^256, so it
-- is subtracted here, where numbers are unbounded. The hour in which a window begins is added up from its requests; the hours
-- after it are stored as sums. Both are read in one statement and so at one moment. Each part has an index of its own.
SELECT (asked.most::numeric - CASE WHEN asked.customer IS NULL THEN (
    SELECT coalesce(sum(amount_raw), 0)
    FROM limit_usage_of_assets
    WHERE chain = asked.chain AND asset = asked.asset AND hour >= edge.full_from
) + (
    SELECT coalesce(sum(amount_raw), 0)
    FROM withdrawal_requests
    WHERE chain = asked.chain AND asset = asked.asset AND created_at > edge.begins AND created_at < edge.full_from
      AND status IN ('pending', 'approved', 'queued', 'completed')
) ELSE (
    SELECT coalesce(sum(amount_raw), 0)
    FROM limit_usage_of_users
    WHERE user_id = asked.customer AND chain = asked.chain AND asset = asked.asset AND hour >= edge.full_from
) + (
    SELECT coalesce(sum(amount_raw), 0)
    FROM withdrawal_requests
    WHERE user_id = asked.customer AND chain = asked.chain AND asset = asked.asset
      AND created_at > edge.begins AND created_at < edge.full_from
      AND status IN ('pending', 'approved', 'queued', 'completed')
) END)::text
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[], $5::text[])
     WITH ORDINALITY AS asked (chain, asset, customer, seconds, most, place)
CROSS JOIN LATERAL (
    SELECT now() - asked.seconds * interval '1 second' AS begins,
           date_bin('1 hour', now() - asked.seconds * interval '1 second', timestamptz 'epoch') + interval '1 hour'
               AS full_from
) AS edge
ORDER BY asked.place
