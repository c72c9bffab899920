#!/usr/bin/env bash
# java.util.zip and jar of OpenJDK, whose libzip is linked with libz.so.1, on libweirgate_z.so.
# usage: libz/tests/users/java.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
printf '%s on %s\n' "$(java -version 2>&1 | head -n 1)" "$1"
data
text_of 700000 >"$work/data/long"

compile() { javac -d "$work/classes" "$here/Java.java"; }

streams() { # FILE
  ours java -cp "$work/classes" Java "$1" "$work/made.gz" | tee "$work/sums"
  env -u LD_PRELOAD java -cp "$work/classes" Java "$1" "$work/system.gz" | diff - "$work/sums"
  gzip -dc "$work/made.gz" | cmp - "$1"
  had deflate deflateInit2_ deflateParams inflate crc32
}

jars() {
  cd "$work"
  ours jar -c -f data.jar -C data .
  python3 -m zipfile -e data.jar there
  rm -r there/META-INF
  diff -r data there
  rm -r there && mkdir there && cd there
  ours jar -x -f ../data.jar
  rm -r META-INF
  diff -r ../data .
  had deflate inflate
}

check 'compile' compile
for file in long random empty; do
  check "streams of $file" streams "$work/data/$file"
done
check 'jar' jars
finish
