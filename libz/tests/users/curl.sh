#!/usr/bin/env bash
# curl on libweirgate_z.so: bodies that an nginx on the system's zlib compresses, deflate of both kinds, and bodies that are broken.
# usage: libz/tests/users/curl.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
printf '%s on %s\n' "$(curl --version | head -n 1 | cut -d ' ' -f 1-2)" "$1"
data
mkdir "$work/www"
for length in 100 5000 300000 3000000; do
  text_of "$length" >"$work/www/$length.txt"
done
cp "$work/data/random" "$work/www/random.txt"
# Bodies that are compressed already, and some of them cut or changed.
python3 - "$work/www" <<'END'
import gzip, pathlib, sys, zlib
www = pathlib.Path(sys.argv[1])
plain = (www / "300000.txt").read_bytes()
raw = zlib.compressobj(9, zlib.DEFLATED, -15)
bodies = {
    "gzip": gzip.compress(plain),
    "gzip-twice": gzip.compress(plain[:100_000]) + gzip.compress(plain[100_000:]),
    "zlib": zlib.compress(plain),
    "raw": raw.compress(plain) + raw.flush(),
}
for name, body in bodies.items():
    (www / name).write_bytes(body)
    (www / f"{name}-cut").write_bytes(body[: len(body) // 2])
    changed = bytearray(body)
    changed[len(body) // 2] ^= 0xFF
    (www / f"{name}-changed").write_bytes(changed)
END
cat >"$work/nginx.conf" <<END
daemon off;
pid $work/nginx.pid;
error_log $work/error.log notice;
events {}
http {
  access_log off;
  types { text/plain txt; }
  gzip on; gzip_types text/plain; gzip_http_version 1.0;
  client_body_temp_path $work/t1; proxy_temp_path $work/t2; fastcgi_temp_path $work/t3; uwsgi_temp_path $work/t4; scgi_temp_path $work/t5;
  server {
    listen unix:$work/web.sock;
    root $work/www;
    location ~ ^/gzip { add_header Content-Encoding gzip; }
    location ~ ^/(zlib|raw) { add_header Content-Encoding deflate; }
  }
}
END
nginx -p "$work" -c "$work/nginx.conf" -e "$work/error.log" &
started+=("$!")
to=(--unix-socket "$work/web.sock")
await curl -sf "${to[@]}" http://local/100.txt

compressed() {
  local name
  for name in 100 5000 300000 3000000 random; do
    ours curl -sf "${to[@]}" --compressed -o "$work/body" "http://local/$name.txt"
    cmp "$work/body" "$work/www/$name.txt"
  done
  had inflate inflateInit2_ inflateEnd
}

encoded() {
  local name
  for name in gzip zlib raw; do
    ours curl -sf "${to[@]}" --compressed -o "$work/body" "http://local/$name"
    cmp "$work/body" "$work/www/300000.txt"
  done
}

# What curl makes of it: its exit status and what it wrote.
made_of() { # COMMAND ...
  local status=0
  rm -f "$work/body"
  "$@" -s "${to[@]}" --compressed -o "$work/body" "http://local/$name" || status=$?
  printf '%s %s\n' "$status" "$(sha256sum "$work/body" 2>/dev/null | cut -d ' ' -f 1)"
}

broken() {
  local name
  for name in gzip-twice {gzip,zlib,raw}-{cut,changed}; do
    [ "$(made_of ours curl)" = "$(made_of curl)" ] || { echo "$name: $(made_of ours curl), not $(made_of curl)"; return 1; }
  done
}

check 'bodies of every length' compressed
check 'gzip, zlib and raw deflate' encoded
check 'broken bodies, as with the system zlib' broken
finish
