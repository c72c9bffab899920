//! The deflate side of a caller's `z_stream`.
//!
//! Read first: zlib.h, and nginx's `ngx_http_gzip_filter_module.c`, which gives a stream 8,208 bytes and what stock zlib's arrays take,
//! charges 8,192 for any single item below that, and writes an alert where that is not enough.
//!
//! A stream has two blocks of its caller's memory: one item of [`HEAD_LEN`] bytes for this state and zlib's, and what zlib's arrays take.
//! It goes through these phases:
//!
//! - *Staging.* What comes with `Z_NO_FLUSH` is put into the second block, and no output is made. `Z_FINISH` has all of it compressed at
//!   once, in the thread's [`Scratch`]; what the caller has no room for waits in the block.
//! - *Draining.* Output waits in the block. No input is taken.
//!   Where more comes than the block holds, an engine of the thread's compresses what is staged as a part of the body; its last 32 KB
//!   stay in the block for the next part, and staging goes on once the part's output is taken.
//! - *Streaming.* The caller asked for output before the end, five milliseconds have passed since the first byte that is staged, or more
//!   came than the block holds and no engine compresses parts. What was staged has been compressed by a stock zlib in the thread's
//!   scratch; its last 32 KB are the dictionary of another one in the block, which goes on from there. The frame around the data is ours.
//! - *Plain.* Stock zlib does all of it, in the block: where it is asked for something before any data that only it can do (a
//!   dictionary, a header, another strategy), and for bodies that the block cannot stage.
//!
//! Ground rules:
//!
//! - What is staged stays as it is until an engine's whole output is there: an engine that fails costs time and nothing else.
//! - Codes, and when `Z_BUF_ERROR` is one of them, are zlib's. Bytes are not.
//! - A stream that is never ended has nothing but its caller's memory.
//! - A stream has one call at a time; another one, of another thread or a signal's handler, is refused, but for what ends or
//!   begins it anew after a `longjmp` out of a call of the same thread.

mod state;

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{ptr, slice};

use self::state::{After, MAGIC, NO_FLUSH_YET, Phase, State, Untold, algorithm, fail};
use crate::arena::{Arena, STATE_LEN, arrays_len};
use crate::choice::{Body, Choice};
use crate::count::{Counters, Made, Maker, Reason};
use crate::engine::Part;
use crate::scratch::{Compressed, Scratch, Settings, Sums};
use crate::wrapper::Wrapper;
use crate::zlib::{
    BLOCK, BUF_ERROR, DATA_ERROR, DEFLATED, FINISH, FIXED, MEM_ERROR, NO_FLUSH, OK, STREAM_ERROR, ZStream, stock,
};

/// The first block's: below 8,192 and no multiple of 512, for which nginx charges 8,192.
pub const HEAD_LEN: usize = 8_128;

/// What a call has beside the stream.
#[derive(Debug)]
pub struct With<'a> {
    /// The thread's.
    pub scratch: &'a mut Scratch,
    /// The process's.
    pub choice: &'a Choice,
    /// The process's.
    pub counters: &'a Counters,
    /// Any clock, in nanoseconds.
    pub clock: fn() -> u64,
    /// Processor time of the caller's thread so far, in nanoseconds.
    pub busy: fn() -> u64,
    /// What the clock said when the call came.
    pub now: u64,
}

impl With<'_> {
    /// Compresses a whole body, and counts it.
    fn compress(&mut self, settings: &Settings, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
        let mut had = self.scratch.compress(settings, self.choice, self.clock, input, out)?;
        if had.look {
            had = self.scratch.look(settings, self.choice, self.clock, input, out, had);
        }
        let Compressed { len, maker, nanos, why, .. } = had;
        self.counters.made(maker, Made { bodies: 1, bytes_in: input.len() as u64, bytes_out: len as u64, nanos });
        if let Some(why) = why {
            self.counters.because(why);
        }
        if let Some(client) = self.choice.accelerator() {
            self.counters.set_instances(client.held());
        }
        Some(len)
    }

    /// Compresses a part of a body, and counts it; its first one is a body. `sums`: of a body that is looked at.
    fn part(
        &mut self,
        settings: &Settings,
        part: &Part<'_>,
        out: &mut [MaybeUninit<u8>],
        sums: &mut Option<Sums>,
    ) -> Option<usize> {
        let began = (self.clock)();
        let (mut len, mut maker) = self.scratch.part(settings, self.choice, part, out)?;
        let mut nanos = (self.clock)().saturating_sub(began);
        // One body is one look, however many parts it has.
        if part.before.is_empty() {
            *sums = self.choice.looks_at_parts(Body::long(settings.level, part.input)).then(Sums::default);
        }
        if let Some(sums) = sums
            && let Some(stock) =
                self.scratch.compare_part(settings, self.choice, self.clock, part, out, (len, nanos, sums))
        {
            ((len, nanos), maker) = (stock, Maker::Stock);
            self.counters.because(Reason::Larger);
        }
        let (bytes_in, bytes_out) = (part.input.len() as u64, len as u64);
        let bodies = part.before.is_empty().into();
        self.counters.made(maker, Made { bodies, bytes_in, bytes_out, nanos });
        // What the call brings beside it comes after that.
        self.now = self.now.max((self.clock)());
        Some(len)
    }
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
            holder: AtomicUsize::new(0),
            settings,
            strategy,
            wrapper,
            head: ptr::null_mut(),
            phase: Phase::Staging,
            last_flush: NO_FLUSH_YET,
            is_unasked: false,
            is_ending: false,
            check: 0,
            block,
            block_len,
            staged: 0,
            since: 0,
            until: 0,
            pending: (0, 0),
            history: 0,
            sums: None,
            primed: (0, 0),
            untold: Untold::default(),
            why: None,
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
    let Some((z, state, _held)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    // SAFETY: by the contract.
    unsafe { go(z, state, flush, with) }
}

/// [`deflate`] of a piece for which there is nothing to do but to collect it, or to hand a few bytes on to stock zlib: nearly all are so of
/// who calls with a few bytes each time. `None`: it is [`deflate`]'s. `soon`: a time that is no earlier than now, by [`With::clock`].
///
/// # Safety
/// As [`deflate`]'s.
pub unsafe fn collect(strm: *mut ZStream, flush: c_int, soon: impl FnOnce() -> u64) -> Option<c_int> {
    if flush != NO_FLUSH {
        return None;
    }
    // SAFETY: by the contract.
    let (z, state, _held) = unsafe { of(strm) }?;
    let lies = z.next_out.is_null() || z.next_in.is_null();
    if lies || z.avail_out == 0 || z.avail_in == 0 {
        return None;
    }
    // SAFETY: by the contract.
    unsafe { state.collect(z, soon) }
}

/// [`deflate`] of a stream that is held.
///
/// # Safety
/// As [`deflate`]'s.
unsafe fn go(z: &mut ZStream, state: &mut State, flush: c_int, with: &mut With<'_>) -> c_int {
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
    let Some((z, state, held)) = (unsafe { of_left(strm) }) else { return STREAM_ERROR };
    // Nobody has it again.
    std::mem::forget(held);
    let code = match state.phase {
        Phase::Staging if state.is_new() => OK,
        // All input was taken, and its end was asked for.
        Phase::Draining { then: After::End } | Phase::Ended => OK,
        // SAFETY: it was set up, and is not used again; it frees nothing.
        Phase::Plain => unsafe { stock::deflate_end(&raw mut state.inner) },
        Phase::Streaming => {
            if state.has_begun_with_end() {
                OK
            } else {
                DATA_ERROR
            }
        }
        // zlib has begun with the end, if there is no more than a block.
        Phase::Draining { then: After::Streaming } if state.is_ending => OK,
        Phase::Staging | Phase::Draining { .. } => DATA_ERROR,
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
    let Some((z, state, _held)) = (unsafe { of_left(strm) }) else { return STREAM_ERROR };
    state.reset(z);
    OK
}

/// `deflateParams`.
///
/// # Safety
/// As [`deflate`]'s.
pub unsafe fn params(strm: *mut ZStream, level: c_int, strategy: c_int, with: &mut With<'_>) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state, _held)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    let level = if level == -1 { 6 } else { level };
    if !(0..=9).contains(&level) || !(0..=FIXED).contains(&strategy) {
        return STREAM_ERROR;
    }
    let is_other = (algorithm(level), strategy) != (algorithm(state.settings.level), state.strategy);
    if is_other && !state.is_new() && state.phase != Phase::Plain {
        // What came before is compressed as it was asked for then, and so is what comes with this call.
        // SAFETY: by the contract.
        let code = unsafe { go(z, state, BLOCK, with) };
        if code == STREAM_ERROR {
            return code;
        }
        if z.avail_in > 0 || matches!(state.phase, Phase::Staging | Phase::Draining { then: After::Staging }) {
            return BUF_ERROR;
        }
    }
    let ([before, streaming], msg) = ([state.settings.level, level].map(|level| with.choice.streaming(level)), z.msg);
    // "Fast" has both levels by the same one, which zlib would not flush for: it goes there by way of another algorithm's.
    let is_by_way = is_other && state.phase == Phase::Plain && (before, state.strategy) == (streaming, strategy);
    let code = match state.phase {
        // SAFETY: as the caller's.
        Phase::Plain | Phase::Streaming => unsafe {
            state.with_inner(z, |inner| {
                if is_by_way {
                    let code = stock::deflate_params(inner, 6, strategy);
                    if code != OK {
                        return code;
                    }
                }
                let msg = (*inner).msg;
                let code = stock::deflate_params(inner, streaming, strategy);
                if is_by_way {
                    (*inner).msg = msg;
                }
                code
            })
        },
        Phase::Staging | Phase::Draining { .. } | Phase::Ended => OK,
    };
    if code == OK {
        (state.settings.level, state.strategy) = (level, strategy);
        if state.phase == Phase::Streaming {
            // It has flushed once more, and found nothing.
            z.msg = msg;
        }
    }
    code
}

/// `deflateSetDictionary`.
///
/// # Safety
/// As zlib.h's: `dictionary` has `len` bytes.
pub unsafe fn set_dictionary(strm: *mut ZStream, dictionary: *const u8, len: c_uint, choice: &Choice) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state, _held)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    if dictionary.is_null() {
        return STREAM_ERROR;
    }
    let is_late = match (state.phase, state.wrapper) {
        (Phase::Plain, _) => false,
        (Phase::Draining { then: After::Staging }, _) => true,
        // zlib takes one then, for nothing.
        (Phase::Ended, _) | (Phase::Draining { then: After::End }, Wrapper::Raw) => false,
        (Phase::Draining { .. } | Phase::Streaming, Wrapper::Raw) => state.is_unasked,
        (_, Wrapper::Raw) => false,
        (_, Wrapper::Gzip) => true,
        // Its header names it.
        (Phase::Staging, Wrapper::Zlib) => state.staged > 0,
        (Phase::Draining { .. } | Phase::Streaming, Wrapper::Zlib) => true,
    };
    if is_late {
        return STREAM_ERROR;
    }
    if matches!(state.phase, Phase::Draining { .. } | Phase::Ended) {
        // zlib counts it as input.
        z.total_in = z.total_in.wrapping_add((len as usize).min(1 << state.settings.window_bits) as c_ulong);
        if !state.has_finished() {
            // Stock zlib gets it with what it is to know.
            // SAFETY: by the contract.
            state.know(unsafe { slice::from_raw_parts(dictionary, len as usize) });
        }
        return OK;
    }
    // SAFETY: as the caller's.
    unsafe { state.plain(z, choice, |inner| stock::deflate_set_dictionary(inner, dictionary, len)) }
}

/// `deflateGetDictionary`.
///
/// # Safety
/// As zlib.h's: `dictionary` is null or has room for 32 KB, `len` is null or points to a number.
pub unsafe fn get_dictionary(strm: *mut ZStream, dictionary: *mut u8, len: *mut c_uint) -> c_int {
    // SAFETY: by the contract.
    let Some((_, state, _held)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    let window = 1_usize << state.settings.window_bits;
    if matches!(state.phase, Phase::Plain | Phase::Streaming) {
        // SAFETY: it was set up.
        return unsafe { stock::deflate_get_dictionary(&raw mut state.inner, dictionary, len) };
    }
    let staged = state.staged.min(window);
    let before = state.history.min(window - staged);
    // SAFETY: the bytes are within the block; the caller has room for a window.
    unsafe {
        if !dictionary.is_null() {
            ptr::copy_nonoverlapping(state.block.add(state.block_len - before), dictionary, before);
            ptr::copy_nonoverlapping(state.block.add(state.staged - staged), dictionary.add(before), staged);
        }
        if !len.is_null() {
            *len = (before + staged) as c_uint;
        }
    }
    OK
}

/// `deflateSetHeader`; `head` is a `gz_header`.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn set_header(strm: *mut ZStream, head: *mut c_void, choice: &Choice) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state, _held)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    if state.wrapper != Wrapper::Gzip {
        return STREAM_ERROR;
    }
    let code = if state.phase == Phase::Plain || state.is_new() {
        // SAFETY: as the caller's.
        unsafe { state.plain(z, choice, |inner| stock::deflate_set_header(inner, head)) }
    } else if state.phase == Phase::Ended {
        STREAM_ERROR
    } else {
        // Our header has been sent, or will be: this one is for what comes after a reset.
        OK
    };
    if code == OK {
        state.head = head;
    }
    code
}

/// `deflatePrime`.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn prime(strm: *mut ZStream, bits: c_int, value: c_int, with: &mut With<'_>) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state, _held)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    match (bits, state.phase) {
        (..0 | 17.., _) => BUF_ERROR,
        // Nothing will come after them, or there are none.
        (_, Phase::Draining { then: After::End } | Phase::Ended) | (0, _) => OK,
        (_, Phase::Draining { .. }) => state.prime(z, bits, value, with),
        (_, Phase::Staging) if !state.is_new() => state.prime(z, bits, value, with),
        // SAFETY: as the caller's.
        (_, Phase::Staging | Phase::Plain | Phase::Streaming) => unsafe {
            state.plain(z, with.choice, |inner| stock::deflate_prime(inner, bits, value))
        },
    }
}

/// `deflateTune`.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn tune(strm: *mut ZStream, good: c_int, lazy: c_int, nice: c_int, chain: c_int, choice: &Choice) -> c_int {
    // SAFETY: by the contract.
    let Some((z, state, _held)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
    let has_begun = state.phase == Phase::Staging && !state.is_new();
    if has_begun || matches!(state.phase, Phase::Draining { .. } | Phase::Ended) {
        // It is about how long zlib looks for matches, and is not zlib's to look for now.
        return OK;
    }
    // SAFETY: as the caller's.
    unsafe { state.plain(z, choice, |inner| stock::deflate_tune(inner, good, lazy, nice, chain)) }
}

/// `deflatePending`.
///
/// # Safety
/// As zlib.h's: both are null or point to numbers.
pub unsafe fn pending(strm: *mut ZStream, pending: *mut c_uint, bits: *mut c_int) -> c_int {
    // SAFETY: by the contract.
    let Some((_, state, _held)) = (unsafe { of(strm) }) else { return STREAM_ERROR };
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
            *bits = state.primed.1 as c_int;
        }
    }
    OK
}

/// `deflateBound`: more than zlib's own where it is collected, since that may be flushed in between.
///
/// # Safety
/// As zlib.h's.
pub unsafe fn deflate_bound(strm: *mut ZStream, len: c_ulong, choice: &Choice) -> c_ulong {
    const FLUSH: c_ulong = 16;
    const FRAME: c_ulong = 18;
    // SAFETY: by the contract.
    let state = unsafe { of(strm) };
    if let Some((z, state, _held)) = state {
        if !state.head.is_null() && state.is_new() {
            // As it will be. Where there is no room for that, the call that wants it says so.
            let msg = z.msg;
            let _ = state.begin_plain(z, Reason::Asked, choice);
            z.msg = msg;
        }
        if state.phase == Phase::Plain {
            // SAFETY: it was set up. A header may be long.
            return unsafe { stock::deflate_bound(&raw mut state.inner, len) };
        }
        let Settings { level, window_bits: 15, mem_level: 8 } = state.settings else {
            return len.saturating_add((len >> 3) + (len >> 6) + 5 + FLUSH + FRAME);
        };
        if level > 0 {
            // Stored blocks as zlib's, and the ends of parts.
            return len.saturating_add((len >> 12) + (len >> 13) + (len >> 14) + (len >> 25) + 13 + FLUSH + FRAME);
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
    let Some((z, from, _held)) = (unsafe { of(source) }) else { return STREAM_ERROR };
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
        (to.strm, to.block, to.holder) = (dest, block, AtomicUsize::new(0));
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

/// A caller's stream and its state, if it is one of ours and nobody is at it: another thread that was given it as well, or the handler of a
/// signal that came in the middle of a call, gets `Z_STREAM_ERROR` instead of half a state.
///
/// # Safety
/// `strm` is null or points to a stream, whose state is null, was made by [`init`] or [`copy`], or begins with two words.
unsafe fn of<'a>(strm: *mut ZStream) -> Option<(&'a mut ZStream, &'a mut State, Held<'a>)> {
    // SAFETY: by the contract.
    unsafe { of_whom(strm, 0) }
}

/// The same, also of a call of this thread's that was left by `longjmp`.
///
/// # Safety
/// As [`of`]'s.
unsafe fn of_left<'a>(strm: *mut ZStream) -> Option<(&'a mut ZStream, &'a mut State, Held<'a>)> {
    // SAFETY: by the contract.
    unsafe { of(strm).or_else(|| of_whom(strm, Held::here())) }
}

/// # Safety
/// As [`of`]'s.
unsafe fn of_whom<'a>(strm: *mut ZStream, holder: usize) -> Option<(&'a mut ZStream, &'a mut State, Held<'a>)> {
    // SAFETY: by the contract; zlib looks at the same word of a state, whoever made it.
    unsafe {
        let state = strm.as_ref()?.state.cast::<State>();
        (*strm).zalloc.and((*strm).zfree)?;
        if state.is_null() || (*state).strm != strm || (*state).magic != MAGIC {
            return None;
        }
        // Before there is a reference to all of it.
        let held = &raw const (*state).holder;
        let held = Held::of(&*held, holder)?;
        Some((&mut *strm, &mut *state, held))
    }
}

/// Leaves a stream in the middle of a call, as `longjmp` does.
///
/// # Safety
/// As [`deflate`]'s.
#[cfg(test)]
pub(crate) unsafe fn leave(strm: *mut ZStream) {
    // SAFETY: by the contract.
    std::mem::forget(unsafe { of(strm) });
}

/// A stream that one call is at: whose thread, in the state.
struct Held<'a>(&'a AtomicUsize);

impl<'a> Held<'a> {
    /// What had `before`; 0: nobody.
    fn of(holder: &'a AtomicUsize, before: usize) -> Option<Self> {
        let had = holder.compare_exchange(before, Self::here(), Ordering::Acquire, Ordering::Relaxed);
        had.is_ok().then(|| Self(holder))
    }

    /// The caller's thread: no other one has its address.
    fn here() -> usize {
        thread_local!(static HERE: u8 = const { 0 });
        HERE.with(|here| ptr::from_ref(here).addr())
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.store(0, Ordering::Release);
    }
}

unsafe extern "C" fn c_alloc(_opaque: *mut c_void, items: c_uint, size: c_uint) -> *mut c_void {
    // SAFETY: any size will do.
    unsafe { libc::malloc(items as usize * size as usize) }
}

unsafe extern "C" fn c_free(_opaque: *mut c_void, address: *mut c_void) {
    // SAFETY: it came from `c_alloc`.
    unsafe { libc::free(address) }
}
