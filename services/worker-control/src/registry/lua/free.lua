-- Frees the lock of an incarnation that is dead, at once. With a last word (forget) also its record, and its place in the set.
-- KEYS orchestrator lock, worker lock, heartbeat, state, process, workers
-- ARGV orchestrator, id, incarnation or '' for a worker without any, forget
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('GET', KEYS[2]) == ARGV[3] then redis.call('DEL', KEYS[2]) end
local admitted = redis.call('HGET', KEYS[5], 'incarnation')
if admitted == ARGV[3] then redis.call('DEL', KEYS[3], KEYS[4]) end
if ARGV[4] == '1' then
    if admitted == ARGV[3] or ARGV[3] == '' then redis.call('DEL', KEYS[5]) end
    redis.call('SREM', KEYS[6], ARGV[2])
end
return 1
