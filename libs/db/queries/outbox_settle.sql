-- $1 acknowledged messages, $2 lanes without any more, $3 lanes to keep, $4 their tries, $5 delays in milliseconds, $6 park,
-- $7 errors. All lanes are locked, and ours.
WITH acknowledged AS (
    DELETE FROM outbox WHERE message_id = ANY ((SELECT $1::uuid[])::uuid[])
), emptied AS (
    DELETE FROM outbox_lane WHERE aggregate = ANY ((SELECT $2::text[])::text[])
)
UPDATE outbox_lane AS lane
SET lease_token = NULL,
    tries = kept.tries,
    due_at = statement_timestamp() + kept.delay_ms * interval '1 ms',
    parked_at = CASE WHEN kept.park THEN statement_timestamp() END,
    last_error = kept.error
FROM unnest($3::text[], $4::integer[], $5::bigint[], $6::boolean[], $7::text[])
    AS kept (aggregate, tries, delay_ms, park, error)
-- Said twice, so that whatever the plan of the join, only these lanes are read.
WHERE lane.aggregate = kept.aggregate AND lane.aggregate = ANY ((SELECT $3::text[])::text[])
