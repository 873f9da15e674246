-- Admits a new incarnation of a worker and frees what a dead one left behind. Does nothing without the orchestrator's lock.
-- KEYS orchestrator lock, worker lock, heartbeat, state, restarting, process, workers
-- ARGV orchestrator, id, incarnation, host, machine, epoch, fingerprint, the incarnation that is dead unless it has a heartbeat, or '',
--      then the incarnations known to be dead
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return {'fenced', ''} end
local holder = redis.call('GET', KEYS[2])
if holder then
    local dead = holder == ARGV[8] and redis.call('EXISTS', KEYS[3]) == 0
    for i = 9, #ARGV do
        if ARGV[i] == holder then dead = true end
    end
    if not dead then return {'held', holder} end
end
redis.call('DEL', KEYS[2], KEYS[3], KEYS[4], KEYS[5], KEYS[6])
redis.call('HSET', KEYS[6], 'incarnation', ARGV[3], 'host', ARGV[4], 'machine', ARGV[5], 'epoch', ARGV[6], 'spec', ARGV[7])
redis.call('SADD', KEYS[7], ARGV[2])
return {'ok', ''}
