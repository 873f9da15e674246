-- Gives the orchestrator's lock back, if it is ours, and deletes the set of active workers.
-- KEYS lock, owner, workers   ARGV incarnation
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[1], KEYS[2], KEYS[3])
return 1
