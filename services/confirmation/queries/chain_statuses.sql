SELECT l.chain, l.final_number, l.halted_reason, h.number, h.hash
FROM chain_loops AS l
LEFT JOIN LATERAL (
    SELECT number, hash FROM heads WHERE heads.chain = l.chain ORDER BY number DESC LIMIT 1
) AS h ON true
ORDER BY l.chain
