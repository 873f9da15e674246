-- Writes down the process of an admitted incarnation, or that a process found alive is admitted again.
-- KEYS orchestrator lock, process   ARGV orchestrator, incarnation, host, epoch, fingerprint, pid, start time
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], 'incarnation', ARGV[2], 'host', ARGV[3], 'epoch', ARGV[4], 'spec', ARGV[5], 'pid', ARGV[6], 'started', ARGV[7])
return 1
