# A file over loopback, by two workers of nginx, to ab. The server alone has the preloaded malloc.
# needs: nginx ab
set -eu
library=${LD_PRELOAD-}
unset LD_PRELOAD
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
chmod 755 "$folder"
# One of its own: a server that a timeout left behind must not answer.
port=$((20000 + $$ % 20000))
head -c 8000 /dev/zero >"$folder/file"
cat >"$folder/nginx.conf" <<CONF
daemon off;
worker_processes 2;
pid $folder/pid;
error_log $folder/errors;
env QUARRY_DESIGN; env QUARRY_REPORT; env QUARRY_RECORD; env LD_PRELOAD;
events { }
http {
    access_log $folder/access;
    client_body_temp_path $folder/body; proxy_temp_path $folder/proxy; fastcgi_temp_path $folder/fastcgi;
    uwsgi_temp_path $folder/uwsgi; scgi_temp_path $folder/scgi;
    server { listen 127.0.0.1:$port; root $folder; gzip on; gzip_types application/octet-stream text/plain; }
}
CONF
LD_PRELOAD=$library nginx -p "$folder" -c "$folder/nginx.conf" &
server=$!
until ab -n 1 "http://127.0.0.1:$port/file" >"$folder/ab" 2>&1; do
    kill -0 $server
    sleep 0.02
done
ab -n 20000 -c 20 -H 'Accept-Encoding: gzip' "http://127.0.0.1:$port/file" >"$folder/ab" 2>&1
grep -E '^(Complete|Failed) requests' "$folder/ab"
# With QUARRY_IDLE=60 the memory of its workers at their peaks and 60 seconds later is shown.
if [ -n "${QUARRY_IDLE-}" ]; then
    sleep "$QUARRY_IDLE"
    for worker in $(cat /proc/$server/task/$server/children); do
        grep -E '^Vm(HWM|RSS)' "/proc/$worker/status" >&2
    done
fi
kill -QUIT $server
wait $server
[ "$(grep -c '" 200 ' "$folder/access")" -eq 20001 ]
