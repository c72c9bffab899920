//! Points in time and spans between them, in whole nanoseconds.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};
use core::str::FromStr;

use crate::text::{self, ParseUnitError, Unit};

/// A span of time in nanoseconds; at most 584 years.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Duration(u64);

/// A point on a monotonic clock, in nanoseconds since an origin that the driver chose (boot, or the start of a simulation).
///
/// Pure code never reads a clock: it is handed an `Instant`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

/// A point in civil time: nanoseconds since 1970-01-01T00:00:00Z, leap seconds not counted. For records, never for pacing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct UnixTime(u64);

impl Duration {
    /// No time at all.
    pub const ZERO: Self = Self(0);
    /// The longest span: 584 years, used as "never".
    pub const MAX: Self = Self(u64::MAX);

    /// A span of `n` nanoseconds.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }

    /// A span of `n` microseconds, saturating.
    pub const fn from_micros(n: u64) -> Self {
        Self(n.saturating_mul(1_000))
    }

    /// A span of `n` milliseconds, saturating.
    pub const fn from_millis(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000))
    }

    /// A span of `n` seconds, saturating.
    pub const fn from_secs(n: u64) -> Self {
        Self(n.saturating_mul(1_000_000_000))
    }

    /// In nanoseconds.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// In microseconds, rounded down.
    pub const fn as_micros(self) -> u64 {
        self.0 / 1_000
    }

    /// In milliseconds, rounded down.
    pub const fn as_millis(self) -> u64 {
        self.0 / 1_000_000
    }

    /// In seconds, rounded down.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// In seconds, as a float, for reports and plots.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }

    /// The sum, or [`Duration::MAX`].
    pub const fn saturating_add(self, other: Self) -> Self {
        Self(self.0.saturating_add(other.0))
    }

    /// The difference, or zero.
    pub const fn saturating_sub(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }

    /// `n` times this span, or [`Duration::MAX`].
    pub const fn saturating_mul(self, n: u64) -> Self {
        Self(self.0.saturating_mul(n))
    }

    /// This span for the standard library's timers.
    pub const fn to_std(self) -> core::time::Duration {
        core::time::Duration::from_nanos(self.0)
    }
}

impl From<core::time::Duration> for Duration {
    /// Saturates past 584 years.
    fn from(d: core::time::Duration) -> Self {
        Self(u64::try_from(d.as_nanos()).unwrap_or(u64::MAX))
    }
}

impl Instant {
    /// The clock's origin.
    pub const ZERO: Self = Self(0);

    /// The point `n` nanoseconds after the origin.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }

    /// Nanoseconds since the origin.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// The span since `earlier`, or zero where `earlier` is later.
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    /// Saturates at the end of the clock's range (584 years).
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, d: Duration) {
        *self = *self + d;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    /// Saturates at the clock's origin.
    fn sub(self, d: Duration) -> Self {
        Self(self.0.saturating_sub(d.0))
    }
}

impl UnixTime {
    /// The point `n` nanoseconds after the Unix epoch.
    pub const fn from_nanos(n: u64) -> Self {
        Self(n)
    }

    /// Nanoseconds since the Unix epoch.
    pub const fn as_nanos(self) -> u64 {
        self.0
    }

    /// Whole seconds since the Unix epoch.
    pub const fn as_secs(self) -> u64 {
        self.0 / 1_000_000_000
    }

    /// The span since `earlier`, or zero where `earlier` is later (civil clocks are set back).
    pub const fn saturating_since(self, earlier: Self) -> Duration {
        Duration(self.0.saturating_sub(earlier.0))
    }
}

impl Add<Duration> for UnixTime {
    type Output = Self;

    /// Saturates in the year 2554.
    fn add(self, d: Duration) -> Self {
        Self(self.0.saturating_add(d.0))
    }
}

/// Largest first, so that [`fmt::Display`] takes the first in which a time is exact.
const UNITS: &[Unit] = &[
    Unit { name: "d", size: 86_400_000_000_000 },
    Unit { name: "h", size: 3_600_000_000_000 },
    Unit { name: "min", size: 60_000_000_000 },
    Unit { name: "s", size: 1_000_000_000 },
    Unit { name: "ms", size: 1_000_000 },
    Unit { name: "us", size: 1_000 },
    Unit { name: "ns", size: 1 },
];

impl FromStr for Duration {
    type Err = ParseUnitError;

    /// Reads `"20 ms"`, `"1.5 s"`, `"5 min"`; the result is exact in nanoseconds or the text is refused.
    fn from_str(s: &str) -> Result<Self, ParseUnitError> {
        text::parse(s, "a time", "100 ms", UNITS).map(Self)
    }
}

impl fmt::Display for Duration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::display(self.0, "s", UNITS, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_those_of_the_configuration() {
        for (text, nanos) in [
            ("20 ms", 20_000_000),
            ("1.5 s", 1_500_000_000),
            ("5 min", 300_000_000_000),
            ("0.5 h", 1_800_000_000_000),
            ("7 d", 604_800_000_000_000),
            ("250 us", 250_000),
            ("1 ns", 1),
        ] {
            assert_eq!(text.parse(), Ok(Duration::from_nanos(nanos)), "{text}");
        }
        assert!("0.5 ns".parse::<Duration>().is_err() && "5 m".parse::<Duration>().is_err());
        assert_eq!(Duration::from_millis(1_500).to_string(), "1.5 s");
        assert_eq!((Duration::from_secs(86_400).to_string(), Duration::ZERO.to_string()), ("1 d".into(), "0 s".into()));
    }

    #[test]
    fn conversions_round_down_and_saturate() {
        let time = Duration::from_nanos(1_999_999);
        assert_eq!((time.as_millis(), time.as_micros(), time.as_secs_f64()), (1, 1_999, 0.001_999_999));
        assert_eq!(Duration::from_secs(u64::MAX), Duration::MAX);
        assert_eq!((Duration::from_micros(u64::MAX), Duration::from_millis(u64::MAX)), (Duration::MAX, Duration::MAX));
        assert_eq!(Duration::from(core::time::Duration::MAX), Duration::MAX);
        assert_eq!(Duration::from_millis(20).to_std(), core::time::Duration::from_millis(20));
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(n in prop_oneof![any::<u64>(), (0_u64..1 << 20).prop_map(|n| n * 60_000_000_000)]) {
            prop_assert_eq!(Duration::from_nanos(n).to_string().parse(), Ok(Duration::from_nanos(n)));
            prop_assert_eq!(Duration::from(Duration::from_nanos(n).to_std()), Duration::from_nanos(n));
        }

        /// Points and spans agree with the integers they are, cut to the range.
        #[test]
        fn arithmetic_saturates(a in any::<u64>(), b in any::<u64>(), n in any::<u64>()) {
            let (point, span) = (Instant::from_nanos(a), Duration::from_nanos(b));
            prop_assert_eq!((point + span).as_nanos(), a.saturating_add(b));
            prop_assert_eq!((point - span).as_nanos(), a.saturating_sub(b));
            prop_assert_eq!(point.saturating_since(Instant::from_nanos(b)).as_nanos(), a.saturating_sub(b));
            prop_assert_eq!((UnixTime::from_nanos(a) + span).as_nanos(), a.saturating_add(b));
            prop_assert_eq!(UnixTime::from_nanos(a).saturating_since(UnixTime::from_nanos(b)).as_nanos(), a.saturating_sub(b));
            prop_assert_eq!(span.saturating_mul(n).as_nanos(), b.saturating_mul(n));
            prop_assert_eq!(span.saturating_add(Duration::from_nanos(n)).as_nanos(), b.saturating_add(n));
            prop_assert_eq!(span.saturating_sub(Duration::from_nanos(n)).as_nanos(), b.saturating_sub(n));
        }
    }
}
