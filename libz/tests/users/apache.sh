#!/usr/bin/env bash
# Apache httpd with mod_deflate on libweirgate_z.so: levels, static and proxied, a slow upstream that flushes.
# usage: libz/tests/users/apache.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
# shellcheck source=libz/tests/users/web.sh
. "$here/web.sh"
printf '%s on %s\n' "$(apache2 -v | head -n 1)" "$1"
data
serve_from

free_port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
ports=("$(free_port)" "$(free_port)" "$(free_port)")
server() { # PORT LEVEL
  cat <<END
Listen 127.0.0.1:$1
<VirtualHost 127.0.0.1:$1>
  DocumentRoot $work/www
  DeflateCompressionLevel $2
  SetOutputFilter DEFLATE
  ProxyPass /whole/ unix:$work/upstream.sock|http://local/whole/
  ProxyPass /slow/ unix:$work/upstream.sock|http://local/slow/ flushpackets=on
</VirtualHost>
END
}
cat >"$work/httpd.conf" <<END
ServerRoot $work
ServerName local
PidFile $work/httpd.pid
DefaultRuntimeDir $work
ErrorLog $work/error.log
LogLevel warn
User www-data
Group www-data
$(for module in mpm_event authz_core mime filter deflate proxy proxy_http; do
  printf 'LoadModule %s_module /usr/lib/apache2/modules/mod_%s.so\n' $module $module
done)
TypesConfig /dev/null
AddType text/plain .txt
<Directory $work/www>
  Require all granted
</Directory>
$(server "${ports[0]}" 1; server "${ports[1]}" 6; server "${ports[2]}" 9)
END
"${preload[@]}" apache2 -f "$work/httpd.conf" -DFOREGROUND &
httpd=$!
started+=("$httpd")
base=http://127.0.0.1:${ports[0]}
to=()
await curl -sf "$base/100.txt"

has_library() {
  local child
  for child in $(pgrep -P $httpd); do
    grep -qF "$lib" "/proc/$child/maps"
  done
  had deflate deflateInit2_ deflateEnd crc32
}

no_errors() {
  kill -TERM $httpd
  await eval "! kill -0 $httpd"
  if grep -E 'deflate|zlib|exit signal|:(crit|alert|emerg)\]' "$work/error.log"; then return 1; fi
}

for server in 0 1 2; do
  base=http://127.0.0.1:${ports[server]}
  check "static files, server $server" get_all /
  check "side by side, server $server" get_at_once /
  check "proxied, server $server" get_all /whole/
  check "a slow upstream that flushes, server $server" get_slow /slow/
done
check 'clients that go' get_part /slow/1000000.txt
check 'its processes have the library' has_library
check 'no errors' no_errors
finish
