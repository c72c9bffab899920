//! Engines that compress a whole body at once, into raw deflate (RFC 1951).

use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};

use libdeflate_sys as lib;

use crate::arena::{Arena, STATE_LEN, arrays_len};
use crate::zlib::{DEFAULT_STRATEGY, DEFLATED, FINISH, OK, STREAM_END, STREAM_SIZE, ZStream, stock};

/// Compresses bodies, one after the other.
pub trait Engine {
    /// Compresses `input` into `out`: how many bytes of it. `None`: it does not fit, or the engine has failed; whatever is in `out`
    /// then is no output.
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize>;
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
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
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
        (len > 0).then_some(len)
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

    /// Compresses `input` and ends it with `flush`: by [`FINISH`] as a whole stream, by another one so that more can follow.
    pub(crate) fn flush(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>], flush: c_int) -> Option<usize> {
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
            let done = stock::deflate(&raw mut strm, flush);
            let whole = if flush == FINISH { done == STREAM_END } else { done == OK && strm.avail_out > 0 };
            (whole && strm.avail_in == 0).then_some(strm.total_out as usize)
        }
    }
}

impl Engine for Stock {
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
        self.flush(input, out, FINISH)
    }
}

/// ISA-L's igzip at level 1, loaded from the system if it is there (package libisal2).
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
    init: unsafe extern "C" fn(*mut c_void),
    deflate: unsafe extern "C" fn(*mut c_void) -> c_int,
}

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

impl Igzip {
    /// `struct isal_zstream` is 82,384 bytes by ISA-L 2.30; this is more.
    const STREAM_LEN: usize = 96 << 10;
    /// `ISAL_DEF_LVL1_DEFAULT`.
    const LEVEL_LEN: usize = 282_624;

    /// `None`: there is no such library.
    pub fn load() -> Option<Self> {
        // The library stays loaded: threads keep its functions.
        // SAFETY: it has no constructors that could harm, and its two functions are of these types (igzip_lib.h).
        let functions = unsafe {
            let library = libc::dlopen(c"libisal.so.2".as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
            let find = |name: &CStr| NonNull::new(libc::dlsym(library, name.as_ptr()));
            if library.is_null() {
                return None;
            }
            let (init, deflate) = (find(c"isal_deflate_stateless_init")?, find(c"isal_deflate_stateless")?);
            Functions {
                init: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_void)>(init),
                deflate: std::mem::transmute::<NonNull<c_void>, unsafe extern "C" fn(*mut c_void) -> c_int>(deflate),
            }
        };
        let memory = |len: usize| vec![0; len / size_of::<u128>()].into_boxed_slice();
        Some(Self { functions, stream: memory(Self::STREAM_LEN), level: memory(Self::LEVEL_LEN) })
    }
}

impl Engine for Igzip {
    fn compress(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
        let strm = self.stream.as_mut_ptr();
        let (avail_in, avail_out) = (u32::try_from(input.len()).ok()?, u32::try_from(out.len()).unwrap_or(u32::MAX));
        // SAFETY: the memory is larger than the structure and aligned for it; the slices are there until it is done.
        unsafe {
            (self.functions.init)(strm.cast());
            let head = &mut *strm.cast::<IgzipStream>();
            (head.next_in, head.avail_in) = (input.as_ptr(), avail_in);
            (head.next_out, head.avail_out) = (out.as_mut_ptr().cast(), avail_out);
            (head.level, head.level_buf) = (1, self.level.as_mut_ptr().cast());
            head.level_buf_size = Self::LEVEL_LEN as u32;
            head.end_of_stream = 1;
            let code = (self.functions.deflate)(strm.cast());
            let head = &*strm.cast::<IgzipStream>();
            (code == 0 && head.avail_in == 0).then_some(head.total_out as usize)
        }
    }
}
