//! Simulated time, in whole picoseconds: at 10, 40, 100 and 400 Gbit/s a byte takes a whole number of them.

use core::ops::{Add, AddAssign};

use weirgate_units::{BitRate, Duration, Instant};

/// A point in simulated time: picoseconds since the run's start, at most 213 days.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(u64);

/// A span of simulated time, in picoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Span(u64);

impl Time {
    /// The run's start.
    pub const ZERO: Self = Self(0);
    /// Never.
    pub const MAX: Self = Self(u64::MAX);

    /// So many picoseconds after the start.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// Picoseconds since the start.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// How long ago `earlier` was; nothing, if it was not.
    pub const fn saturating_since(self, earlier: Self) -> Span {
        Span(self.0.saturating_sub(earlier.0))
    }

    /// For those that count in nanoseconds, rounded down.
    pub const fn to_instant(self) -> Instant {
        Instant::from_nanos(self.0 / 1_000)
    }
}

impl Span {
    /// No time at all.
    pub const ZERO: Self = Self(0);

    /// So many picoseconds.
    pub const fn from_picos(picos: u64) -> Self {
        Self(picos)
    }

    /// So many nanoseconds; at most 213 days, saturating.
    pub const fn from_nanos(nanos: u64) -> Self {
        Self(nanos.saturating_mul(1_000))
    }

    /// So many microseconds; at most 213 days, saturating.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros.saturating_mul(1_000_000))
    }

    /// So many seconds; rounded to a picosecond, saturating.
    pub fn from_secs_f64(secs: f64) -> Self {
        Self((secs * 1e12 + 0.5) as u64)
    }

    /// In picoseconds.
    pub const fn as_picos(self) -> u64 {
        self.0
    }

    /// In nanoseconds, rounded down.
    pub const fn as_nanos(self) -> u64 {
        self.0 / 1_000
    }

    /// In seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e12
    }

    /// How long so many bytes take at a rate, rounded up: exact where the rate is a divisor of 8 Tbit/s.
    ///
    /// # Panics
    /// Where the rate is 0.
    pub const fn of(bytes: u64, rate: BitRate) -> Self {
        Self((bytes * 8_000_000_000_000).div_ceil(rate.as_bits_per_sec()))
    }

    /// Twice as long, and so on; saturating.
    pub const fn saturating_mul(self, times: u64) -> Self {
        Self(self.0.saturating_mul(times))
    }
}

impl From<Duration> for Span {
    fn from(duration: Duration) -> Self {
        Self::from_nanos(duration.as_nanos())
    }
}

impl Add<Span> for Time {
    type Output = Self;

    fn add(self, span: Span) -> Self {
        Self(self.0.saturating_add(span.0))
    }
}

impl AddAssign<Span> for Time {
    fn add_assign(&mut self, span: Span) {
        *self = *self + span;
    }
}

impl Add for Span {
    type Output = Self;

    fn add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }
}
