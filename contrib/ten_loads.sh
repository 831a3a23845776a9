#!/bin/sh
# Records the ten loads of docs/fidelity.md ("Ten loads") and checks their replays. Run it as root:
#
#   contrib/ten_loads.sh QUARRY FOLDER
#
# QUARRY is the command, FOLDER takes the recordings (0.5 GB); those that are there are kept. It needs git, make,
# gcc, python3, sqlite3, redis, nginx, wrk, apache2-utils and postgresql, and everything that the machine does
# besides is recorded, too.
set -eu
quarry=$(realpath "$1")
mkdir -p "$2"
out=$(realpath "$2")
source=$(realpath "$(dirname "$0")/..")
work=$(mktemp -d)
# For the server of PostgreSQL and the workers of nginx, which are no root.
chmod 755 "$work"
servers=
trap 'for pid in $servers; do kill "$pid"; done; wait; rm -rf "$work"' EXIT
cd "$work"

record() {
    name=$1
    shift
    [ -e "$out/$name.parquet" ] || "$quarry" record --mount -o "$out/$name.parquet" "$@" > "$out/$name.log" 2>&1
}

mkdir files c
for n in $(seq 200); do
    echo "page $n" > "files/$n.html"
    printf '#include <stdio.h>\n#include <stdlib.h>\nint f%d(int x) { return x * %d + rand(); }\n' "$n" "$n" > "c/f$n.c"
done
printf 'all: $(patsubst %%.c,%%.o,$(wildcard *.c))\n' > c/Makefile
cat > load.py <<'END'
import os, socket, subprocess, sys
children = [subprocess.Popen([sys.executable, "-c", "import json, socket"]) for _ in range(60)]
pairs = [socket.socketpair() for _ in range(500)]
for one, other in pairs:
    one.send(b"x" * 1000)
    other.recv(1000)
sum(len(files) for _, _, files in os.walk("/usr/share"))
for child in children:
    child.wait()
END
cat > nginx.conf <<END
worker_processes 2;
pid $work/nginx.pid;
error_log $work/nginx.log;
events { worker_connections 512; }
http { access_log off; server { listen 127.0.0.1:8189; root $work/files; autoindex on; } }
END

redis-server --port 7379 --save '' --dir "$work" > redis.log & servers="$servers $!"
nginx -c "$work/nginx.conf" -g 'daemon off;' & servers="$servers $!"
(cd files && exec python3 -m http.server 8190 --bind 127.0.0.1 > "$work/http.log" 2>&1) & servers="$servers $!"
pg=$(dirname "$(ls /usr/lib/postgresql/*/bin/postgres | tail -n 1)")
install -d -o postgres pg
as_postgres() { setpriv --reuid postgres --regid postgres --clear-groups "$@"; }
as_postgres "$pg/initdb" -D pg/data > initdb.log
as_postgres "$pg/postgres" -D pg/data -p 7432 -k "$work/pg" > postgres.log 2>&1 & servers="$servers $!"
sleep 5
as_postgres pgbench -h "$work/pg" -p 7432 -i -s 2 postgres > pgbench.log 2>&1

record idle --duration 5s
record sqlite -- sqlite3 "$work/one.db" \
    'create table t(a, b); with recursive n(i) as (select 1 union all select i + 1 from n where i < 200000)
     insert into t select i, hex(randomblob(16)) from n; create index j on t(b);'
record git -- sh -c "cd $source && git log --stat -n 500 > $work/log && git grep -c alloc > $work/grep
                     git clone -q --no-hardlinks . $work/clone"
record python -- python3 load.py
record redis -- redis-benchmark -p 7379 -q -n 20000 -t ping,set,get,lpush
record make -- make -s -C c -j8
record true -- sh -c 'n=0; while [ $n -lt 600 ]; do /bin/true; n=$((n + 1)); done'
record ab -- ab -q -n 500 -c 8 http://127.0.0.1:8190/
record nginx -- wrk -t2 -c32 -d3s http://127.0.0.1:8189/1.html
record pgbench -- setpriv --reuid postgres --regid postgres --clear-groups \
    pgbench -h "$work/pg" -p 7432 -C -c 4 -t 200 postgres

for name in idle sqlite git python redis make true ab nginx pgbench; do
    "$quarry" replay "$out/$name.parquet" --check --json > "$out/$name.json"
    printf '%s ' "$name"
    python3 - "$out/$name.json" <<'END'
import json, sys
check = json.load(open(sys.argv[1]))["runs"][0]["check"]
growth = check["growth"]
kib = {key: round(growth[key] / 1024) for key in growth if key.endswith("_bytes")}
end = check["predicted_bytes"] / check["observed_bytes"] - 1
print("kernel {observed_bytes:+} predicted {predicted_bytes:+} range {low_bytes:+} to {high_bytes:+}".format(**kib),
      f"end {end:+.2%}")
END
done
