//! The inflate side of a stream: stock zlib's, or zlib-rs's where that was asked for. One of them for all that a process and its children
//! ever inflate, since neither knows the other's streams; it is settled when the first stream begins.

use std::ffi::{c_char, c_int, c_long, c_uint, c_ulong, c_void};
use std::sync::OnceLock;

use libz_rs_sys as zlib_rs;
use weirgate_deflate::zlib::ZStream;

use crate::process;
use crate::settings::Inflate;

static BY: OnceLock<Inflate> = OnceLock::new();

/// Whose functions begin streams. What is wrong with that setting is told by who inflates, since most of these compress nothing.
fn by() -> Inflate {
    *BY.get_or_init(|| {
        let process = process::current();
        process.tell_of("inflate");
        process.settings.inflate
    })
}

/// zlib.h's functions, each of them either's. Those that begin a stream settle which; before that there is none, and stock zlib says so.
macro_rules! either {
    ($($by:expr => $name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        mod stock {
            use super::*;

            unsafe extern "C" {
                $(
                    #[link_name = concat!("weirgate_stock_", stringify!($name))]
                    pub(super) fn $name($($argument: $type),*) -> $result;
                )*
            }
        }

        $(
            #[doc = concat!("`", stringify!($name), "`.\n\n# Safety\nAs zlib.h's.")]
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                match $by {
                    // SAFETY: by the contract, and the types are laid out alike.
                    Some(Inflate::ZlibRs) => unsafe { zlib_rs::$name($($argument as _),*) },
                    // SAFETY: by the contract.
                    _ => unsafe { stock::$name($($argument),*) },
                }
            }
        )*
    };
}

either! {
    Some(by()) => inflateInit_(strm: *mut ZStream, version: *const c_char, size: c_int) -> c_int;
    Some(by()) => inflateInit2_(strm: *mut ZStream, window_bits: c_int, version: *const c_char, size: c_int) -> c_int;
    BY.get().copied() => inflate(strm: *mut ZStream, flush: c_int) -> c_int;
    BY.get().copied() => inflateEnd(strm: *mut ZStream) -> c_int;
    BY.get().copied() => inflateReset(strm: *mut ZStream) -> c_int;
    BY.get().copied() => inflateReset2(strm: *mut ZStream, window_bits: c_int) -> c_int;
    BY.get().copied() => inflateResetKeep(strm: *mut ZStream) -> c_int;
    BY.get().copied() => inflateCopy(dest: *mut ZStream, source: *mut ZStream) -> c_int;
    BY.get().copied() => inflatePrime(strm: *mut ZStream, bits: c_int, value: c_int) -> c_int;
    BY.get().copied() => inflateMark(strm: *mut ZStream) -> c_long;
    BY.get().copied() => inflateGetHeader(strm: *mut ZStream, head: *mut c_void) -> c_int;
    BY.get().copied() => inflateSetDictionary(strm: *mut ZStream, dictionary: *const u8, len: c_uint) -> c_int;
    BY.get().copied() => inflateGetDictionary(strm: *mut ZStream, dictionary: *mut u8, len: *mut c_uint) -> c_int;
    BY.get().copied() => inflateSync(strm: *mut ZStream) -> c_int;
    BY.get().copied() => inflateSyncPoint(strm: *mut ZStream) -> c_int;
    BY.get().copied() => inflateUndermine(strm: *mut ZStream, subvert: c_int) -> c_int;
    BY.get().copied() => inflateValidate(strm: *mut ZStream, check: c_int) -> c_int;
    BY.get().copied() => inflateCodesUsed(strm: *mut ZStream) -> c_ulong;
}
