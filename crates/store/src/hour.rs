//! The hour a partition holds: a whole hour of civil time, UTC, named `2026-11-21T20`.
//!
//! Read first: Howard Hinnant, "chrono-Compatible Low-Level Date Algorithms" (`days_from_civil`, `civil_from_days`).

use core::fmt;
use core::str::FromStr;

use weirgate_units::UnixTime;

const NANOS: u64 = 3_600_000_000_000;

/// Hours since 1970-01-01T00Z. Its text sorts as time does, up to the year 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hour(u64);

/// A text that names no hour.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not an hour: write YYYY-MM-DDThh, as 2026-11-21T20 (UTC)")]
pub struct ParseHourError(String);

impl Hour {
    /// The hour that holds `time`.
    pub const fn of(time: UnixTime) -> Self {
        Self(time.as_nanos() / NANOS)
    }

    /// Its first moment.
    pub const fn start(self) -> UnixTime {
        UnixTime::from_nanos(self.0.saturating_mul(NANOS))
    }

    /// The first moment after it.
    pub const fn end(self) -> UnixTime {
        UnixTime::from_nanos(self.0.saturating_add(1).saturating_mul(NANOS))
    }
}

impl fmt::Display for Hour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Days are counted from 0000-03-01, so that the leap day ends a year and eras of 400 years repeat.
        let z = self.0 / 24 + 719_468;
        let (era, day_of_era) = (z / 146_097, z % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = era * 400 + year_of_era + u64::from(month <= 2);
        write!(f, "{year:04}-{month:02}-{day:02}T{:02}", self.0 % 24)
    }
}

impl FromStr for Hour {
    type Err = ParseHourError;

    /// Reads what [`fmt::Display`] writes, and nothing else.
    fn from_str(s: &str) -> Result<Self, ParseHourError> {
        let bad = || ParseHourError(s.to_owned());
        let number = |range: core::ops::Range<usize>| -> Option<u64> {
            s.get(range).filter(|t| t.bytes().all(|b| b.is_ascii_digit()))?.parse().ok()
        };
        let (Some(year), Some(month), Some(day), Some(hour)) =
            (number(0..4), number(5..7), number(8..10), number(11..13))
        else {
            return Err(bad());
        };
        if year < 1970 || !(1..=12).contains(&month) || !(1..=31).contains(&day) || hour > 23 {
            return Err(bad());
        }
        let march_year = year - u64::from(month <= 2);
        let (era, year_of_era) = (march_year / 400, march_year % 400);
        let day_of_year = (153 * (if month > 2 { month - 3 } else { month + 9 }) + 2) / 5 + day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let found = Self((era * 146_097 + day_of_era - 719_468) * 24 + hour);
        // The way back refuses what no calendar has: 30 February, a wrong separator, trailing text.
        if found.to_string() == s { Ok(found) } else { Err(bad()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_hours_as_the_calendar_does() {
        for (seconds, name) in [
            (0, "1970-01-01T00"),
            (951_782_400, "2000-02-29T00"),
            (1_709_164_800, "2024-02-29T00"),
            (1_795_291_200, "2026-11-21T20"),
            (4_107_542_399, "2100-02-28T23"),
            (4_107_542_400, "2100-03-01T00"),
        ] {
            let hour = Hour::of(UnixTime::from_nanos(seconds * 1_000_000_000));
            assert_eq!(hour.to_string(), name);
            assert_eq!(name.parse(), Ok(hour));
        }
    }

    #[test]
    fn every_hour_reads_back() {
        // Up to the end of 64-bit nanoseconds, in 2554.
        for n in (0..5_124_000).step_by(499) {
            let hour = Hour(n);
            assert_eq!(hour.to_string().parse(), Ok(hour));
            assert!(Hour::of(hour.start()) == hour && Hour::of(hour.end()) == Hour(n + 1));
        }
    }

    #[test]
    fn refuses_what_no_calendar_has() {
        for bad in
            ["", "2026-11-21", "2026-02-30T00", "2026-11-21T24", "2026-11-21 20", "2026-11-21T20Z", "1969-12-31T23"]
        {
            assert!(bad.parse::<Hour>().is_err(), "{bad}");
        }
    }
}
