# Sets, gets and lists of redis-benchmark, over a socket of the file system. The server alone has the preloaded malloc.
# needs: redis-server redis-benchmark redis-cli
set -eu
library=${LD_PRELOAD-}
unset LD_PRELOAD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
socket=$folder/socket
LD_PRELOAD=$library redis-server --unixsocket "$socket" --port 0 --save '' --appendonly no --dir "$folder" >"$folder/log" &
server=$!
until redis-cli -s "$socket" ping >"$folder/ping" 2>&1; do
    kill -0 $server
    sleep 0.02
done
redis-benchmark -s "$socket" -q -n 200000 -r 100000 -d 100 -P 16 -t set,get,lpush,lpop,hset >"$folder/benchmark"
# Keys of 100000 numbers by 200000 sets: nearly all of them, and no set is lost.
keys=$(redis-cli -s "$socket" dbsize)
[ "$keys" -gt 80000 ]
redis-cli -s "$socket" set last "the server answers" >"$folder/ping"
redis-cli -s "$socket" get last
# With QUARRY_IDLE=60 all keys go, and the server's memory at its peak and 60 seconds later is shown.
if [ -n "${QUARRY_IDLE-}" ]; then
    redis-cli -s "$socket" flushall >"$folder/ping"
    sleep "$QUARRY_IDLE"
    grep -E '^Vm(HWM|RSS)' /proc/$server/status >&2
fi
redis-cli -s "$socket" shutdown nosave
wait $server
