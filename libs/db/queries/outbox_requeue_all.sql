WITH freed AS (
    UPDATE outbox_lane
    SET parked_at = NULL, last_error = NULL, tries = 0, due_at = statement_timestamp()
    WHERE parked_at IS NOT NULL
    RETURNING 1
)
SELECT
    count(*) AS lanes,
    CASE
        WHEN pg_try_advisory_lock(1114993267, hashtext('outbox')) THEN pg_advisory_unlock(1114993267, hashtext('outbox'))::text
        ELSE pg_notify('bursar_wake', 'outbox')::text
    END AS wake
FROM freed
