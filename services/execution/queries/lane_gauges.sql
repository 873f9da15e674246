-- A row for every chain, so that a gauge goes back to zero.
SELECT
    c.name AS chain,
    coalesce(l.halted, 0) AS halted,
    coalesce(l.foreign_seen, 0) AS foreign_seen,
    coalesce(s.spent, 0) AS spent
FROM chains AS c
LEFT JOIN (
    SELECT chain, count(*) FILTER (WHERE halted_reason IS NOT NULL) AS halted, sum(foreign_seen)::bigint AS foreign_seen
    FROM lanes GROUP BY chain
) AS l ON l.chain = c.name
LEFT JOIN (
    -- Those the chain has not passed: whatever is numbered above waits for a transaction we do not have.
    SELECT n.chain, count(*) AS spent
    FROM lane_nonces AS n JOIN lanes AS l USING (chain, address)
    WHERE n.state = 'spent' AND n.nonce >= l.mined_seen
    GROUP BY n.chain
) AS s ON s.chain = c.name
