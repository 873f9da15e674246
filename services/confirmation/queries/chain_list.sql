-- $1 name, or null for all
SELECT name, kind, network_id, nodes, depth, stuck_after_seconds, revision
FROM chains
WHERE $1::text IS NULL OR name = $1
ORDER BY name
