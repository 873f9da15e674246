-- $1 aggregates (each once, sorted), $2 message ids, $3 topics, $4 payloads, $5 traces
WITH message AS (
    SELECT * FROM unnest($1::text[], $2::uuid[], $3::text[], $4::bytea[], $5::jsonb[])
        AS m (aggregate, message_id, topic, payload, trace)
), lane AS (
    INSERT INTO outbox_lane (aggregate, receiver, last_id, due_at)
    -- A lane stays with the receiver of its first message, because order within a lane comes first.
    SELECT aggregate, split_part(topic, '.', 1), nextval('outbox_id'), statement_timestamp() FROM message
    ORDER BY aggregate
    -- The number is drawn again here, under the row's lock, so that the numbers of an aggregate follow its commits.
    ON CONFLICT (aggregate) DO UPDATE SET last_id = nextval('outbox_id')
    RETURNING
        aggregate, last_id,
        -- A lane that is leased, waiting for its next try or parked is looked at again without anybody being woken.
        parked_at IS NULL AND due_at <= statement_timestamp() AS due
), written AS (
    INSERT INTO outbox (aggregate, id, message_id, topic, payload, trace, created_at)
    SELECT aggregate, lane.last_id, message_id, topic, payload, trace, statement_timestamp()
    FROM message JOIN lane USING (aggregate)
)
SELECT
    CASE
        WHEN NOT coalesce(bool_or(due), false) THEN NULL
        WHEN pg_try_advisory_lock(1114993267, hashtext('outbox')) THEN pg_advisory_unlock(1114993267, hashtext('outbox'))::text
        ELSE pg_notify('bursar_wake', 'outbox')::text
    END AS wake
FROM lane
