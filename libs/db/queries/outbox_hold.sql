-- $1 aggregates, $2 tokens. In one order always, so that two relays cannot deadlock.
SELECT lane.aggregate
FROM outbox_lane AS lane
JOIN unnest($1::text[], $2::bigint[]) AS mine (aggregate, token)
    ON lane.aggregate = mine.aggregate AND lane.lease_token = mine.token
ORDER BY lane.aggregate
FOR UPDATE OF lane
