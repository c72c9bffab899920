//! Calls of a reader, in any order and with any room, of what our streams hold and of anything else: stock zlib, which the library's inflate
//! is, and zlib-rs give the same codes, take and give the same bytes, and stay at the same place.
#![no_main]

use std::ffi::{c_int, c_uint};

use libfuzzer_sys::fuzz_target;
use libz_rs_sys as rs;
use weirgate_deflate::choice::Mode;
use weirgate_deflate::stream::{self, With};
use weirgate_deflate::zlib::{FINISH, NO_FLUSH, OK, STREAM_END, STREAM_SIZE, ZStream, stock};
use weirgate_deflate::{Choice, Counters, Scratch};

/// What a stream of ours holds, at most.
const ALL_MAX: usize = 256 << 10;

unsafe extern "C" {
    fn weirgate_stock_inflateCopy(dest: *mut ZStream, source: *mut ZStream) -> c_int;
    fn weirgate_stock_inflateGetDictionary(strm: *mut ZStream, dictionary: *mut u8, len: *mut c_uint) -> c_int;
    fn weirgate_stock_inflatePrime(strm: *mut ZStream, bits: c_int, value: c_int) -> c_int;
    fn weirgate_stock_inflateReset(strm: *mut ZStream) -> c_int;
    fn weirgate_stock_inflateReset2(strm: *mut ZStream, bits: c_int) -> c_int;
    fn weirgate_stock_inflateSync(strm: *mut ZStream) -> c_int;
}

fuzz_target!(|bytes: &[u8]| {
    let [mode, level, bits, times, ops, rest @ ..] = bytes else { return };
    let (ops, body) = rest.split_at((usize::from(*ops) * 4).min(rest.len()));
    let bits = c_int::from(bits % 7) + 9;
    let bits = [bits, -bits, bits + 16][usize::from(mode / 4 % 3)];
    let mut stream = match mode % 4 {
        0 => body.to_vec(),
        _ => compressed(body, usize::from(*times) + 1, c_int::from(level % 10), bits),
    };
    if mode % 4 == 3 && !stream.is_empty() {
        let at = usize::from(*times) * 257 % stream.len();
        stream[at] ^= 1 << (level % 8);
    }
    // Also one that finds out whether it is zlib's or gzip's.
    let bits = if mode / 16 % 2 == 1 && bits > 0 { 15 + 32 } else { bits };
    let mut both = Both::new(bits);
    let mut at = 0;
    for op in ops.chunks_exact(4) {
        let &[op, len, room, by] = op else { break };
        let part = &stream[at..][..(usize::from(len) * 4).min(stream.len() - at)];
        let (count, value) = (c_int::from(by % 8), c_int::from(room));
        // SAFETY: both are streams, and what is handed in is as long as is said.
        unsafe {
            match op % 16 {
                ..9 => {
                    at += both.inflate(part, usize::from(room) * 16, [0, 0, 0, 0, 1, 2, 3, 4, 5][usize::from(op % 16)])
                }
                9 => {
                    let (from, len) = (body.as_ptr(), body.len().min(4096) as c_uint);
                    both.same(
                        |s| stock::inflate_set_dictionary(s, from, len),
                        |s| rs::inflateSetDictionary(s, from, len),
                    );
                }
                10 => both.dictionary(),
                // What begins anew reads from the beginning.
                11 | 12 => {
                    if op % 16 == 11 {
                        both.same(|s| weirgate_stock_inflateReset(s), |s| rs::inflateReset(s));
                    } else {
                        both.same(|s| weirgate_stock_inflateReset2(s, bits), |s| rs::inflateReset2(s, bits));
                    }
                    (at, both.is_new) = (0, true);
                }
                13 => both.copy(),
                // Bits before the first byte, as zlib.h has it: in the middle both may give back bytes that they never took.
                14 if bits < 0 && both.is_new => {
                    both.same(|s| weirgate_stock_inflatePrime(s, count, value), |s| rs::inflatePrime(s, count, value))
                }
                15 => at += both.sync(part),
                _ => {}
            }
        }
    }
    // To the end, or to what is wrong.
    loop {
        let taken = both.inflate(&stream[at..], 1 << 16, NO_FLUSH);
        at += taken;
        if both.last != OK || (taken == 0 && both.given == 0) {
            break;
        }
    }
    both.end();
});

/// A stream of ours, of a body that comes again and again.
fn compressed(body: &[u8], times: usize, level: c_int, bits: c_int) -> Vec<u8> {
    let all = body.repeat(times.min(ALL_MAX / body.len().max(1)).max(1));
    let mut out = vec![0; all.len() + all.len() / 8 + 1024];
    let (mut scratch, counters, choice) = (Scratch::default(), Counters::new(), Choice::new(Mode::Same, 0.005));
    let mut with =
        With { scratch: &mut scratch, choice: &choice, counters: &counters, clock: || 0, busy: || 0, now: 0 };
    let mut strm = ZStream { next_in: all.as_ptr(), avail_in: all.len() as c_uint, ..ZStream::EMPTY };
    (strm.next_out, strm.avail_out) = (out.as_mut_ptr(), out.len() as c_uint);
    // SAFETY: a stream of which nothing is known yet, whose buffers are that long.
    unsafe {
        assert_eq!(stream::init(&raw mut strm, level, 8, bits, 8, 0), OK);
        assert_eq!(stream::deflate(&raw mut strm, FINISH, &mut with), STREAM_END);
        stream::end(&raw mut strm);
    }
    out.truncate(strm.total_out as usize);
    out
}

/// A stream of each library, after the same calls.
struct Both {
    stock: Box<ZStream>,
    rs: Box<ZStream>,
    /// The last call's code.
    last: c_int,
    /// How much output the last call gave.
    given: usize,
    /// Whether nothing was read since it began.
    is_new: bool,
}

impl Both {
    fn new(bits: c_int) -> Self {
        let mut stock = Box::new(ZStream::EMPTY);
        // zlib-rs copies no stream whose output goes nowhere.
        stock.next_out = std::ptr::dangling_mut();
        let mut rs = stock.clone();
        // SAFETY: streams of which nothing is known yet.
        let made = unsafe {
            let rs = (&raw mut *rs).cast();
            let made = stock::inflate_init2(&raw mut *stock, bits, stock::version(), STREAM_SIZE);
            assert_eq!(rs::inflateInit2_(rs, bits, rs::zlibVersion(), STREAM_SIZE), made);
            made
        };
        assert_eq!(made, OK);
        Self { stock, rs, last: OK, given: 0, is_new: true }
    }

    /// The same call of both.
    fn same(&mut self, stock: impl FnOnce(*mut ZStream) -> c_int, rs: impl FnOnce(*mut rs::z_stream) -> c_int) {
        self.last = stock(&raw mut *self.stock);
        assert_eq!(rs((&raw mut *self.rs).cast()), self.last);
    }

    /// Reads of `part` what there is `room` for: how much it took.
    fn inflate(&mut self, part: &[u8], room: usize, flush: c_int) -> usize {
        self.is_new = false;
        let (mut first, mut second) = (vec![0; room], vec![0; room]);
        for (strm, out) in [(&mut self.stock, &mut first), (&mut self.rs, &mut second)] {
            (strm.next_in, strm.avail_in) = (part.as_ptr(), part.len() as c_uint);
            (strm.next_out, strm.avail_out) = (out.as_mut_ptr(), room as c_uint);
        }
        // SAFETY: both are streams, and their buffers are that long.
        unsafe { self.same(|strm| stock::inflate(strm, flush), |strm| rs::inflate(strm, flush)) };
        let rooms = (self.stock.avail_in, self.stock.avail_out);
        assert_eq!(
            (self.rs.avail_in, self.rs.avail_out),
            rooms,
            "code {}, flush {flush}, of {} for {room}",
            self.last,
            part.len()
        );
        self.given = room - self.stock.avail_out as usize;
        assert_eq!(second[..self.given], first[..self.given]);
        part.len() - self.stock.avail_in as usize
    }

    /// Looks in `part` for a place where reading can go on: how much it took.
    fn sync(&mut self, part: &[u8]) -> usize {
        for strm in [&mut self.stock, &mut self.rs] {
            (strm.next_in, strm.avail_in) = (part.as_ptr(), part.len() as c_uint);
        }
        // SAFETY: both are streams, and their input is that long.
        unsafe { self.same(|strm| weirgate_stock_inflateSync(strm), |strm| rs::inflateSync(strm)) };
        assert_eq!(self.rs.avail_in, self.stock.avail_in);
        part.len() - self.stock.avail_in as usize
    }

    /// Compares what they have seen last, of which zlib-rs remembers more.
    fn dictionary(&mut self) {
        let (mut first, mut second) = (vec![0; 1 << 15], vec![0; 1 << 15]);
        let (mut len, mut other) = (0, 0);
        // SAFETY: both are streams, and there is room for the largest window.
        self.same(
            |strm| unsafe { weirgate_stock_inflateGetDictionary(strm, first.as_mut_ptr(), &raw mut len) },
            |strm| unsafe { rs::inflateGetDictionary(strm, second.as_mut_ptr(), &raw mut other) },
        );
        let (first, second) = (&first[..len as usize], &second[..other as usize]);
        assert!(second.ends_with(first), "{len} and {other}");
    }

    /// Goes on with copies.
    fn copy(&mut self) {
        let (mut stock, mut rs) = (Box::new(ZStream::EMPTY), Box::new(ZStream::EMPTY));
        // SAFETY: all are streams.
        unsafe {
            let copied = weirgate_stock_inflateCopy(&raw mut *stock, &raw mut *self.stock);
            assert_eq!(copied, OK);
            assert_eq!(rs::inflateCopy((&raw mut *rs).cast(), (&raw mut *self.rs).cast()), copied);
            self.end();
        }
        (self.stock, self.rs) = (stock, rs);
    }

    fn end(&mut self) {
        // SAFETY: both are streams, which are not used again.
        unsafe { self.same(|strm| stock::inflate_end(strm), |strm| rs::inflateEnd(strm)) };
    }
}
