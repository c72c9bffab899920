//! Ranges of IP addresses.

use alloc::format;
use alloc::string::String;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use core::str::FromStr;

/// An IP network: an address with its host bits zero, and a length.
///
/// IPv4 addresses that arrive mapped into IPv6 (`::ffff:a.b.c.d`, RFC 4291 2.5.5.2) are IPv4 here: a dual-stack listener
/// and an IPv4 one see the same client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Prefix {
    address: IpAddr,
    len: u8,
}

/// A prefix that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsePrefixError(String);

impl fmt::Display for ParsePrefixError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl core::error::Error for ParsePrefixError {}

impl Prefix {
    /// The network of `len` bits that holds `address`; host bits are cleared, a mapped address becomes IPv4, and `len`
    /// is cut to the family's width (32 or 128).
    pub fn of(address: IpAddr, len: u8) -> Self {
        match address.to_canonical() {
            IpAddr::V4(a) => {
                let len = len.min(32);
                let mask = u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0);
                Self { address: Ipv4Addr::from_bits(a.to_bits() & mask).into(), len }
            }
            IpAddr::V6(a) => {
                let len = len.min(128);
                let mask = u128::MAX.checked_shl(128 - u32::from(len)).unwrap_or(0);
                Self { address: Ipv6Addr::from_bits(a.to_bits() & mask).into(), len }
            }
        }
    }

    /// The client network of `address`: /24 for IPv4, /56 for IPv6 (what providers give one site, RFC 6177).
    pub fn client_network(address: IpAddr) -> Self {
        Self::of(address, if address.to_canonical().is_ipv4() { 24 } else { 56 })
    }

    /// The first address of the range.
    pub const fn address(self) -> IpAddr {
        self.address
    }

    /// The number of leading bits that are fixed: 0..=32 or 0..=128.
    #[allow(clippy::len_without_is_empty, reason = "a prefix length is not a count of elements")]
    pub const fn len(self) -> u8 {
        self.len
    }

    /// Whether `address` (mapped IPv4 as IPv4) lies in this network.
    pub fn contains(self, address: IpAddr) -> bool {
        let address = address.to_canonical();
        address.is_ipv4() == self.address.is_ipv4() && Self::of(address, self.len) == self
    }

    /// Whether the two share any address.
    pub fn overlaps(self, other: Self) -> bool {
        if self.len <= other.len { self.contains(other.address) } else { other.contains(self.address) }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format!("{}/{}", self.address, self.len))
    }
}

impl FromStr for Prefix {
    type Err = ParsePrefixError;

    /// Reads `"192.0.2.0/24"`; an address alone is itself. Host bits that are set are refused, since they mean a slip.
    fn from_str(s: &str) -> Result<Self, ParsePrefixError> {
        let bad = || {
            ParsePrefixError(format!("`{s}` is not a network: write ADDRESS/LENGTH, as 192.0.2.0/24 or 2001:db8::/56"))
        };
        let (address, len) = s.trim().split_once('/').map_or((s.trim(), None), |(a, l)| (a, Some(l)));
        let address: IpAddr = address.parse::<IpAddr>().map_err(|_| bad())?.to_canonical();
        let width = if address.is_ipv4() { 32 } else { 128 };
        let len = match len {
            None => width,
            Some(l) => l.parse::<u8>().ok().filter(|l| *l <= width).ok_or_else(bad)?,
        };
        let prefix = Self::of(address, len);
        if prefix.address != address {
            return Err(ParsePrefixError(format!("`{s}` has host bits set: write `{prefix}`")));
        }
        Ok(prefix)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn prefix(text: &str) -> Prefix {
        text.parse().expect(text)
    }

    #[test]
    fn texts_are_read_or_refused_with_what_to_write() {
        assert_eq!(prefix("192.0.2.0/24"), Prefix::of([192, 0, 2, 77].into(), 24));
        assert_eq!(prefix(" 192.0.2.7 ").len(), 32);
        assert_eq!(prefix("2001:db8::/56").to_string(), "2001:db8::/56");
        assert_eq!(prefix("::ffff:192.0.2.0/24"), prefix("192.0.2.0/24"), "the length is that of IPv4");
        for (text, says) in [
            ("192.0.2.1/24", "`192.0.2.1/24` has host bits set: write `192.0.2.0/24`"),
            ("192.0.2.0/33", "`192.0.2.0/33` is not a network: write ADDRESS/LENGTH, as 192.0.2.0/24 or 2001:db8::/56"),
            ("::/129", "`::/129` is not a network: write ADDRESS/LENGTH, as 192.0.2.0/24 or 2001:db8::/56"),
        ] {
            assert_eq!(text.parse::<Prefix>().map_err(|e| e.to_string()), Err(says.to_owned()));
        }
        for text in ["", "/24", "192.0.2/24", "192.0.2.0/", "192.0.2.0/-1", "example.org/24"] {
            assert!(text.parse::<Prefix>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_client_is_one_network_through_either_listener() {
        let mapped: IpAddr = "::ffff:198.51.100.9".parse().expect("an address");
        assert_eq!(Prefix::client_network(mapped), prefix("198.51.100.0/24"));
        assert!(prefix("198.51.100.0/24").contains(mapped));
        let v6 = "2001:db8:1:2ff:3::4".parse().expect("an address");
        assert_eq!(Prefix::client_network(v6), prefix("2001:db8:1:200::/56"));
    }

    #[test]
    fn the_families_never_meet() {
        assert!(!prefix("0.0.0.0/0").contains("::1".parse().expect("an address")));
        assert!(!prefix("::/0").overlaps(prefix("0.0.0.0/0")));
    }

    /// Any prefix, with short ones as likely as long ones.
    fn any_prefix() -> impl Strategy<Value = Prefix> {
        (any::<IpAddr>(), any::<u8>())
            .prop_map(|(a, len)| Prefix::of(a, if a.is_ipv4() { len % 33 } else { len % 129 }))
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_back(p in any_prefix()) {
            prop_assert_eq!(p.to_string().parse(), Ok(p));
        }

        /// By its definition: the first `len` bits are equal.
        #[test]
        fn contains_compares_the_leading_bits(a in any::<u32>(), flip in 0_u32..32, len in 0_u8..=32) {
            let p = Prefix::of(IpAddr::V4(a.into()), len);
            prop_assert!(p.contains(p.address()) && p.contains(IpAddr::V4(a.into())));
            let other = IpAddr::V4((a ^ 1 << (31 - flip)).into());
            prop_assert_eq!(p.contains(other), flip >= u32::from(len));
        }

        #[test]
        fn contains_compares_the_leading_bits_of_ipv6(a in any::<u128>(), flip in 0_u32..128, len in 0_u8..=128) {
            let a: IpAddr = Ipv6Addr::from_bits(a | 1 << 127).into();
            let IpAddr::V6(bits) = a else { unreachable!("it was made so") };
            let p = Prefix::of(a, len);
            let other = Ipv6Addr::from_bits(bits.to_bits() ^ 1 << (127 - flip)).into();
            prop_assert_eq!(p.contains(other), flip >= u32::from(len));
        }

        /// Two networks overlap where one holds the other's first address, and not otherwise.
        #[test]
        fn overlap_is_symmetric_containment(p in any_prefix(), q in any_prefix(), len in any::<u8>()) {
            prop_assert_eq!(p.overlaps(q), p.contains(q.address()) || q.contains(p.address()));
            prop_assert_eq!(p.overlaps(q), q.overlaps(p));
            let inner = Prefix::of(p.address(), p.len().saturating_add(len));
            prop_assert!(p.overlaps(inner) && p.overlaps(p) && inner.len() >= p.len());
        }
    }
}
