-- Takes the orchestrator's lock if it is free, ours, or held by an incarnation that is known to be dead.
-- KEYS lock, epoch, owner   ARGV incarnation, ttl, host, pid, start time, dead incarnation or ''
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] and holder ~= ARGV[6] then
    local owner = redis.call('HMGET', KEYS[3], 'incarnation', 'host', 'pid', 'started')
    return {'held', holder, owner[1] or '', owner[2] or '', owner[3] or '', owner[4] or ''}
end
local last = redis.call('GET', KEYS[2]) or '0'
-- Greater than every epoch before it, even after a loss of data, as long as the clock of Redis does not go back.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local epoch = string.format('%.0f', math.max(tonumber(last) + 1, now))
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
redis.call('SET', KEYS[2], epoch)
redis.call('DEL', KEYS[3])
redis.call('HSET', KEYS[3], 'incarnation', ARGV[1], 'host', ARGV[3], 'pid', ARGV[4], 'started', ARGV[5], 'epoch', epoch)
return {'ok', epoch, last, '', '', ''}
