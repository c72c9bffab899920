#!/usr/bin/env bash
# What an operator asks libweirgate_z.so for, by a file and by the environment, and what becomes of it in a program.
# usage: libz/tests/users/settings.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
python=/usr/bin/python3

# How long 100 KB of text become by level 6.
length() { # VARIABLE=VALUE ...
  env "LD_PRELOAD=$lib" "WEIRGATE_Z_CONFIG=$work/libz.conf" "$@" $python -c '
import sys, zlib
print(len(zlib.compress(open(sys.argv[1], "rb").read(), 6)))' "$work/text" 2>"$work/stderr"
}

by_file() {
  rm -f "$work/libz.conf"
  local same fast
  same=$(length A=B)
  echo 'mode = fast' >"$work/libz.conf"
  fast=$(length A=B)
  [ ! -s "$work/stderr" ]
  [ "$fast" -gt $((same * 105 / 100)) ]
  # The environment comes first.
  [ "$(length WEIRGATE_Z_MODE=same)" = "$same" ]
  printf '# nothing\nmode = quick\n' >"$work/libz.conf"
  [ "$(length A=B)" = "$same" ]
  [ "$(cat "$work/stderr")" = "libweirgate_z: $work/libz.conf:2: mode = quick is not same or fast" ]
  rm "$work/libz.conf"
  [ "$(length WEIRGATE_Z_LARGER_MAX=much)" = "$same" ]
  [ "$(cat "$work/stderr")" = "libweirgate_z: WEIRGATE_Z_LARGER_MAX: larger_max = much is not a share from 0 to 1" ]
}

# A web server that reads its configuration again forks anew.
by_children() {
  : >"$work/libz.conf"
  env "LD_PRELOAD=$lib" "WEIRGATE_Z_CONFIG=$work/libz.conf" $python - "$work/text" "$work/libz.conf" <<'END'
import os, sys, zlib
text = open(sys.argv[1], "rb").read()
before = len(zlib.compress(text, 6))
with open(sys.argv[2], "w") as conf:
    conf.write("mode=fast\n")
child = os.fork()
if child == 0:
    os._exit(0 if len(zlib.compress(text, 6)) > before * 1.05 else 1)
assert os.waitpid(child, 0)[1] == 0, "the child has the earlier settings"
assert len(zlib.compress(text, 6)) == before
END
}

data
text_of 100000 >"$work/text"
check 'a file, the environment before it, and what is wrong in them' by_file
check 'a forked child reads the file again' by_children
finish
