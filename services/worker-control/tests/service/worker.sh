#!/bin/sh
# A worker in shell, for tests: follows the protocol, and misbehaves as MODE says.
#
#   STARTS   file that gets a line for each start
#   MODE     steady | slow (a heartbeat only now and then) | crash | zero | hang | stubborn | forks
id=$WORKER_PAIR_ID ns=$WORKER_NAMESPACE
# The allocator of redis-cli crashes with a preloaded library that reads the time before it is ready.
cli() { LD_PRELOAD='' redis-cli -u "$WORKER_REDIS_URL" "$@"; }
# A second process of one worker finds this lock taken.
exec 9>"$STARTS.$id.lock"
flock -n 9 || echo "$id DOUBLE" >>"$STARTS"
echo "$id $WORKER_INCARNATION $$" >>"$STARTS"
echo "hello from $id"

beat() {
    cli EVAL "if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
        redis.call('PEXPIRE', KEYS[1], ARGV[2])
        redis.call('SET', KEYS[2], ARGV[3], 'PX', ARGV[4])
        redis.call('SET', KEYS[3], ARGV[5], 'PX', ARGV[6]) return 1" 3 \
        "${ns}worker:$id:lock" "${ns}worker:$id:heartbeat" "${ns}worker:$id:state" \
        "$WORKER_INCARNATION" "$WORKER_LOCK_TTL_MS" "$(date +%s%3N)" "$WORKER_HEARTBEAT_TTL_MS" \
        "{\"pairId\":\"$id\",\"status\":\"idle\",\"epoch\":1,\"mode\":\"$MODE\"}" "$WORKER_STATE_TTL_MS"
}
take() {
    [ "$(cli SET "${ns}worker:$id:lock" "$WORKER_INCARNATION" NX PX "$WORKER_LOCK_TTL_MS")" = OK ]
}
finish() {
    cli EVAL "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1], KEYS[2]) end return 0" 2 \
        "${ns}worker:$id:lock" "${ns}worker:$id:heartbeat" "$WORKER_INCARNATION" >/dev/null
    exit 0
}

case $MODE in
crash) exit 3 ;;
zero) exit 0 ;;
stubborn) trap '' TERM ;;
*) trap finish TERM ;;
esac
take || exit 4
beat >/dev/null
if [ "$MODE" = hang ]; then
    while :; do sleep 600 9>&- & wait; done
fi
if [ "$MODE" = forks ]; then
    sleep 600 9>&- &
    setsid sleep 601 9>&- &
fi
pause=0.1
[ "$MODE" = slow ] && pause=2
while :; do
    sleep $pause 9>&- &
    wait $!
    # Without an answer it goes on. A lock that is gone is taken again; one that went to another ends it.
    if [ "$(beat 2>/dev/null)" = 0 ]; then
        take || exit 5
        beat >/dev/null
    fi
done
