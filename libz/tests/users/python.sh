#!/usr/bin/env bash
# Python's own tests of its modules zlib and gzip (Debian's package libpython3.11-testsuite, unpacked and not installed) on
# libweirgate_z.so.
# usage: libz/tests/users/python.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
python=/usr/bin/python3
printf '%s on %s\n' "$($python --version)" "$1"

fetch() {
  mkdir -m 777 "$work/package"
  cd "$work/package"
  apt-get -qq -o Acquire::Retries=5 download "libpython$($python -c 'import sys; print("%d.%d" % sys.version_info[:2])')-testsuite"
  dpkg-deb -x ./*.deb .
}

module() { # NAME SYMBOL ...
  local name=$1; shift
  mkdir -p "$work/$name"
  cd "$work/$name"
  ours $python "$work"/package/usr/lib/python3*/test/"test_$name.py" -v
  had "$@"
}

there_and_back() {
  cd "$work"
  ours $python - "$work/data" <<'END'
import gzip, os, pathlib, sys, zlib, zipfile
with zipfile.ZipFile("data.zip", "w", zipfile.ZIP_DEFLATED) as archive:
    for path in sorted(pathlib.Path(sys.argv[1]).rglob("*")):
        if path.is_file():
            body = path.read_bytes()
            archive.write(path, path.relative_to(sys.argv[1]))
            for level in (0, 1, 6, 9):
                assert zlib.decompress(zlib.compress(body, level)) == body
            with gzip.open("data.gz", "ab") as out:
                out.write(body)
END
  $python -m zipfile -e data.zip zip
  diff -r data zip
  find data -type f -print0 | LC_ALL=C sort -z | xargs -0 cat | sha256sum >wanted
  $python -c '
import pathlib, sys
for path in sorted(pathlib.Path("data").rglob("*")):
    if path.is_file():
        sys.stdout.buffer.write(path.read_bytes())' | cmp - <(gzip -dc data.gz)
  had deflate
}

data
check "Debian's package of the tests" fetch
check 'test_zlib' module zlib deflate deflateInit2_ deflateCopy deflateSetDictionary inflateCopy
check 'test_gzip' module gzip deflate crc32
check 'real data' there_and_back
finish
