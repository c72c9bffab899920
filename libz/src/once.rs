//! Whole bodies and checksums, and what a thread keeps.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_ulong};
use std::mem::MaybeUninit;

use weirgate_deflate::stream::With;
use weirgate_deflate::zlib::{OK, ZStream, stock};
use weirgate_deflate::{Scratch, checksum};

use crate::process::now;
use crate::{exports, process, shared};

/// Of zlib streams of 4 KB, which hold 25 KB of text, zlib-rs takes as long as stock zlib; of what holds 88 and 500 KB 0.9 and 0.71 of it.
const ZLIB_RS_MIN: c_ulong = 4 << 10;

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// Calls with what the process and the thread keep.
pub(crate) fn with(call: impl FnOnce(&mut With<'_>) -> c_int) -> c_int {
    let choice = &process::current().choice;
    let counters = shared::counters();
    with_scratch(|scratch| call(&mut With { scratch, choice, counters, clock: now, now: now() }))
}

/// Calls with what the thread keeps; one that has ended, and still compresses, works in a scratch of its own, and so does a signal's
/// handler in the middle of a call.
fn with_scratch<R>(call: impl FnOnce(&mut Scratch) -> R) -> R {
    let kept = SCRATCH.try_with(|scratch| scratch.try_borrow_mut().map(|_| ()));
    if let Ok(Ok(())) = kept { SCRATCH.with_borrow_mut(call) } else { call(&mut Scratch::default()) }
}

/// `compress`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compress(dest: *mut u8, dest_len: *mut c_ulong, source: *const u8, len: c_ulong) -> c_int {
    // SAFETY: by the contract.
    unsafe { compress2(dest, dest_len, source, len, -1) }
}

/// `compress2`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn compress2(
    dest: *mut u8,
    dest_len: *mut c_ulong,
    source: *const u8,
    len: c_ulong,
    level: c_int,
) -> c_int {
    use weirgate_deflate::zlib::{BUF_ERROR, FINISH, NO_FLUSH, STREAM_END, STREAM_ERROR};
    const PART: c_ulong = c_uint::MAX as c_ulong;
    // SAFETY: by the contract, it points to a number.
    let Some(dest_len) = (unsafe { dest_len.as_mut() }) else { return STREAM_ERROR };
    let (mut room, mut left) = (std::mem::take(dest_len), len);
    let mut strm = ZStream { next_in: source, next_out: dest, ..ZStream::EMPTY };
    let size = weirgate_deflate::zlib::STREAM_SIZE;
    // SAFETY: the stream is ours, and its buffers are as long as the caller says.
    unsafe {
        let code = exports::deflateInit_(&raw mut strm, level, exports::zlibVersion(), size);
        if code != OK {
            return code;
        }
        let code = loop {
            if strm.avail_out == 0 {
                strm.avail_out = room.min(PART) as c_uint;
                room -= c_ulong::from(strm.avail_out);
            }
            if strm.avail_in == 0 {
                strm.avail_in = left.min(PART) as c_uint;
                left -= c_ulong::from(strm.avail_in);
            }
            let code = exports::deflate(&raw mut strm, if left > 0 { NO_FLUSH } else { FINISH });
            if code != OK {
                break code;
            }
        };
        *dest_len = strm.total_out;
        exports::deflateEnd(&raw mut strm);
        match code {
            STREAM_END => OK,
            BUF_ERROR => BUF_ERROR,
            other => other,
        }
    }
}

/// `uncompress`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uncompress(dest: *mut u8, dest_len: *mut c_ulong, source: *const u8, len: c_ulong) -> c_int {
    let mut len = len;
    // SAFETY: by the contract.
    unsafe { uncompress2(dest, dest_len, source, &raw mut len) }
}

/// `uncompress2`: by zlib-rs where the stream is whole and fits, and long enough for that to be faster. What else there is to say of one is
/// stock zlib's to say, which begins again.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uncompress2(
    dest: *mut u8,
    dest_len: *mut c_ulong,
    source: *const u8,
    len: *mut c_ulong,
) -> c_int {
    // SAFETY: by the contract, both point to numbers, and the buffers are as long as these say.
    unsafe {
        if *len >= ZLIB_RS_MIN && (*len).max(*dest_len) <= c_uint::MAX.into() && !dest.is_null() && !source.is_null() {
            let input = std::slice::from_raw_parts(source, *len as usize);
            let out = std::slice::from_raw_parts_mut(dest.cast::<MaybeUninit<u8>>(), *dest_len as usize);
            if let Some((taken, given)) = with_scratch(|scratch| scratch.uncompress(input, out)) {
                (*len, *dest_len) = (taken as c_ulong, given as c_ulong);
                return OK;
            }
        }
        stock::uncompress2(dest, dest_len, source, len)
    }
}

/// `compressBound`.
#[unsafe(no_mangle)]
pub extern "C" fn compressBound(len: c_ulong) -> c_ulong {
    len.saturating_add((len >> 12) + (len >> 14) + (len >> 25) + 13)
}

/// `crc32`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crc32(crc: c_ulong, bytes: *const u8, len: c_uint) -> c_ulong {
    // SAFETY: by the contract.
    unsafe { crc32_z(crc, bytes, len as usize) }
}

/// `crc32_z`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn crc32_z(crc: c_ulong, bytes: *const u8, len: usize) -> c_ulong {
    if bytes.is_null() {
        return 0;
    }
    // SAFETY: by the contract.
    checksum::crc32(crc as u32, unsafe { std::slice::from_raw_parts(bytes, len) }).into()
}

/// `adler32`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adler32(adler: c_ulong, bytes: *const u8, len: c_uint) -> c_ulong {
    // SAFETY: by the contract.
    unsafe { adler32_z(adler, bytes, len as usize) }
}

/// `adler32_z`.
///
/// # Safety
/// As zlib.h's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn adler32_z(adler: c_ulong, bytes: *const u8, len: usize) -> c_ulong {
    if bytes.is_null() {
        return 1;
    }
    // SAFETY: by the contract.
    checksum::adler32(adler as u32, unsafe { std::slice::from_raw_parts(bytes, len) }).into()
}
