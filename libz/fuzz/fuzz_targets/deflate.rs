//! Calls of a stream, in any order, beside the same calls of stock zlib's: with room for all output the codes are the same, and what comes
//! out holds what went in. Some streams are let go of where the last call has little room.
#![no_main]

use std::ffi::{CStr, c_char, c_int, c_uint};

use libfuzzer_sys::fuzz_target;
use weirgate_deflate::choice::Mode;
use weirgate_deflate::stream::{self, With};
use weirgate_deflate::zlib::{DATA_ERROR, FINISH, OK, STREAM_END, STREAM_SIZE, ZStream, stock};
use weirgate_deflate::{Choice, Counters, Scratch};

/// More than a call can give: what it brings, and what waits from the calls before it.
const ROOM: usize = 128 << 10;

/// What the calls bring together, at most: more than a part, where memory is asked for that collects few.
const ALL_MAX: usize = 64 << 10;

/// And of a last call, of some streams.
const LITTLE: [usize; 8] = [1, 2, 5, 9, 10, 11, 20, 100];

/// Of fixed codes, and its bits.
const EMPTY_BLOCK: (c_int, c_int) = (2, 10);

fuzz_target!(|bytes: &[u8]| {
    let [mode, level, bits, mem, strategy, rest @ ..] = bytes else { return };
    let bits = c_int::from(bits % 7) + 9;
    let bits = [bits, -bits, bits + 16][usize::from(mode / 2 % 3)];
    let brings_last = strategy % 2 == 1;
    let (level, mem) = (c_int::from(level % 10), c_int::from(mem % 9) + 1);
    let strategy = if *strategy < 200 { 0 } else { c_int::from(strategy % 5) };
    let choice = Choice::new(if mode % 2 == 0 { Mode::Same } else { Mode::Fast }, 0.005);
    let (mut scratch, mut now, counters) = (Scratch::default(), 0, Counters::new());
    let (mut ours, mut theirs) = (Box::new(ZStream::EMPTY), Box::new(ZStream::EMPTY));
    // SAFETY: streams of which nothing is known yet.
    unsafe {
        let theirs = &raw mut *theirs;
        let made = stock::deflate_init2(theirs, level, 8, bits, mem, strategy, stock::version(), STREAM_SIZE);
        assert_eq!(stream::init(&raw mut *ours, level, 8, bits, mem, strategy), made);
        assert_eq!(made, OK);
    }
    let (mut all, mut out, mut is_known, mut has_finished) = (Vec::new(), Vec::new(), true, false);
    // Bits, since the last call of `deflate`, and whether there were any.
    let (mut primed, mut is_primed) = (0, false);
    let mut rest = rest;
    while let [op, len, wait, more @ ..] = rest {
        let len = (usize::from(*len) * usize::from(op / 16 + 1)).min(more.len()).min(ALL_MAX - all.len());
        let (part, after) = more.split_at(len);
        rest = after;
        now += u64::from(*wait) * 100_000;
        let mut with = With { scratch: &mut scratch, choice: &choice, counters: &counters, clock: || 0, now };
        let flush = c_int::from(op / 16 % 8) - 1;
        match op % 16 {
            ..10 => {
                // With what is left of each library's last byte they may be one.
                let is_unsure = part.is_empty() && (1..8).contains(&std::mem::take(&mut primed));
                let wanted = call(&mut theirs, part, &mut Vec::new(), |strm| unsafe { stock::deflate(strm, flush) });
                let code = call(&mut ours, part, &mut out, |strm| unsafe { stream::deflate(strm, flush, &mut with) });
                assert!(code == wanted || is_unsure, "flush {flush}: {code:?}, and zlib's {wanted:?}");
                assert!(code.0 >= OK || wanted.0 >= OK || text(ours.msg) == text(theirs.msg));
                assert_eq!((ours.total_in, ours.adler), (theirs.total_in, theirs.adler));
                has_finished |= flush == FINISH;
                all.extend_from_slice(&part[..part.len() - code.1]);
            }
            // "Fast" has one level, and nothing to flush between two.
            10 | 11 if mode % 2 == 0 => {
                let to = c_int::from(*wait) % 12 - 1;
                let theirs = call(&mut theirs, part, &mut Vec::new(), |s| unsafe { stock::deflate_params(s, to, 0) });
                let ours = call(&mut ours, part, &mut out, |s| unsafe { stream::params(s, to, 0, &mut with) });
                assert_eq!(ours, theirs, "level {to}");
                all.extend_from_slice(&part[..part.len() - ours.1]);
            }
            // SAFETY: both are streams, and the dictionary is that long.
            12 => unsafe {
                let (from, len) = (part.as_ptr(), part.len() as c_uint);
                let code = stream::set_dictionary(&raw mut *ours, from, len, &choice);
                assert_eq!(code, stock::deflate_set_dictionary(&raw mut *theirs, from, len));
                is_known &= code != OK;
            },
            // SAFETY: both are streams.
            13 => unsafe {
                assert_eq!((stream::reset(&raw mut *ours), stock::deflate_reset(&raw mut *theirs)), (OK, OK));
                (all, out, is_known, has_finished) = (Vec::new(), Vec::new(), true, false);
            },
            // SAFETY: all are streams.
            14 => unsafe {
                let mut copy = Box::new(ZStream::EMPTY);
                assert_eq!(stream::copy(&raw mut *copy, &raw mut *ours), OK);
                stream::end(&raw mut *ours);
                ours = copy;
            },
            // Before a header they would make it another stream's, and zlib writes them behind an end, too.
            // SAFETY: both are streams.
            15 if wait % 2 == 0 && (bits < 0 || !all.is_empty()) && !has_finished => unsafe {
                let (value, bits) = match op / 16 % 4 {
                    0 | 1 => EMPTY_BLOCK,
                    _ => (c_int::from(*wait) * 0x101, c_int::from(wait / 2 % 19) - 1),
                };
                let code = stream::prime(&raw mut *ours, bits, value, &mut with);
                assert_eq!(code, stock::deflate_prime(&raw mut *theirs, bits, value));
                is_known &= (value, bits) == EMPTY_BLOCK || code != OK;
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
    let mut with = With { scratch: &mut scratch, choice: &choice, counters: &counters, clock: || 0, now };
    if let Some(room) = LITTLE.get(usize::from(mode / 6 % 32)) {
        let last = &bytes[..if brings_last { bytes.len().min(ALL_MAX - all.len()) } else { 0 }];
        let (theirs_last, theirs_left) =
            call_with(*room, &mut theirs, last, &mut Vec::new(), |strm| unsafe { stock::deflate(strm, FINISH) });
        let (ours_last, ours_left) =
            call_with(*room, &mut ours, last, &mut out, |strm| unsafe { stream::deflate(strm, FINISH, &mut with) });
        // Whose output fits is at its end.
        assert_eq!(ours_last.min(OK), theirs_last.min(OK));
        // SAFETY: both are streams.
        let (ours_end, theirs_end) = unsafe { (stream::end(&raw mut *ours), stock::deflate_end(&raw mut *theirs)) };
        // How much waits of bits that come behind some that do not fill a byte depends on these, which are each library's own. Of
        // several blocks zlib has not begun with the last one, and ours may have left input where zlib has none. "Fast" holds another
        // level's output.
        let is_one_block = all.len() + last.len() < 1 << (mem + 6);
        if mode % 2 == 0 && theirs_left == 0 && ours_left == 0 && !is_primed && (is_one_block || theirs_end == OK) {
            assert_eq!(ours_end, theirs_end, "end with room for {room}");
        }
        assert!(ours_end == OK || ours_end == DATA_ERROR);
        return;
    }
    let theirs_last = call(&mut theirs, &[], &mut Vec::new(), |strm| unsafe { stock::deflate(strm, FINISH) });
    let last = call(&mut ours, &[], &mut out, |strm| unsafe { stream::deflate(strm, FINISH, &mut with) });
    assert_eq!((last, ours.adler), (theirs_last, theirs.adler));
    if is_known && last.0 == STREAM_END {
        assert_eq!(inflate(bits, &out, all.len()), all);
    }
    // SAFETY: both are streams.
    unsafe { assert_eq!(stream::end(&raw mut *ours), stock::deflate_end(&raw mut *theirs)) };
});

/// A call with `part` and room for all: its code, and how much of `part` it left.
fn call(
    strm: &mut ZStream,
    part: &[u8],
    out: &mut Vec<u8>,
    what: impl FnOnce(*mut ZStream) -> c_int,
) -> (c_int, usize) {
    call_with(ROOM, strm, part, out, what)
}

fn call_with(
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
fn inflate(bits: c_int, stream: &[u8], len: usize) -> Vec<u8> {
    let mut out = vec![0; len + 1];
    let mut strm = ZStream { next_in: stream.as_ptr(), avail_in: stream.len() as c_uint, ..ZStream::EMPTY };
    (strm.next_out, strm.avail_out) = (out.as_mut_ptr(), out.len() as c_uint);
    // SAFETY: the buffers are that long.
    unsafe {
        assert_eq!(stock::inflate_init2(&raw mut strm, bits, stock::version(), STREAM_SIZE), OK);
        assert_eq!((stock::inflate(&raw mut strm, FINISH), strm.avail_in), (STREAM_END, 0));
        stock::inflate_end(&raw mut strm);
    }
    out.truncate(strm.total_out as usize);
    out
}
