-- Takes a worker's lock for one incarnation, with a fencing token that only ever grows.
-- KEYS lock, fence, process   ARGV incarnation, ttl in ms
-- A leading orchestrator writes the incarnation it admits; any other, such as a child of an orchestrator that was paused and
-- overtaken, stays outside.
local admitted = redis.call('HGET', KEYS[3], 'incarnation')
if admitted and admitted ~= ARGV[1] then return {'refused', admitted} end
local holder = redis.call('GET', KEYS[1])
if holder and holder ~= ARGV[1] then return {'held', holder} end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
-- Also greater than every token of a Redis that has lost its data, as long as its clock goes forward.
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local token = math.max(tonumber(redis.call('GET', KEYS[2]) or '0') + 1, now)
local text = string.format('%.0f', token)
redis.call('SET', KEYS[2], text)
return {'ok', text}
