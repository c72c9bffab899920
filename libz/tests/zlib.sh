#!/usr/bin/env bash
# zlib's own test programs, on libweirgate_z.so: test/example.c and test/minigzip.c of Debian's source package, compiled as programs
# that use the shared library are.
# usage: libz/tests/zlib.sh LIBWEIRGATE_Z.so
# shellcheck source=libz/tests/common.sh
. "$(dirname "$0")/common.sh"
# shellcheck source=libz/tests/debian.sh
. "$(dirname "$0")/debian.sh"
version=$(dpkg-query -W -f '${source:Version}' zlib1g)
printf "zlib's own programs, of Debian's source package zlib %s, on %s\n" "$version" "$1"

fetch() {
  own_lists "$work" deb-src
  mkdir -m 777 "$work/source"
  cd "$work/source"
  "${apt[@]}" update
  # After a point release the archive has only the next one.
  "${apt[@]}" source --download-only "zlib=$version" || "${apt[@]}" source --download-only zlib
  dpkg-source --no-check -x zlib_*.dsc tree
}

compile() {
  cd "$work"
  for name in example minigzip; do
    cc -O1 -D_FILE_OFFSET_BITS=64 -o $name "source/tree/test/$name.c" -lz
  done
}

example() {
  cd "$work"
  ours ./example "$work/example.gz" | tee example.said
  grep -q 'inflate with dictionary' example.said
  if grep -i 'error\|bad ' example.said; then return 1; fi
  gzip -t example.gz
  had deflate deflateParams deflateSetDictionary inflateSync gzprintf uncompress
}

# A file there and back by zlib's small gzip: through pipes and in place, at each level, each way beside the system's gzip.
minigzip() { # FILE
  cd "$work"
  for level in -1 -2 -3 -4 -5 -6 -7 -8 -9 -f -h -r; do
    ours ./minigzip $level <"$1" >small.gz
    gzip -dc small.gz | cmp - "$1"
    ours ./minigzip -d <small.gz | cmp - "$1"
  done
  cp "$1" there
  ours ./minigzip there
  [ ! -e there ] && gzip -t there.gz
  ours ./minigzip -d there.gz
  cmp there "$1"
  gzip -c "$1" | ours ./minigzip -d | cmp - "$1"
  had gzopen64 gzdopen gzclose
}

check "Debian's source package" fetch
check 'example.c and minigzip.c compile' compile
check 'example' example
cat "$work"/source/tree/*.c "$work"/source/tree/ChangeLog >"$work/text" 2>/dev/null || true
head -c 1000000 /dev/urandom >"$work/random"
: >"$work/empty"
for file in text random empty; do
  check "minigzip of $file" minigzip "$work/$file"
done
finish
