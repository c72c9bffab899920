#!/usr/bin/env bash
# nginx with gzip on libweirgate_z.so: levels, static and proxied, a slow upstream that flushes, and no alert in its log.
# In each pair of window and hash it sets other memory aside.
# usage: libz/tests/users/nginx.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
# shellcheck source=libz/tests/users/web.sh
. "$here/web.sh"
printf '%s on %s\n' "$(nginx -v 2>&1)" "$1"
data
serve_from

server() { # LEVEL
  cat <<END
  server {
    listen unix:$work/level$1.sock;
    root $work/www;
    gzip_comp_level $1;
    location /whole/ { proxy_pass http://upstream; }
    location /unbuffered/ { proxy_pass http://upstream/whole/; proxy_buffering off; }
    location /slow/ { proxy_pass http://upstream; proxy_buffering off; }
  }
END
}
windows=(512 1k 2k 4k 8k 16k 32k)
hashes=(512 1k 2k 4k 8k 16k 32k 64k 128k)
# By a pair of window and hash.
narrow() { # WINDOW HASH
  cat <<END
  server {
    listen unix:$work/narrow-$1-$2.sock;
    gzip_comp_level 6; gzip_window $1; gzip_hash $2;
    location /chunked/ { proxy_pass http://upstream; }
  }
END
}
narrow_all() {
  local window hash
  for window in "${windows[@]}"; do
    for hash in "${hashes[@]}"; do
      narrow "$window" "$hash"
    done
  done
}
cat >"$work/nginx.conf" <<END
daemon off;
worker_processes 2;
pid $work/nginx.pid;
error_log $work/error.log notice;
events {}
http {
  access_log off;
  types { text/plain txt; }
  gzip on; gzip_types text/plain; gzip_min_length 20; gzip_http_version 1.0; gzip_proxied any;
  client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3; uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
  upstream upstream { server unix:$work/upstream.sock; }
$(for level in 1 6 9; do server $level; done)
$(narrow_all)
}
END
touch "$work/error.log"
"${preload[@]}" nginx -p "$work" -c "$work/nginx.conf" -e "$work/error.log" &
nginx=$!
started+=("$nginx")
base=http://local
to=(--unix-socket "$work/level6.sock")
await curl -sf "${to[@]}" "$base/100.txt"

has_library() {
  local worker
  for worker in $(pgrep -P $nginx); do
    grep -qF "$lib" "/proc/$worker/maps"
  done
  had deflate deflateInit2_ deflateEnd
}

no_alerts() {
  kill -QUIT $nginx
  # Until its workers have written what they have to say.
  await eval "! kill -0 $nginx"
  if grep -E '\[(alert|crit|emerg)\]' "$work/error.log"; then return 1; fi
  grep -q 'exited with code 0' "$work/error.log"
}

# A response whose length is not known is given all of that memory.
get_narrow() { # WINDOW
  local hash length
  for hash in "${hashes[@]}"; do
    to=(--unix-socket "$work/narrow-$1-$hash.sock")
    for length in 1000 100000 1000000; do
      get "/chunked/$length.txt" "$length.txt"
    done
    get /chunked/random.txt random.txt
  done
}

check 'its workers have the library' has_library
for level in 1 6 9; do
  to=(--unix-socket "$work/level$level.sock")
  check "static files, level $level" get_all /
  check "side by side, level $level" get_at_once /
  check "proxied, level $level" get_all /whole/
  check "proxied without buffering, level $level" get_all /unbuffered/
  check "a slow upstream that flushes, level $level" get_slow /slow/
done
for window in "${windows[@]}"; do
  check "a window of $window and any hash, of unknown length" get_narrow "$window"
done
to=(--unix-socket "$work/level6.sock")
check 'clients that go' get_part /slow/1000000.txt
check 'no alerts' no_alerts
finish
