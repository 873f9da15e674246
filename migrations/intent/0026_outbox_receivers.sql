-- The second part of the outbox of libs/db, copied like the first.
--
-- Each receiver's lanes are taken by loops of their own, so that one that hangs holds up nobody else's messages. The previous
-- binary takes them all, whoever they are for, and writes lanes without a receiver, which the relay adopts.
ALTER TABLE outbox_lane ADD COLUMN receiver text NOT NULL DEFAULT '';

UPDATE outbox_lane AS lane SET receiver = split_part(head.topic, '.', 1)
FROM (SELECT DISTINCT ON (aggregate) aggregate, topic FROM outbox ORDER BY aggregate, id) AS head
WHERE head.aggregate = lane.aggregate;

DROP INDEX outbox_lane_due;
CREATE INDEX outbox_lane_due ON outbox_lane (receiver, due_at) WHERE parked_at IS NULL;
