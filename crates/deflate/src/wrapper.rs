//! What is around the deflated data: nothing, zlib's frame (RFC 1950) or gzip's (RFC 1952), byte for byte as zlib writes it.

use crate::checksum::{adler32, crc32};

/// The format of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wrapper {
    Raw,
    Zlib,
    Gzip,
}

/// A header's bytes, of which the first `usize` count.
type Frame = ([u8; 10], usize);

impl Wrapper {
    /// The `windowBits` that asks for it.
    pub(crate) const fn window_bits(self, bits: u32) -> i32 {
        match self {
            Self::Raw => -(bits as i32),
            Self::Zlib => bits as i32,
            Self::Gzip => bits as i32 + 16,
        }
    }

    /// The check of no bytes.
    pub(crate) const fn no_check(self) -> u32 {
        match self {
            Self::Raw | Self::Zlib => 1,
            Self::Gzip => 0,
        }
    }

    /// The check with more bytes: CRC-32 or Adler-32.
    pub(crate) fn check(self, check: u32, bytes: &[u8]) -> u32 {
        match self {
            Self::Raw => check,
            Self::Zlib => adler32(check, bytes),
            Self::Gzip => crc32(check, bytes),
        }
    }

    /// What comes before the data.
    pub(crate) fn header(self, level: i32, window_bits: u32) -> Frame {
        match self {
            Self::Raw => ([0; 10], 0),
            Self::Zlib => {
                let info = match level {
                    ..2 => 0,
                    2..6 => 1,
                    6 => 2,
                    _ => 3,
                };
                let header = (8 + ((window_bits - 8) << 4)) << 8 | info << 6;
                let header = header + 31 - header % 31;
                let mut frame = [0; 10];
                frame[..2].copy_from_slice(&(header as u16).to_be_bytes());
                (frame, 2)
            }
            Self::Gzip => {
                let extra = match level {
                    9 => 2,
                    ..2 => 4,
                    _ => 0,
                };
                // No name, no time, made on Unix.
                ([0x1f, 0x8b, 8, 0, 0, 0, 0, 0, extra, 3], 10)
            }
        }
    }

    /// What comes after it.
    pub(crate) fn trailer(self, check: u32, total_in: u64) -> Frame {
        let mut frame = [0; 10];
        let len = match self {
            Self::Raw => 0,
            Self::Zlib => {
                frame[..4].copy_from_slice(&check.to_be_bytes());
                4
            }
            Self::Gzip => {
                frame[..4].copy_from_slice(&check.to_le_bytes());
                frame[4..8].copy_from_slice(&(total_in as u32).to_le_bytes());
                8
            }
        };
        (frame, len)
    }
}
