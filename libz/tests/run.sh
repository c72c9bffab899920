#!/usr/bin/env bash
# All tests of libweirgate_z.so as a libz.so.1: its interface, zlib's own programs, and programs that use it. As root, on Debian, with
# the packages of `make setup`.
# usage: libz/tests/run.sh LIBWEIRGATE_Z.so
set -euo pipefail
lib=$(realpath "$1")
cd "$(dirname "$0")"
passed=0
failed=0

run() { # SCRIPT
  said=$("./$1" "$lib" | tee >(cat >&2) | tail -n 1) || true
  if [[ $said =~ ^([0-9]+)\ passed,\ ([0-9]+)\ failed$ ]]; then
    passed=$((passed + BASH_REMATCH[1]))
    failed=$((failed + BASH_REMATCH[2]))
  else
    printf '%s did not come to its end\n' "$1"
    failed=$((failed + 1))
  fi
}

for script in abi.sh zlib.sh users/*.sh; do
  # Others are sourced.
  if [ -x "$script" ]; then run "$script"; fi
done
printf 'streams are inflated by zlib-rs\n'
export WEIRGATE_Z_INFLATE=zlib-rs
for script in zlib.sh users/{curl,git,python}.sh; do run "$script"; done
printf '%d passed, %d failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
