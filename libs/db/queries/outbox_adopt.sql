-- $1 receivers, $2 the first of them
UPDATE outbox_lane AS lane
SET receiver = coalesce((
    SELECT known.receiver
    FROM unnest($1::text[]) AS known (receiver)
    WHERE known.receiver = (
        SELECT split_part(message.topic, '.', 1)
        FROM outbox AS message
        WHERE message.aggregate = lane.aggregate
        ORDER BY message.id
        LIMIT 1
    )
), $2)
WHERE lane.receiver <> ALL ($1::text[]) AND lane.parked_at IS NULL
