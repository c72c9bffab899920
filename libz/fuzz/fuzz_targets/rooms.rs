//! A caller with little room: a body in pieces, each handed in until it is taken, with any flush, and empty blocks of its own between them.
//! Every call makes progress or says that it cannot (`Z_BUF_ERROR`), and what comes out is what went in to stock zlib, to zlib-rs, and for
//! whole gzip bodies to libdeflate.
#![no_main]

use std::ffi::{c_int, c_uint};

use libfuzzer_sys::fuzz_target;
use weirgate_deflate::choice::Mode;
use weirgate_deflate::stream::{self, With};
use weirgate_deflate::zlib::{BUF_ERROR, FINISH, OK, STREAM_END, STREAM_SIZE, ZStream, stock};
use weirgate_deflate::{Choice, Counters, Scratch, gunzip};

fuzz_target!(|bytes: &[u8]| {
    let [mode, level, bits, mem, times, rest @ ..] = bytes else { return };
    let (wrap, bits) = (mode / 2 % 3, c_int::from(bits % 7) + 9);
    let bits = [bits, -bits, bits + 16][usize::from(wrap)];
    let choice = Choice::new(if mode % 2 == 0 { Mode::Same } else { Mode::Fast }, 0.005);
    let (mut scratch, mut now, counters) = (Scratch::default(), 0, Counters::new());
    let mut strm = Box::new(ZStream::EMPTY);
    // SAFETY: a stream of which nothing is known yet.
    let made = unsafe { stream::init(&raw mut *strm, c_int::from(level % 10), 8, bits, c_int::from(mem % 9) + 1, 0) };
    assert_eq!(made, OK);
    let (mut all, mut out) = (Vec::new(), Vec::new());
    let mut call = |part: &[u8], room: usize, (flush, is_primed): (c_int, bool), now: u64, out: &mut Vec<u8>| {
        let at = out.len();
        out.resize(at + room, 0);
        (strm.next_in, strm.avail_in) = (part.as_ptr(), part.len() as c_uint);
        (strm.next_out, strm.avail_out) = (out[at..].as_mut_ptr(), room as c_uint);
        let mut with =
            With { scratch: &mut scratch, choice: &choice, counters: &counters, clock: || 0, busy: || 0, now };
        if is_primed {
            // An empty block of fixed codes, which a reader passes over.
            // SAFETY: it is a stream.
            let code = unsafe { stream::prime(&raw mut *strm, 10, 2, &mut with) };
            assert!([OK, BUF_ERROR].contains(&code), "{code}");
        }
        // SAFETY: it is a stream, and its buffers are that long.
        let code = unsafe {
            stream::collect(&raw mut *strm, flush, || now)
                .unwrap_or_else(|| stream::deflate(&raw mut *strm, flush, &mut with))
        };
        let (left, given) = (strm.avail_in as usize, room - strm.avail_out as usize);
        out.truncate(at + given);
        let has_moved = left < part.len() || given > 0;
        match code {
            // With room left at the end there is nothing more to be had, and nginx would ask for ever.
            OK if flush == FINISH => assert!(given == room, "it stops before the end"),
            // It may have found out that there is nothing more to do.
            OK => assert!(has_moved || part.is_empty(), "nothing happened, and it is well"),
            BUF_ERROR => assert!(!has_moved && (part.is_empty() || room == 0), "there was something to do"),
            STREAM_END => assert!(flush == FINISH && left == 0),
            other => panic!("code {other}"),
        }
        (code, part.len() - left, given)
    };
    let mut rest = rest;
    while let [op, len, wait, more @ ..] = rest {
        let (part, after) = more.split_at((usize::from(*len) * 4).min(more.len()));
        rest = after;
        now += u64::from(*wait) * 100_000;
        let flush = [0, 0, 0, 1, 2, 3, 5, 0][usize::from(op % 8)];
        // With six bytes or less a flush's mark may come again and again (zlib.h).
        let room = usize::from(op / 8) + if flush == 0 { 1 } else { 7 };
        // Long bodies of short inputs.
        let part = part.repeat(usize::from(*times) + 1);
        let mut left = &part[..];
        // Before a header it would make it another stream's, and where zlib's output has been taken in part it writes over the rest.
        let mut is_primed = op % 8 == 7 && (bits < 0 || !all.is_empty());
        loop {
            let (code, taken, given) = call(left, room, (flush, is_primed), now, &mut out);
            is_primed = false;
            all.extend_from_slice(&left[..taken]);
            left = &left[taken..];
            // What is flushed is all there where there is room left.
            if left.is_empty() && (given < room || code == BUF_ERROR) {
                break;
            }
            assert!(code == OK || !left.is_empty(), "it stops in the middle");
        }
    }
    while call(&[], 100, (FINISH, false), now, &mut out).0 != STREAM_END {}
    // SAFETY: it is a stream.
    unsafe { assert_eq!(stream::end(&raw mut *strm), OK) };
    assert_eq!(by_stock(bits, &out, all.len()), all);
    assert_eq!(by_zlib_rs(bits, &out, all.len()), all);
    if wrap == 2 {
        assert_eq!(gunzip(&out, all.len()), Some(all));
    }
});

/// What stock zlib reads from a stream of which `len` bytes are expected.
fn by_stock(bits: c_int, stream: &[u8], len: usize) -> Vec<u8> {
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

/// What zlib-rs does.
fn by_zlib_rs(bits: c_int, stream: &[u8], len: usize) -> Vec<u8> {
    use libz_rs_sys as rs;
    let mut out = vec![0; len + 1];
    let mut strm = ZStream { next_in: stream.as_ptr(), avail_in: stream.len() as c_uint, ..ZStream::EMPTY };
    (strm.next_out, strm.avail_out) = (out.as_mut_ptr(), out.len() as c_uint);
    let at = (&raw mut strm).cast::<rs::z_stream>();
    // SAFETY: the buffers are that long; both libraries have zlib's stream.
    unsafe {
        assert_eq!(rs::inflateInit2_(at, bits, rs::zlibVersion(), STREAM_SIZE), OK);
        assert_eq!((rs::inflate(at, FINISH), strm.avail_in), (STREAM_END, 0));
        rs::inflateEnd(at);
    }
    out.truncate(strm.total_out as usize);
    out
}
