-- Frees the lock of a dead incarnation. With `forget` it also deletes its record and takes the worker out of the active set.
-- KEYS orchestrator lock, worker lock, heartbeat, state, process, workers
-- ARGV orchestrator, id, incarnation ('' for a worker without one), forget ('1' or '0')
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('GET', KEYS[2]) == ARGV[3] then redis.call('DEL', KEYS[2]) end
local admitted = redis.call('HGET', KEYS[5], 'incarnation')
if admitted == ARGV[3] then redis.call('DEL', KEYS[3], KEYS[4]) end
if ARGV[4] == '1' then
    if admitted == ARGV[3] or ARGV[3] == '' then redis.call('DEL', KEYS[5]) end
    redis.call('SREM', KEYS[6], ARGV[2])
end
return 1
