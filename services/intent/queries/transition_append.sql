-- $1 request, $2 first sequence, $3 froms, $4 tos, $5 actor, $6 details, $7 when, $8 topic of the watchers
WITH added AS (
    INSERT INTO transitions (request_id, sequence, from_status, to_status, actor, detail, at)
    SELECT $1, $2 + step.place - 1, step.from_status, step.to_status, $5, step.detail, $7
    FROM unnest($3::text[], $4::text[], $6::text[]) WITH ORDINALITY AS step (from_status, to_status, detail, place)
    RETURNING 1
)
SELECT
    count(*) AS added,
    -- Commits that notify queue up behind each other on the whole server, so watchers show by a shared lock on the topic
    -- that they sleep; only then are they called.
    CASE WHEN pg_try_advisory_lock(1114993267, hashtext($8)) THEN pg_advisory_unlock(1114993267, hashtext($8))::text
         ELSE pg_notify('bursar_wake', $8)::text
    END AS wake
FROM added
