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
use crate::presence::{bits, is_shown_as_it_is, present};

/// Longer than a record without its origin can be: 72 fields of 12 bytes at most, two addresses, six short texts; and what a number is
/// written with.
const LINE: usize = 1_280;
/// Room for the length of a message, which is written so that it ends where the message begins.
const PREFIX: usize = 8;
/// Wire types.
const VARINT: u32 = 0;
const LENGTH: u32 = 2;

/// Writes messages `Socket` of one origin.
pub struct Encoder {
    anonymise: Anonymise,
    is_lean: bool,
    /// Room for a message's length, the fields that are the same in every record, and room for the others.
    message: Vec<u8>,
}

impl Encoder {
    /// An encoder of `origin`'s records, with all fields or the lean ones ([`super::FIELDS`]).
    pub fn new(origin: &Origin, anonymise: Anonymise, is_lean: bool) -> Self {
        let mut message = vec![0; PREFIX];
        for (number, text) in [(16, &origin.host), (17, &origin.pop), (18, &origin.boot_id)] {
            if !text.is_empty() {
                varint(&mut message, number << 3 | u64::from(LENGTH));
                varint(&mut message, text.len() as u64);
                message.extend_from_slice(text.as_bytes());
            }
        }
        message.resize(message.len() + LINE, 0);
        Self { anonymise, is_lean, message }
    }

    /// Appends `record` as one message behind its length, which stands for `weight` records. Returns the bytes that the length
    /// takes.
    pub fn push(&mut self, record: &Record<'_>, weight: u32, out: &mut Vec<u8>) -> usize {
        let mut room;
        let sample = if is_shown_as_it_is(record, self.anonymise) {
            record.sample
        } else {
            room = *record.sample;
            present(record, self.anonymise, &mut room);
            &room
        };
        let country_known = record.country.iter().all(u8::is_ascii_uppercase);
        let bits = bits(record, sample, !sample.cc.name().is_empty(), country_known);
        let Some((head, bytes)) = self.message.split_last_chunk_mut::<LINE>() else { return 0 };
        let mut line = Line { bytes, len: 0 };
        match self.is_lean {
            true => line.fields::<false>(record, sample, bits, weight),
            false => line.fields::<true>(record, sample, bits, weight),
        }
        let end = head.len() + line.len;
        let (length, prefix) = base128((end - PREFIX) as u64);
        head[..PREFIX].copy_from_slice(&(length << (8 * (PREFIX - prefix))).to_le_bytes());
        out.extend_from_slice(&self.message[PREFIX - prefix..end]);
        prefix
    }
}

/// A message while it grows: of a fixed size, so that no write has to look for room. It lives in `push` only, so that its length is in a
/// register.
struct Line<'a> {
    bytes: &'a mut [u8; LINE],
    len: usize,
}

impl Line<'_> {
    #[inline(always)]
    fn fields<const ALL: bool>(&mut self, record: &Record<'_>, sample: &Sample, bits: u64, weight: u32) {
        macro_rules! put {
            ($number:literal number $value:expr) => {
                self.number::<{ $number << 3 | VARINT }>(u64::from($value));
            };
            ($number:literal small $value:expr) => {
                match u64::from($value) {
                    small @ 0..128 => self.byte::<{ $number << 3 | VARINT }>(small as u8),
                    large => self.number::<{ $number << 3 | VARINT }>(large),
                }
            };
            ($number:literal flag $value:expr) => {
                self.byte::<{ $number << 3 | VARINT }>(u8::from($value));
            };
            ($number:literal text $value:expr) => {
                self.text::<{ $number << 3 | LENGTH }>($value.as_bytes());
            };
            ($number:literal bytes $value:expr) => {
                self.text::<{ $number << 3 | LENGTH }>($value);
            };
        }
        macro_rules! field {
            // In `Encoder::message`, before all others.
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

    /// A number behind its key: in one piece where both take eight bytes at most.
    #[inline(always)]
    fn number<const KEY: u32>(&mut self, number: u64) {
        let (key, taken) = const { key(KEY) };
        if number >= 1 << 42 {
            self.eight(key);
            self.len += taken;
            return self.varint(number);
        }
        let (bytes, length) = base128(number);
        self.eight(key | bytes << (8 * taken));
        self.len += taken + length;
    }

    /// A number below 128 behind its key.
    #[inline(always)]
    fn byte<const KEY: u32>(&mut self, byte: u8) {
        let (key, taken) = const { key(KEY) };
        self.eight(key | u64::from(byte) << (8 * taken));
        self.len += taken + 1;
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
    fn text<const KEY: u32>(&mut self, text: &[u8]) {
        debug_assert!(text.len() < 128, "its length is one byte");
        self.byte::<KEY>(text.len() as u8);
        let to = &mut self.bytes[self.len..self.len + text.len()];
        // Most are short: two pieces that overlap take less than the general copy.
        match (text.first_chunk::<8>(), text.last_chunk::<8>(), text.len()) {
            (Some(first), Some(last), 8..=16) => {
                to[..8].copy_from_slice(first);
                to[text.len() - 8..].copy_from_slice(last);
            }
            (_, _, 4..=7) => {
                to[..4].copy_from_slice(&text[..4]);
                to[text.len() - 4..].copy_from_slice(&text[text.len() - 4..]);
            }
            _ => to.copy_from_slice(text),
        }
        self.len += text.len();
    }
}

/// A key, and how many bytes it takes.
const fn key(key: u32) -> (u64, usize) {
    assert!(key < 1 << 14, "a field's number below 2,048 takes two bytes");
    if key < 1 << 7 { (key as u64, 1) } else { ((key & 0x7f | 0x80 | key >> 7 << 8) as u64, 2) }
}

/// The bit that says that another byte follows, in each of eight bytes.
const MORE: u64 = 0x8080_8080_8080_8080;

/// A number below 2^56, and how many bytes it takes. How long numbers are is a matter of chance, which a loop would guess wrong: all bytes
/// are made at once.
#[inline(always)]
fn base128(number: u64) -> (u64, usize) {
    let groups = groups(number);
    // Where the highest byte begins.
    let top = (groups | 1).ilog2() & 56;
    (groups | MORE & ((1 << top) - 1), top as usize / 8 + 1)
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
        let (mut line, mut out) = (Line { bytes: &mut [0xff; LINE], len: 0 }, Vec::new());
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
