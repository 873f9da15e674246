-- $1 chain or NULL, $2 address or NULL, $3 open nonces shown at most
SELECT
    l.chain, l.address, l.next_nonce, l.halted_reason,
    -- Everything below the lowest nonce that is not closed is final. A spent one has no verdict of ours; the chain has passed
    -- it once a node counts more transactions.
    coalesce(
        (SELECT min(n.nonce) FROM lane_nonces AS n
         WHERE n.chain = l.chain AND n.address = l.address AND n.state <> 'closed'
           AND NOT (n.state = 'spent' AND n.nonce < l.mined_seen)),
        l.next_nonce
    ) AS final_nonce,
    ARRAY(
        SELECT n.nonce FROM lane_nonces AS n
        WHERE n.chain = l.chain AND n.address = l.address AND n.state = 'spent'
        ORDER BY n.nonce DESC LIMIT $3
    ) AS spent_nonces,
    ARRAY(
        SELECT n.nonce FROM lane_nonces AS n
        WHERE n.chain = l.chain AND n.address = l.address AND n.state = 'open'
        ORDER BY n.nonce LIMIT $3
    ) AS open_nonces
FROM lanes AS l
WHERE ($1::text IS NULL OR l.chain = $1) AND ($2::text IS NULL OR l.address = $2)
ORDER BY l.chain, l.address
