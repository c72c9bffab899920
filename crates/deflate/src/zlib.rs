//! What zlib's callers and zlib agree on: the stream, the codes, and the functions of the stock library that is linked in under names of
//! its own. Source: zlib.h of zlib 1.2.13; the stock library is 1.3.1, whose ABI is the same.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::ptr;

/// As zlib's `alloc_func`.
pub type Alloc = unsafe extern "C" fn(opaque: *mut c_void, items: c_uint, size: c_uint) -> *mut c_void;
/// As zlib's `free_func`.
pub type Free = unsafe extern "C" fn(opaque: *mut c_void, address: *mut c_void);

/// A caller's stream: zlib's `z_stream`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ZStream {
    /// The next byte to take.
    pub next_in: *const u8,
    /// Bytes that can be taken.
    pub avail_in: c_uint,
    /// Bytes taken so far.
    pub total_in: c_ulong,
    /// Where the next byte goes.
    pub next_out: *mut u8,
    /// Bytes that there is room for.
    pub avail_out: c_uint,
    /// Bytes given so far.
    pub total_out: c_ulong,
    /// What went wrong last; null: nothing.
    pub msg: *const c_char,
    /// What the library keeps of it.
    pub state: *mut c_void,
    /// Where that comes from; `None` before `deflateInit`: the C library.
    pub zalloc: Option<Alloc>,
    /// Where it goes.
    pub zfree: Option<Free>,
    /// Whatever these two want.
    pub opaque: *mut c_void,
    /// The best guess of what the data is.
    pub data_type: c_int,
    /// Adler-32 (RFC 1950) or CRC-32 (RFC 1952) of what was taken.
    pub adler: c_ulong,
    /// Reserved.
    pub reserved: c_ulong,
}

impl ZStream {
    /// A stream of which nothing is known yet.
    pub const EMPTY: Self = Self {
        next_in: ptr::null(),
        avail_in: 0,
        total_in: 0,
        next_out: ptr::null_mut(),
        avail_out: 0,
        total_out: 0,
        msg: ptr::null(),
        state: ptr::null_mut(),
        zalloc: None,
        zfree: None,
        opaque: ptr::null_mut(),
        data_type: UNKNOWN,
        adler: 0,
        reserved: 0,
    };
}

/// The size of [`ZStream`], which callers state.
pub const STREAM_SIZE: c_int = size_of::<ZStream>() as c_int;

/// `Z_NO_FLUSH`.
pub const NO_FLUSH: c_int = 0;
/// `Z_SYNC_FLUSH`.
pub const SYNC_FLUSH: c_int = 2;
/// `Z_FULL_FLUSH`.
pub const FULL_FLUSH: c_int = 3;
/// `Z_FINISH`.
pub const FINISH: c_int = 4;
/// `Z_BLOCK`.
pub const BLOCK: c_int = 5;

/// `Z_OK`.
pub const OK: c_int = 0;
/// `Z_STREAM_END`.
pub const STREAM_END: c_int = 1;
/// `Z_NEED_DICT`.
pub const NEED_DICT: c_int = 2;
/// `Z_STREAM_ERROR`.
pub const STREAM_ERROR: c_int = -2;
/// `Z_DATA_ERROR`.
pub const DATA_ERROR: c_int = -3;
/// `Z_MEM_ERROR`.
pub const MEM_ERROR: c_int = -4;
/// `Z_BUF_ERROR`.
pub const BUF_ERROR: c_int = -5;
/// `Z_VERSION_ERROR`.
pub const VERSION_ERROR: c_int = -6;

/// `Z_BINARY`, a `data_type`.
pub const BINARY: c_int = 0;
/// `Z_TEXT`, a `data_type`.
pub const TEXT: c_int = 1;
/// `Z_UNKNOWN`, a `data_type`.
pub const UNKNOWN: c_int = 2;
/// `Z_DEFLATED`, the only method.
pub const DEFLATED: c_int = 8;
/// `Z_DEFAULT_STRATEGY`.
pub const DEFAULT_STRATEGY: c_int = 0;
/// `Z_FIXED`, the last strategy.
pub const FIXED: c_int = 4;

/// Stock zlib's text for a code.
pub fn message(code: c_int) -> *const c_char {
    // SAFETY: any number has a text that is there for ever.
    unsafe { stock::error(code) }
}

/// The stock library. Safe to call as zlib.h says.
pub mod stock {
    use super::{ZStream, c_char, c_int, c_long, c_uint, c_ulong, c_void};

    unsafe extern "C" {
        /// `zlibVersion`.
        #[link_name = "weirgate_stock_zlibVersion"]
        pub fn version() -> *const c_char;
        /// `zError`.
        #[link_name = "weirgate_stock_zError"]
        pub fn error(code: c_int) -> *const c_char;
        /// `deflateInit2_`.
        #[link_name = "weirgate_stock_deflateInit2_"]
        pub fn deflate_init2(
            strm: *mut ZStream,
            level: c_int,
            method: c_int,
            window_bits: c_int,
            mem_level: c_int,
            strategy: c_int,
            version: *const c_char,
            stream_size: c_int,
        ) -> c_int;
        /// `deflate`.
        #[link_name = "weirgate_stock_deflate"]
        pub fn deflate(strm: *mut ZStream, flush: c_int) -> c_int;
        /// `deflateEnd`.
        #[link_name = "weirgate_stock_deflateEnd"]
        pub fn deflate_end(strm: *mut ZStream) -> c_int;
        /// `deflateReset`.
        #[link_name = "weirgate_stock_deflateReset"]
        pub fn deflate_reset(strm: *mut ZStream) -> c_int;
        /// `deflateSetDictionary`.
        #[link_name = "weirgate_stock_deflateSetDictionary"]
        pub fn deflate_set_dictionary(strm: *mut ZStream, dictionary: *const u8, len: c_uint) -> c_int;
        /// `deflateGetDictionary`.
        #[link_name = "weirgate_stock_deflateGetDictionary"]
        pub fn deflate_get_dictionary(strm: *mut ZStream, dictionary: *mut u8, len: *mut c_uint) -> c_int;
        /// `deflateCopy`.
        #[link_name = "weirgate_stock_deflateCopy"]
        pub fn deflate_copy(dest: *mut ZStream, source: *mut ZStream) -> c_int;
        /// `deflateParams`.
        #[link_name = "weirgate_stock_deflateParams"]
        pub fn deflate_params(strm: *mut ZStream, level: c_int, strategy: c_int) -> c_int;
        /// `deflateTune`.
        #[link_name = "weirgate_stock_deflateTune"]
        pub fn deflate_tune(strm: *mut ZStream, good: c_int, lazy: c_int, nice: c_int, chain: c_int) -> c_int;
        /// `deflateBound`.
        #[link_name = "weirgate_stock_deflateBound"]
        pub fn deflate_bound(strm: *mut ZStream, len: c_ulong) -> c_ulong;
        /// `deflatePending`.
        #[link_name = "weirgate_stock_deflatePending"]
        pub fn deflate_pending(strm: *mut ZStream, pending: *mut c_uint, bits: *mut c_int) -> c_int;
        /// `deflatePrime`.
        #[link_name = "weirgate_stock_deflatePrime"]
        pub fn deflate_prime(strm: *mut ZStream, bits: c_int, value: c_int) -> c_int;
        /// `deflateSetHeader`.
        #[link_name = "weirgate_stock_deflateSetHeader"]
        pub fn deflate_set_header(strm: *mut ZStream, head: *mut c_void) -> c_int;
        /// `inflateInit2_`.
        #[link_name = "weirgate_stock_inflateInit2_"]
        pub fn inflate_init2(strm: *mut ZStream, window_bits: c_int, version: *const c_char, size: c_int) -> c_int;
        /// `inflate`.
        #[link_name = "weirgate_stock_inflate"]
        pub fn inflate(strm: *mut ZStream, flush: c_int) -> c_int;
        /// `inflateEnd`.
        #[link_name = "weirgate_stock_inflateEnd"]
        pub fn inflate_end(strm: *mut ZStream) -> c_int;
        /// `inflateSetDictionary`.
        #[link_name = "weirgate_stock_inflateSetDictionary"]
        pub fn inflate_set_dictionary(strm: *mut ZStream, dictionary: *const u8, len: c_uint) -> c_int;
        /// `compress2`.
        #[link_name = "weirgate_stock_compress2"]
        pub fn compress2(dest: *mut u8, len: *mut c_ulong, source: *const u8, size: c_ulong, level: c_int) -> c_int;
        /// `crc32_combine`.
        #[link_name = "weirgate_stock_crc32_combine"]
        pub fn crc32_combine(first: c_ulong, second: c_ulong, len: c_long) -> c_ulong;
    }
}
