-- Gives a worker's lock back, if it is still ours. KEYS lock, heartbeat   ARGV incarnation
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2])
return 1
