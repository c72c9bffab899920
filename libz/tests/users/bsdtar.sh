#!/usr/bin/env bash
# bsdtar (libarchive) on libweirgate_z.so: tar with gzip, and zip.
# usage: libz/tests/users/bsdtar.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
printf '%s on %s\n' "$(bsdtar --version)" "$1"
data

gzipped() { # LEVEL
  cd "$work"
  ours bsdtar -cz --options "gzip:compression-level=$1" -f data.tar.gz data
  gzip -t data.tar.gz
  rm -rf there && mkdir there
  tar -xzf data.tar.gz -C there
  diff -r data there/data
  tar -czf data.tar.gz data
  rm -rf there && mkdir there
  ours bsdtar -xzf data.tar.gz -C there
  diff -r data there/data
  had deflate inflate
}

zipped() {
  cd "$work"
  ours bsdtar -c --format zip -f data.zip data
  rm -rf there && mkdir there
  python3 -m zipfile -e data.zip there
  diff -r data there/data
  rm -rf there && mkdir there
  ours bsdtar -xf data.zip -C there
  diff -r data there/data
  had deflate inflate crc32
}

for level in 1 6 9; do
  check "tar with gzip, level $level" gzipped $level
done
check 'zip' zipped
finish
