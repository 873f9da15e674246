-- $1 aggregates (their lanes are locked and ours), $2 acknowledged up to, $3 tries, $4 delays in milliseconds, $5 park, $6 errors
WITH outcome AS (
    SELECT *
    FROM unnest($1::text[], $2::bigint[], $3::integer[], $4::bigint[], $5::boolean[], $6::text[])
        AS o (aggregate, acked, tries, delay_ms, park, error)
), emptied AS (
    DELETE FROM outbox_lane AS lane USING outcome AS o
    WHERE lane.aggregate = o.aggregate AND o.error IS NULL AND lane.last_id <= o.acked
), kept AS (
    UPDATE outbox_lane AS lane
    SET lease_token = NULL,
        tries = o.tries,
        due_at = statement_timestamp() + o.delay_ms * interval '1 ms',
        parked_at = CASE WHEN o.park THEN statement_timestamp() END,
        last_error = o.error
    FROM outcome AS o
    WHERE lane.aggregate = o.aggregate AND NOT (o.error IS NULL AND lane.last_id <= o.acked)
)
DELETE FROM outbox AS message USING outcome AS o
WHERE message.aggregate = o.aggregate AND message.id <= o.acked
