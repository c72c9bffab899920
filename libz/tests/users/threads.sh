#!/usr/bin/env bash
# Threads on libweirgate_z.so: streams that one thread begins and others go on with, side by side; one that two threads are at; and a bomb
# of zeros that is inflated with little room.
# usage: libz/tests/users/threads.sh LIBWEIRGATE_Z.so
here=$(realpath "$(dirname "$0")")
# shellcheck source=libz/tests/common.sh
. "$here/../common.sh"
python=/usr/bin/python3
printf '%s on %s\n' "$($python --version)" "$1"

# Each round a stream is handed to another thread in the middle of it: all threads have all streams in turn.
handed_on() { # MODE
  WEIRGATE_Z_MODE=$1 ours $python - "$work/text" <<'END'
import sys, threading, zlib
text = open(sys.argv[1], "rb").read()
THREADS, STREAMS, PARTS = 8, 64, 8
lengths = (300, 3_000, 30_000, 180_000, 600_000)
bodies = [text[n * 1_000 : n * 1_000 + lengths[n % len(lengths)]] for n in range(STREAMS)]
# Begun here, and ended elsewhere.
streams = [zlib.compressobj((1, 6, 9)[n % 3], zlib.DEFLATED, (31, 15, -15, -12)[n % 4]) for n in range(STREAMS)]
outs = [bytearray() for _ in streams]
turn = threading.Barrier(THREADS)
failed = []

def thread(me):
    try:
        for part in range(PARTS):
            turn.wait(60)
            for n in range((me + part) % THREADS, STREAMS, THREADS):
                step = -(-len(bodies[n]) // PARTS)
                outs[n] += streams[n].compress(bodies[n][part * step : (part + 1) * step])
                if n % 5 == 0:
                    outs[n] += streams[n].flush(zlib.Z_SYNC_FLUSH)
                if part == PARTS - 1:
                    outs[n] += streams[n].flush()
    except BaseException as error:
        failed.append(error)
        turn.abort()

threads = [threading.Thread(target=thread, args=(me,)) for me in range(THREADS)]
for one in threads:
    one.start()
for one in threads:
    one.join()
assert not failed, failed
for n in range(STREAMS):
    assert zlib.decompress(bytes(outs[n]), (31, 15, -15, -12)[n % 4]) == bodies[n], n
END
  had deflate deflateInit2_ deflateEnd inflate
}

# While a call is at a stream, another thread's gets Z_STREAM_ERROR, and changes nothing.
at_once() {
  ours $python - "$work/text" <<'END'
import ctypes, sys, threading, zlib
class Stream(ctypes.Structure):
    _fields_ = [("next_in", ctypes.c_char_p), ("avail_in", ctypes.c_uint), ("total_in", ctypes.c_ulong), ("next_out", ctypes.c_void_p),
                ("avail_out", ctypes.c_uint), ("total_out", ctypes.c_ulong), ("rest", ctypes.c_void_p * 8)]
assert ctypes.sizeof(Stream) == 112
libz, strm = ctypes.CDLL("libz.so.1"), Stream()
text = open(sys.argv[1], "rb").read() * 8
out = ctypes.create_string_buffer(len(text))
assert libz.deflateInit2_(ctypes.byref(strm), 9, 8, 31, 8, 0, b"1.2.13", 112) == 0
strm.next_in, strm.avail_in = text, len(text)
strm.next_out, strm.avail_out = ctypes.addressof(out), len(out)
codes = []

def deflate():
    # Begun in the middle of a call below, it is the one that is refused.
    while not codes or codes[-1] == -2:
        codes[:] = [libz.deflate(ctypes.byref(strm), 4)]

thread = threading.Thread(target=deflate)
thread.start()
seen = set()
while thread.is_alive():
    seen.add(libz.deflatePending(ctypes.byref(strm), None, None))
thread.join()
assert codes == [1] and -2 in seen and seen <= {0, -2}, (codes, seen)
assert zlib.decompress(out.raw[:strm.total_out], 31) == text
assert libz.deflatePending(ctypes.byref(strm), None, None) == 0 and libz.deflateEnd(ctypes.byref(strm)) == 0
END
  had deflate deflateInit2_ deflateEnd
}

bomb() {
  head -c 100000000 /dev/zero | gzip -9 >"$work/bomb.gz"
  ours $python - "$work/bomb.gz" <<'END'
import resource, sys, zlib
bomb = open(sys.argv[1], "rb").read()
assert len(bomb) < 100_000
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for room in (700, 4_096, 65_536):
    inflate = zlib.decompressobj(31)
    total, given = 0, 0
    while not inflate.eof:
        # Little of it at a time, too: the rest is handed in again.
        more = inflate.unconsumed_tail
        if not more:
            more, given = bomb[given : given + 1_000], given + 1_000
        out = inflate.decompress(more, room)
        assert len(out) <= room and out.count(0) == len(out)
        assert out or inflate.eof or more
        total += len(out)
    assert total == 100_000_000 and not inflate.unused_data
grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
assert grown < 8_000, f"it has taken {grown} KB"
END
  had inflate inflateInit2_ inflateEnd
}

data
text_of 700000 >"$work/text"
for mode in same fast; do
  check "streams that are handed from thread to thread, $mode" handed_on $mode
done
check 'a stream that two threads are at' at_once
check 'a bomb of 100 MB with little room' bomb
finish
