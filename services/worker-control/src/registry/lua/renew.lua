-- Extends the orchestrator's lock if it is ours; returns whose it is. KEYS lock   ARGV incarnation, ttl
local holder = redis.call('GET', KEYS[1])
if holder == ARGV[1] then
    redis.call('PEXPIRE', KEYS[1], ARGV[2])
    return holder
end
return holder or ''
