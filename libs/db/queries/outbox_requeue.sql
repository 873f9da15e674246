-- $1 the message at the head of a parked lane
WITH freed AS (
    UPDATE outbox_lane AS lane
    SET parked_at = NULL, last_error = NULL, tries = 0, due_at = statement_timestamp()
    WHERE lane.parked_at IS NOT NULL
      AND lane.aggregate = (SELECT aggregate FROM outbox WHERE message_id = $1)
    RETURNING aggregate
)
SELECT
    aggregate,
    CASE
        WHEN pg_try_advisory_lock(1114993267, hashtext('outbox')) THEN pg_advisory_unlock(1114993267, hashtext('outbox'))::text
        ELSE pg_notify('bursar_wake', 'outbox')::text
    END AS wake
FROM freed
