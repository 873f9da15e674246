-- $1 receiver
SELECT (extract(epoch FROM min(due_at) - clock_timestamp()) * 1000)::bigint
FROM outbox_lane
WHERE parked_at IS NULL AND receiver = $1
