-- $1 chain, $2 asset, $3 customer or NULL for all, $4 window in seconds, $5 most
-- The sum may pass 2^256, so it is compared here, where numbers have no end. Each branch has an index of its own.
SELECT CASE WHEN $3::uuid IS NULL THEN (
    SELECT coalesce(sum(amount_raw), 0)
    FROM withdrawal_requests
    WHERE chain = $1 AND asset = $2 AND created_at > now() - $4 * interval '1 second'
      AND status IN ('pending', 'approved', 'queued', 'completed')
) ELSE (
    SELECT coalesce(sum(amount_raw), 0)
    FROM withdrawal_requests
    WHERE user_id = $3 AND chain = $1 AND asset = $2 AND created_at > now() - $4 * interval '1 second'
      AND status IN ('pending', 'approved', 'queued', 'completed')
) END > $5::numeric
