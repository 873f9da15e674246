-- $1 aggregate, $2 message id, $3 topic, $4 payload, $5 trace
WITH lane AS (
    INSERT INTO outbox_lane (aggregate, last_id, due_at)
    VALUES ($1, nextval('outbox_id'), statement_timestamp())
    -- The number is drawn anew here, under the row's lock: among writers of one aggregate numbers follow commits.
    ON CONFLICT (aggregate) DO UPDATE SET last_id = nextval('outbox_id')
    RETURNING
        last_id,
        -- A lane that is leased, waiting for its next try or parked is looked at again without anybody being woken.
        parked_at IS NULL AND due_at <= statement_timestamp() AS due
), message AS (
    INSERT INTO outbox (aggregate, id, message_id, topic, payload, trace, created_at)
    SELECT $1, last_id, $2, $3, $4, $5, statement_timestamp() FROM lane
)
SELECT
    last_id,
    CASE
        WHEN NOT due THEN NULL
        WHEN pg_try_advisory_lock(1114993267, hashtext('outbox')) THEN pg_advisory_unlock(1114993267, hashtext('outbox'))::text
        ELSE pg_notify('bursar_wake', 'outbox')::text
    END AS wake
FROM lane
