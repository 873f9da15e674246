-- Own tables whose file is more than twice as large as the planner's statistics say. Sixteen pages more are always allowed:
-- below that a full read costs nothing.
SELECT class.oid::regclass::text
FROM pg_class AS class
WHERE class.relkind = 'r' AND class.relpersistence = 'p'
  AND pg_has_role(class.relowner, 'USAGE')
  AND class.relnamespace <> ALL (ARRAY['pg_catalog', 'information_schema']::regnamespace[])
  AND pg_relation_size(class.oid) > (2 * class.relpages::bigint + 16) * current_setting('block_size')::bigint
