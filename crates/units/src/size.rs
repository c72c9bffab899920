//! Amounts of data in bytes, rates in bits per second; amounts of packets, rates in packets per second. An amount and a rate
//! never mix but through a time.

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

/// An amount of packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Packets(u64);

/// A rate, in packets per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PacketRate(u64);

impl Packets {
    /// `n` packets.
    pub const fn new(n: u64) -> Self {
        Self(n)
    }

    /// How many.
    pub const fn as_u64(self) -> u64 {
        self.0
    }
}

impl PacketRate {
    /// A rate of `n` packets per second.
    pub const fn from_packets_per_sec(n: u64) -> Self {
        Self(n)
    }

    /// In packets per second.
    pub const fn as_packets_per_sec(self) -> u64 {
        self.0
    }
}

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

    /// What passes at this rate in `time`, rounded down, saturating: a link's bandwidth-delay product, or a buffer of so
    /// much time.
    pub const fn bytes_in(self, time: Duration) -> Bytes {
        let bytes = self.0 as u128 * time.as_nanos() as u128 / 8_000_000_000;
        Bytes(if bytes > u64::MAX as u128 { u64::MAX } else { bytes as u64 })
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

const PACKET_RATE_UNITS: &[Unit] = &[
    Unit { name: "Gpps", size: 1_000_000_000 },
    Unit { name: "Mpps", size: 1_000_000 },
    Unit { name: "kpps", size: 1_000 },
    Unit { name: "pps", size: 1 },
];

impl FromStr for PacketRate {
    type Err = ParseUnitError;

    /// Reads `"300 kpps"`: packets per second.
    fn from_str(s: &str) -> Result<Self, ParseUnitError> {
        text::parse(s, "a packet rate", "100 kpps", PACKET_RATE_UNITS).map(Self)
    }
}

impl fmt::Display for PacketRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::display(self.0, "pps", PACKET_RATE_UNITS, f)
    }
}

impl FromStr for Bytes {
    type Err = ParseUnitError;

    /// Reads `"100 KB"` (1 KB = 1,000 B) and `"4 MiB"` (1 MiB = 1,048,576 B); whole bytes or the text is refused.
    fn from_str(s: &str) -> Result<Self, ParseUnitError> {
        text::parse(s, "an amount of data", "100 KB", BYTE_UNITS).map(Self)
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
        text::parse(s, "a rate", "100 Mbit/s", RATE_UNITS).map(Self)
    }
}

impl fmt::Display for BitRate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        text::display(self.0, "bit/s", RATE_UNITS, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn texts_are_those_of_the_configuration() {
        assert_eq!("100 KB".parse(), Ok(Bytes::new(100_000)));
        assert_eq!("4 MiB".parse(), Ok(Bytes::new(4_194_304)));
        assert_eq!("50 Mbit/s".parse(), Ok(BitRate::from_bits_per_sec(50_000_000)));
        assert_eq!("2.5 Gbit/s".parse(), Ok(BitRate::from_bits_per_sec(2_500_000_000)));
        assert!("50 MB/s".parse::<BitRate>().is_err() && "50 Mbit".parse::<BitRate>().is_err());
        assert!("100 Mbit".parse::<Bytes>().is_err());
        assert_eq!((Bytes::new(1_500).to_string(), Bytes::new(0).to_string()), ("1.5 KB".into(), "0 B".into()));
        assert_eq!(Bytes::new(1 << 20).to_string(), "1 MiB");
        assert_eq!(BitRate::from_bits_per_sec(2_500_000_000).to_string(), "2.5 Gbit/s");
        assert_eq!(format!("[{:>10}]", Bytes::new(5_000)), "[      5 KB]");
    }

    #[test]
    fn bits_are_not_bytes() {
        let rate = BitRate::from_bytes_per_sec(1_000);
        assert_eq!((rate.as_bits_per_sec(), rate.as_bytes_per_sec()), (8_000, 1_000));
        assert_eq!(BitRate::of(Bytes::new(1_000), Duration::from_secs(1)), Some(rate));
        assert_eq!(rate.time_for(Bytes::new(500)), Duration::from_millis(500));
        assert_eq!(rate.bytes_in(Duration::from_millis(500)), Bytes::new(500));
    }

    #[test]
    fn the_ends_of_the_range_saturate() {
        assert_eq!(BitRate::ZERO.time_for(Bytes::ZERO), Duration::MAX, "at no rate nothing ever ends");
        assert_eq!(BitRate::from_bits_per_sec(1).time_for(Bytes::new(u64::MAX)), Duration::MAX);
        assert_eq!(BitRate::of(Bytes::new(1), Duration::ZERO), None);
        assert_eq!(
            BitRate::of(Bytes::new(u64::MAX), Duration::from_nanos(1)).map(BitRate::as_bits_per_sec),
            Some(u64::MAX)
        );
        assert_eq!(BitRate::from_bits_per_sec(u64::MAX).bytes_in(Duration::MAX), Bytes::new(u64::MAX));
        assert_eq!(Bytes::new(u64::MAX) + Bytes::new(1), Bytes::new(u64::MAX));
        assert_eq!(Bytes::new(1).saturating_sub(Bytes::new(2)), Bytes::ZERO);
        assert_eq!(BitRate::from_bytes_per_sec(u64::MAX).as_bits_per_sec(), u64::MAX);
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(n in prop_oneof![any::<u64>(), 0_u64..1 << 20, (0_u64..1 << 20).prop_map(|n| n << 20)]) {
            prop_assert_eq!(Bytes::new(n).to_string().parse(), Ok(Bytes::new(n)));
            let rate = BitRate::from_bits_per_sec(n);
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
            let rate = PacketRate::from_packets_per_sec(n);
            prop_assert_eq!(rate.to_string().parse(), Ok(rate));
        }

        /// `time_for` is the shortest whole time in which the bytes pass.
        #[test]
        fn time_for_is_sharp(rate in 1_u64..1 << 40, bytes in 0_u64..1 << 30) {
            let (rate, bytes) = (BitRate::from_bits_per_sec(rate), Bytes::new(bytes));
            let time = rate.time_for(bytes);
            prop_assert!(rate.bytes_in(time) >= bytes);
            if time > Duration::ZERO {
                prop_assert!(rate.bytes_in(time.saturating_sub(Duration::from_nanos(1))) < bytes);
            }
        }

        /// `of` is the largest whole rate that passes no more than the bytes.
        #[test]
        fn of_is_sharp(bytes in 0_u64..1 << 40, nanos in 1_u64..1 << 40) {
            let rate = BitRate::of(Bytes::new(bytes), Duration::from_nanos(nanos)).expect("time passed").as_bits_per_sec();
            let passed = |rate: u64| u128::from(rate) * u128::from(nanos);
            let bits = u128::from(bytes) * 8_000_000_000;
            prop_assert!(passed(rate) <= bits && bits < passed(rate + 1));
        }
    }
}
