//! Whole bodies and checksums, and what a thread keeps.

use std::cell::RefCell;
use std::ffi::{c_int, c_uint, c_ulong};
use std::mem::MaybeUninit;

use weirgate_deflate::stream::With;
use weirgate_deflate::zlib::ZStream;
use weirgate_deflate::{Scratch, checksum};

use crate::process::{busy, now};
use crate::{exports, process, shared};

thread_local! {
    static SCRATCH: RefCell<Scratch> = RefCell::new(Scratch::default());
}

/// Calls with what the process and the thread keep; a thread that has ended, and still compresses, works in a scratch of its own.
pub(crate) fn with(call: impl FnOnce(&mut With<'_>) -> c_int) -> c_int {
    let choice = &process::current().choice;
    let mut call = Some(call);
    let counters = shared::counters();
    let mut go = |scratch: &mut Scratch| {
        call.take().map_or(0, |call| call(&mut With { scratch, choice, counters, clock: now, busy, now: now() }))
    };
    let kept = SCRATCH.try_with(|scratch| scratch.try_borrow_mut().map(|mut scratch| go(&mut scratch)));
    match kept {
        Ok(Ok(code)) => code,
        // A signal's handler compresses, in the middle of a call.
        Ok(Err(_)) | Err(_) => go(&mut Scratch::default()),
    }
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
    use weirgate_deflate::zlib::{BUF_ERROR, FINISH, NO_FLUSH, OK, STREAM_END, STREAM_ERROR};
    const PART: c_ulong = c_uint::MAX as c_ulong;
    // SAFETY: by the contract, it points to a number.
    let Some(dest_len) = (unsafe { dest_len.as_mut() }) else { return STREAM_ERROR };
    let all = *dest_len;
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
        let mut waits = 0;
        exports::deflatePending(&raw mut strm, &raw mut waits, std::ptr::null_mut());
        let needed = strm.total_out as usize + waits as usize;
        exports::deflateEnd(&raw mut strm);
        match code {
            STREAM_END => OK,
            // It may have been enough for the engine that had the body the last time.
            BUF_ERROR if len > 0 && all > 0 => {
                let input = std::slice::from_raw_parts(source, len as usize);
                let out = std::slice::from_raw_parts_mut(dest.cast::<MaybeUninit<u8>>(), all as usize);
                with(|with| {
                    let Some(len) = with.again(level, input, needed, out) else { return BUF_ERROR };
                    *dest_len = len as c_ulong;
                    OK
                })
            }
            other => other,
        }
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
