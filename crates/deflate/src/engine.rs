//! Engines, which compress a whole body at once, or one part of it after the other, into raw deflate (RFC 1951): here those of the caller's
//! thread. [`Qatzip`](crate::qatzip::Qatzip) and [`Device`](crate::accelerator::Device) have a body compressed elsewhere.

use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use libdeflate_sys as lib;
use libz_rs_sys as zlib_rs;

use crate::arena::{Arena, STATE_LEN, arrays_len};
use crate::count::Reason;
use crate::library::Known;
use crate::zlib::{DEFAULT_STRATEGY, DEFLATED, FINISH, OK, STREAM_END, STREAM_SIZE, SYNC_FLUSH, ZStream, stock};

/// Compresses bodies, one after the other.
pub trait Engine {
    /// Compresses `input` into `out`: how many bytes of it.
    ///
    /// # Errors
    /// Why not, [`Reason::Failed`] where it does not fit; whatever is in `out` then is no output.
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason>;

    /// Compresses a part of a body: how long it became.
    ///
    /// # Errors
    /// As [`compress`](Self::compress)'s; [`Reason::Failed`] also of an engine for whole bodies.
    fn part(&mut self, _part: &Part<'_>, _out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason> {
        Err(Reason::Failed)
    }

    /// For how many nanoseconds of the last body the caller's thread slept.
    fn asleep(&self) -> u64 {
        0
    }
}

/// A part of a body that is compressed part by part.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// What comes before it, a window at most.
    pub before: &'a [u8],
    /// The part.
    pub input: &'a [u8],
    /// Whether the body ends with it; any other part ends with an empty stored block (`Z_SYNC_FLUSH`).
    pub is_last: bool,
}

/// Bytes that any engine's output of `len` bytes fits into: zlib with the least memory stores what cannot be compressed in blocks of
/// 127 bytes, and five for each.
pub const fn bound(len: usize) -> usize {
    len + (len >> 3) + 64
}

/// What a gzip file (RFC 1952) of one member holds, of which `len` bytes are expected. `None`: it is not whole, not right, or longer.
pub fn gunzip(file: &[u8], len: usize) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    Inflater::new()?.whole(lib::libdeflate_gzip_decompress_ex, file, len, &mut out).then_some(out)
}

/// libdeflate's other direction.
#[derive(Debug)]
pub(crate) struct Inflater(NonNull<lib::libdeflate_decompressor>);

// SAFETY: a decompressor is memory that is used by one call at a time.
unsafe impl Send for Inflater {}

/// One of libdeflate's functions.
type Inflate = unsafe extern "C" fn(
    *mut lib::libdeflate_decompressor,
    *const c_void,
    usize,
    *mut c_void,
    usize,
    *mut usize,
    *mut usize,
) -> lib::libdeflate_result;

impl Inflater {
    /// `None`: no memory.
    pub(crate) fn new() -> Option<Self> {
        // SAFETY: makes a decompressor of its own, or none.
        NonNull::new(unsafe { lib::libdeflate_alloc_decompressor() }).map(Self)
    }

    /// Makes `out` what `raw` (RFC 1951) holds. False: it is not whole, not right, more than `len` bytes, or something comes after it.
    pub(crate) fn inflate(&mut self, raw: &[u8], len: usize, out: &mut Vec<u8>) -> bool {
        self.whole(lib::libdeflate_deflate_decompress_ex, raw, len, out)
    }

    fn whole(&mut self, inflate: Inflate, from: &[u8], len: usize, out: &mut Vec<u8>) -> bool {
        out.clear();
        out.reserve(len);
        let (mut taken, mut given) = (0, 0);
        // SAFETY: it reads the one and writes at most `len` bytes of the other, and says how many.
        unsafe {
            let (from_at, to) = (from.as_ptr().cast(), out.as_mut_ptr().cast());
            let code = inflate(self.0.as_ptr(), from_at, from.len(), to, len, &raw mut taken, &raw mut given);
            if code != lib::libdeflate_result_LIBDEFLATE_SUCCESS || taken != from.len() {
                return false;
            }
            out.set_len(given);
        }
        true
    }
}

impl Drop for Inflater {
    fn drop(&mut self) {
        // SAFETY: it is ours, and not used again.
        unsafe { lib::libdeflate_free_decompressor(self.0.as_ptr()) }
    }
}

/// libdeflate at a level of its own, 0 to 12: what 6 makes is as long as what zlib's 6 does.
#[derive(Debug)]
pub struct Libdeflate(NonNull<lib::libdeflate_compressor>);

// SAFETY: a compressor is memory that is used by one call at a time.
unsafe impl Send for Libdeflate {}

impl Libdeflate {
    /// The highest level.
    pub const LEVEL_MAX: i32 = 12;

    /// `None`: no memory, or no such level.
    pub fn new(level: i32) -> Option<Self> {
        // SAFETY: makes a compressor of its own, or none.
        NonNull::new(unsafe { lib::libdeflate_alloc_compressor(level) }).map(Self)
    }
}

impl Drop for Libdeflate {
    fn drop(&mut self) {
        // SAFETY: it is ours, and not used again.
        unsafe { lib::libdeflate_free_compressor(self.0.as_ptr()) }
    }
}

impl Engine for Libdeflate {
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason> {
        // SAFETY: it reads the one slice and writes at most the other.
        let len = unsafe {
            lib::libdeflate_deflate_compress(
                self.0.as_ptr(),
                input.as_ptr().cast(),
                input.len(),
                out.as_mut_ptr().cast(),
                out.len(),
            )
        };
        if len > 0 { Ok(len) } else { Err(Reason::Failed) }
    }
}

/// Stock zlib, set up anew for each body in memory that is kept.
#[derive(Debug, Default)]
pub struct Stock {
    memory: Vec<u128>,
    /// The level that was asked for.
    pub level: i32,
    /// Of its window: 9 to 15.
    pub window_bits: u32,
    /// 1 to 9.
    pub mem_level: u32,
}

impl Stock {
    /// With zlib's own defaults but the level, 0 to 9.
    pub fn new(level: i32) -> Self {
        Self { memory: Vec::new(), level, window_bits: 15, mem_level: 8 }
    }

    /// Compresses `input`, which comes after `before`, and ends it with `flush`: by [`FINISH`] as a stream's end, by another one so that
    /// more can follow.
    pub(crate) fn flush(
        &mut self,
        before: &[u8],
        input: &[u8],
        out: &mut [MaybeUninit<u8>],
        flush: c_int,
    ) -> Option<usize> {
        let arrays = arrays_len(self.window_bits, self.mem_level);
        let wanted = (STATE_LEN + arrays).div_ceil(size_of::<u128>());
        if self.memory.len() < wanted {
            self.memory = vec![0; wanted];
        }
        let memory = self.memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the state's length is a multiple of 16 and within the memory, and the arrays end with it.
        let mut arena = Arena::new((memory, STATE_LEN), (unsafe { memory.add(STATE_LEN) }, arrays));
        let mut strm = ZStream {
            next_in: input.as_ptr(),
            avail_in: u32::try_from(input.len()).ok()?,
            next_out: out.as_mut_ptr().cast(),
            avail_out: u32::try_from(out.len()).unwrap_or(u32::MAX),
            zalloc: Some(Arena::alloc),
            zfree: Some(Arena::free),
            opaque: ptr::from_mut(&mut arena).cast(),
            ..ZStream::EMPTY
        };
        let bits = -(self.window_bits as c_int);
        let before_len = u32::try_from(before.len()).ok()?;
        // SAFETY: the stream, its arena, the input and the room for output are all there until it is no longer used; it needs no
        // end, since nothing of it is allocated.
        unsafe {
            let (level, mem_level) = (self.level, self.mem_level as c_int);
            let made = stock::deflate_init2(
                &raw mut strm,
                level,
                DEFLATED,
                bits,
                mem_level,
                DEFAULT_STRATEGY,
                stock::version(),
                STREAM_SIZE,
            );
            if made != OK {
                return None;
            }
            if before_len > 0 && stock::deflate_set_dictionary(&raw mut strm, before.as_ptr(), before_len) != OK {
                return None;
            }
            let done = stock::deflate(&raw mut strm, flush);
            let whole = if flush == FINISH { done == STREAM_END } else { done == OK && strm.avail_out > 0 };
            (whole && strm.avail_in == 0).then_some(strm.total_out as usize)
        }
    }
}

impl Engine for Stock {
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason> {
        self.flush(&[], input, out, FINISH).ok_or(Reason::Failed)
    }
}

/// How zlib-rs looks for matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// 1 to 9.
    level: i32,
    /// `deflateTune`'s, where the level's own are not meant.
    search: Option<[c_int; 4]>,
}

impl Effort {
    /// The least whose output is as long as zlib's at a level, within half of one per cent. `None`: there is none, or no such level.
    ///
    /// Of pages, scripts, JSON and C headers of 300 KB to 2 MB in parts of 199 KB it is 0.97, 0.90, 0.97, 0.993, 1.004, 1.000, 1.003 and
    /// 1.003 of zlib's at levels 1 to 8, at worst, for 0.57 to 0.81 of the time. zlib-rs's own 6 is 1.010 there, its own 1 1.25; 9 is 1.013.
    pub const fn of(level: i32) -> Option<Self> {
        let (level, search) = match level {
            1 => (2, None),
            2 | 3 => (3, None),
            4 | 5 | 7 | 8 => (level, None),
            // Lazy as 7, with no longer chains than zlib's 6.
            6 => (7, Some([8, 32, 128, 128])),
            _ => return None,
        };
        Some(Self { level, search })
    }
}

/// zlib-rs: set up once, and begun anew for each body or part. It is of no more use once it has failed.
#[derive(Debug)]
pub struct ZlibRs {
    /// Whose state is null, or zlib-rs's.
    strm: ZStream,
    /// For the next body or part.
    pub effort: Effort,
}

// SAFETY: a stream is memory that is used by one call at a time.
unsafe impl Send for ZlibRs {}

impl ZlibRs {
    /// One that was never set up, and fails.
    #[cfg(test)]
    pub(crate) const BROKEN: Self = Self { strm: ZStream::EMPTY, effort: Effort { level: 6, search: None } };

    /// For windows of 9 to 15 bits. `None`: no memory (370 KB for 15 bits), or no such window.
    pub fn new(window_bits: u32, effort: Effort) -> Option<Self> {
        let mut new = Self { strm: ZStream::EMPTY, effort };
        let bits = -c_int::try_from(window_bits).ok()?;
        // SAFETY: a stream of which nothing is known yet.
        let made = unsafe {
            zlib_rs::deflateInit2_(
                new.stream(),
                6,
                DEFLATED,
                bits,
                8,
                DEFAULT_STRATEGY,
                zlib_rs::zlibVersion(),
                STREAM_SIZE,
            )
        };
        (made == OK).then_some(new)
    }

    /// Where its state is.
    #[cfg(test)]
    pub(crate) const fn state(&self) -> *mut c_void {
        self.strm.state
    }

    const fn stream(&mut self) -> *mut zlib_rs::z_stream {
        const { assert!(size_of::<zlib_rs::z_stream>() == size_of::<ZStream>()) };
        (&raw mut self.strm).cast()
    }
}

impl Engine for ZlibRs {
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason> {
        self.part(&Part { before: &[], input, is_last: true }, out)
    }

    fn part(&mut self, part: &Part<'_>, out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason> {
        self.run(part, out).ok_or(Reason::Failed)
    }
}

impl ZlibRs {
    fn run(&mut self, part: &Part<'_>, out: &mut [MaybeUninit<u8>]) -> Option<usize> {
        let Effort { level, search } = self.effort;
        let Part { before, input, is_last } = *part;
        let (before_len, input_len) = (u32::try_from(before.len()).ok()?, u32::try_from(input.len()).ok()?);
        let strm = self.stream();
        // SAFETY: the stream is zlib-rs's, or has no state, which it looks for; the slices are there until it is done.
        unsafe {
            // The level before the dictionary: how that is found again depends on it.
            let begun = zlib_rs::deflateReset(strm) == OK
                && zlib_rs::deflateParams(strm, level, DEFAULT_STRATEGY) == OK
                && search
                    .is_none_or(|[good, lazy, nice, chain]| zlib_rs::deflateTune(strm, good, lazy, nice, chain) == OK)
                && (before_len == 0 || zlib_rs::deflateSetDictionary(strm, before.as_ptr(), before_len) == OK);
            if !begun {
                return None;
            }
            (self.strm.next_in, self.strm.avail_in) = (input.as_ptr(), input_len);
            (self.strm.next_out, self.strm.avail_out) =
                (out.as_mut_ptr().cast(), u32::try_from(out.len()).unwrap_or(u32::MAX));
            let done = zlib_rs::deflate(self.stream(), if is_last { FINISH } else { SYNC_FLUSH });
            let whole = if is_last { done == STREAM_END } else { done == OK && self.strm.avail_out > 0 };
            (whole && self.strm.avail_in == 0).then_some(self.strm.total_out as usize)
        }
    }
}

impl Drop for ZlibRs {
    fn drop(&mut self) {
        // SAFETY: it is zlib-rs's, or has no state, which it looks for; it is not used again.
        unsafe { zlib_rs::deflateEnd(self.stream()) };
    }
}

/// ISA-L's igzip at level 1, loaded from the system if it is there (package libisal2). It looks back 32 KB.
#[derive(Debug)]
pub struct Igzip {
    functions: Functions,
    /// `struct isal_zstream`.
    stream: Box<[u128]>,
    /// What level 1 works in.
    level: Box<[u128]>,
}

#[derive(Clone, Copy, Debug)]
struct Functions {
    stateless_init: Init,
    stateless: Deflate,
    init: Init,
    set_dict: unsafe extern "C" fn(*mut c_void, *const u8, u32) -> c_int,
    deflate: Deflate,
}

type Init = unsafe extern "C" fn(*mut c_void);
type Deflate = unsafe extern "C" fn(*mut c_void) -> c_int;

/// The beginning of `struct isal_zstream` (igzip_lib.h, ISA-L 2.18 to 2.32).
#[derive(Debug)]
#[repr(C)]
struct IgzipStream {
    next_in: *const u8,
    avail_in: u32,
    total_in: u32,
    next_out: *mut u8,
    avail_out: u32,
    total_out: u32,
    hufftables: *mut c_void,
    level: u32,
    level_buf_size: u32,
    level_buf: *mut u8,
    end_of_stream: u16,
    flush: u16,
    gzip_flag: u16,
    hist_bits: u16,
}

// SAFETY: it has no constructors that could harm.
static ISAL: Known = unsafe { Known::new(c"libisal.so.2") };

impl Igzip {
    /// `struct isal_zstream` is 82,384 bytes by ISA-L 2.30; this is more.
    const STREAM_LEN: usize = 96 << 10;
    /// `ISAL_DEF_LVL1_DEFAULT`.
    const LEVEL_LEN: usize = 282_624;

    /// Whether its library is there; it is loaded from then on.
    pub fn is_there() -> bool {
        ISAL.get().is_some()
    }

    /// `None`: there is no such library.
    pub fn load() -> Option<Self> {
        let library = ISAL.get()?;
        // SAFETY: its functions are of these types (igzip_lib.h).
        let functions = unsafe {
            Functions {
                stateless_init: library.find(c"isal_deflate_stateless_init")?,
                stateless: library.find(c"isal_deflate_stateless")?,
                init: library.find(c"isal_deflate_init")?,
                set_dict: library.find(c"isal_deflate_set_dict")?,
                deflate: library.find(c"isal_deflate")?,
            }
        };
        let memory = |len: usize| vec![0; len / size_of::<u128>()].into_boxed_slice();
        Some(Self { functions, stream: memory(Self::STREAM_LEN), level: memory(Self::LEVEL_LEN) })
    }

    /// Sets a stream up by one of its functions for that.
    ///
    /// # Safety
    /// The slices are there for as long as the stream is used.
    unsafe fn begin(&mut self, init: Init, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<&mut IgzipStream> {
        let strm = self.stream.as_mut_ptr();
        let (avail_in, avail_out) = (u32::try_from(input.len()).ok()?, u32::try_from(out.len()).unwrap_or(u32::MAX));
        // SAFETY: the memory is larger than the structure and aligned for it.
        let head = unsafe {
            init(strm.cast());
            &mut *strm.cast::<IgzipStream>()
        };
        (head.next_in, head.avail_in) = (input.as_ptr(), avail_in);
        (head.next_out, head.avail_out) = (out.as_mut_ptr().cast(), avail_out);
        (head.level, head.level_buf) = (1, self.level.as_mut_ptr().cast());
        head.level_buf_size = Self::LEVEL_LEN as u32;
        Some(head)
    }
}

impl Engine for Igzip {
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason> {
        self.whole(input, out).ok_or(Reason::Failed)
    }

    fn part(&mut self, part: &Part<'_>, out: &mut [MaybeUninit<u8>]) -> Result<usize, Reason> {
        self.run(part, out).ok_or(Reason::Failed)
    }
}

impl Igzip {
    fn whole(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
        let Functions { stateless_init, stateless, .. } = self.functions;
        // SAFETY: the memory is larger than the structure and aligned for it; the slices are there until it is done.
        unsafe {
            self.begin(stateless_init, input, out)?.end_of_stream = 1;
            let strm = self.stream.as_mut_ptr();
            let code = stateless(strm.cast());
            let head = &*strm.cast::<IgzipStream>();
            (code == 0 && head.avail_in == 0).then_some(head.total_out as usize)
        }
    }

    fn run(&mut self, part: &Part<'_>, out: &mut [MaybeUninit<u8>]) -> Option<usize> {
        /// It may have stopped where there is room for no more than what it writes at once.
        const LEFT_MIN: u32 = 8;
        /// igzip's own number.
        const SYNC_FLUSH: u16 = 1;
        let Part { before, input, is_last } = *part;
        let before_len = u32::try_from(before.len()).ok()?;
        let Functions { init, set_dict, deflate, .. } = self.functions;
        // SAFETY: the memory is larger than the structure and aligned for it; the slices are there until it is done.
        unsafe {
            let head = self.begin(init, input, out)?;
            (head.end_of_stream, head.flush) = if is_last { (1, 0) } else { (0, SYNC_FLUSH) };
            let strm = self.stream.as_mut_ptr().cast::<c_void>();
            if before_len > 0 && set_dict(strm, before.as_ptr(), before_len) != 0 {
                return None;
            }
            let code = deflate(strm);
            let head = &*strm.cast::<IgzipStream>();
            (code == 0 && head.avail_in == 0 && head.avail_out > LEFT_MIN).then_some(head.total_out as usize)
        }
    }
}
