//! Amounts of data in bytes, rates in bits per second. The two never mix but through a time.

use core::fmt;
use core::ops::{Add, AddAssign};
use core::str::FromStr;

use crate::text::{self, ParseUnitError, Unit};
use crate::time::Duration;

/// An amount of data, in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Bytes(u64);

/// A rate, in bits per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BitRate(u64);

impl Bytes {
    /// Nothing.
    pub const ZERO: Self = Self(0);

    /// An amount of `n` bytes.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// In bytes.
    pub const fn as_u64(self) -> u64 {
        self.0
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl Add for Bytes {
    type Output = Self;

    /// Saturates at 16 EiB.
    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}

impl AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        *self = *self + other;
    }
}

impl BitRate {
    /// No rate at all: nothing ever passes.
    pub const ZERO: Self = Self(0);

    /// A rate of `n` bits per second.
    pub const fn from_bits_per_sec(n: u64) -> Self {
        Self(n)
    }

    /// A rate of `n` bytes per second, saturating.
    pub const fn from_bytes_per_sec(n: u64) -> Self {
        Self(n.saturating_mul(8))
    }

    /// In bits per second.
    pub const fn as_bits_per_sec(self) -> u64 {
        self.0
    }

    /// In bytes per second, rounded down.
    pub const fn as_bytes_per_sec(self) -> u64 {
        self.0 / 8
    }

    /// The rate at which `bytes` pass in `time`, rounded down; `None` where no time passed.
    pub const fn of(bytes: Bytes, time: Duration) -> Option<Self> {
        if time.as_nanos() == 0 {
            return None;
        }
        let bits_per_sec = bytes.0 as u128 * 8_000_000_000 / time.as_nanos() as u128;
        Some(Self(if bits_per_sec > u64::MAX as u128 { u64::MAX } else { bits_per_sec as u64 }))
    }

    /// The time that `bytes` take at this rate, rounded up; [`Duration::MAX`] at rate zero.
    pub const fn time_for(self, bytes: Bytes) -> Duration {
        if self.0 == 0 {
            return Duration::MAX;
        }
        let nanos = (bytes.0 as u128 * 8_000_000_000).div_ceil(self.0 as u128);
        Duration::from_nanos(if nanos > u64::MAX as u128 { u64::MAX } else { nanos as u64 })
    }
}

const BYTE_UNITS: &[Unit] = &[
    Unit { name: "TiB", size: 1 << 40 },
    Unit { name: "TB", size: 1_000_000_000_000 },
    Unit { name: "GiB", size: 1 << 30 },
    Unit { name: "GB", size: 1_000_000_000 },
    Unit { name: "MiB", size: 1 << 20 },
    Unit { name: "MB", size: 1_000_000 },
    Unit { name: "KiB", size: 1 << 10 },
    Unit { name: "KB", size: 1_000 },
    Unit { name: "B", size: 1 },
];

const RATE_UNITS: &[Unit] = &[
    Unit { name: "Tbit/s", size: 1_000_000_000_000 },
    Unit { name: "Gbit/s", size: 1_000_000_000 },
    Unit { name: "Mbit/s", size: 1_000_000 },
    Unit { name: "kbit/s", size: 1_000 },
    Unit { name: "bit/s", size: 1 },
];

impl FromStr for Bytes {
    type Err = ParseUnitError;

    /// Reads `"100 KB"` (1 KB = 1,000 B) and `"4 MiB"` (1 MiB = 1,048,576 B); whole bytes or the text is refused.
    fn from_str(s: &str) -> Result<Self, ParseUnitError> {
        text::parse(s, "an amount of data", BYTE_UNITS).map(Self)
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::display(self.0, "B", BYTE_UNITS, f)
    }
}

impl FromStr for BitRate {
    type Err = ParseUnitError;

    /// Reads `"50 Mbit/s"`; decimal multiples only, as everywhere in networking.
    fn from_str(s: &str) -> Result<Self, ParseUnitError> {
        text::parse(s, "a rate", RATE_UNITS).map(Self)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::display(self.0, "bit/s", RATE_UNITS, f)
    }
}
