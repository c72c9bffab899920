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

/// Longer than a record without its origin can be: 72 fields of 12 bytes at most, two addresses, six short texts.
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
        Self { same, anonymise, is_lean }
    }

    /// Appends `record` as one message behind its length, which stands for `weight` records. Returns the bytes that the length
    /// takes.
    pub fn push(&self, record: &Record<'_>, weight: u32, out: &mut Vec<u8>) -> usize {
        let mut sample = *record.sample;
        present(record, self.anonymise, &mut sample);
        let bits =
            bits(record, &sample, !sample.cc.as_str().is_empty(), record.country.iter().all(u8::is_ascii_uppercase));
        let mut line = Line { bytes: [0; LINE], len: 0 };
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

/// A message while it grows: on the stack, so that no write has to look for room.
struct Line {
    bytes: [u8; LINE],
    len: usize,
}

impl Line {
    #[inline(always)]
    fn fields<const ALL: bool>(&mut self, record: &Record<'_>, sample: &Sample, bits: u64, weight: u32) {
        macro_rules! put {
            ($number:literal number $value:expr) => {
                self.key::<{ $number << 3 | VARINT }>();
                self.varint(u64::from($value));
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

    #[inline(always)]
    fn varint(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.put(number as u8 | 0x80);
            number >>= 7;
        }
        self.put(number as u8);
    }

    #[inline(always)]
    fn text(&mut self, text: &[u8]) {
        debug_assert!(text.len() < 128, "its length is one byte");
        self.put(text.len() as u8);
        self.bytes[self.len..self.len + text.len()].copy_from_slice(text);
        self.len += text.len();
    }
}

/// Appends a base-128 number.
pub(super) fn varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push(number as u8 | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}
