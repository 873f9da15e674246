-- $1 requests, $2 sequences, $3 froms, $4 tos, $5 actors, $6 details, $7 when, $8 topic of the watchers
WITH added AS (
    INSERT INTO transitions (request_id, sequence, from_status, to_status, actor, detail, at)
    SELECT * FROM unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[], $7::timestamptz[])
    RETURNING 1
)
SELECT
    count(*) AS added,
    -- Commits that notify wait for each other on the whole server. Watchers therefore hold a shared lock on the topic while they
    -- wait for a notification, and only then one is sent.
    CASE WHEN pg_try_advisory_lock(1114993267, hashtext($8)) THEN pg_advisory_unlock(1114993267, hashtext($8))::text
         ELSE pg_notify('bursar_wake', $8)::text
    END AS wake
FROM added
