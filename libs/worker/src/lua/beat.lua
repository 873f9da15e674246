-- One heartbeat: renews the lock and writes the heartbeat and the state. Changes nothing when the lock is not ours.
-- KEYS lock, heartbeat, state   ARGV incarnation, lock ttl, time in ms, heartbeat ttl, state, state ttl
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('PEXPIRE', KEYS[1], ARGV[2])
redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[6])
return 1
