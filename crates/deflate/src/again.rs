//! A whole body once more, by each engine, for a caller that has made room for as much as an earlier call made of it.
//!
//! zlib's caller may compress twice, the first time to know the length, and gets the same. Here another engine may have the class by then,
//! or the engine another level, and make a few bytes more.

use std::mem::MaybeUninit;

use crate::choice::{LOOK_MAX, Pick};
use crate::count::Maker;
use crate::engine::bound;
use crate::scratch::Settings;
use crate::stream::With;
use crate::wrapper::Wrapper;

/// Engines make about as much of a body: where there is no room for so many parts of a hundred of zlib's output, it is too small for all.
const ABOUT: usize = 85;

impl With<'_> {
    /// Compresses `input` into zlib's format, by the first engine whose output fits into `out`: how long it became. `None`: no engine's does,
    /// or the body is longer than 1 MB.
    pub fn again(&mut self, level: i32, input: &[u8], out: &mut [MaybeUninit<u8>]) -> Option<usize> {
        let settings = Settings { level: if level == -1 { 6 } else { level }, window_bits: 15, mem_level: 8 };
        let (header, header_len) = Wrapper::Zlib.header(settings.level, settings.window_bits);
        let check = Wrapper::Zlib.check(Wrapper::Zlib.no_check(), input);
        let (trailer, trailer_len) = Wrapper::Zlib.trailer(check, input.len() as u64);
        let room = out.len().checked_sub(header_len + trailer_len)?;
        if !(1..=9).contains(&settings.level) || input.len() > LOOK_MAX {
            return None;
        }
        let by_libdeflate = (settings.level..=9).map(|level| Pick { maker: Maker::Libdeflate, level, look: false });
        let mut made = self.scratch.room(bound(input.len()));
        let mut found = None;
        for pick in std::iter::once(self.choice.stock(settings.level)).chain(by_libdeflate) {
            let Some(len) = self.scratch.by(&pick, &settings, input, &mut made) else { continue };
            if len <= room {
                found = Some(len);
                break;
            }
            if room < len * ABOUT / 100 {
                break;
            }
        }
        let body = found.map(|len| &made[..len]);
        let whole = body.map(|body| {
            let (frame, rest) = out.split_at_mut(header_len);
            frame.write_copy_of_slice(&header[..header_len]);
            rest[..body.len()].copy_from_slice(body);
            rest[body.len()..][..trailer_len].write_copy_of_slice(&trailer[..trailer_len]);
            header_len + body.len() + trailer_len
        });
        self.scratch.keep(made);
        whole
    }
}
