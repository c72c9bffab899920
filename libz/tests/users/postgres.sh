#!/usr/bin/env bash
# PostgreSQL on libweirgate_z.so: dumps and base backups that are compressed, restored by programs on the system's zlib.
# usage: libz/tests/users/postgres.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
bin=$(printf '%s\n' /usr/lib/postgresql/*/bin | tail -n 1)
printf '%s on %s\n' "$("$bin/postgres" --version)" "$1"
as_postgres=(setpriv --reuid=postgres --regid=postgres --init-groups)
cd "$work"
install -d -o postgres -m 700 cluster
export PGHOST=$work/cluster PGUSER=postgres PGDATABASE=postgres
"${as_postgres[@]}" "$bin/initdb" -D cluster/data -N -A trust >/dev/null
"${as_postgres[@]}" "${preload[@]}" "$bin/postgres" -D cluster/data -k "$PGHOST" -c listen_addresses= -c fsync=off 2>cluster.log &
server=$!
started+=("$server")

fill() {
  await "$bin/pg_isready"
  "$bin/psql" -q -v ON_ERROR_STOP=1 <<'END'
create table words (id int primary key, word text, said text);
insert into words select i, md5(i::text), repeat('what is said of ' || i % 100 || ' ', i % 40) from generate_series(1, 60000) i;
create table bytes (id int, body bytea);
insert into bytes select i, decode(string_agg(md5((i * 1000 + j)::text), ''), 'hex') from generate_series(1, 100) i, generate_series(1, 500) j group by i;
create table nothing (id int);
END
  "$bin/pg_dump" | text >plain.sql
}

# A dump without the word that it is locked by, which is another each time.
text() { grep -vE '^\\(un)?restrict '; }

same() { # DATABASE
  "$bin/pg_dump" "$1" | text | diff -q plain.sql -
  "$bin/dropdb" "$1"
}

plain() {
  for level in 1 6 9; do
    ours "$bin/pg_dump" -Z$level >dump.sql.gz
    gzip -dc dump.sql.gz | text | diff -q plain.sql -
  done
  had deflate
}

restored() { # FORMAT OPTION ...
  rm -rf dump
  ours "$bin/pg_dump" -F"$1" -Z6 "${@:2}" -f dump
  "$bin/createdb" again
  "$bin/pg_restore" -d again "${@:2}" dump
  same again
  "$bin/createdb" again
  ours "$bin/pg_restore" -d again "${@:2}" dump
  same again
  had deflate inflate
}

backup() { # WHERE
  rm -rf backup
  ours "$bin/pg_basebackup" -D backup -Ft -X fetch --compress="$1-gzip:6" -c fast
  gzip -t backup/base.tar.gz
  tar -tzf backup/base.tar.gz PG_VERSION
  had deflate
}

check 'a database' fill
check 'pg_dump -Z' plain
check 'pg_dump -Fc -Z6' restored c
check 'pg_dump -Fd -Z6 -j2' restored d -j2
check 'pg_basebackup, compressed by the client' backup client
check 'pg_basebackup, compressed by the server' backup server
# Its own way of an end at once.
kill -INT $server
finish
