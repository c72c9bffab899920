//! A stream against stock zlib's, call by call, and what comes out of it through stock zlib's inflate.

mod again;
mod parts;
mod pieces;

use std::collections::BTreeMap;
use std::ffi::{c_int, c_uint, c_void};
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};

use proptest::prelude::*;

use crate::choice::{Body, Choice, Mode};
use crate::count::{Maker, Reason};
use crate::engine::{Engine, Igzip, Libdeflate, Stock, bound};
use crate::stream::{self, With};
use crate::zlib::{
    BUF_ERROR, DATA_ERROR, FINISH, FULL_FLUSH, NO_FLUSH, OK, STREAM_END, STREAM_ERROR, STREAM_SIZE, SYNC_FLUSH,
    ZStream, stock,
};
use crate::{Counters, Scratch};

/// How a stream is set up: level, windowBits, memLevel, strategy.
type Setup = (c_int, c_int, c_int, c_int);

const SETUP: Setup = (6, 31, 8, 0);

/// More than one call of a test that compares codes can give.
const ROOM: usize = 1 << 18;

/// A caller: its stream, ours or stock zlib's, what it has had of it, and a clock.
struct Caller {
    strm: Box<ZStream>,
    is_ours: bool,
    out: Vec<u8>,
    scratch: Scratch,
    choice: Choice,
    counters: Counters,
    clock: fn() -> u64,
    busy: fn() -> u64,
    now: u64,
}

impl Caller {
    fn new(is_ours: bool, (level, bits, mem, strategy): Setup) -> Self {
        let mut strm = Box::new(ZStream::EMPTY);
        // SAFETY: a stream of which nothing is known yet.
        let code = unsafe {
            if is_ours {
                stream::init(&raw mut *strm, level, 8, bits, mem, strategy)
            } else {
                stock::deflate_init2(&raw mut *strm, level, 8, bits, mem, strategy, stock::version(), STREAM_SIZE)
            }
        };
        assert_eq!(code, OK);
        Self::of(strm, is_ours)
    }

    /// Of a stream that was set up.
    fn of(strm: Box<ZStream>, is_ours: bool) -> Self {
        let (scratch, choice, counters) = (Scratch::default(), Choice::default(), Counters::new());
        Self { strm, is_ours, out: Vec::new(), scratch, choice, counters, clock: || 0, busy: || 0, now: 0 }
    }

    fn ours(setup: Setup) -> Self {
        Self::new(true, setup)
    }

    /// Its stream, and what a call has beside it.
    fn with(&mut self) -> (*mut ZStream, With<'_>) {
        let Self { strm, scratch, choice, counters, clock, busy, now, .. } = self;
        (&raw mut **strm, With { scratch, choice, counters, clock: *clock, busy: *busy, now: *now })
    }

    /// One call with all of `input` and room for `room` bytes: its code, and how much of the input it left.
    fn call(&mut self, input: &[u8], flush: c_int, room: usize) -> (c_int, usize) {
        let at = self.out.len();
        // Beyond its room as well.
        self.out.resize(at + room + 64, 0xAA);
        (self.strm.next_in, self.strm.avail_in) = (input.as_ptr(), input.len() as c_uint);
        (self.strm.next_out, self.strm.avail_out) = (self.out[at..].as_mut_ptr(), room as c_uint);
        let (total_in, total_out) = (self.strm.total_in, self.strm.total_out);
        let is_ours = self.is_ours;
        let (strm, mut with) = self.with();
        let now = with.now;
        // SAFETY: the buffers are that long.
        let code = unsafe {
            if is_ours {
                stream::collect(strm, flush, || now).unwrap_or_else(|| stream::deflate(strm, flush, &mut with))
            } else {
                stock::deflate(strm, flush)
            }
        };
        let (left, free) = (self.strm.avail_in as usize, self.strm.avail_out as usize);
        assert_eq!(self.strm.total_in - total_in, (input.len() - left) as u64);
        assert_eq!(self.strm.total_out - total_out, (room - free) as u64);
        assert!(self.out[at + room..].iter().all(|byte| *byte == 0xAA), "it writes beyond its room");
        self.out.truncate(at + room - free);
        (code, left)
    }

    /// Hands in all of `input` with `flush`, as zlib.h says, with room for `room` bytes in each call: the last code.
    fn all(&mut self, input: &[u8], flush: c_int, room: usize) -> c_int {
        let mut input = input;
        for _ in 0..10_000_000 {
            let (code, left) = self.call(input, flush, room);
            input = &input[input.len() - left..];
            assert!([OK, STREAM_END, BUF_ERROR].contains(&code), "{code}");
            let is_full = self.strm.avail_out == 0;
            // Who has room left after `Z_FINISH` calls again at once, and would do so for ever.
            assert!(code == STREAM_END || is_full || flush != FINISH, "{code} with room left");
            if code == STREAM_END || !is_full {
                assert!(input.is_empty());
                return code;
            }
        }
        panic!("it never ends");
    }

    /// As [`call`](Self::call), for another level.
    fn params(&mut self, level: c_int, strategy: c_int, input: &[u8]) -> (c_int, usize) {
        let mut room = vec![0; ROOM];
        (self.strm.next_in, self.strm.avail_in) = (input.as_ptr(), input.len() as c_uint);
        (self.strm.next_out, self.strm.avail_out) = (room.as_mut_ptr(), ROOM as c_uint);
        let is_ours = self.is_ours;
        let (strm, mut with) = self.with();
        // SAFETY: the buffers are that long.
        let code = unsafe {
            if is_ours {
                stream::params(strm, level, strategy, &mut with)
            } else {
                stock::deflate_params(strm, level, strategy)
            }
        };
        self.out.extend_from_slice(&room[..room.len() - self.strm.avail_out as usize]);
        (code, self.strm.avail_in as usize)
    }

    fn reset(&mut self) -> c_int {
        let strm = &raw mut *self.strm;
        self.out.clear();
        // SAFETY: it was set up.
        unsafe { if self.is_ours { stream::reset(strm) } else { stock::deflate_reset(strm) } }
    }

    fn dictionary(&mut self, bytes: &[u8]) -> c_int {
        let (strm, len) = (&raw mut *self.strm, bytes.len() as c_uint);
        // SAFETY: it is that long.
        unsafe {
            if self.is_ours {
                stream::set_dictionary(strm, bytes.as_ptr(), len, &self.choice)
            } else {
                stock::deflate_set_dictionary(strm, bytes.as_ptr(), len)
            }
        }
    }

    /// What it knows of what came.
    fn known(&mut self) -> Vec<u8> {
        let (strm, mut bytes, mut len) = (&raw mut *self.strm, vec![0; 32 << 10], 0);
        // SAFETY: there is room for a window.
        let code = unsafe {
            if self.is_ours {
                stream::get_dictionary(strm, bytes.as_mut_ptr(), &raw mut len)
            } else {
                stock::deflate_get_dictionary(strm, bytes.as_mut_ptr(), &raw mut len)
            }
        };
        assert_eq!(code, OK);
        bytes.truncate(len as usize);
        bytes
    }

    /// How many bodies an engine has had, or begun to have.
    fn bodies(&self, maker: Maker) -> u64 {
        self.counters.totals().made[maker as usize].bodies
    }

    fn reasons(&self, reason: Reason) -> u64 {
        self.counters.totals().reasons[reason as usize]
    }

    fn tune(&mut self, by: c_int) -> c_int {
        let (strm, by) = (&raw mut *self.strm, by.max(1));
        // SAFETY: it was set up.
        unsafe {
            if self.is_ours {
                stream::tune(strm, by, by, by, by, &self.choice)
            } else {
                stock::deflate_tune(strm, by, by, by, by)
            }
        }
    }

    /// A copy of it, which goes on in its place.
    fn copied(&mut self) -> Self {
        let (mut strm, from) = (Box::new(ZStream::EMPTY), &raw mut *self.strm);
        // SAFETY: both are streams.
        let code = unsafe {
            if self.is_ours { stream::copy(&raw mut *strm, from) } else { stock::deflate_copy(&raw mut *strm, from) }
        };
        assert_eq!(code, OK);
        let mut copy = Self::of(strm, self.is_ours);
        (copy.out, copy.now) = (self.out.clone(), self.now);
        copy
    }

    fn end(&mut self) -> c_int {
        let strm = &raw mut *self.strm;
        // SAFETY: it was set up.
        unsafe { if self.is_ours { stream::end(strm) } else { stock::deflate_end(strm) } }
    }
}

impl Drop for Caller {
    fn drop(&mut self) {
        if !self.strm.state.is_null() {
            self.end();
        }
    }
}

/// What stock zlib reads from a stream, to its end.
fn inflate(bits: c_int, dictionary: &[u8], stream: &[u8]) -> Vec<u8> {
    let mut strm = ZStream { next_in: stream.as_ptr(), avail_in: stream.len() as c_uint, ..ZStream::EMPTY };
    let mut out = Vec::new();
    // SAFETY: the buffers are as long as is said.
    unsafe {
        assert_eq!(stock::inflate_init2(&raw mut strm, bits, stock::version(), STREAM_SIZE), OK);
        if !dictionary.is_empty() {
            let len = dictionary.len() as c_uint;
            assert_eq!(stock::inflate_set_dictionary(&raw mut strm, dictionary.as_ptr(), len), OK);
        }
        loop {
            let at = out.len();
            out.resize(at + (64 << 10), 0);
            (strm.next_out, strm.avail_out) = (out[at..].as_mut_ptr(), 64 << 10);
            let code = stock::inflate(&raw mut strm, NO_FLUSH);
            out.truncate(at + (64 << 10) - strm.avail_out as usize);
            if code == STREAM_END {
                break;
            }
            assert!(code == OK, "inflate: {code} after {} bytes", out.len());
        }
        assert_eq!((strm.avail_in, stock::inflate_end(&raw mut strm)), (0, OK), "nothing follows the end");
    }
    out
}

/// Bytes like a page's: `kind` 0 words, 1 noise, 2 one byte.
fn body(kind: u8, seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let mut out = Vec::with_capacity(len + 16);
    while out.len() < len {
        match kind {
            0 => {
                out.extend_from_slice(format!("<li class=\"w{}\">{:x}</li>\n", next() % 50, next() % 4_096).as_bytes())
            }
            1 => out.extend_from_slice(&next().to_le_bytes()),
            _ => out.push(b'x'),
        }
    }
    out.truncate(len);
    out
}

fn is_like(ours: usize, stock: usize) -> bool {
    ours <= stock + stock / 50 + 16
}

#[test]
fn a_file_as_nginx_sends_it_is_one_block_at_its_end() {
    let page = body(0, 1, 88_000);
    let mut caller = Caller::ours(SETUP);
    for part in page[..65_536].chunks(32_768) {
        assert_eq!((caller.call(part, NO_FLUSH, 4_096), caller.out.len()), ((OK, 0), 0));
    }
    assert_eq!(caller.all(&page[65_536..], FINISH, 4_096), STREAM_END);
    assert_eq!(caller.call(&[], FINISH, 4_096), (STREAM_END, 0), "and so it stays");
    let mut stock = Caller::new(false, SETUP);
    stock.all(&page, FINISH, 4_096);
    assert!(is_like(caller.out.len(), stock.out.len()), "{} {}", caller.out.len(), stock.out.len());
    assert_eq!((inflate(31, &[], &caller.out), caller.strm.adler), (page, stock.strm.adler));
    assert_eq!((caller.strm.total_in, caller.end()), (88_000, OK));
}

#[test]
fn what_is_asked_for_in_between_comes_at_once() {
    let page = body(0, 2, 30_000);
    let mut caller = Caller::ours((6, -15, 8, 0));
    assert_eq!(caller.all(&page[..10_000], NO_FLUSH, 4_096), OK);
    assert!(caller.out.is_empty());
    // nginx asks with no input where a response is not buffered.
    assert_eq!(caller.all(&[], SYNC_FLUSH, 4_096), OK);
    let so_far = caller.out.clone();
    assert_eq!(&so_far[so_far.len() - 4..], [0, 0, 0xff, 0xff]);
    assert_eq!(caller.call(&[], SYNC_FLUSH, 4_096), (BUF_ERROR, 0), "there is nothing to add");
    assert_eq!(caller.all(&page[10_000..], FINISH, 100), STREAM_END);
    assert_eq!(inflate(-15, &[], &caller.out), page);
    let apart: usize = [&page[..10_000], &page[10_000..]]
        .iter()
        .map(|part| {
            let mut stock = Caller::new(false, (6, -15, 8, 0));
            stock.all(part, FINISH, 4_096);
            stock.out.len()
        })
        .sum();
    assert!(caller.out.len() < apart, "the first part is the second one's history: {} {apart}", caller.out.len());
}

/// What nginx 1.22 charges for a stream, in bytes, against what it set aside.
#[test]
fn every_setup_fits_what_nginx_sets_aside() {
    #[derive(Default)]
    struct Nginx {
        charged: usize,
        given: BTreeMap<usize, Vec<u128>>,
    }
    unsafe extern "C" fn alloc(opaque: *mut c_void, items: c_uint, size: c_uint) -> *mut c_void {
        // SAFETY: the test's, below.
        let nginx = unsafe { &mut *opaque.cast::<Nginx>() };
        let size = items as usize * size as usize;
        nginx.charged += if items == 1 && !size.is_multiple_of(512) && size < 8_192 { 8_192 } else { size };
        let mut memory = vec![0; size.div_ceil(16)];
        let at = memory.as_mut_ptr();
        nginx.given.insert(at as usize, memory);
        at.cast()
    }
    unsafe extern "C" fn free(opaque: *mut c_void, address: *mut c_void) {
        // SAFETY: the test's, below.
        let nginx = unsafe { &mut *opaque.cast::<Nginx>() };
        assert!(nginx.given.remove(&(address as usize)).is_some());
    }
    for (bits, mem) in (9..=15).flat_map(|bits| (1..=9).map(move |mem| (bits, mem))) {
        let mut nginx = Nginx::default();
        let page = body(0, 4, 600_000);
        for (len, part) in [(100, 100), (400, 200), (1 << bits, 4_096), (600_000, 32_768)] {
            let mut strm = Box::new(ZStream { zalloc: Some(alloc), zfree: Some(free), ..ZStream::EMPTY });
            strm.opaque = (&raw mut nginx).cast();
            // SAFETY: the allocator is the one above.
            assert_eq!(unsafe { stream::init(&raw mut *strm, 6, 8, bits + 16, mem, 0) }, OK);
            let mut caller = Caller::of(strm, true);
            for part in page[..len].chunks(part) {
                caller.all(part, NO_FLUSH, 4_096);
            }
            assert_eq!(caller.all(&[], FINISH, 4_096), STREAM_END);
            assert_eq!(inflate(bits + 16, &[], &caller.out), page[..len], "{bits} {mem} {len}");
            let budget = 8_208 + (1 << (bits + 2)) + (1 << (mem + 9));
            assert!(nginx.charged <= budget, "{bits} {mem}: {} of {budget}", nginx.charged);
            assert_eq!((caller.end(), nginx.given.len()), (OK, 0));
            nginx.charged = 0;
        }
    }
}

#[test]
fn a_dictionary_a_header_and_bits_before_the_data_are_zlibs() {
    let page = body(0, 5, 40_000);
    let mut caller = Caller::ours((6, 15, 8, 0));
    let dictionary = &page[..20_000];
    // SAFETY: it is that long.
    let code = unsafe { stream::set_dictionary(&raw mut *caller.strm, dictionary.as_ptr(), 20_000, &caller.choice) };
    assert_eq!((code, caller.all(&page, FINISH, 4_096)), (OK, STREAM_END));
    assert!(caller.out[1] & 0x20 != 0, "its header names a dictionary");
    let mut caller = Caller::ours((6, -15, 8, 0));
    let (strm, mut with) = caller.with();
    // SAFETY: an empty stored block (three bits, and zeros to the byte's end), that a caller wrote itself.
    let code = unsafe { stream::prime(strm, 8, 0, &mut with) };
    assert_eq!((code, caller.call(&page, FINISH, 90_000).0), (OK, STREAM_END));
    assert_eq!(caller.out[0], 0);
}

#[test]
fn a_raw_stream_takes_a_dictionary_while_its_output_waits() {
    let (first, dictionary) = (body(1, 15, 3_000), body(1, 16, 20_000));
    let mut both = [true, false].map(|is_ours| Caller::new(is_ours, (6, -15, 8, 0)));
    for caller in &mut both {
        // Noise: the blocks of its flush do not fit, and zlib's window is through.
        assert_eq!(caller.call(&first, SYNC_FLUSH, 100), (OK, 0));
        assert_eq!(caller.dictionary(&dictionary), OK);
        caller.all(&[], SYNC_FLUSH, 500);
        let flushed = caller.out.len();
        assert_eq!(caller.all(&dictionary, FINISH, 500), STREAM_END);
        assert!(caller.out.len() - flushed < 500, "it is known: {}", caller.out.len());
        let mut strm = ZStream { next_in: caller.out.as_ptr(), avail_in: flushed as c_uint, ..ZStream::EMPTY };
        let mut out = vec![0; first.len() + dictionary.len()];
        (strm.next_out, strm.avail_out) = (out.as_mut_ptr(), out.len() as c_uint);
        // SAFETY: the buffers are that long.
        unsafe {
            assert_eq!(stock::inflate_init2(&raw mut strm, -15, stock::version(), STREAM_SIZE), OK);
            assert_eq!((stock::inflate(&raw mut strm, NO_FLUSH), strm.avail_in), (OK, 0));
            assert_eq!(stock::inflate_set_dictionary(&raw mut strm, dictionary.as_ptr(), 20_000), OK);
            strm.avail_in = (caller.out.len() - flushed) as c_uint;
            assert_eq!((stock::inflate(&raw mut strm, FINISH), strm.avail_out), (STREAM_END, 0));
            stock::inflate_end(&raw mut strm);
        }
        assert_eq!(out, [&first[..], &dictionary].concat());
    }
    // Where all of it has come it is taken for nothing.
    for is_ours in [true, false] {
        let mut caller = Caller::new(is_ours, (6, -15, 8, 0));
        assert_eq!(caller.call(&first, FINISH, 100), (OK, 0));
        assert_eq!(caller.dictionary(&dictionary), OK);
        assert_eq!(caller.all(&[], FINISH, 500), STREAM_END);
        assert_eq!(inflate(-15, &[], &caller.out), first);
    }
}

#[test]
fn a_level_changes_where_it_is_asked_to() {
    let (noise, page) = (body(1, 6, 3_000), body(0, 6, 30_000));
    for level in [0, 1, 9] {
        let mut caller = Caller::ours(SETUP);
        caller.all(&noise, NO_FLUSH, 4_096);
        let mut room = vec![0; 8_192];
        (caller.strm.next_out, caller.strm.avail_out, caller.strm.avail_in) = (room.as_mut_ptr(), 8_192, 0);
        let (strm, mut with) = caller.with();
        // SAFETY: the buffers are that long.
        assert_eq!(unsafe { stream::params(strm, level, 0, &mut with) }, OK);
        let given = 8_192 - caller.strm.avail_out as usize;
        caller.out.extend_from_slice(&room[..given]);
        caller.all(&page, FINISH, 4_096);
        assert_eq!(inflate(31, &[], &caller.out), [&noise[..], &page].concat());
        assert_eq!(caller.out.len() > 33_000, level == 0, "{level}: {}", caller.out.len());
    }
}

#[test]
fn a_copy_goes_its_own_way() {
    let (page, other) = (body(0, 7, 50_000), body(0, 8, 50_000));
    for (before, flush) in [(0, NO_FLUSH), (20_000, NO_FLUSH), (20_000, SYNC_FLUSH)] {
        let mut first = Caller::ours(SETUP);
        if before > 0 {
            first.all(&page[..before], flush, 4_096);
        }
        let mut strm = Box::new(ZStream::EMPTY);
        // SAFETY: both are streams.
        assert_eq!(unsafe { stream::copy(&raw mut *strm, &raw mut *first.strm) }, OK);
        let mut second = Caller::of(strm, true);
        second.out = first.out.clone();
        second.all(&other, FINISH, 999);
        first.all(&page[before..], FINISH, 999);
        assert_eq!(inflate(31, &[], &first.out), page);
        assert_eq!(inflate(31, &[], &second.out), [&page[..before], &other].concat());
    }
}

#[test]
fn a_dictionary_is_too_late_only_where_zlib_has_some_of_the_input() {
    let page = body(0, 12, 20_000);
    for (wait, flush) in [(9_000_000, NO_FLUSH), (0, SYNC_FLUSH)] {
        let mut caller = Caller::ours((6, -15, 8, 0));
        caller.call(&page, NO_FLUSH, 1 << 16);
        caller.now = wait;
        assert_eq!(caller.call(b"x", flush, 1 << 16), (OK, 0));
        assert_eq!(caller.call(&[], NO_FLUSH, 1 << 16), (BUF_ERROR, 0), "which changes nothing");
        assert_eq!(caller.dictionary(&page), if flush == NO_FLUSH { STREAM_ERROR } else { OK });
    }
}

#[test]
fn fast_refuses_another_level_after_the_end_as_zlib_does() {
    let mut ours = Caller::ours(SETUP);
    ours.choice = Choice::new(Mode::Fast, 0.005);
    let mut stock = Caller::new(false, SETUP);
    for caller in [&mut ours, &mut stock] {
        assert_eq!(caller.call(&[], FINISH, 1 << 16), (STREAM_END, 0));
        let codes = [caller.params(3, 0, &[]), caller.params(7, 0, &[])];
        assert_eq!(codes, [(STREAM_ERROR, 0), (OK, 0)], "7 goes about it as 6 does");
    }
}

#[test]
fn a_stream_that_is_none_is_refused() {
    let (mut caller, mut none) = (Caller::ours(SETUP), ZStream::EMPTY);
    let (mut scratch, choice) = (Scratch::default(), Choice::default());
    let mut with =
        With { scratch: &mut scratch, choice: &choice, counters: &caller.counters, clock: || 0, busy: || 0, now: 0 };
    // SAFETY: these are what zlib looks at before it believes them.
    unsafe {
        assert_eq!(stream::deflate(ptr::null_mut(), NO_FLUSH, &mut with), STREAM_ERROR);
        assert_eq!(stream::deflate(&raw mut none, NO_FLUSH, &mut with), STREAM_ERROR);
        let mut copied = Box::new(*caller.strm);
        assert_eq!(stream::deflate(&raw mut *copied, NO_FLUSH, &mut with), STREAM_ERROR, "copied by memcpy");
        assert_eq!((caller.call(b"x", 6, 9).0, caller.call(b"x", -1, 9).0), (STREAM_ERROR, STREAM_ERROR));
        assert_eq!(caller.call(b"x", NO_FLUSH, 0), (BUF_ERROR, 1));
        assert_eq!(caller.call(b"x", NO_FLUSH, 9), (OK, 0));
        assert_eq!(caller.end(), DATA_ERROR, "in the middle");
        assert_eq!(caller.end(), STREAM_ERROR, "twice");
        assert_eq!(stream::init(&raw mut *caller.strm, 10, 8, 15, 8, 0), STREAM_ERROR);
        assert_eq!(stream::init(&raw mut *caller.strm, 6, 8, -8, 8, 0), STREAM_ERROR);
    }
}

#[test]
fn a_stream_that_a_call_is_at_is_refused_to_another_one() {
    static STREAM: AtomicPtr<ZStream> = AtomicPtr::new(ptr::null_mut());
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    let page = body(0, 13, 20_000);
    let mut caller = Caller::ours(SETUP);
    STREAM.store(&raw mut *caller.strm, Ordering::Relaxed);
    // In the middle of a call, as a signal's handler might.
    caller.clock = || {
        let strm = STREAM.load(Ordering::Relaxed);
        let (mut scratch, choice, counters) = (Scratch::default(), Choice::default(), Counters::new());
        let mut with =
            With { scratch: &mut scratch, choice: &choice, counters: &counters, clock: || 0, busy: || 0, now: 0 };
        // SAFETY: it is a stream.
        let codes = unsafe {
            [
                stream::deflate(strm, FINISH, &mut with),
                stream::params(strm, 1, 0, &mut with),
                stream::tune(strm, 1, 1, 1, 1, &choice),
            ]
        };
        assert_eq!(codes, [STREAM_ERROR; 3]);
        REFUSED.fetch_add(1, Ordering::Relaxed);
        0
    };
    caller.call(&page[..10_000], NO_FLUSH, 1 << 16);
    assert_eq!(caller.call(&page[10_000..], FINISH, 1 << 16), (STREAM_END, 0));
    assert!(REFUSED.load(Ordering::Relaxed) > 0);
    assert_eq!(inflate(31, &[], &caller.out), page);
    caller.clock = || 0;
    assert_eq!(
        (caller.reset(), caller.call(&page, FINISH, 1 << 16)),
        (OK, (STREAM_END, 0)),
        "nobody is at it any more"
    );
    // SAFETY: it is a stream.
    unsafe { stream::leave(&raw mut *caller.strm) };
    assert_eq!(caller.call(&page, FINISH, 1 << 16).0, STREAM_ERROR);
    assert_eq!((caller.reset(), caller.call(&page, FINISH, 1 << 16), caller.end()), (OK, (STREAM_END, 0), OK));
}

#[test]
fn engines_make_what_zlib_reads() {
    let mut engines: Vec<(String, Box<dyn Engine>)> = Vec::new();
    for level in 0..=Libdeflate::LEVEL_MAX {
        engines.push((format!("libdeflate {level}"), Box::new(Libdeflate::new(level).unwrap())));
    }
    for level in 0..=9 {
        engines.push((format!("stock {level}"), Box::new(Stock::new(level))));
    }
    match Igzip::load() {
        Some(igzip) => engines.push(("igzip".to_owned(), Box::new(igzip))),
        None => println!("SKIPPED: igzip, since libisal2 is not installed"),
    }
    for (name, engine) in &mut engines {
        for (kind, len) in [(0, 1), (0, 5_000), (0, 300_000), (1, 5_000), (1, 300_000), (2, 300_000)] {
            let page = body(kind, 9, len);
            let mut out = vec![MaybeUninit::uninit(); bound(len)];
            let made = engine.compress(&page, &mut out).unwrap_or_else(|_| panic!("{name} {kind} {len}"));
            // SAFETY: an engine's output is initialised.
            let made = unsafe { out[..made].assume_init_ref() }.to_vec();
            assert_eq!(inflate(-15, &[], &made), page, "{name}");
            assert_eq!(
                engine.compress(&page, &mut out[..made.len() - 1]),
                Err(Reason::Failed),
                "{name}: it does not fit"
            );
        }
    }
}

#[test]
fn small_windows_are_looked_back_in_only() {
    // What repeats only after 20 KB.
    let half = body(1, 10, 20_000);
    let page = [&half[..], &half].concat();
    for mode in [Mode::Same, Mode::Fast] {
        for bits in [15, 14, 9] {
            let mut caller = Caller::ours((6, -bits, 8, 0));
            caller.choice = Choice::new(mode, 0.005);
            caller.all(&page, FINISH, 50_000);
            assert_eq!(inflate(-bits, &[], &caller.out), page);
            let is_found = caller.out.len() < 30_000;
            // Whether igzip finds what is so far back is its own affair: on x86-64 it does not, on aarch64 it does.
            if bits < 15 || mode == Mode::Same {
                assert_eq!(is_found, bits == 15, "{mode:?} {bits}: {}", caller.out.len());
            }
        }
    }
}

fn setups() -> impl Strategy<Value = Setup> {
    let bits = prop_oneof![Just(15), Just(-15), Just(31), 9..=15, 25..=31, (9..=15).prop_map(|bits: c_int| -bits)];
    // The last ones have the smallest stages that are parts.
    let memory = prop_oneof![2 => (bits, 1..=9), 1 => Just((13, 5)), 1 => Just((-12, 6)), 1 => Just((30, 1))];
    (prop_oneof![3 => Just(6), 1 => -1..=9], memory, prop_oneof![9 => Just(0), 1 => 0..=4])
        .prop_map(|(level, (bits, mem), strategy)| (level, bits, mem, strategy))
}

/// A call: kind and length of what it brings, its flush, room in each call, milliseconds before it.
type Step = (u8, usize, c_int, usize, u64);

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let len = prop_oneof![1 => Just(0), 4 => 0_usize..4_000, 2 => 0_usize..60_000, 1 => 0_usize..400_000];
    let flush = prop_oneof![6 => Just(NO_FLUSH), 1 => Just(SYNC_FLUSH), 1 => Just(FULL_FLUSH), 1 => 0..=5_i32];
    let room = prop_oneof![1_usize..40, 100_usize..5_000, Just(4_096), Just(1 << 20)];
    prop::collection::vec(
        (0_u8..3, len, flush.prop_map(|f| if f == FINISH { SYNC_FLUSH } else { f }), room, 0_u64..4),
        0..9,
    )
}

proptest! {
    /// Whatever is handed in, however, and whatever is asked for in between: it comes out again, and what was flushed is there.
    #[test]
    fn what_goes_in_comes_out(setup in setups(), steps in steps(), mode in 0..2, last in 1_usize..5_000) {
        let mut caller = Caller::ours(setup);
        caller.choice = Choice::new(if mode == 0 { Mode::Same } else { Mode::Fast }, 0.005);
        let mut all = Vec::new();
        for (n, (kind, len, flush, room, wait)) in steps.into_iter().enumerate() {
            let part = body(kind, n as u64 + 1, len);
            caller.now += wait * 1_000_000;
            // zlib.h: with less room than this a marker may be repeated.
            caller.all(&part, flush, if flush == NO_FLUSH { room } else { room.max(16) });
            all.extend_from_slice(&part);
        }
        prop_assert_eq!(caller.all(&[], FINISH, last), STREAM_END);
        prop_assert_eq!(caller.strm.total_in, all.len() as u64);
        let bits = if setup.1.abs() == 8 { 9 } else { setup.1 };
        prop_assert_eq!(inflate(bits, &[], &caller.out), all);
        prop_assert_eq!(caller.end(), OK);
    }

    /// With room for all that a call can give, its codes are zlib's, whatever is called in what order; and what comes out is right.
    #[test]
    fn codes_are_zlibs(
        setup in setups(),
        steps in prop::collection::vec(
            (0_u8..17, 0_u8..3, prop_oneof![3 => Just(0_usize), 5 => 0_usize..3_000, 1 => 0_usize..40_000], prop_oneof![Just(0), -1..=6_i32]),
            1..20,
        ),
    ) {
        let (mut ours, mut theirs) = (Caller::ours(setup), Caller::new(false, setup));
        let (mut all, mut dictionary, mut is_known) = (Vec::new(), Vec::new(), true);
        for (n, (op, kind, len, flush)) in steps.into_iter().enumerate() {
            let part = body(kind, n as u64 + 1, len);
            match op {
                ..8 => {
                    let (ours, theirs) = (ours.call(&part, flush, ROOM), theirs.call(&part, flush, ROOM));
                    prop_assert_eq!(ours, theirs, "call {}: {} bytes, flush {}", n, len, flush);
                    all.extend_from_slice(&part[..part.len() - ours.1]);
                }
                8 | 9 => {
                    let level = flush * 3 / 2;
                    let (ours, theirs) = (ours.params(level, 0, &part), theirs.params(level, 0, &part));
                    prop_assert_eq!(ours, theirs, "call {}: {} bytes, level {}", n, len, level);
                    all.extend_from_slice(&part[..part.len() - ours.1]);
                }
                10 => {
                    prop_assert_eq!((ours.reset(), theirs.reset()), (OK, OK));
                    (all, dictionary, is_known) = (Vec::new(), Vec::new(), true);
                }
                11 | 12 => {
                    let (ours, theirs) = (ours.dictionary(&part), theirs.dictionary(&part));
                    prop_assert_eq!(ours, theirs, "call {}: a dictionary of {} bytes", n, len);
                    // Who reads it would have to know when.
                    is_known &= ours != OK || (all.is_empty() && dictionary.is_empty());
                    dictionary = if ours == OK { part } else { dictionary };
                }
                13 => prop_assert_eq!(ours.tune(flush), theirs.tune(flush)),
                _ => {
                    ours = ours.copied();
                    theirs = theirs.copied();
                }
            }
        }
        let code = ours.all(&[], FINISH, ROOM);
        prop_assert_eq!(code, theirs.all(&[], FINISH, ROOM));
        prop_assert_eq!(ours.strm.adler, theirs.strm.adler);
        if is_known && (setup.1 < 0 || dictionary.is_empty()) {
            let bits = if setup.1.abs() == 8 { 9 } else { setup.1 };
            prop_assert_eq!(inflate(bits, &dictionary, &ours.out), all);
        }
        prop_assert_eq!(ours.end(), theirs.end());
    }
}

/// Numbers of four bytes, ascending as a table of offsets: their matches have three, which not every engine finds.
fn numbers(seed: u64, len: usize) -> Vec<u8> {
    let noise = body(1, seed, len / 4);
    noise.iter().enumerate().flat_map(|(n, noise)| (12 * n as u32 + u32::from(noise & 15)).to_le_bytes()).collect()
}

/// One body that is far too large says so, and what texts have saved does not hide it: it is sent as zlib made it, and the next ones are
/// no larger.
#[test]
fn numbers_after_texts_are_no_larger_than_zlibs() {
    for (level, len, many) in [(1, 60_000, 40), (6, 500_000, 8)] {
        let (mut ours, mut stock) = (Caller::ours((level, 31, 8, 0)), Caller::new(false, (level, 31, 8, 0)));
        ours.choice.lacks(Maker::Qatzip);
        let mut lens = Vec::new();
        for n in 0..2 * many {
            let text = if n < many { parts::words(n, len) } else { numbers(n, len) };
            for caller in [&mut ours, &mut stock] {
                assert_eq!((caller.reset(), caller.all(&text, FINISH, 4_096)), (OK, STREAM_END));
            }
            assert_eq!(inflate(31, &[], &ours.out), text);
            lens.push([ours.out.len(), stock.out.len()]);
        }
        let sum = |of: &[[usize; 2]]| [0, 1].map(|at| of.iter().map(|lens| lens[at]).sum::<usize>());
        assert!(ours.reasons(Reason::Larger) > 0, "level {level}: it shows nothing");
        for lens in [&lens[many as usize..=many as usize], &lens[many as usize..]] {
            let [ours, zlibs] = sum(lens);
            assert!(ours * 1_000 <= zlibs * 1_005, "level {level}: {ours} of {zlibs}, {} bodies", lens.len());
        }
    }
}

/// Of what is longer than is compared whole, the beginning says whether an engine's output is too large.
#[test]
fn of_a_long_body_the_beginning_is_compared() {
    let same = vec![b'a'; 1_200_000];
    let mut caller = Caller::ours((6, 15, 8, 0));
    caller.choice.lacks(Maker::Qatzip);
    assert_eq!(caller.choice.ways(Body::of(6, &same)).count(), 2, "by libdeflate at one level, and by zlib");
    for _body in 0..4 {
        assert_eq!(caller.all(&same, FINISH, 2_000_000), STREAM_END);
        assert_eq!(caller.reset(), OK);
    }
    assert_eq!(caller.bodies(Maker::Libdeflate), 4);
    assert!(caller.choice.ways(Body::of(6, &same)).count() > 2, "it is larger than zlib's at that level");
}
