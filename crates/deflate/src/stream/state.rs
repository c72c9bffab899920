//! A stream's state, and how it goes from phase to phase.

use std::ffi::{c_int, c_uint, c_ulong, c_void};
use std::mem::{MaybeUninit, offset_of};
use std::sync::atomic::AtomicUsize;
use std::{ptr, slice};

use super::{HEAD_LEN, With};
use crate::arena::{Arena, STATE_LEN};
use crate::choice::{Body, Choice};
use crate::count::{Made, Maker, Reason};
use crate::engine::{Effort, Part, bound};
use crate::scratch::{Settings, Sums};
use crate::text::is_text;
use crate::wrapper::Wrapper;
use crate::zlib::{
    BINARY, BUF_ERROR, DEFAULT_STRATEGY, DEFLATED, FINISH, FULL_FLUSH, MEM_ERROR, NO_FLUSH, OK, STREAM_END,
    STREAM_ERROR, STREAM_SIZE, SYNC_FLUSH, TEXT, UNKNOWN, ZStream, message, stock,
};

/// The least that is worth being a part: its end takes five bytes, and the 32 KB before it are gone through once more.
const PART_MIN: usize = 32 << 10;

/// "Weirgate", and no status of zlib's.
pub(super) const MAGIC: u64 = 0x5765_6972_6761_7465;

/// Before any flush, for which the next one is never a repetition.
pub(super) const NO_FLUSH_YET: c_int = -2;

/// Of stock zlib's calls that bring no more than `FEW` bytes one is counted for up to `UNTOLD_MAX` that are not, and is taken to have
/// lasted as long as each of them: to look at the clock takes longer than zlib does.
const FEW: usize = 64;
const UNTOLD_MAX: u32 = 15;

/// What is still to be counted.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Untold {
    calls: u32,
    bytes_in: c_ulong,
    bytes_out: c_ulong,
}

impl Untold {
    /// A call, before which the stream's totals were these.
    fn add(&mut self, z: &ZStream, (total_in, total_out): (c_ulong, c_ulong)) {
        self.calls += 1;
        self.bytes_in += z.total_in.wrapping_sub(total_in);
        self.bytes_out += z.total_out.wrapping_sub(total_out);
    }
}

/// The state that a caller's stream points to.
#[repr(C)]
pub(super) struct State {
    /// The stream: one that was copied by `memcpy` is not its.
    pub(super) strm: *mut ZStream,
    pub(super) magic: u64,
    /// Whose call is at it: a thread; 0: nobody's.
    pub(super) holder: AtomicUsize,
    pub(super) settings: Settings,
    pub(super) strategy: c_int,
    pub(super) wrapper: Wrapper,
    /// The caller's `gz_header`, which outlives a reset as with zlib; null: none.
    pub(super) head: *mut c_void,
    pub(super) phase: Phase,
    /// Of the last call that may not be repeated without effect.
    pub(super) last_flush: c_int,
    /// Whether nobody has asked for what was flushed: zlib would still hold some of the input.
    pub(super) is_unasked: bool,
    /// While output waits: whether all input was taken, and its end asked for.
    pub(super) is_ending: bool,
    /// Of what was taken.
    pub(super) check: u32,
    pub(super) block: *mut u8,
    pub(super) block_len: usize,
    /// Bytes that are staged, from the block's beginning.
    pub(super) staged: usize,
    /// When the first of them came.
    pub(super) since: u64,
    /// Until when they may wait for more, as far as is known.
    pub(super) until: u64,
    /// Output that waits, in the block.
    pub(super) pending: (usize, usize),
    /// What of the input that was compressed is to be known to who goes on, at the block's end: while staging, none if none was.
    pub(super) history: usize,
    /// Of a body by parts that is looked at.
    pub(super) sums: Option<Sums>,
    /// Bits that the caller has put behind output that waits, and how many: less than a byte.
    pub(super) primed: (u32, u32),
    pub(super) untold: Untold,
    /// Why stock zlib has it, until that is counted.
    pub(super) why: Option<Reason>,
    pub(super) arena: Arena,
    pub(super) inner: ZStream,
    /// Where stock zlib's state begins.
    pub(super) rest: [u64; 0],
}

const _: () = assert!(offset_of!(State, rest) + STATE_LEN <= HEAD_LEN);
// zlib asks for no more of its caller's allocator, and PostgreSQL's and nginx's give no more.
const _: () = assert!(align_of::<State>() <= 8);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    Staging,
    Draining { then: After },
    Streaming,
    Plain,
    Ended,
}

/// What comes when output that waits was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// More of a body that is compressed part by part.
    Staging,
    Streaming,
    End,
}

impl State {
    pub(super) fn reset(&mut self, z: &mut ZStream) {
        self.phase = Phase::Staging;
        (self.last_flush, self.is_unasked) = (NO_FLUSH_YET, false);
        self.check = self.wrapper.no_check();
        (self.staged, self.since, self.pending, self.history, self.primed) = (0, 0, (0, 0), 0, (0, 0));
        (self.why, self.sums, self.untold) = (None, None, Untold::default());
        (z.total_in, z.total_out, z.msg, z.data_type) = (0, 0, ptr::null(), UNKNOWN);
        z.adler = self.check.into();
    }

    /// # Safety
    /// As [`deflate`]'s.
    pub(super) unsafe fn deflate(&mut self, z: &mut ZStream, flush: c_int, with: &mut With<'_>) -> c_int {
        self.is_unasked &= flush == NO_FLUSH;
        loop {
            match self.phase {
                Phase::Staging => {
                    if let Some(code) = self.stage(z, flush, with) {
                        return code;
                    }
                }
                Phase::Draining { then: After::Staging } if !matches!(flush, NO_FLUSH | FINISH) => {
                    self.turn(z, Reason::Flush, flush, with);
                }
                Phase::Draining { then } => {
                    if then == After::Streaming {
                        if self.last_flush != NO_FLUSH_YET && self.is_repeated(z, flush) {
                            return fail(z, BUF_ERROR);
                        }
                        self.last_flush = NO_FLUSH_YET;
                    }
                    if !self.drain(z) {
                        self.is_ending = flush == FINISH && z.avail_in == 0;
                        return OK;
                    }
                    match then {
                        After::Staging => {
                            self.phase = Phase::Staging;
                            self.last_flush = NO_FLUSH_YET;
                            if z.avail_out == 0 {
                                return OK;
                            }
                            if z.avail_in == 0 && flush == NO_FLUSH {
                                self.last_flush = flush;
                                return OK;
                            }
                        }
                        After::Streaming => {
                            // What was flushed has none of these bits.
                            let is_flushed = self.primed.1 == 0;
                            if !self.go_on(with) {
                                return fail(z, MEM_ERROR);
                            }
                            self.phase = Phase::Streaming;
                            self.last_flush = if is_flushed { flush } else { NO_FLUSH_YET };
                            if is_flushed && z.avail_in == 0 && flush != FINISH || z.avail_out == 0 {
                                return OK;
                            }
                        }
                        After::End => self.phase = Phase::Ended,
                    }
                }
                Phase::Streaming => {
                    let is_ours = self.last_flush != NO_FLUSH_YET;
                    if is_ours && self.is_repeated(z, flush) && !self.has_pending() {
                        return fail(z, BUF_ERROR);
                    }
                    // From here on zlib looks after that itself.
                    self.last_flush = NO_FLUSH_YET;
                    // SAFETY: as the caller's.
                    let code = unsafe { self.stream(z, flush, with) };
                    if code != STREAM_END {
                        return code;
                    }
                    // zlib's own memory is free for what is left.
                    let (trailer, len) = self.wrapper.trailer(self.check, z.total_in);
                    self.put(z, &trailer[..len]);
                    self.phase = Phase::Draining { then: After::End };
                }
                // SAFETY: as the caller's.
                Phase::Plain => return unsafe { self.stream(z, flush, with) },
                Phase::Ended => return if z.avail_in > 0 { fail(z, BUF_ERROR) } else { STREAM_END },
            }
        }
    }

    /// Whether a call has no effect, since it brings nothing and asks for no more than the last one.
    fn is_repeated(&mut self, z: &ZStream, flush: c_int) -> bool {
        let last = std::mem::replace(&mut self.last_flush, flush);
        z.avail_in == 0 && rank(flush) <= rank(last) && flush != FINISH
    }

    /// A call while staging: its code, or `None` if the phase has changed.
    fn stage(&mut self, z: &mut ZStream, flush: c_int, with: &mut With<'_>) -> Option<c_int> {
        let new = z.avail_in as usize;
        if self.is_repeated(z, flush) {
            return Some(fail(z, BUF_ERROR));
        }
        // A first call that brings nothing has zlib write its header: nobody collects then.
        if self.is_for_stock() || (new == 0 && self.is_new() && flush == NO_FLUSH) {
            return self.begin_plain(z, Reason::Asked, with.choice);
        }
        if flush == FINISH {
            return self.finish(z, with);
        }
        let is_late = self.staged > 0 && self.is_late(with);
        let fits = new <= self.room();
        if flush == NO_FLUSH && !is_late && (fits || self.has_parts(z, with)) {
            self.take(z, with.now);
            return if fits { Some(OK) } else { self.part(z, false, with) };
        }
        let why = if flush != NO_FLUSH { Reason::Flush } else { Reason::Long };
        if self.is_new() {
            return self.begin_plain(z, why, with.choice);
        }
        self.take(z, with.now);
        self.turn(z, if is_late { Reason::Slow } else { why }, flush, with)
    }

    /// Whether what is staged is not to wait any longer.
    fn is_late(&mut self, with: &mut With<'_>) -> bool {
        if with.now > self.until {
            let Some(until) = with.scratch.late.until(self.since, with.now, with.busy) else { return true };
            self.until = until;
        }
        false
    }

    /// Takes a piece if there is nothing else to do: with which code.
    ///
    /// # Safety
    /// As [`deflate`](super::deflate)'s.
    pub(super) unsafe fn collect(&mut self, z: &mut ZStream, soon: impl FnOnce() -> u64) -> Option<c_int> {
        let len = z.avail_in as usize;
        match self.phase {
            Phase::Staging if self.staged > 0 && len <= self.room() && soon() <= self.until => {
                self.last_flush = NO_FLUSH;
                self.take(z, self.since);
                Some(OK)
            }
            Phase::Streaming if self.last_flush != NO_FLUSH_YET => None,
            Phase::Plain | Phase::Streaming if len <= FEW && self.untold.calls < UNTOLD_MAX && self.why.is_none() => {
                let before = (z.total_in, z.total_out);
                // SAFETY: by the contract.
                let code = unsafe { self.with_inner(z, |inner| stock::deflate(inner, NO_FLUSH)) };
                self.untold.add(z, before);
                Some(code)
            }
            _ => None,
        }
    }

    /// The last call: compresses what is staged and what it brings. As [`stage`](Self::stage)'s.
    fn finish(&mut self, z: &mut ZStream, with: &mut With<'_>) -> Option<c_int> {
        let new = z.avail_in as usize;
        let all = self.staged + new;
        let (header, header_len) = self.wrapper.header(self.settings.level, self.settings.window_bits);
        // With room for no more than its header zlib has not begun with the end.
        if self.is_new() && (all == 0 || z.avail_out as usize <= header_len) {
            return self.begin_plain(z, Reason::Asked, with.choice);
        }
        if !self.is_new() {
            self.take(z, with.now);
            let is_last = z.avail_in == 0;
            let is_part = self.history > 0 || !is_last;
            if is_part {
                let has_parts = self.has_parts(z, with);
                return if has_parts { self.part(z, is_last, with) } else { self.turn(z, Reason::Long, FINISH, with) };
            }
        }
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
                if let Some(len) = with.compress(&settings, input, out) {
                    self.guess(z, input);
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
                if self.has_parts(z, with) {
                    self.take(z, with.now);
                    return self.part(z, false, with);
                }
                return self.begin_plain(z, Reason::Long, with.choice);
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
        self.guess(z, input);
        let mut out = with.scratch.room(bound(all));
        let Some(len) = with.compress(&settings, input, &mut out) else {
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
        self.phase = Phase::Draining { then: After::End };
        None
    }

    /// Compresses what is staged as a part of the body; by stock zlib, which has the rest then, where the engine fails. As
    /// [`stage`](Self::stage)'s.
    fn part(&mut self, z: &mut ZStream, is_last: bool, with: &mut With<'_>) -> Option<c_int> {
        let mut out = with.scratch.room(bound(self.staged));
        let (before, input) = self.parts();
        let settings = self.settings;
        let mut sums = self.sums;
        let len = with.part(&settings, &Part { before, input, is_last }, &mut out, &mut sums);
        self.sums = sums;
        if let Some(len) = len {
            // SAFETY: an engine's output is initialised.
            self.give(z, unsafe { out[..len].assume_init_ref() });
            if is_last {
                let (trailer, trailer_len) = self.wrapper.trailer(self.check, z.total_in);
                self.history = 0;
                self.put(z, &trailer[..trailer_len]);
            }
            self.phase = Phase::Draining { then: if is_last { After::End } else { After::Staging } };
        }
        with.scratch.keep(out);
        if len.is_none() { self.turn(z, Reason::Failed, if is_last { FINISH } else { NO_FLUSH }, with) } else { None }
    }

    /// From staging, or between two parts, to streaming: compresses what is staged, so that what is asked for by `flush` can follow. As
    /// [`stage`](Self::stage)'s.
    pub(super) fn turn(&mut self, z: &mut ZStream, why: Reason, flush: c_int, with: &mut With<'_>) -> Option<c_int> {
        (self.why, self.is_unasked) = (Some(why), flush == NO_FLUSH);
        self.last_flush = NO_FLUSH_YET;
        let flush = if flush == FULL_FLUSH && z.avail_in == 0 { FULL_FLUSH } else { SYNC_FLUSH };
        if self.staged == 0 {
            // A part ended with as much.
            if flush == FULL_FLUSH {
                self.history = 0;
            }
            self.phase = Phase::Draining { then: After::Streaming };
            return None;
        }
        let mut out = with.scratch.room(bound(self.staged));
        let (before, input) = self.parts();
        let settings = Settings { level: with.choice.streaming(self.settings.level), ..self.settings };
        let began = (with.clock)();
        let len = with.scratch.stock(&settings).flush(before, input, &mut out, flush);
        if let Some(len) = len {
            self.count_begin(with);
            let (bytes_in, bytes_out) = (self.staged as u64, len as u64);
            let nanos = (with.clock)().saturating_sub(began);
            with.counters.made(Maker::Stream, Made { bodies: 0, bytes_in, bytes_out, nanos });
            // SAFETY: zlib's output is initialised.
            self.give(z, unsafe { out[..len].assume_init_ref() });
            if flush == FULL_FLUSH {
                self.history = 0;
            }
            self.phase = Phase::Draining { then: After::Streaming };
        }
        with.scratch.keep(out);
        if len.is_none() { Some(fail(z, MEM_ERROR)) } else { None }
    }

    /// `deflatePrime`, of 1 to 16 bits, with a stream that is staged or drained: whole bytes of them go behind the output that waits, and what
    /// is left to the stock zlib that will go on.
    pub(super) fn prime(&mut self, z: &mut ZStream, bits: c_int, value: c_int, with: &mut With<'_>) -> c_int {
        // The caller gets nothing by it.
        let avail_out = std::mem::take(&mut z.avail_out);
        let (was, last_flush) = (self.phase, self.last_flush);
        let has_turned = was != Phase::Draining { then: After::Streaming };
        let failed = if has_turned { self.turn(z, Reason::Asked, NO_FLUSH, with) } else { None };
        if was == Phase::Staging {
            // zlib still would hold what waits now.
            self.last_flush = last_flush;
        }
        let code = failed.unwrap_or_else(|| self.put_bits(z, bits as u32, value as u32));
        z.avail_out = avail_out;
        code
    }

    fn put_bits(&mut self, z: &mut ZStream, bits: u32, value: u32) -> c_int {
        let (before, len) = self.primed;
        let (value, len) = (before | (value & ((1 << bits) - 1)) << len, len + bits);
        let whole = len as usize / 8;
        // A dictionary may come that is as long as a window.
        if self.pending.1 + whole + (1 << self.settings.window_bits) > self.block_len {
            return BUF_ERROR;
        }
        if whole > 0 {
            self.put(z, &value.to_le_bytes()[..whole]);
            self.last_flush = NO_FLUSH_YET;
        }
        self.primed = (value >> (whole * 8), len % 8);
        OK
    }

    /// What is known of what was compressed, and what is staged.
    const fn parts(&self) -> (&[u8], &[u8]) {
        // SAFETY: both are within the block.
        unsafe {
            let history = self.block.add(self.block_len - self.history);
            (slice::from_raw_parts(history, self.history), slice::from_raw_parts(self.block, self.staged))
        }
    }

    /// Gives what was staged, compressed, after the header if it is the first of the stream; the last window of it and of what was known
    /// before is what is known from now on.
    fn give(&mut self, z: &mut ZStream, body: &[u8]) {
        let has_begun = self.history > 0;
        self.guess(z, self.parts().1);
        // SAFETY: what is staged, which its last window is not written over.
        self.know(unsafe { slice::from_raw_parts(self.block, self.staged) });
        self.staged = 0;
        if !has_begun {
            let (header, header_len) = self.wrapper.header(self.settings.level, self.settings.window_bits);
            self.put(z, &header[..header_len]);
        }
        self.put(z, body);
    }

    /// What the data is, as zlib says it of its first block, which has this much or more: of more than this it may say something else.
    fn guess(&self, z: &mut ZStream, input: &[u8]) {
        let block = (1 << (self.settings.mem_level + 6)) - 1;
        if z.data_type == UNKNOWN {
            z.data_type = if is_text(&input[..input.len().min(block)]) { TEXT } else { BINARY };
        }
    }

    /// Adds to what is known: of all that, the last window.
    pub(super) fn know(&mut self, bytes: &[u8]) {
        let window = 1 << self.settings.window_bits;
        let new = bytes.len().min(window);
        let old = self.history.min(window - new);
        let end = self.block_len;
        // SAFETY: within the block, in whose last window there is nothing else.
        unsafe {
            ptr::copy(self.block.add(end - old), self.block.add(end - new - old), old);
            ptr::copy(bytes[bytes.len() - new..].as_ptr(), self.block.add(end - new), new);
        }
        self.history = old + new;
    }

    /// From draining to streaming: sets up stock zlib in the block, with what was staged as its dictionary. False: it does not fit.
    fn go_on(&mut self, with: &mut With<'_>) -> bool {
        let scratch = &mut *with.scratch;
        // SAFETY: within the block, and copied before anything is put there.
        let history = unsafe { slice::from_raw_parts(self.block.add(self.block_len - self.history), self.history) };
        scratch.history.clear();
        scratch.history.extend_from_slice(history);
        let (dictionary, len) = (scratch.history.as_ptr(), scratch.history.len() as c_uint);
        self.history = 0;
        self.pending = (0, 0);
        // SAFETY: it was set up, and the dictionary is that long.
        let goes_on = self.set_up(Wrapper::Raw, with.choice.streaming(self.settings.level))
            && (len == 0 || unsafe { stock::deflate_set_dictionary(&raw mut self.inner, dictionary, len) } == OK);
        let (value, bits) = std::mem::take(&mut self.primed);
        if goes_on && bits > 0 {
            // SAFETY: it was set up, and has room for them.
            unsafe { stock::deflate_prime(&raw mut self.inner, bits as c_int, value as c_int) };
        }
        goes_on
    }

    /// Sets up stock zlib in the block.
    fn set_up(&mut self, wrapper: Wrapper, level: i32) -> bool {
        let Settings { window_bits, mem_level, .. } = self.settings;
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
    pub(super) const fn has_finished(&self) -> bool {
        matches!(self.phase, Phase::Draining { then: After::End } | Phase::Ended)
    }

    /// Whether the stock zlib that goes on has output that waits.
    fn has_pending(&mut self) -> bool {
        let mut len = 0;
        // SAFETY: it was set up; nobody asks for bits.
        unsafe { stock::deflate_pending(&raw mut self.inner, &raw mut len, ptr::null_mut()) == OK && len > 0 }
    }

    /// Whether the stock zlib that goes on has taken all input, and its end was asked for: it takes no other flush then.
    pub(super) fn has_begun_with_end(&mut self) -> bool {
        (self.inner.avail_in, self.inner.avail_out, self.inner.next_out) = (0, 0, self.block);
        // SAFETY: it was set up; without room it writes nothing.
        unsafe { stock::deflate(&raw mut self.inner, NO_FLUSH) == STREAM_ERROR }
    }

    /// Whether only stock zlib does what was asked for.
    fn is_for_stock(&self) -> bool {
        self.is_new() && (self.settings.level == 0 || self.strategy != DEFAULT_STRATEGY || !self.head.is_null())
    }

    /// Whether nothing has come yet.
    pub(super) fn is_new(&self) -> bool {
        self.phase == Phase::Staging && self.staged == 0 && self.history == 0
    }

    /// Whether a body that is longer than what can be staged is compressed part by part.
    fn has_parts(&self, z: &ZStream, with: &With<'_>) -> bool {
        // SAFETY: what is staged, or the caller's input.
        let begins = || unsafe {
            match self.staged {
                0 => slice::from_raw_parts(z.next_in, z.avail_in as usize),
                staged => slice::from_raw_parts(self.block, staged),
            }
        };
        self.stage_len() >= PART_MIN
            && Effort::of(with.choice.streaming(self.settings.level)).is_some()
            && with.choice.has_parts(Body::long(self.settings.level, begins()))
    }

    /// From staging, with nothing staged, to stock zlib for all of it. As [`stage`](Self::stage)'s.
    pub(super) fn begin_plain(&mut self, z: &mut ZStream, why: Reason, choice: &Choice) -> Option<c_int> {
        if !self.set_up(self.wrapper, choice.streaming(self.settings.level)) {
            return Some(fail(z, MEM_ERROR));
        }
        if !self.head.is_null() {
            // SAFETY: it was set up; the caller keeps its header for as long.
            unsafe { stock::deflate_set_header(&raw mut self.inner, self.head) };
        }
        self.phase = Phase::Plain;
        self.why = Some(why);
        None
    }

    /// Has stock zlib do what only it can; `Z_STREAM_ERROR` where it is too late for that, as with zlib.
    ///
    /// # Safety
    /// As `what`'s.
    pub(super) unsafe fn plain(
        &mut self,
        z: &mut ZStream,
        choice: &Choice,
        what: impl FnOnce(*mut ZStream) -> c_int,
    ) -> c_int {
        match self.phase {
            Phase::Staging if self.is_new() => {
                if let Some(code) = self.begin_plain(z, Reason::Asked, choice) {
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

    /// Has stock zlib go on, and counts it.
    ///
    /// # Safety
    /// As [`deflate`](super::deflate)'s.
    unsafe fn stream(&mut self, z: &mut ZStream, flush: c_int, with: &With<'_>) -> c_int {
        self.count_begin(with);
        let (before, began) = ((z.total_in, z.total_out), (with.clock)());
        let is_small = z.avail_in as usize <= FEW && flush == NO_FLUSH;
        // SAFETY: by the contract.
        let code = unsafe { self.with_inner(z, |inner| stock::deflate(inner, flush)) };
        let mut nanos = (with.clock)().saturating_sub(began);
        self.untold.add(z, before);
        let Untold { calls, bytes_in, bytes_out } = std::mem::take(&mut self.untold);
        if is_small {
            nanos *= u64::from(calls);
        }
        with.counters.made(Maker::Stream, Made { bodies: 0, bytes_in, bytes_out, nanos });
        code
    }

    /// Counts that stock zlib has it, once.
    fn count_begin(&mut self, with: &With<'_>) {
        if let Some(why) = self.why.take() {
            with.counters.because(why);
            with.counters.made(Maker::Stream, Made { bodies: 1, ..Made::default() });
        }
    }

    /// Has the inner stream do something with the caller's buffers.
    ///
    /// # Safety
    /// As `what`'s.
    pub(super) unsafe fn with_inner(&mut self, z: &mut ZStream, what: impl FnOnce(*mut ZStream) -> c_int) -> c_int {
        let is_plain = self.phase == Phase::Plain;
        let (input, total_in, total_out) = (z.next_in, self.inner.total_in, self.inner.total_out);
        let inner = &mut self.inner;
        (inner.next_in, inner.avail_in) = (z.next_in, z.avail_in);
        (inner.next_out, inner.avail_out) = (z.next_out, z.avail_out);
        // What it says of a call stays until the next one of which it says something.
        inner.msg = z.msg;
        inner.data_type = z.data_type;
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
        z.total_in = z.total_in.wrapping_add(inner.total_in.wrapping_sub(total_in));
        z.total_out = z.total_out.wrapping_add(inner.total_out.wrapping_sub(total_out));
        if taken > 0 {
            // SAFETY: what the caller had there.
            self.check = self.wrapper.check(self.check, unsafe { slice::from_raw_parts(input, taken) });
            z.adler = self.check.into();
        }
        code
    }

    /// What can be staged, beside a window of what was before. When it is compressed before the end, its output, at worst larger than it
    /// by an eighth, must fit into the block beside a window of it.
    const fn stage_len(&self) -> usize {
        let beside = self.block_len.saturating_sub((1 << self.settings.window_bits) + 128);
        beside / 9 * 8
    }

    /// What more can be staged.
    const fn room(&self) -> usize {
        self.stage_len().saturating_sub(self.staged)
    }

    /// Stages what there is room for.
    fn take(&mut self, z: &mut ZStream, now: u64) {
        let len = self.room().min(z.avail_in as usize);
        if len == 0 {
            return;
        }
        if self.staged == 0 {
            (self.since, self.until) = (now, now);
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

pub(super) fn fail(z: &mut ZStream, code: c_int) -> c_int {
    z.msg = message(code);
    code
}

/// Which of zlib's algorithms a level has: between levels of one it changes without a flush.
pub(super) const fn algorithm(level: c_int) -> u8 {
    match level {
        0 => 0,
        1..=3 => 1,
        _ => 2,
    }
}

/// zlib's order of flushes: `Z_BLOCK` is between none and a partial one.
const fn rank(flush: c_int) -> c_int {
    flush * 2 - if flush > 4 { 9 } else { 0 }
}
