-- Replaces the set of active workers. KEYS orchestrator lock, workers   ARGV orchestrator, then the ids
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('DEL', KEYS[2])
for i = 2, #ARGV do redis.call('SADD', KEYS[2], ARGV[i]) end
return 1
