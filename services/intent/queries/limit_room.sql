-- $1 chains, $2 assets, $3 customers or NULL for all, $4 windows in seconds, $5 most
-- What is left, in the order of the question; below zero when there is too much already. The sum may pass 2^256, so it is
-- taken off here, where numbers have no end. Each branch has an index of its own.
SELECT (asked.most::numeric - CASE WHEN asked.customer IS NULL THEN (
    SELECT coalesce(sum(amount_raw), 0)
    FROM withdrawal_requests
    WHERE chain = asked.chain AND asset = asked.asset AND created_at > now() - asked.seconds * interval '1 second'
      AND status IN ('pending', 'approved', 'queued', 'completed')
) ELSE (
    SELECT coalesce(sum(amount_raw), 0)
    FROM withdrawal_requests
    WHERE user_id = asked.customer AND chain = asked.chain AND asset = asked.asset
      AND created_at > now() - asked.seconds * interval '1 second'
      AND status IN ('pending', 'approved', 'queued', 'completed')
) END)::text
FROM unnest($1::text[], $2::text[], $3::uuid[], $4::bigint[], $5::text[])
     WITH ORDINALITY AS asked (chain, asset, customer, seconds, most, place)
ORDER BY asked.place
