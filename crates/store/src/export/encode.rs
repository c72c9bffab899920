//! Records to protobuf: each value is written beside its key as it is met, with nothing between. A generic encoder, through a
//! struct with a place for each field, takes several times as long for the same bytes.
//!
//! Read first: the wire format, <https://protobuf.dev/programming-guides/encoding/>.

use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{Arm, Kind, Sample, flag, state};

use super::fields::{is_lean, socket_fields};
use crate::anonymise::Anonymise;
use crate::columns::{ARMS, CA_STATES, DIRECTIONS, KINDS};
use crate::presence::validity::*;
use crate::presence::{bits, present};

/// Longer than a record without its origin can be: 72 fields of 12 bytes at most, two addresses, six short texts; and what a number is
/// written with.
const LINE: usize = 1_280;
/// Wire types.
const VARINT: u32 = 0;
const LENGTH: u32 = 2;

/// Writes messages `Socket` of one origin.
pub struct Encoder {
    /// The fields that are the same in every record, encoded.
    same: Vec<u8>,
    anonymise: Anonymise,
    is_lean: bool,
    line: Line,
}

impl Encoder {
    /// An encoder of `origin`'s records, with all fields or the lean ones ([`super::FIELDS`]).
    pub fn new(origin: &Origin, anonymise: Anonymise, is_lean: bool) -> Self {
        let mut same = Vec::new();
        for (number, text) in [(16, &origin.host), (17, &origin.pop), (18, &origin.boot_id)] {
            if !text.is_empty() {
                varint(&mut same, number << 3 | u64::from(LENGTH));
                varint(&mut same, text.len() as u64);
                same.extend_from_slice(text.as_bytes());
            }
        }
        Self { same, anonymise, is_lean, line: Line { bytes: [0; LINE], len: 0 } }
    }

    /// Appends `record` as one message behind its length, which stands for `weight` records. Returns the bytes that the length
    /// takes.
    pub fn push(&mut self, record: &Record<'_>, weight: u32, out: &mut Vec<u8>) -> usize {
        let mut sample = *record.sample;
        present(record, self.anonymise, &mut sample);
        let bits =
            bits(record, &sample, !sample.cc.as_str().is_empty(), record.country.iter().all(u8::is_ascii_uppercase));
        let line = &mut self.line;
        line.len = 0;
        match self.is_lean {
            true => line.fields::<false>(record, &sample, bits, weight),
            false => line.fields::<true>(record, &sample, bits, weight),
        }
        let before = out.len();
        varint(out, (self.same.len() + line.len) as u64);
        let prefix = out.len() - before;
        out.extend_from_slice(&self.same);
        out.extend_from_slice(&line.bytes[..line.len]);
        prefix
    }
}

/// A message while it grows: of a fixed size, so that no write has to look for room.
struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Line {
    #[inline(always)]
    fn fields<const ALL: bool>(&mut self, record: &Record<'_>, sample: &Sample, bits: u64, weight: u32) {
        macro_rules! put {
            ($number:literal number $value:expr) => {
                self.number::<{ $number << 3 | VARINT }>(u64::from($value));
            };
            ($number:literal flag $value:expr) => {
                self.key::<{ $number << 3 | VARINT }>();
                self.put(u8::from($value));
            };
            ($number:literal text $value:expr) => {
                self.key::<{ $number << 3 | LENGTH }>();
                self.text($value.as_bytes());
            };
            ($number:literal address $value:expr) => {
                self.key::<{ $number << 3 | LENGTH }>();
                self.text($value);
            };
        }
        macro_rules! field {
            // In `Encoder::same`, before all others.
            ($number:literal $set:ident same $name:ident $valid:ident ()) => {};
            ($number:literal $set:ident once $name:ident $valid:ident ()) => {
                if weight != 1 {
                    put!($number number weight);
                }
            };
            ($number:literal $set:ident $kind:ident $name:ident $valid:ident ($value:expr)) => {
                if (ALL || is_lean!($set)) && ($valid == ALWAYS || bits >> ($valid & 63) & 1 == 1) {
                    put!($number $kind $value);
                }
            };
        }
        macro_rules! all {
            ($($number:literal $set:ident $kind:ident $name:ident $valid:ident ($($value:tt)*);)*) => {
                $(field!($number $set $kind $name $valid ($($value)*));)*
            };
        }
        socket_fields!(all, record, sample);
    }

    #[inline(always)]
    fn key<const KEY: u32>(&mut self) {
        const { assert!(KEY < 1 << 14, "a field's number below 2,048 takes two bytes") };
        if KEY < 1 << 7 {
            self.put(KEY as u8);
        } else {
            self.put(KEY as u8 | 0x80);
            self.put((KEY >> 7) as u8);
        }
    }

    #[inline(always)]
    fn put(&mut self, byte: u8) {
        self.bytes[self.len] = byte;
        self.len += 1;
    }

    /// A number behind its key: in one piece where both take eight bytes at most.
    #[inline(always)]
    fn number<const KEY: u32>(&mut self, number: u64) {
        if number >= 1 << 42 {
            self.key::<KEY>();
            return self.varint(number);
        }
        let (key, taken) = if KEY < 1 << 7 { (KEY, 1) } else { (KEY & 0x7f | 0x80 | KEY >> 7 << 8, 2) };
        let (bytes, length) = base128(number);
        self.eight(u64::from(key) | bytes << (8 * taken));
        self.len += taken + length;
    }

    #[inline(always)]
    fn varint(&mut self, mut number: u64) {
        if number >= 1 << 56 {
            self.eight(groups(number & ((1 << 56) - 1)) | MORE);
            self.len += 8;
            number >>= 56;
        }
        let (bytes, length) = base128(number);
        self.eight(bytes);
        self.len += length;
    }

    /// Writes eight bytes, of which as many count as the length grows by.
    #[inline(always)]
    fn eight(&mut self, bytes: u64) {
        self.bytes[self.len..self.len + 8].copy_from_slice(&bytes.to_le_bytes());
    }

    #[inline(always)]
    fn text(&mut self, text: &[u8]) {
        debug_assert!(text.len() < 128, "its length is one byte");
        self.put(text.len() as u8);
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }
}

/// The bit that says that another byte follows, in each of eight bytes.
const MORE: u64 = 0x8080_8080_8080_8080;

/// A number below 2^56, and how many bytes it takes. How long numbers are is a matter of chance, which a loop would guess wrong: all bytes
/// are made at once.
#[inline(always)]
fn base128(number: u64) -> (u64, usize) {
    let length = (70 - (number | 1).leading_zeros() as usize) / 7;
    (groups(number) | MORE & ((1 << (8 * (length - 1))) - 1), length)
}

/// Eight groups of seven bits, each in a byte, the lowest first; `number` is below 2^56.
#[inline(always)]
fn groups(number: u64) -> u64 {
    let halves = number & 0x0fff_ffff | (number & 0x00ff_ffff_f000_0000) << 4;
    let quarters = halves & 0x0000_3fff_0000_3fff | (halves & 0x0fff_c000_0fff_c000) << 2;
    quarters & 0x007f_007f_007f_007f | (quarters & 0x3f80_3f80_3f80_3f80) << 1
}

/// Appends a base-128 number.
pub(super) fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_written_alike(number: u64) {
        let (mut line, mut out) = (Line { bytes: [0xff; LINE], len: 0 }, Vec::new());
        line.varint(number);
        line.number::<{ 1 << 3 }>(number);
        line.number::<{ 2_047 << 3 }>(number);
        for key in [None, Some(1 << 3), Some(2_047 << 3)] {
            key.into_iter().chain([number]).for_each(|one| varint(&mut out, one));
        }
        assert_eq!(line.bytes[..line.len], out[..], "{number:#x}");
    }

    #[test]
    fn numbers_at_each_length_are_written_as_one_byte_after_the_other_is() {
        for bit in 0..64 {
            [(1 << bit) - 1, 1 << bit, u64::MAX >> bit].into_iter().for_each(is_written_alike);
        }
    }

    proptest! {
        #[test]
        fn so_are_all_others(number: u64, shift in 0..64_u32) {
            is_written_alike(number >> shift);
        }
    }
}
