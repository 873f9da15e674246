-- Records the process of an admitted incarnation, or admits a process again that was found alive.
-- KEYS orchestrator lock, process   ARGV orchestrator, incarnation, host, machine, epoch, fingerprint, pid, start time
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('HSET', KEYS[2], 'incarnation', ARGV[2], 'host', ARGV[3], 'machine', ARGV[4], 'epoch', ARGV[5], 'spec', ARGV[6], 'pid', ARGV[7],
    'started', ARGV[8])
return 1
