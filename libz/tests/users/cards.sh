#!/usr/bin/env bash
# A program that finds a card of Intel's: the stand-in for QATzip of crates/deflate's tests, whose "card" stores what it is given, and so is
# left once the ratio has been looked at; what was looked at is sent as zlib made it.
# usage: libz/tests/users/cards.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
python=/usr/bin/python3

library() {
  cc -O2 -shared -fPIC -Wl,-soname,libqatzip.so.3 -o "$work/libqatzip.so.3" "$here/../../../crates/deflate/tests/qatzip/qatzip.c"
  mkdir -m 1777 "$work/counters"
}

# Says how many bodies whom had, by the counters that a daemon reads: words of 8 bytes, four for each of seven engines after the first one,
# then one for each reason.
card() {
  env "LD_PRELOAD=$lib" "LD_LIBRARY_PATH=$work" "WEIRGATE_Z_COUNTERS=$work/counters" $python - "$work/text" "$work/counters" <<'END'
import os, struct, sys, zlib
text = open(sys.argv[1], "rb").read()
parents = set()
def word(at):
    name, = set(os.listdir(sys.argv[2])) - parents
    words = open(f"{sys.argv[2]}/{name}", "rb").read()
    return struct.unpack_from("=Q", words, 8 * at)[0]
def bodies(engine): return word(1 + 4 * engine)
def stock(): return bodies(0)
def libdeflate(): return bodies(1)
def qatzip(): return bodies(4)
def larger(): return word(1 + 4 * 7 + 10)
sizes = []
for _ in range(20):
    out = zlib.compress(text, 6)
    assert zlib.decompress(out) == text
    sizes.append(len(out))
assert larger() == 4, f"{larger()} by the card, far too large: one at each of the levels 6 to 9"
assert qatzip() == 0 and libdeflate() > 0 and max(sizes) < len(text) / 3, (qatzip(), libdeflate(), sizes)
parents.update(os.listdir(sys.argv[2]))
child = os.fork()
if child == 0:
    assert zlib.decompress(zlib.compress(text, 5)) == text
    assert libdeflate() + stock() == 1, "a child has no card of its parent's"
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
END
}

data
text_of 60000 >"$work/text"
check 'a library in place of QATzip' library
check 'a card is tried, and left where its output is too large' card
finish
