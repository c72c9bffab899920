//! A whole body once more, for a caller that has made room for as much as an earlier call made of it.
//!
//! zlib's caller may compress twice, the first time to know the length, and gets the same. Here another engine may have the class by then,
//! or the engine another level; and with less room than a body can need at most a long one is compressed part by part.

use std::mem::MaybeUninit;

use crate::choice::Body;
use crate::scratch::Settings;
use crate::stream::With;
use crate::wrapper::Wrapper;

impl With<'_> {
    /// Compresses `input` into zlib's format, by the first engine of the caller's thread that may have had it and whose output fits into `out`:
    /// how long it became. `None`: no engine's does. `needed`: what the engine that has it now made of it, or more than `out` of a part.
    pub fn again(&mut self, level: i32, input: &[u8], needed: usize, out: &mut [MaybeUninit<u8>]) -> Option<usize> {
        // Engines make about as much of a body: libdeflate 0.84 of zlib's, at level 1.
        if out.len() < needed / 4 * 3 {
            return None;
        }
        let settings = Settings { level: if level == -1 { 6 } else { level }, window_bits: 15, mem_level: 8 };
        let (header, before) = Wrapper::Zlib.header(settings.level, settings.window_bits);
        let (_, after) = Wrapper::Zlib.trailer(0, 0);
        let most = out.len().checked_sub(before + after)?;
        // With the trailer's: zlib asks to be called again where it has no room left at its end.
        let (room, now) = (&mut out[before..], self.now);
        let mut made = self
            .choice
            .ways(Body::of(settings.level, input))
            .filter_map(|pick| self.scratch.by(&pick, &settings, self.choice, now, input, room).ok());
        let (len, _) = made.find(|(len, _)| *len <= most)?;
        let check = Wrapper::Zlib.check(Wrapper::Zlib.no_check(), input);
        let (trailer, _) = Wrapper::Zlib.trailer(check, input.len() as u64);
        out[..before].write_copy_of_slice(&header[..before]);
        out[before + len..][..after].write_copy_of_slice(&trailer[..after]);
        Some(before + len + after)
    }
}
