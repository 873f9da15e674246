-- $1 chain: the lanes with something under way
SELECT l.address FROM lanes AS l
WHERE l.chain = $1
  AND EXISTS (
      SELECT FROM lane_nonces AS n WHERE n.chain = l.chain AND n.address = l.address AND n.state = 'open'
  )
ORDER BY l.address
