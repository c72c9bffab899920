//! The deflate side.

use std::ffi::{c_char, c_int, c_uint, c_ulong, c_void};

use weirgate_deflate::stream;
use weirgate_deflate::zlib::{DEFAULT_STRATEGY, DEFLATED, STREAM_SIZE, VERSION_ERROR, ZStream};

use crate::once::with;
use crate::process;

/// The release whose interface this is.
const VERSION: &std::ffi::CStr = c"1.2.13";

/// `zlibVersion`.
#[unsafe(no_mangle)]
pub extern "C" fn zlibVersion() -> *const c_char {
    VERSION.as_ptr()
}

/// `deflateInit_`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateInit_(strm: *mut ZStream, level: c_int, version: *const c_char, size: c_int) -> c_int {
    // SAFETY: by the contract.
    unsafe { deflateInit2_(strm, level, DEFLATED, 15, 8, DEFAULT_STRATEGY, version, size) }
}

/// `deflateInit2_`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateInit2_(
    strm: *mut ZStream,
    level: c_int,
    method: c_int,
    window_bits: c_int,
    mem_level: c_int,
    strategy: c_int,
    version: *const c_char,
    stream_size: c_int,
) -> c_int {
    // SAFETY: by the contract, it is null or a text.
    let major = unsafe { version.as_ref() };
    if major != Some(&(b'1' as c_char)) || stream_size != STREAM_SIZE {
        return VERSION_ERROR;
    }
    process::look(process::now());
    // SAFETY: by the contract.
    unsafe { stream::init(strm, level, method, window_bits, mem_level, strategy) }
}

/// `deflate`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflate(strm: *mut ZStream, flush: c_int) -> c_int {
    // SAFETY: by the contract.
    let collected = unsafe { stream::collect(strm, flush, process::soon) };
    // SAFETY: by the contract.
    collected.unwrap_or_else(|| with(|with| unsafe { stream::deflate(strm, flush, with) }))
}

/// `deflateEnd`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateEnd(strm: *mut ZStream) -> c_int {
    // SAFETY: by the contract.
    unsafe { stream::end(strm) }
}

/// `deflateReset`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateReset(strm: *mut ZStream) -> c_int {
    process::look(process::now());
    // SAFETY: by the contract.
    unsafe { stream::reset(strm) }
}

/// `deflateResetKeep`, which in zlib keeps the dictionary's hash chains: nothing that a caller could see.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateResetKeep(strm: *mut ZStream) -> c_int {
    // SAFETY: by the contract.
    unsafe { stream::reset(strm) }
}

/// `deflateCopy`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateCopy(dest: *mut ZStream, source: *mut ZStream) -> c_int {
    // SAFETY: by the contract.
    unsafe { stream::copy(dest, source) }
}

/// `deflateParams`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateParams(strm: *mut ZStream, level: c_int, strategy: c_int) -> c_int {
    // SAFETY: by the contract.
    with(|with| unsafe { stream::params(strm, level, strategy, with) })
}

/// `deflateTune`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateTune(
    strm: *mut ZStream,
    good_length: c_int,
    max_lazy: c_int,
    nice_length: c_int,
    max_chain: c_int,
) -> c_int {
    // SAFETY: by the contract.
    unsafe { stream::tune(strm, good_length, max_lazy, nice_length, max_chain, &process::current().choice) }
}

/// `deflateSetDictionary`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateSetDictionary(strm: *mut ZStream, dictionary: *const u8, len: c_uint) -> c_int {
    // SAFETY: by the contract.
    unsafe { stream::set_dictionary(strm, dictionary, len, &process::current().choice) }
}

/// `deflateGetDictionary`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateGetDictionary(strm: *mut ZStream, dictionary: *mut u8, len: *mut c_uint) -> c_int {
    // SAFETY: by the contract.
    unsafe { stream::get_dictionary(strm, dictionary, len) }
}

/// `deflateSetHeader`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateSetHeader(strm: *mut ZStream, head: *mut c_void) -> c_int {
    // SAFETY: by the contract.
    unsafe { stream::set_header(strm, head, &process::current().choice) }
}

/// `deflatePrime`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflatePrime(strm: *mut ZStream, bits: c_int, value: c_int) -> c_int {
    // SAFETY: by the contract.
    with(|with| unsafe { stream::prime(strm, bits, value, with) })
}

/// `deflatePending`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflatePending(strm: *mut ZStream, pending: *mut c_uint, bits: *mut c_int) -> c_int {
    // SAFETY: by the contract.
    unsafe { stream::pending(strm, pending, bits) }
}

/// `deflateBound`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn deflateBound(strm: *mut ZStream, len: c_ulong) -> c_ulong {
    // SAFETY: by the contract.
    unsafe { stream::deflate_bound(strm, len, &process::current().choice) }
}
