-- $1 where to start, $2 how many lanes, $3 lease in milliseconds, $4 messages for each, $5 receiver; wrapped in SELECT, so
-- that one plan serves all
WITH head AS MATERIALIZED (
    SELECT ctid AS place, due_at
    FROM outbox_lane
    WHERE parked_at IS NULL AND receiver = (SELECT $5::text) AND due_at <= statement_timestamp() AND due_at >= (SELECT $1::timestamptz)
    ORDER BY due_at
    LIMIT (SELECT $2::bigint)
    FOR UPDATE SKIP LOCKED
), taken AS (
    UPDATE outbox_lane
    SET lease_token = nextval('outbox_token'), due_at = statement_timestamp() + $3 * interval '1 ms'
    WHERE ctid = ANY (ARRAY(SELECT place FROM head))
    RETURNING aggregate, lease_token, last_id, tries
)
SELECT
    taken.aggregate, taken.lease_token, taken.last_id, taken.tries,
    (SELECT max(due_at) FROM head) AS reached,
    message.id, message.message_id, message.topic, message.payload, message.trace, message.created_at
FROM taken
-- A lane without messages can only be the work of a hand; it comes back too, so that it can be removed.
LEFT JOIN LATERAL (
    SELECT * FROM outbox WHERE outbox.aggregate = taken.aggregate ORDER BY outbox.id LIMIT (SELECT $4::bigint)
) AS message ON true
ORDER BY taken.aggregate, message.id
