-- $1 chain, $2 address
-- What nodes once counted is forgotten, because it may never have been so; the next look at the chain raises it again. What
-- was handed out, and what is final, stays: below those no nonce is free.
UPDATE lanes AS l
SET halted_reason = NULL, halted_at = NULL, updated_at = now(),
    next_nonce = given.next, mined_seen = given.final,
    -- Those it learns of again count once.
    foreign_seen = GREATEST(l.foreign_seen - (l.next_nonce - given.next), 0)
FROM (
    SELECT
        coalesce(max(nonce) + 1, 0) AS next,
        coalesce(max(nonce) FILTER (WHERE state = 'closed') + 1, 0) AS final
    FROM lane_nonces WHERE chain = $1 AND address = $2
) AS given
WHERE l.chain = $1 AND l.address = $2
