#!/usr/bin/env bash
# pigz, which deflates pieces side by side and joins them, on libweirgate_z.so.
# usage: libz/tests/users/pigz.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
printf '%s on %s\n' "$(pigz --version 2>&1)" "$1"
data
text_of 3000000 >"$work/data/long"

there_and_back() { # OPTION ...
  local file
  for file in long random empty; do
    file=$work/data/$file
    ours pigz "$@" -c <"$file" >"$work/made"
    case " $* " in
    *' -z '*) python3 -c 'import sys, zlib; sys.stdout.buffer.write(zlib.decompress(sys.stdin.buffer.read()))' <"$work/made" | cmp - "$file" ;;
    *) gzip -dc <"$work/made" | cmp - "$file" ;;
    esac
    ours pigz -dc <"$work/made" | cmp - "$file"
  done
  had deflate inflateBack crc32
}

for options in '-p 1' '-p 2' '-p 2 -1' '-p 2 -9' '-p 1 -0' '-p 2 -0' '-p 2 -i' '-p 1 -z' '-p 2 -z' '-p 2 -z -i -9' '-p 2 -R' '-p 2 -b 32' '-p 2 -b 2048 -1' '-p 2 -U'; do
  # shellcheck disable=SC2086 # They are words.
  check "pigz $options" there_and_back $options
done
finish
