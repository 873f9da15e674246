-- $1 chain, $2 address, $3 nonces used with the most generous pool counted in: one node's word, which reaches no further than
-- what was ever handed out
WITH lane AS (
    SELECT chain, address, GREATEST(LEAST($3, next_nonce), mined_seen) AS floor FROM lanes WHERE chain = $1 AND address = $2
)
SELECT n.nonce, n.state = 'open' AS open, lane.floor
FROM lane JOIN lane_nonces AS n USING (chain, address)
WHERE n.nonce >= lane.floor AND n.state <> 'free'
ORDER BY n.nonce
