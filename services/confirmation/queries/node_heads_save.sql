-- $1 chain, $2 nodes, $3 numbers, $4 hashes, $5 problems
INSERT INTO node_heads AS n (chain, node, number, hash, problem, seen_at)
SELECT $1, node, number, hash, problem, now()
FROM unnest($2::text[], $3::bigint[], $4::bytea[], $5::text[]) AS seen (node, number, hash, problem)
ON CONFLICT (chain, node) DO UPDATE SET
    number = EXCLUDED.number, hash = EXCLUDED.hash, problem = EXCLUDED.problem, seen_at = EXCLUDED.seen_at
