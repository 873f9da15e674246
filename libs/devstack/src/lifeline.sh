# Runs a server that dies with its owner.
#
#   sh -c THIS lifeline SIGNAL DIRECTORY COMMAND [ARGUMENT..]
#
# Standard input is a pipe whose other end only the owner holds. This shell becomes the server (exec), so the owner
# knows the server's own pid and exit status. A watcher in a session of its own waits on the pipe. A line means that the
# owner has stopped the server itself; the end of the pipe means that the owner is gone, however it died: then the server
# and its process group are ended with SIGNAL, and DIRECTORY (when not empty) is removed.
signal=$1
directory=$2
shift 2

# The start time (field 22 of /proc/PID/stat, counted after the command name, which may hold spaces) tells this server
# from a later process that was given its pid.
watcher='
started() {
    read -r line 2>/dev/null <"/proc/$1/stat" || return 1
    set -- ${line##*) }
    [ "$1" != Z ] && echo "${20}"
}
pid=$1 signal=$2 directory=$3
mine=$(started "$pid")
read -r word && exit 0
if [ -n "$mine" ] && [ "$(started "$pid")" = "$mine" ]; then
    kill -s "$signal" "$pid" 2>/dev/null
    if [ "$signal" = KILL ]; then kill -s KILL -- "-$pid" 2>/dev/null; fi
    tries=0
    while [ "$(started "$pid")" = "$mine" ]; do
        tries=$((tries + 1))
        if [ "$tries" -eq 100 ]; then kill -s KILL -- "-$pid" 2>/dev/null; fi
        if [ "$tries" -gt 200 ]; then break; fi
        sleep 0.05
    done
    kill -s KILL -- "-$pid" 2>/dev/null
fi
if [ -n "$directory" ]; then rm -rf -- "$directory"; fi
'

exec 3<&0 </dev/null
# Forked twice, so that the watcher is not a child of the server: PostgreSQL takes the death of a child it does not know
# for the crash of a backend.
(setsid sh -c "$watcher" lifeline-watcher "$$" "$signal" "$directory" <&3 3<&- >/dev/null 2>&1 &)
exec 3<&-
exec "$@"
