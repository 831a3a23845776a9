# pgbench: eight thousand transactions of four clients. The server alone has the preloaded malloc.
# needs: postgres initdb psql pgbench setpriv
set -eu
library=${LD_PRELOAD-}
unset LD_PRELOAD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
as=""
# A server of Postgres refuses to be root.
if [ "$(id -u)" = 0 ]; then
    as="setpriv --reuid=65534 --regid=65534 --clear-groups"
    chown 65534:65534 "$folder"
    [ -z "${QUARRY_REPORT-}" ] || chmod 777 "$(dirname "$QUARRY_REPORT")"
fi
export HOME="$folder" PGHOST="$folder" PGUSER=bench PGDATABASE=postgres
$as initdb -D "$folder/data" -U bench -A trust --no-sync >"$folder/log" 2>&1
LD_PRELOAD=$library $as postgres -D "$folder/data" -k "$folder" -c listen_addresses= -c fsync=off >"$folder/log" 2>&1 &
server=$!
until psql -Atc 'SELECT 1' >"$folder/up" 2>&1; do
    kill -0 $server
    sleep 0.05
done
pgbench -q -i -s 2 >"$folder/init" 2>&1
pgbench -c 4 -t 2000 >"$folder/bench" 2>&1
grep 'transactions actually processed' "$folder/bench"
# Every transaction adds a line, and the sums agree.
psql -Atc 'SELECT count(*) FROM pgbench_history'
psql -Atc 'SELECT sum(abalance) = (SELECT sum(delta) FROM pgbench_history) FROM pgbench_accounts' | grep -x t
kill -INT $server
wait $server
