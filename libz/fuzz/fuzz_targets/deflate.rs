//! Calls of a stream, in any order, beside the same calls of stock zlib's: with room for all output the codes are the same, and what comes
//! out holds what went in, with the dictionaries that were set. A copy goes on where the stream ends that it is of. Some streams are let go
//! of where the last call has little room.
#![no_main]

use std::ffi::{CStr, c_char, c_int, c_uint};

use std::sync::atomic::{AtomicU64, Ordering};

use libfuzzer_sys::fuzz_target;
use weirgate_deflate::choice::{Body, Kind, Looked, Mode};
use weirgate_deflate::count::Maker;
use weirgate_deflate::stream::{self, With};
use weirgate_deflate::zlib::{
    BLOCK, DATA_ERROR, FINISH, FULL_FLUSH, NEED_DICT, OK, STREAM_END, STREAM_SIZE, SYNC_FLUSH, ZStream, stock,
};
use weirgate_deflate::{Choice, Counters, Scratch};

/// What the calls bring together, at most: more than a part, which is 204 KB where the most memory is asked for.
const ALL_MAX: usize = 300 << 10;

/// More than a call can give of so many bytes: what it brings, and what waits from the calls before it.
const fn room(len: usize) -> usize {
    2 * len + 4_096
}

/// And of a last call, of some streams.
const LITTLE: [usize; 8] = [1, 2, 5, 9, 10, 11, 20, 100];

/// Of fixed codes, and its bits.
const EMPTY_BLOCK: (c_int, c_int) = (2, 10);

/// What the clock says, a microsecond later each time.
static CLOCK: AtomicU64 = AtomicU64::new(0);

fn clock() -> u64 {
    CLOCK.fetch_add(1_000, Ordering::Relaxed)
}

/// What is known of a stream so far.
#[derive(Clone, Default)]
struct Known {
    /// What went in.
    all: Vec<u8>,
    /// What came out.
    out: Vec<u8>,
    /// The dictionaries, and how much had come out before each.
    dictionaries: Vec<(usize, Vec<u8>)>,
    /// Whether a reader of what came out so far has all that went in, to a whole byte.
    is_flushed: bool,
    /// Whether it holds bits that a reader makes nothing of.
    is_foreign: bool,
}

impl Known {
    fn new() -> Self {
        Self { is_flushed: true, ..Self::default() }
    }
}

/// A choice as it may be after many bodies: with engines at higher levels or out of the choice, or stock zlib as the cheapest.
fn lived(mode: Mode, level: c_int, life: u8) -> Choice {
    let choice = Choice::new(mode, 0.005);
    let lens = [100, 1_000, 4_000, 16_000, 60_000, usize::MAX];
    for body in lens.iter().flat_map(|len| Kind::ALL.map(|kind| Body { level, len: *len, kind })) {
        let stock = Looked { maker: Maker::Stock, level, nanos: 1_000, len: 1_000 };
        match life {
            1..=12 => (0..life % 5).for_each(|_| choice.compare(body, Maker::Libdeflate, 2_000, 1_000)),
            13..=18 => {
                let others = [Maker::Libdeflate, Maker::Igzip].map(|maker| Looked { maker, nanos: 10_000, ..stock });
                (0..100).for_each(|_| choice.looked(body, &[stock, others[0], others[1]], true));
            }
            _ => {}
        }
        if life % 2 == 1 {
            (0..4).for_each(|_| choice.compare(body, Maker::ZlibRs, 2_000, 1_000));
        }
    }
    choice
}

fuzz_target!(|bytes: &[u8]| {
    let [mode, level, bits, mem, strategy, rest @ ..] = bytes else { return };
    let bits = c_int::from(bits % 7) + 9;
    let bits = [bits, -bits, bits + 16][usize::from(mode / 2 % 3)];
    let brings_last = strategy % 2 == 1;
    let (level, life, mem) = (c_int::from(level % 10), level / 10, c_int::from(mem % 9) + 1);
    let strategy = if *strategy < 200 { 0 } else { c_int::from(strategy % 5) };
    let busy: fn() -> u64 = if life % 3 == 0 { clock } else { || 0 };
    let choice = lived(if mode % 2 == 0 { Mode::Same } else { Mode::Fast }, level, life);
    let (mut scratch, mut now, counters) = (Scratch::default(), 0, Counters::new());
    let (mut ours, mut theirs) = (Box::new(ZStream::EMPTY), Box::new(ZStream::EMPTY));
    // SAFETY: streams of which nothing is known yet.
    unsafe {
        let theirs = &raw mut *theirs;
        let made = stock::deflate_init2(theirs, level, 8, bits, mem, strategy, stock::version(), STREAM_SIZE);
        assert_eq!(stream::init(&raw mut *ours, level, 8, bits, mem, strategy), made);
        assert_eq!(made, OK);
    }
    let (mut known, mut has_finished) = (Known::new(), false);
    // Bits, since the last call of `deflate`, and whether there were any.
    let (mut primed, mut is_primed) = (0, false);
    let mut rest = rest;
    while let [op, len, wait, more @ ..] = rest {
        let (part, after) = more.split_at((usize::from(*len) * usize::from(op / 16 + 1)).min(more.len()));
        rest = after;
        // Long bodies of short inputs.
        let mut part = part.repeat(if *wait >= 240 { usize::from(wait - 239) * 16 } else { 1 });
        part.truncate(ALL_MAX - known.all.len());
        now = CLOCK.load(Ordering::Relaxed).max(now) + u64::from(*wait) * 100_000;
        CLOCK.store(now, Ordering::Relaxed);
        let mut with = With { scratch: &mut scratch, choice: &choice, counters: &counters, clock, busy, now };
        let flush = c_int::from(op / 16 % 8) - 1;
        let room = room(known.all.len() + part.len());
        match op % 16 {
            ..10 => {
                // With what is left of each library's last byte they may be one. A flush that there is not leaves them.
                let does = (0..=BLOCK).contains(&flush);
                let is_unsure = does && part.is_empty() && (1..8).contains(&std::mem::take(&mut primed));
                let out = &mut known.out;
                let wanted = call(room, &mut theirs, &part, &mut Vec::new(), |s| unsafe { stock::deflate(s, flush) });
                let code = call(room, &mut ours, &part, out, |s| unsafe {
                    stream::collect(s, flush, || now).unwrap_or_else(|| stream::deflate(s, flush, &mut with))
                });
                assert!(code == wanted || is_unsure, "flush {flush}: {code:?}, and zlib's {wanted:?}");
                if code.0 < OK && wanted.0 < OK {
                    assert_eq!(text(ours.msg), text(theirs.msg), "flush {flush}");
                }
                if is_unsure {
                    // What they said of it stays until they say something else.
                    theirs.msg = ours.msg;
                }
                assert_eq!((ours.total_in, ours.adler), (theirs.total_in, theirs.adler));
                has_finished |= flush == FINISH;
                if code.0 >= OK {
                    known.is_flushed = [SYNC_FLUSH, FULL_FLUSH].contains(&flush);
                }
                known.all.extend_from_slice(&part[..part.len() - code.1]);
            }
            10 | 11 => {
                let (to, strategy) = (c_int::from(*wait) % 12 - 1, c_int::from(op / 16 % 6));
                let theirs = call(room, &mut theirs, &part, &mut Vec::new(), |s| unsafe {
                    stock::deflate_params(s, to, strategy)
                });
                let ours = call(room, &mut ours, &part, &mut known.out, |s| unsafe {
                    stream::params(s, to, strategy, &mut with)
                });
                assert_eq!(ours, theirs, "level {to}, strategy {strategy}");
                known.is_flushed &= known.all.is_empty() && part.is_empty();
                known.all.extend_from_slice(&part[..part.len() - ours.1]);
            }
            // SAFETY: both are streams, and the dictionary is that long.
            12 => unsafe {
                let (from, len) = (part.as_ptr(), part.len() as c_uint);
                let code = stream::set_dictionary(&raw mut *ours, from, len, &choice);
                assert_eq!(code, stock::deflate_set_dictionary(&raw mut *theirs, from, len));
                if code == OK {
                    known.is_foreign |= !known.is_flushed;
                    known.dictionaries.push((known.out.len(), part));
                }
            },
            // SAFETY: both are streams.
            13 => unsafe {
                assert_eq!((stream::reset(&raw mut *ours), stock::deflate_reset(&raw mut *theirs)), (OK, OK));
                (known, has_finished) = (Known::new(), false);
            },
            // SAFETY: all are streams.
            14 => unsafe {
                let (mut our_copy, mut their_copy) = (Box::new(ZStream::EMPTY), Box::new(ZStream::EMPTY));
                assert_eq!(stream::copy(&raw mut *our_copy, &raw mut *ours), OK);
                assert_eq!(stock::deflate_copy(&raw mut *their_copy, &raw mut *theirs), OK);
                finish(bits, &mut ours, &mut theirs, known.clone(), &mut with);
                (ours, theirs) = (our_copy, their_copy);
            },
            // Before a header they would make it another stream's, and zlib writes them behind an end, too.
            // SAFETY: both are streams.
            15 if wait % 2 == 0 && (bits < 0 || !known.all.is_empty()) && !has_finished => unsafe {
                let (value, bits) = match op / 16 % 4 {
                    0 | 1 => EMPTY_BLOCK,
                    _ => (c_int::from(*wait) * 0x101, c_int::from(wait / 2 % 19) - 1),
                };
                let code = stream::prime(&raw mut *ours, bits, value, &mut with);
                assert_eq!(code, stock::deflate_prime(&raw mut *theirs, bits, value));
                known.is_foreign |= (value, bits) != EMPTY_BLOCK && code == OK;
                known.is_flushed = false;
                (is_primed, primed) = (true, primed + bits.max(0));
            },
            // SAFETY: both are streams.
            _ => unsafe {
                let by = c_int::from(*wait);
                let code = stream::tune(&raw mut *ours, by, by, by, by, &choice);
                assert_eq!(code, stock::deflate_tune(&raw mut *theirs, by, by, by, by));
            },
        }
    }
    let mut with = With { scratch: &mut scratch, choice: &choice, counters: &counters, clock, busy, now };
    let Some(room) = LITTLE.get(usize::from(mode / 6 % 32)) else {
        return finish(bits, &mut ours, &mut theirs, known, &mut with);
    };
    let all = known.all.len();
    let last = &bytes[..if brings_last { bytes.len().min(ALL_MAX - all) } else { 0 }];
    let (theirs_last, theirs_left) =
        call(*room, &mut theirs, last, &mut Vec::new(), |s| unsafe { stock::deflate(s, FINISH) });
    let (ours_last, ours_left) =
        call(*room, &mut ours, last, &mut Vec::new(), |s| unsafe { stream::deflate(s, FINISH, &mut with) });
    // Whose output fits is at its end.
    assert_eq!(ours_last.min(OK), theirs_last.min(OK));
    // SAFETY: both are streams.
    let (ours_end, theirs_end) = unsafe { (stream::end(&raw mut *ours), stock::deflate_end(&raw mut *theirs)) };
    // How much waits of bits that come behind some that do not fill a byte depends on these, which are each library's own. Of
    // several blocks zlib has not begun with the last one, and ours may have left input where zlib has none. "Fast" holds another
    // level's output.
    let is_one_block = all + last.len() < 1 << (mem + 6);
    if mode % 2 == 0 && theirs_left == 0 && ours_left == 0 && !is_primed && (is_one_block || theirs_end == OK) {
        assert_eq!(ours_end, theirs_end, "end with room for {room}");
    }
    assert!(ours_end == OK || ours_end == DATA_ERROR);
});

/// The last call of both, with room for all, and their ends: what came out is what went in.
fn finish(bits: c_int, ours: &mut ZStream, theirs: &mut ZStream, known: Known, with: &mut With<'_>) {
    let Known { all, mut out, dictionaries, is_foreign, .. } = known;
    let room = room(all.len());
    let theirs_last = call(room, theirs, &[], &mut Vec::new(), |strm| unsafe { stock::deflate(strm, FINISH) });
    let last = call(room, ours, &[], &mut out, |strm| unsafe { stream::deflate(strm, FINISH, with) });
    assert_eq!((last, ours.adler), (theirs_last, theirs.adler));
    if !is_foreign && last.0 == STREAM_END {
        assert!(inflate(bits, &out, &dictionaries, all.len()) == all, "it holds something else");
    }
    // SAFETY: both are streams.
    unsafe { assert_eq!(stream::end(ours), stock::deflate_end(theirs)) };
}

/// A call with `part` and so much room: its code, and how much of `part` it left.
fn call(
    room: usize,
    strm: &mut ZStream,
    part: &[u8],
    out: &mut Vec<u8>,
    what: impl FnOnce(*mut ZStream) -> c_int,
) -> (c_int, usize) {
    let at = out.len();
    out.resize(at + room, 0);
    (strm.next_in, strm.avail_in) = (part.as_ptr(), part.len() as c_uint);
    (strm.next_out, strm.avail_out) = (out[at..].as_mut_ptr(), room as c_uint);
    let code = what(strm);
    out.truncate(at + room - strm.avail_out as usize);
    (code, strm.avail_in as usize)
}

/// What a stream says of a call.
fn text<'a>(msg: *const c_char) -> Option<&'a CStr> {
    // SAFETY: null, or one of zlib's.
    (!msg.is_null()).then(|| unsafe { CStr::from_ptr(msg) })
}

/// What stock zlib reads from a stream of which `len` bytes are expected.
fn inflate(bits: c_int, stream: &[u8], dictionaries: &[(usize, Vec<u8>)], len: usize) -> Vec<u8> {
    let mut out = vec![0; len + 1];
    let mut strm = ZStream { next_out: out.as_mut_ptr(), avail_out: out.len() as c_uint, ..ZStream::EMPTY };
    let read = |strm: &mut ZStream, bytes: &[u8], flush: c_int| {
        (strm.next_in, strm.avail_in) = (bytes.as_ptr(), bytes.len() as c_uint);
        // SAFETY: it is a stream, and its buffers are that long.
        let code = unsafe { stock::inflate(strm, flush) };
        (code, strm.avail_in as usize)
    };
    let know = |strm: &mut ZStream, bytes: &[u8]| {
        // SAFETY: it is a stream, and the dictionary is that long.
        assert_eq!(unsafe { stock::inflate_set_dictionary(strm, bytes.as_ptr(), bytes.len() as c_uint) }, OK);
    };
    // SAFETY: a stream of which nothing is known yet.
    unsafe { assert_eq!(stock::inflate_init2(&raw mut strm, bits, stock::version(), STREAM_SIZE), OK) };
    let mut stream = stream;
    if bits < 0 {
        // Each is known from where it was set.
        let mut at = 0;
        for (from, dictionary) in dictionaries {
            let (before, after) = stream.split_at(from - at);
            if !before.is_empty() {
                assert_eq!(read(&mut strm, before, SYNC_FLUSH), (OK, 0));
            }
            know(&mut strm, dictionary);
            (at, stream) = (*from, after);
        }
    }
    let mut end = read(&mut strm, stream, FINISH);
    if end.0 == NEED_DICT {
        let all: Vec<u8> = dictionaries.iter().flat_map(|(_, dictionary)| dictionary).copied().collect();
        know(&mut strm, &all);
        end = read(&mut strm, &stream[stream.len() - end.1..], FINISH);
    }
    assert_eq!(end, (STREAM_END, 0));
    // SAFETY: it is a stream.
    unsafe { stock::inflate_end(&raw mut strm) };
    out.truncate(strm.total_out as usize);
    out
}
