-- $1 aggregates, $2 tokens. A token is never given twice, so each can only meet its own lane. In one order always, so that
-- two relays cannot deadlock.
SELECT aggregate, last_id
FROM outbox_lane
WHERE aggregate = ANY ($1) AND lease_token = ANY ($2)
ORDER BY aggregate
FOR UPDATE
