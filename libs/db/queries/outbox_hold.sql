-- $1 aggregates, $2 tokens. A token is never given twice, so each can only meet its own lane. In one order always, so that
-- two relays cannot deadlock.
SELECT aggregate, last_id
FROM outbox_lane
WHERE aggregate = ANY ((SELECT $1::text[])::text[]) AND lease_token = ANY ((SELECT $2::bigint[])::bigint[])
ORDER BY aggregate
FOR UPDATE
