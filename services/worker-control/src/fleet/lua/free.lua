-- Frees the lock of an incarnation that is dead, at once. With a last word (forget) also its record.
-- KEYS orchestrator lock, worker lock, heartbeat, state, process, workers   ARGV orchestrator, id, incarnation, forget
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if redis.call('GET', KEYS[2]) == ARGV[3] then redis.call('DEL', KEYS[2]) end
if redis.call('HGET', KEYS[5], 'incarnation') == ARGV[3] then
    redis.call('DEL', KEYS[3], KEYS[4])
    if ARGV[4] == '1' then redis.call('DEL', KEYS[5]) end
end
if ARGV[4] == '1' then redis.call('SREM', KEYS[6], ARGV[2]) end
return 1
