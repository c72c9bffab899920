//! The other direction, of whole bodies: what an engine made is looked at by libdeflate, and a caller's zlib stream is decompressed by
//! zlib-rs, whose answer to what is not whole or not right is zlib's.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use libdeflate_sys as lib;
use libz_rs_sys as zlib_rs;

use crate::zlib::{FINISH, OK, STREAM_END, STREAM_SIZE, ZStream};

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

/// zlib-rs, which decompresses zlib streams (RFC 1950): set up once, and begun anew for each of them.
#[derive(Debug)]
pub(crate) struct Uncompress {
    /// zlib-rs's.
    strm: ZStream,
}

// SAFETY: a stream is memory that is used by one call at a time.
unsafe impl Send for Uncompress {}

impl Uncompress {
    /// `None`: no memory (48 KB).
    pub(crate) fn new() -> Option<Self> {
        let mut new = Self { strm: ZStream::EMPTY };
        // SAFETY: a stream of which nothing is known yet.
        let made = unsafe { zlib_rs::inflateInit_(new.stream(), zlib_rs::zlibVersion(), STREAM_SIZE) };
        (made == OK).then_some(new)
    }

    /// What the stream that `input` begins with holds: how many bytes of the one and of the other. `None`: it is not whole, not right, or
    /// longer than `out`.
    pub(crate) fn whole(&mut self, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<(usize, usize)> {
        let (input_len, room) = (u32::try_from(input.len()).ok()?, u32::try_from(out.len()).ok()?);
        // SAFETY: the stream is zlib-rs's; the slices are there until it is done.
        let done = unsafe {
            if zlib_rs::inflateReset(self.stream()) != OK {
                return None;
            }
            (self.strm.next_in, self.strm.avail_in) = (input.as_ptr(), input_len);
            (self.strm.next_out, self.strm.avail_out) = (out.as_mut_ptr().cast(), room);
            zlib_rs::inflate(self.stream(), FINISH)
        };
        (done == STREAM_END)
            .then_some(((input_len - self.strm.avail_in) as usize, (room - self.strm.avail_out) as usize))
    }

    const fn stream(&mut self) -> *mut zlib_rs::z_stream {
        const { assert!(size_of::<zlib_rs::z_stream>() == size_of::<ZStream>()) };
        (&raw mut self.strm).cast()
    }
}

impl Drop for Uncompress {
    fn drop(&mut self) {
        // SAFETY: it is zlib-rs's, or has no state, which it looks for; it is not used again.
        unsafe { zlib_rs::inflateEnd(self.stream()) };
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::c_ulong;

    use proptest::prelude::*;

    use super::*;
    use crate::engine::bound;
    use crate::zlib::stock;

    /// What stock zlib says of a stream: its code, and how many bytes it took and gave.
    fn of_stock(input: &[u8], out: &mut [u8]) -> (i32, usize, usize) {
        let (mut taken, mut given) = (input.len() as c_ulong, out.len() as c_ulong);
        // SAFETY: both are as long as is said.
        let code = unsafe { stock::uncompress2(out.as_mut_ptr(), &raw mut given, input.as_ptr(), &raw mut taken) };
        (code, taken as usize, given as usize)
    }

    proptest! {
        #[test]
        fn what_is_whole_and_right_is_what_stock_zlib_has_of_it(
            part in prop::collection::vec(any::<u8>(), 1..300),
            times in 1..400_usize,
            level in 0..10,
            (cut, flip) in (0..40_usize, prop::option::of(0..1_000_usize)),
            (more, room) in (0..9_usize, -3..4_isize),
        ) {
            let body = part.repeat(times);
            let mut stream = vec![0; bound(body.len())];
            let mut len = stream.len() as c_ulong;
            // SAFETY: both are as long as is said.
            unsafe { stock::compress2(stream.as_mut_ptr(), &raw mut len, body.as_ptr(), body.len() as c_ulong, level) };
            stream.truncate((len as usize).saturating_sub(cut / 8));
            stream.resize(stream.len() + more, 7);
            if let Some(at) = flip.filter(|_| !stream.is_empty()) {
                let at = at % stream.len();
                stream[at] ^= 1;
            }
            let room = body.len().saturating_add_signed(room).max(1);
            let (mut theirs, mut ours) = (vec![0; room], vec![MaybeUninit::new(0); room]);
            let (code, taken, given) = of_stock(&stream, &mut theirs);
            let mut uncompress = Uncompress::new().unwrap();
            for _ in 0..2 {
                let had = uncompress.whole(&stream, &mut ours);
                prop_assert_eq!(had, (code == OK).then_some((taken, given)));
                // SAFETY: all of it is initialised.
                let is_equal = had.is_none_or(|(_, given)| ours[..given].iter().zip(&theirs).all(|(our, their)| unsafe { our.assume_init() } == *their));
                prop_assert!(is_equal);
            }
        }
    }
}
