-- $1 name, $2 kind, $3 network id, $4 nodes, $5 depth, $6 stuck after, $7 revision
INSERT INTO chains AS c (name, kind, network_id, nodes, depth, stuck_after_seconds, revision)
VALUES ($1, $2, $3, $4, $5, $6, $7)
ON CONFLICT (name) DO UPDATE SET
    nodes = EXCLUDED.nodes,
    depth = EXCLUDED.depth,
    stuck_after_seconds = EXCLUDED.stuck_after_seconds,
    revision = EXCLUDED.revision,
    updated_at = now()
-- Messages may overtake each other; only a newer one counts.
WHERE c.revision < EXCLUDED.revision
    -- Another network is another chain: what is stored of this one would make no sense there.
    AND c.kind = EXCLUDED.kind AND c.network_id = EXCLUDED.network_id
