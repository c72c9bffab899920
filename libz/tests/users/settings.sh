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
  : >"$work/libz.conf"
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
  : >"$work/libz.conf"
  [ "$(length WEIRGATE_Z_LARGER_MAX=much)" = "$same" ]
  [ "$(cat "$work/stderr")" = "libweirgate_z: WEIRGATE_Z_LARGER_MAX: larger_max = much is not a share from 0 to 1" ]
}

# What cannot be understood is said once, of variables and files that were named as well, by who compresses and nobody else.
what_is_wrong() {
  rm -f "$work/libz.conf"
  local same problems=(WEIRGATE_Z_MOD=fast $'WEIRGATE_Z_MODE=\xff' "WEIRGATE_Z_CONFIG=$work/none" "WEIRGATE_Z_ACCELERATOR=$work/text")
  same=$(length A=B)
  # Only one that is named has to be there.
  printf '%s\n' "libweirgate_z: $work/libz.conf: No such file or directory (os error 2)" | cmp - "$work/stderr"
  env "LD_PRELOAD=$lib" $python -c 'import sys, zlib; print(len(zlib.compress(b"weir")))' 2>"$work/stderr"
  [ ! -s "$work/stderr" ]
  [ "$(length "${problems[@]}")" = "$same" ]
  cat "$work/stderr"
  [ "$(grep -c '^libweirgate_z: ' "$work/stderr")" = ${#problems[@]} ] && [ "$(wc -l <"$work/stderr")" = ${#problems[@]} ]
  grep -F 'WEIRGATE_Z_MOD: there is no such variable' "$work/stderr"
  grep -F 'WEIRGATE_Z_MODE: it is not UTF-8' "$work/stderr"
  grep -F "libweirgate_z: $work/none: No such file" "$work/stderr"
  grep -F "WEIRGATE_Z_ACCELERATOR: accelerator = $work/text is not a socket" "$work/stderr"
  # It imports zlib, and computes a checksum.
  env "LD_PRELOAD=$lib" "${problems[@]}" $python -c 'import zlib; zlib.crc32(b"weir")' 2>"$work/stderr"
  [ ! -s "$work/stderr" ]
  # A child says what nobody has said, and another one's file in place of the standard error has nothing of it.
  env "LD_PRELOAD=$lib" "${problems[@]}" $python - "$work/closed" 2>"$work/stderr" <<'END'
import os, sys, zlib
def child(does):
    pid = os.fork()
    if pid == 0:
        does()
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
def closed():
    os.close(2)
    assert os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY) == 2
    zlib.compress(b"weir")
child(closed)
child(lambda: zlib.compress(b"weir"))
zlib.compress(b"weir")
child(lambda: zlib.compress(b"weir"))
END
  [ ! -s "$work/closed" ] && [ "$(wc -l <"$work/stderr")" = $((2 * ${#problems[@]})) ]
}

# Of what is wrong, who inflates says what is wrong with that.
wrong_inflate() {
  : >"$work/libz.conf"
  env "LD_PRELOAD=$lib" "WEIRGATE_Z_CONFIG=$work/libz.conf" WEIRGATE_Z_INFLATE=rust WEIRGATE_Z_MODE=quick \
    $python -c 'import zlib; [zlib.decompress(b"x\x9c\x03\x00\x00\x00\x00\x01") for _ in range(9)]' 2>"$work/stderr"
  [ "$(cat "$work/stderr")" = 'libweirgate_z: WEIRGATE_Z_INFLATE: inflate = rust is not zlib or zlib-rs' ]
  [ "$(length WEIRGATE_Z_INFLATE= WEIRGATE_Z_MODE=' same ')" -gt 0 ] && [ ! -s "$work/stderr" ]
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

# Whose inflate it is shows in what an allocator is asked for. It is settled by a process's first stream, and so for who is forked.
inflated() {
  : >"$work/libz.conf"
  for _ in 1 2 3; do
    env "LD_PRELOAD=$lib" "WEIRGATE_Z_CONFIG=$work/libz.conf" $python - "$work/libz.conf" <<'END'
import ctypes, os, sys
allocator = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)
class Stream(ctypes.Structure):
    _fields_ = [("before", ctypes.c_char * 64), ("zalloc", allocator), ("zfree", allocator), ("rest", ctypes.c_char * 32)]
def asked():
    sizes = []
    def zalloc(_, items, size):
        sizes.append(items * size)
        return None
    stream = Stream(zalloc=allocator(zalloc), zfree=allocator(zalloc))
    libz = ctypes.CDLL("libz.so.1")
    assert libz.inflateInit_(ctypes.byref(stream), b"1", ctypes.sizeof(stream)) == -4, "there is no memory"
    return sizes
conf = open(sys.argv[1]).read()
first = asked()
print(*first)
assert first == asked() and len(first) == 1
with open(sys.argv[1], "w") as other:
    other.write("inflate = zlib" if "rs" in conf else "inflate = zlib-rs")
child = os.fork()
if child == 0:
    os._exit(0 if asked() == first else 1)
assert os.waitpid(child, 0)[1] == 0, "the child has the other's"
END
  done >"$work/asked"
  cat "$work/asked"
  # The file said nothing, zlib-rs and zlib.
  local sizes
  mapfile -t sizes <"$work/asked"
  [ "${sizes[0]}" = "${sizes[2]}" ] && [ "${sizes[0]}" != "${sizes[1]}" ]
}

data
text_of 100000 >"$work/text"
check 'a file, the environment before it, and what is wrong in them' by_file
check 'what is wrong is said once, by who compresses' what_is_wrong
check 'a forked child reads the file again' by_children
check 'who inflates' inflated
check 'what is wrong with who inflates' wrong_inflate
finish
