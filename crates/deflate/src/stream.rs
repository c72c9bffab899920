//! The deflate side of a caller's `z_stream`.
//!
//! Read first: zlib.h, and nginx's `ngx_http_gzip_filter_module.c`, which gives a stream 8,208 bytes and what stock zlib's arrays take,
//! charges 8,192 for any single item below that, and writes an alert where that is not enough.
//!
//! A stream has two blocks of its caller's memory: one item of [`HEAD_LEN`] bytes for this state and zlib's, and what zlib's arrays take.
//! It goes through these phases:
//!
//! - *Staging.* What comes with `Z_NO_FLUSH` is put into the second block, and no output is made. `Z_FINISH` has all of it compressed at
//!   once ([`Scratch::compress`]); what the caller has no room for waits in the block.
//! - *Draining.* Output waits in the block. No input is taken.
//! - *Streaming.* The caller asked for output before the end, more came than the block holds, or five milliseconds have passed since the
//!   first byte. What was staged has been compressed by a stock zlib in the thread's scratch; its last 32 KB are the dictionary of another
//!   one in the block, which goes on from there. The frame around the data is ours.
//! - *Plain.* Stock zlib does all of it, in the block: where it is asked for something before any data that only it can do (a
//!   dictionary, a header, another strategy), and for bodies that the block cannot stage.
//!
//! Ground rules:
//!
//! - What is staged stays as it is until an engine's whole output is there: an engine that fails costs time and nothing else.
//! - Codes, and when `Z_BUF_ERROR` is one of them, are zlib's. Bytes are not.
//! - A stream that is never ended has nothing but its caller's memory.

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::{ptr, slice};

use crate::arena::{Arena, STATE_LEN, arrays_len};
use crate::choice::Choice;
use crate::engine::bound;
use crate::scratch::{Scratch, Settings};
use crate::wrapper::Wrapper;
use crate::zlib::{
    BLOCK, BUF_ERROR, DATA_ERROR, DEFAULT_STRATEGY, DEFLATED, FINISH, FIXED, FULL_FLUSH, MEM_ERROR, NO_FLUSH, OK,
    STREAM_END, STREAM_ERROR, STREAM_SIZE, SYNC_FLUSH, UNKNOWN, ZStream, message, stock,
};

/// The first block's: below 8,192 and no multiple of 512, for which nginx charges 8,192.
pub const HEAD_LEN: usize = 8_128;

/// For how long input is collected, in nanoseconds: a slow page's first byte is not held back for longer.
const STAGING_MAX: u64 = 5_000_000;

/// "Weirgate", and no status of zlib's.
const MAGIC: u64 = 0x5765_6972_6761_7465;

/// Before any flush, for which the next one is never a repetition.
const NO_FLUSH_YET: c_int = -2;

/// The state that a caller's stream points to.
#[repr(C)]
struct State {
    /// The stream: one that was copied by `memcpy` is not its.
    strm: *mut ZStream,
    magic: u64,
    settings: Settings,
    strategy: c_int,
    wrapper: Wrapper,
    phase: Phase,
    /// Of the last call that may not be repeated without effect.
    last_flush: c_int,
    /// Of what was taken.
    check: u32,
    block: *mut u8,
    block_len: usize,
    /// Bytes that are staged, from the block's beginning.
    staged: usize,
    /// When the first of them came.
    since: u64,
    /// Output that waits, in the block.
    pending: (usize, usize),
    /// What of the input is to be known to the stock zlib that goes on, at the block's end.
    history: usize,
    /// Bits that come before what it makes, and how many.
    primed: (u64, u32),
    arena: Arena,
    inner: ZStream,
    /// Where stock zlib's state begins.
    rest: [u64; 0],
}

const _: () = assert!(offset_of!(State, rest) + STATE_LEN <= HEAD_LEN);
// zlib asks for no more of its caller's allocator, and PostgreSQL's and nginx's give no more.
const _: () = assert!(align_of::<State>() <= 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Staging,
    Draining { then_end: bool },
    Streaming,
    Plain,
    Ended,
}

/// What a call has beside the stream.
#[derive(Debug)]
pub struct With<'a> {
    /// The thread's.
    pub scratch: &'a mut Scratch,
    /// The process's.
    pub choice: &'a Choice,
    /// Any clock's, in nanoseconds.
    pub now: u64,
}

/// `deflateInit2_`, after the version and the size of the stream were looked at.
///
/// # Safety
/// As zlib.h's: `strm` is null or points to a stream whose `zalloc`, `zfree` and `opaque` are set.
pub unsafe fn init(
    strm: *mut ZStream,
    level: c_int,
    method: c_int,
    window_bits: c_int,
    mem_level: c_int,
    strategy: c_int,
) -> c_int {
    // SAFETY: null or a stream, by the contract.
    let Some(z) = (unsafe { strm.as_mut() }) else { return STREAM_ERROR };
    z.msg = ptr::null();
    let (wrapper, bits) = match window_bits {
        ..0 => (Wrapper::Raw, window_bits.saturating_neg()),
        16.. => (Wrapper::Gzip, window_bits - 16),
        _ => (Wrapper::Zlib, window_bits),
    };
    let level = if level == -1 { 6 } else { level };
    let is_known = (1..=9).contains(&mem_level)
        && method == DEFLATED
        && (8..=15).contains(&bits)
        && (0..=9).contains(&level)
        && (0..=FIXED).contains(&strategy)
        && (bits != 8 || wrapper == Wrapper::Zlib);
    if !is_known {
        return STREAM_ERROR;
    }
    // zlib's own windows of 256 bytes have 512 ("until 256-byte window bug fixed").
    let settings = Settings { level, window_bits: bits.max(9) as u32, mem_level: mem_level as u32 };
    let (zalloc, zfree) = (*z.zalloc.get_or_insert(c_alloc), *z.zfree.get_or_insert(c_free));
    let block_len = arrays_len(settings.window_bits, settings.mem_level);
    // SAFETY: the caller's allocator is called as zlib calls it; what it gives is that long, aligned to 8 bytes, and ours.
    unsafe {
        let state = zalloc(z.opaque, 1, HEAD_LEN as c_uint).cast::<State>();
        if state.is_null() {
            return MEM_ERROR;
        }
        let block = zalloc(z.opaque, (block_len >> 1) as c_uint, 2).cast::<u8>();
        if block.is_null() {
            zfree(z.opaque, state.cast());
            return fail(z, MEM_ERROR);
        }
        state.write(State {
            strm,
            magic: MAGIC,
            settings,
            strategy,
            wrapper,
            phase: Phase::Staging,
            last_flush: NO_FLUSH_YET,
            check: 0,
            block,
            block_len,
            staged: 0,
            since: 0,
            pending: (0, 0),
            history: 0,
            primed: (0, 0),
            arena: Arena::new(((&raw mut (*state).rest).cast(), STATE_LEN), (block, block_len)),
            inner: ZStream::EMPTY,
            rest: [],
        });
        z.state = state.cast();
        (*state).reset(z);
    }
    OK
}

/// `deflate`.
///
/// # Safety
/// As zlib.h's: `strm` is null or points to a stream, whose `next_in` and `next_out` have `avail_in` and `avail_out` bytes.
pub unsafe fn deflate(strm: *mut ZStream, flush: c_int, with: &mut With<'_>) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    if !(NO_FLUSH..=BLOCK).contains(&flush) {
        return STREAM_ERROR;
    }
    let lies = z.next_out.is_null() || (z.avail_in != 0 && z.next_in.is_null());
    if state.phase != Phase::Plain {
        if lies || (state.has_finished() && flush != FINISH) {
            return fail(z, STREAM_ERROR);
        }
        if z.avail_out == 0 {
            return fail(z, BUF_ERROR);
        }
    }
    // SAFETY: the stream is the caller's, and its state's.
    unsafe { state.deflate(z, flush, with) }
}

/// `deflateEnd`.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn end(strm: *mut ZStream) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    let code = match state.phase {
        Phase::Staging if state.staged == 0 => OK,
        Phase::Ended => OK,
        // SAFETY: it was set up, and is not used again; it frees nothing.
        Phase::Plain => unsafe { stock::deflate_end(&raw mut state.inner) },
        Phase::Staging | Phase::Draining { .. } | Phase::Streaming => DATA_ERROR,
    };
    let (block, zfree) = (state.block, z.zfree);
    if let Some(zfree) = zfree {
        // SAFETY: both came from the caller's `zalloc`, and are not used again.
        unsafe {
            zfree(z.opaque, block.cast());
            zfree(z.opaque, z.state);
        }
    }
    z.state = ptr::null_mut();
    code
}

/// `deflateReset`, and `deflateResetKeep`.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn reset(strm: *mut ZStream) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    state.reset(z);
    OK
}

/// `deflateParams`.
///
/// # Safety
/// As [`deflate`]'s.
pub unsafe fn params(strm: *mut ZStream, level: c_int, strategy: c_int, with: &mut With<'_>) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    let level = if level == -1 { 6 } else { level };
    if !(0..=9).contains(&level) || !(0..=FIXED).contains(&strategy) {
        return STREAM_ERROR;
    }
    let is_other = (level, strategy) != (state.settings.level, state.strategy);
    if state.has_finished() && (searches(level), strategy) != (searches(state.settings.level), state.strategy) {
        return fail(z, STREAM_ERROR);
    }
    if state.phase == Phase::Staging && state.staged > 0 && is_other {
        // What came before is compressed as it was asked for then.
        state.take(z, with.now);
        if !state.turn(z, SYNC_FLUSH, with) {
            return fail(z, MEM_ERROR);
        }
    }
    let code = match state.phase {
        // SAFETY: as the caller's.
        Phase::Plain | Phase::Streaming => unsafe {
            state.with_inner(z, |inner| stock::deflate_params(inner, level, strategy))
        },
        Phase::Draining { .. } if z.avail_in > 0 => fail(z, BUF_ERROR),
        _ => OK,
    };
    if code == OK {
        (state.settings.level, state.strategy) = (level, strategy);
    }
    code
}

/// `deflateSetDictionary`.
///
/// # Safety
/// As zlib.h's: `dictionary` has `len` bytes.
pub unsafe fn set_dictionary(strm: *mut ZStream, dictionary: *const u8, len: c_uint) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    let is_late = state.wrapper != Wrapper::Raw && state.phase == Phase::Streaming;
    if dictionary.is_null() || is_late {
        return STREAM_ERROR;
    }
    // SAFETY: as the caller's.
    unsafe { state.plain(z, |inner| stock::deflate_set_dictionary(inner, dictionary, len)) }
}

/// `deflateGetDictionary`.
///
/// # Safety
/// As zlib.h's: `dictionary` is null or has room for 32 KB, `len` is null or points to a number.
pub unsafe fn get_dictionary(strm: *mut ZStream, dictionary: *mut u8, len: *mut c_uint) -> c_int {
    // SAFETY: by the contract.
    let Some((_, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    let window = 1_usize << state.settings.window_bits;
    let (from, count) = match state.phase {
        // SAFETY: it was set up.
        Phase::Plain | Phase::Streaming => unsafe {
            return stock::deflate_get_dictionary(&raw mut state.inner, dictionary, len);
        },
        Phase::Staging => (state.staged.saturating_sub(window), state.staged.min(window)),
        Phase::Draining { .. } => (state.block_len - state.history, state.history),
        Phase::Ended => (0, 0),
    };
    // SAFETY: the bytes are within the block; the caller has room for a window.
    unsafe {
        if !dictionary.is_null() {
            ptr::copy_nonoverlapping(state.block.add(from), dictionary, count);
        }
        if !len.is_null() {
            *len = count as c_uint;
        }
    }
    OK
}

/// `deflateSetHeader`; `head` is a `gz_header`.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn set_header(strm: *mut ZStream, head: *mut c_void) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    if state.wrapper != Wrapper::Gzip {
        return STREAM_ERROR;
    }
    match state.phase {
        // SAFETY: as the caller's.
        Phase::Plain => unsafe { state.plain(z, |inner| stock::deflate_set_header(inner, head)) },
        // SAFETY: as the caller's.
        Phase::Staging if state.staged == 0 => unsafe {
            state.plain(z, |inner| stock::deflate_set_header(inner, head))
        },
        Phase::Ended => STREAM_ERROR,
        // Our header has been sent, or will be.
        Phase::Staging | Phase::Draining { .. } | Phase::Streaming => OK,
    }
}

/// `deflatePrime`. Bits for which there is no stock zlib yet wait for it, up to 64.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn prime(strm: *mut ZStream, bits: c_int, value: c_int, with: &mut With<'_>) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    let (waiting, waiting_len) = state.primed;
    let bits @ 0..=16 = bits else { return BUF_ERROR };
    match state.phase {
        Phase::Staging if state.staged > 0 => {
            // It gives the caller nothing.
            let avail_out = std::mem::take(&mut z.avail_out);
            let is_turned = state.turn(z, SYNC_FLUSH, with);
            z.avail_out = avail_out;
            if !is_turned {
                return fail(z, MEM_ERROR);
            }
            state.primed = (low_bits(value, bits), bits as u32);
            OK
        }
        Phase::Draining { then_end: false } => {
            if waiting_len + bits as u32 > u64::BITS {
                return BUF_ERROR;
            }
            state.primed = (waiting | low_bits(value, bits) << waiting_len, waiting_len + bits as u32);
            OK
        }
        // Nothing will come after them.
        Phase::Draining { .. } | Phase::Ended => OK,
        // SAFETY: as the caller's.
        Phase::Staging | Phase::Plain | Phase::Streaming => unsafe {
            state.plain(z, |inner| stock::deflate_prime(inner, bits, value))
        },
    }
}

/// `deflateTune`.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn tune(strm: *mut ZStream, good: c_int, lazy: c_int, nice: c_int, chain: c_int) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    let is_staged = state.phase == Phase::Staging && state.staged > 0;
    if is_staged || matches!(state.phase, Phase::Draining { .. } | Phase::Ended) {
        // It is about how long zlib looks for matches, of which there will be none.
        return OK;
    }
    // SAFETY: as the caller's.
    unsafe { state.plain(z, |inner| stock::deflate_tune(inner, good, lazy, nice, chain)) }
}

/// `deflatePending`.
///
/// # Safety
/// As zlib.h's: both are null or point to numbers.
pub unsafe fn pending(strm: *mut ZStream, pending: *mut c_uint, bits: *mut c_int) -> c_int {
    // SAFETY: by the contract.
    let Some((_, state)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    if matches!(state.phase, Phase::Plain | Phase::Streaming) {
        // SAFETY: it was set up.
        return unsafe { stock::deflate_pending(&raw mut state.inner, pending, bits) };
    }
    // SAFETY: by the contract.
    unsafe {
        if !pending.is_null() {
            *pending = (state.pending.1 - state.pending.0) as c_uint;
        }
        if !bits.is_null() {
            *bits = 0;
        }
    }
    OK
}

/// `deflateBound`: more than zlib's own, since what is collected may be flushed in between.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn deflate_bound(strm: *mut ZStream, len: c_ulong) -> c_ulong {
    const FLUSH: c_ulong = 16;
    const FRAME: c_ulong = 18;
    // SAFETY: by the contract.
    let state = unsafe { of(strm) };
    if let Some((_, state)) = state {
        let Settings { level, window_bits: 15, mem_level: 8 } = state.settings else {
            return len.saturating_add((len >> 3) + (len >> 6) + 5 + FLUSH + FRAME);
        };
        if state.phase == Phase::Plain {
            // SAFETY: it was set up. A header may be long.
            return unsafe { stock::deflate_bound(&raw mut state.inner, len) };
        }
        if level > 0 {
            return len.saturating_add((len >> 12) + (len >> 14) + (len >> 25) + 13 + FLUSH + FRAME);
        }
    }
    len.saturating_add((len >> 3) + (len >> 8) + (len >> 9) + 7 + FLUSH + FRAME)
}

/// `deflateCopy`.
///
/// # Safety
/// As zlib.h's: both point to streams.
pub unsafe fn copy(dest: *mut ZStream, source: *mut ZStream) -> c_int {
    // SAFETY: by the contract.
    let Some((z, from)) = (unsafe { of(source) }) else { return STREAM_ERROR };
    if dest.is_null() {
        return STREAM_ERROR;
    }
    let (Some(zalloc), Some(zfree)) = (z.zalloc, z.zfree) else { return STREAM_ERROR };
    // SAFETY: as in `init`; the source's memory is copied and read only.
    unsafe {
        let state = zalloc(z.opaque, 1, HEAD_LEN as c_uint).cast::<State>();
        if state.is_null() {
            return MEM_ERROR;
        }
        let block = zalloc(z.opaque, (from.block_len >> 1) as c_uint, 2).cast::<u8>();
        if block.is_null() {
            zfree(z.opaque, state.cast());
            return MEM_ERROR;
        }
        ptr::copy_nonoverlapping(from, state, 1);
        let to = &mut *state;
        (to.strm, to.block) = (dest, block);
        to.arena = Arena::new(((&raw mut (*state).rest).cast(), STATE_LEN), (block, from.block_len));
        if matches!(from.phase, Phase::Plain | Phase::Streaming) {
            // It takes the copy's memory from where the source says: from the copy's arena, for once.
            from.inner.opaque = (&raw mut to.arena).cast();
            let code = stock::deflate_copy(&raw mut to.inner, &raw mut from.inner);
            from.inner.opaque = (&raw mut from.arena).cast();
            if code != OK {
                zfree(z.opaque, block.cast());
                zfree(z.opaque, state.cast());
                return code;
            }
        } else {
            ptr::copy_nonoverlapping(from.block, block, from.block_len);
        }
        *dest = ZStream { state: state.cast(), ..*z };
    }
    OK
}

/// A caller's stream and its state, if it is one of ours.
///
/// # Safety
/// `strm` is null or points to a stream, whose state is null, was made by [`init`] or [`copy`], or begins with two words.
unsafe fn of<'a>(strm: *mut ZStream) -> Option<(&'a mut ZStream, &'a mut State)> {
    // SAFETY: by the contract; zlib looks at the same word of a state, whoever made it.
    unsafe {
        let z = strm.as_mut()?;
        z.zalloc.and(z.zfree)?;
        let state = z.state.cast::<State>();
        let is_ours = !state.is_null() && (*state).strm == strm && (*state).magic == MAGIC;
        is_ours.then(|| (z, &mut *state))
    }
}

/// How zlib looks for matches at a level: not at all, greedily or lazily. `deflateParams` flushes where that changes.
const fn searches(level: c_int) -> c_int {
    match level {
        ..1 => 0,
        1..4 => 1,
        _ => 2,
    }
}

/// The lowest bits of a number, 0 to 16.
const fn low_bits(value: c_int, bits: c_int) -> u64 {
    value as u64 & ((1 << bits) - 1)
}

fn fail(z: &mut ZStream, code: c_int) -> c_int {
    z.msg = message(code);
    code
}

/// zlib's order of flushes: `Z_BLOCK` is between none and a partial one.
const fn rank(flush: c_int) -> c_int {
    flush * 2 - if flush > 4 { 9 } else { 0 }
}

unsafe extern "C" fn c_alloc(_opaque: *mut c_void, items: c_uint, size: c_uint) -> *mut c_void {
    // SAFETY: any size will do.
    unsafe { libc::malloc(items as usize * size as usize) }
}

unsafe extern "C" fn c_free(_opaque: *mut c_void, address: *mut c_void) {
    // SAFETY: it came from `c_alloc`.
    unsafe { libc::free(address) }
}

impl State {
    fn reset(&mut self, z: &mut ZStream) {
        self.phase = Phase::Staging;
        self.last_flush = NO_FLUSH_YET;
        self.check = self.wrapper.no_check();
        (self.staged, self.since, self.pending, self.history, self.primed) = (0, 0, (0, 0), 0, (0, 0));
        (z.total_in, z.total_out, z.msg, z.data_type) = (0, 0, ptr::null(), UNKNOWN);
        z.adler = self.check.into();
    }

    /// # Safety
    /// As [`deflate`]'s.
    unsafe fn deflate(&mut self, z: &mut ZStream, flush: c_int, with: &mut With<'_>) -> c_int {
        loop {
            match self.phase {
                Phase::Staging => {
                    if let Some(code) = self.stage(z, flush, with) {
                        return code;
                    }
                }
                Phase::Draining { then_end } => {
                    if !self.drain(z) {
                        return OK;
                    }
                    if then_end {
                        self.phase = Phase::Ended;
                        continue;
                    }
                    if !self.go_on(with.scratch) {
                        return fail(z, MEM_ERROR);
                    }
                    self.phase = Phase::Streaming;
                    self.last_flush = flush;
                    if z.avail_in == 0 && flush != FINISH || z.avail_out == 0 {
                        return OK;
                    }
                }
                Phase::Streaming => {
                    let is_repeated = z.avail_in == 0 && rank(flush) <= rank(self.last_flush) && flush != FINISH;
                    if is_repeated {
                        return fail(z, BUF_ERROR);
                    }
                    self.last_flush = NO_FLUSH_YET;
                    // SAFETY: as the caller's.
                    let code = unsafe { self.with_inner(z, |inner| stock::deflate(inner, flush)) };
                    if code != STREAM_END {
                        return code;
                    }
                    // zlib's own memory is free for what is left.
                    let (trailer, len) = self.wrapper.trailer(self.check, z.total_in);
                    self.put(z, &trailer[..len]);
                    self.phase = Phase::Draining { then_end: true };
                }
                // SAFETY: as the caller's.
                Phase::Plain => return unsafe { self.with_inner(z, |inner| stock::deflate(inner, flush)) },
                Phase::Ended => return if z.avail_in > 0 { fail(z, BUF_ERROR) } else { STREAM_END },
            }
        }
    }

    /// A call while staging: its code, or `None` if the phase has changed.
    fn stage(&mut self, z: &mut ZStream, flush: c_int, with: &mut With<'_>) -> Option<c_int> {
        let new = z.avail_in as usize;
        if new == 0 && rank(flush) <= rank(self.last_flush) && flush != FINISH {
            return Some(fail(z, BUF_ERROR));
        }
        self.last_flush = flush;
        if self.is_for_stock() {
            return self.begin_plain(z);
        }
        if flush == FINISH {
            return self.finish(z, with);
        }
        let is_late = self.staged > 0 && with.now.saturating_sub(self.since) > STAGING_MAX;
        let fits = new <= self.room();
        if flush == NO_FLUSH && !is_late && fits {
            self.take(z, with.now);
            return Some(OK);
        }
        if self.staged == 0 {
            return self.begin_plain(z);
        }
        self.take(z, with.now);
        let flush = if flush == FULL_FLUSH && z.avail_in == 0 { FULL_FLUSH } else { SYNC_FLUSH };
        if self.turn(z, flush, with) { None } else { Some(fail(z, MEM_ERROR)) }
    }

    /// The last call: compresses what is staged and what it brings. As [`stage`](Self::stage)'s.
    fn finish(&mut self, z: &mut ZStream, with: &mut With<'_>) -> Option<c_int> {
        let new = z.avail_in as usize;
        let all = self.staged + new;
        if all == 0 {
            return self.begin_plain(z);
        }
        if self.staged > 0 {
            self.take(z, with.now);
            if z.avail_in > 0 {
                return if self.turn(z, SYNC_FLUSH, with) { None } else { Some(fail(z, MEM_ERROR)) };
            }
        }
        let (header, header_len) = self.wrapper.header(self.settings.level, self.settings.window_bits);
        let (_, trailer_len) = self.wrapper.trailer(0, 0);
        let frame = header_len + trailer_len;
        let settings = self.settings;
        if self.staged == 0 {
            // SAFETY: the caller's input, which it does not change meanwhile.
            let input = unsafe { slice::from_raw_parts(z.next_in, new) };
            let room = z.avail_out as usize;
            if room >= new + (new >> 12) + frame {
                // SAFETY: the caller's room for output, which is apart from its input. What is not initialised stays so.
                let out = unsafe { slice::from_raw_parts_mut(z.next_out.cast::<MaybeUninit<u8>>(), room) };
                let out = &mut out[header_len..room - trailer_len];
                if let Some(len) = with.scratch.compress(&settings, with.choice, input, out) {
                    self.count_in(z, new, input);
                    gave(z, 0, &header[..header_len]);
                    let (trailer, _) = self.wrapper.trailer(self.check, z.total_in);
                    gave(z, header_len + len, &trailer[..trailer_len]);
                    skip(z, frame + len);
                    self.phase = Phase::Ended;
                    return Some(STREAM_END);
                }
            }
            if bound(new) + frame > self.block_len {
                return self.begin_plain(z);
            }
        }
        // SAFETY: as above, or what is staged.
        let input = unsafe {
            if self.staged > 0 {
                slice::from_raw_parts(self.block, self.staged)
            } else {
                slice::from_raw_parts(z.next_in, new)
            }
        };
        let mut out = with.scratch.room(bound(all));
        let Some(len) = with.scratch.compress(&settings, with.choice, input, &mut out) else {
            with.scratch.keep(out);
            return Some(fail(z, MEM_ERROR));
        };
        if self.staged == 0 {
            self.count_in(z, new, input);
        }
        // SAFETY: an engine's output is initialised.
        let body = unsafe { out[..len].assume_init_ref() };
        let (trailer, _) = self.wrapper.trailer(self.check, z.total_in);
        self.staged = 0;
        self.put(z, &header[..header_len]);
        self.put(z, body);
        self.put(z, &trailer[..trailer_len]);
        with.scratch.keep(out);
        self.phase = Phase::Draining { then_end: true };
        None
    }

    /// From staging to streaming: compresses what is staged, of which there is some, and ends it with `flush`. False: no memory.
    fn turn(&mut self, z: &mut ZStream, flush: c_int, with: &mut With<'_>) -> bool {
        let mut out = with.scratch.room(bound(self.staged));
        // SAFETY: what is staged.
        let input = unsafe { slice::from_raw_parts(self.block, self.staged) };
        let len = with.scratch.stock(&self.settings).flush(input, &mut out, flush);
        if let Some(len) = len {
            let window = 1 << self.settings.window_bits;
            self.history = if flush == FULL_FLUSH { 0 } else { self.staged.min(window) };
            // SAFETY: both within the block.
            unsafe {
                let (from, to) = (self.staged - self.history, self.block_len - self.history);
                ptr::copy(self.block.add(from), self.block.add(to), self.history);
            }
            let (header, header_len) = self.wrapper.header(self.settings.level, self.settings.window_bits);
            self.staged = 0;
            self.put(z, &header[..header_len]);
            // SAFETY: zlib's output is initialised.
            self.put(z, unsafe { out[..len].assume_init_ref() });
            self.phase = Phase::Draining { then_end: false };
        }
        with.scratch.keep(out);
        len.is_some()
    }

    /// From draining to streaming: sets up stock zlib in the block, with what was staged as its dictionary. False: it does not fit.
    fn go_on(&mut self, scratch: &mut Scratch) -> bool {
        // SAFETY: within the block, and copied before anything is put there.
        let history = unsafe { slice::from_raw_parts(self.block.add(self.block_len - self.history), self.history) };
        scratch.history.clear();
        scratch.history.extend_from_slice(history);
        let (dictionary, len) = (scratch.history.as_ptr(), scratch.history.len() as c_uint);
        self.history = 0;
        self.pending = (0, 0);
        // SAFETY: it was set up, and the dictionary is that long.
        let goes_on = self.set_up(Wrapper::Raw)
            && (len == 0 || unsafe { stock::deflate_set_dictionary(&raw mut self.inner, dictionary, len) } == OK);
        let (mut value, mut left) = std::mem::take(&mut self.primed);
        while goes_on && left > 0 {
            let bits = left.min(16);
            // SAFETY: it was set up, and has room for as many.
            let _has_room =
                unsafe { stock::deflate_prime(&raw mut self.inner, bits as c_int, (value & 0xffff) as c_int) };
            (value, left) = (value >> bits, left - bits);
        }
        goes_on
    }

    /// Sets up stock zlib in the block.
    fn set_up(&mut self, wrapper: Wrapper) -> bool {
        let Settings { level, window_bits, mem_level } = self.settings;
        self.arena.clear();
        self.inner = ZStream {
            zalloc: Some(Arena::alloc),
            zfree: Some(Arena::free),
            opaque: (&raw mut self.arena).cast(),
            ..ZStream::EMPTY
        };
        // SAFETY: state and arena stay where they are until the stream's end.
        let code = unsafe {
            stock::deflate_init2(
                &raw mut self.inner,
                level,
                DEFLATED,
                wrapper.window_bits(window_bits),
                mem_level as c_int,
                self.strategy,
                stock::version(),
                STREAM_SIZE,
            )
        };
        code == OK
    }

    /// Whether all of the output is there.
    const fn has_finished(&self) -> bool {
        matches!(self.phase, Phase::Draining { then_end: true } | Phase::Ended)
    }

    /// Whether only stock zlib does what was asked for.
    const fn is_for_stock(&self) -> bool {
        self.staged == 0 && (self.settings.level == 0 || self.strategy != DEFAULT_STRATEGY)
    }

    /// From staging, with nothing staged, to stock zlib for all of it. As [`stage`](Self::stage)'s.
    fn begin_plain(&mut self, z: &mut ZStream) -> Option<c_int> {
        if !self.set_up(self.wrapper) {
            return Some(fail(z, MEM_ERROR));
        }
        self.phase = Phase::Plain;
        None
    }

    /// Has stock zlib do what only it can; `Z_STREAM_ERROR` where it is too late for that, as with zlib.
    ///
    /// # Safety
    /// As `what`'s.
    unsafe fn plain(&mut self, z: &mut ZStream, what: impl FnOnce(*mut ZStream) -> c_int) -> c_int {
        match self.phase {
            Phase::Staging if self.staged == 0 => {
                if let Some(code) = self.begin_plain(z) {
                    return code;
                }
            }
            Phase::Plain | Phase::Streaming => {}
            Phase::Staging | Phase::Ended => return STREAM_ERROR,
            Phase::Draining { .. } => return BUF_ERROR,
        }
        // SAFETY: by the contract.
        unsafe { self.with_inner(z, what) }
    }

    /// Has the inner stream do something with the caller's buffers.
    ///
    /// # Safety
    /// As `what`'s.
    unsafe fn with_inner(&mut self, z: &mut ZStream, what: impl FnOnce(*mut ZStream) -> c_int) -> c_int {
        let is_plain = self.phase == Phase::Plain;
        let (input, total_out) = (z.next_in, self.inner.total_out);
        let inner = &mut self.inner;
        (inner.next_in, inner.avail_in) = (z.next_in, z.avail_in);
        (inner.next_out, inner.avail_out) = (z.next_out, z.avail_out);
        // What it says of a call stays until the next one of which it says something.
        inner.msg = z.msg;
        if is_plain {
            (inner.total_in, inner.total_out) = (z.total_in, z.total_out);
        }
        let code = what(inner);
        let inner = &self.inner;
        let taken = (z.avail_in - inner.avail_in) as usize;
        (z.next_in, z.avail_in) = (inner.next_in, inner.avail_in);
        (z.next_out, z.avail_out) = (inner.next_out, inner.avail_out);
        (z.msg, z.data_type) = (inner.msg, inner.data_type);
        if is_plain {
            (z.total_in, z.total_out, z.adler) = (inner.total_in, inner.total_out, inner.adler);
            return code;
        }
        z.total_in = z.total_in.wrapping_add(taken as c_ulong);
        z.total_out = z.total_out.wrapping_add(inner.total_out.wrapping_sub(total_out));
        if taken > 0 {
            // SAFETY: what the caller had there.
            self.check = self.wrapper.check(self.check, unsafe { slice::from_raw_parts(input, taken) });
            z.adler = self.check.into();
        }
        code
    }

    /// What more can be staged. When it is turned into a stream, its output, at worst larger than it by an eighth, must fit into the
    /// block beside a window of it.
    fn room(&self) -> usize {
        let beside = self.block_len.saturating_sub((1 << self.settings.window_bits) + 128);
        (beside / 9 * 8).saturating_sub(self.staged)
    }

    /// Stages what there is room for.
    fn take(&mut self, z: &mut ZStream, now: u64) {
        let len = self.room().min(z.avail_in as usize);
        if len == 0 {
            return;
        }
        if self.staged == 0 {
            self.since = now;
        }
        // SAFETY: the caller's input, and room within the block, which is ours.
        let input = unsafe {
            ptr::copy_nonoverlapping(z.next_in, self.block.add(self.staged), len);
            slice::from_raw_parts(z.next_in, len)
        };
        self.staged += len;
        self.count_in(z, len, input);
    }

    fn count_in(&mut self, z: &mut ZStream, len: usize, input: &[u8]) {
        self.check = self.wrapper.check(self.check, input);
        z.adler = self.check.into();
        z.next_in = z.next_in.wrapping_add(len);
        z.avail_in -= len as c_uint;
        z.total_in = z.total_in.wrapping_add(len as c_ulong);
    }

    /// Gives bytes to the caller, and those for which it has no room to the block: there must be some.
    fn put(&mut self, z: &mut ZStream, bytes: &[u8]) {
        let direct = if self.pending.0 == self.pending.1 { bytes.len().min(z.avail_out as usize) } else { 0 };
        gave(z, 0, &bytes[..direct]);
        skip(z, direct);
        let rest = &bytes[direct..];
        if self.pending.0 == self.pending.1 {
            self.pending = (0, 0);
        }
        let at = self.pending.1;
        assert!(
            rest.len() <= self.block_len - self.history - at,
            "output of {} bytes more than was reckoned",
            rest.len()
        );
        // SAFETY: within the block, where nothing is kept any more.
        unsafe { ptr::copy_nonoverlapping(rest.as_ptr(), self.block.add(at), rest.len()) };
        self.pending.1 += rest.len();
    }

    /// Gives the caller what waits; whether that is all.
    fn drain(&mut self, z: &mut ZStream) -> bool {
        let (from, to) = self.pending;
        let len = (to - from).min(z.avail_out as usize);
        // SAFETY: within the block.
        gave(z, 0, unsafe { slice::from_raw_parts(self.block.add(from), len) });
        skip(z, len);
        self.pending.0 += len;
        self.pending.0 == to
    }
}

/// Writes to the caller's room, from `at` on.
fn gave(z: &mut ZStream, at: usize, bytes: &[u8]) {
    debug_assert!(at + bytes.len() <= z.avail_out as usize);
    // SAFETY: the caller has room for `avail_out` bytes.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), z.next_out.add(at), bytes.len()) };
}

/// Counts bytes that were written there.
fn skip(z: &mut ZStream, len: usize) {
    z.next_out = z.next_out.wrapping_add(len);
    z.avail_out -= len as c_uint;
    z.total_out = z.total_out.wrapping_add(len as c_ulong);
}
