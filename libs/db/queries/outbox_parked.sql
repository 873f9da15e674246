-- $1 how many
SELECT
    lane.aggregate, lane.tries, lane.parked_at, lane.last_error,
    head.message_id, head.topic, head.created_at,
    (SELECT count(*) FROM outbox AS behind WHERE behind.aggregate = lane.aggregate) - 1 AS waiting_behind
FROM outbox_lane AS lane
CROSS JOIN LATERAL (
    SELECT * FROM outbox AS message WHERE message.aggregate = lane.aggregate ORDER BY message.id LIMIT 1
) AS head
WHERE lane.parked_at IS NOT NULL
ORDER BY lane.parked_at
LIMIT $1
