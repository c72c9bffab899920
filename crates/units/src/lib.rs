//! Quantities as types: a time, an amount, a rate, an address range. Each is a newtype on an integer, so that a bit is
//! never taken for a byte nor a millisecond for a second, and every arithmetic step is exact or says how it rounds.
//!
//! Depends on nothing. The text forms ([`core::str::FromStr`], [`core::fmt::Display`]) are those of the configuration
//! file and the command line: a number, a space, a unit written out (`"50 Mbit/s"`, `"20 ms"`, `"100 KB"`).
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

mod prefix;
mod size;
mod text;
mod time;

pub use prefix::{ParsePrefixError, Prefix};
pub use size::{BitRate, Bytes, PacketRate, Packets};
pub use text::ParseUnitError;
pub use time::{Duration, Instant, UnixTime};
