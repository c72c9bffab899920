//! Ethernet: addresses and tags. Read first: IEEE 802.3 section 3.2, IEEE 802.1Q section 9.

use core::fmt;
use core::str::FromStr;

/// A MAC address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// To everybody.
    pub const BROADCAST: Self = Self([0xff; 6]);

    /// Whether it names a group, broadcast included: the group bit, the first that goes on the wire, is set.
    pub const fn is_group(self) -> bool {
        self.0[0] & 1 != 0
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        f.pad(&format!("{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}"))
    }
}

/// A MAC address that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a MAC address: write six bytes, as 02:00:5e:10:00:ff")]
pub struct ParseMacError(String);

impl FromStr for Mac {
    type Err = ParseMacError;

    /// Reads `"02:00:5e:10:00:ff"`, each byte in two digits.
    fn from_str(s: &str) -> Result<Self, ParseMacError> {
        let bad = || ParseMacError(s.to_owned());
        let mut bytes = [0; 6];
        let mut parts = s.trim().split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or_else(bad)?;
            // `from_str_radix` would take a sign.
            let digits = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
            *byte = u8::from_str_radix(part, 16).ok().filter(|_| digits).ok_or_else(bad)?;
        }
        if parts.next().is_some() { Err(bad()) } else { Ok(Self(bytes)) }
    }
}

/// What an Ethernet header says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// To whom.
    pub destination: Mac,
    /// From whom.
    pub source: Mac,
    /// The outer tag's VLAN id, 0 to 4095; 0 is a priority tag, which names no VLAN. `None`: untagged.
    pub vlan: Option<u16>,
    /// How many tags there are: 0 to 2.
    pub tags: u8,
}

impl Link {
    /// The header's length with its tags, in bytes: 14, 18 or 22.
    pub const fn header_len(&self) -> u16 {
        14 + 4 * self.tags as u16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_or_refused() {
        let mac: Mac = "02:00:5e:10:00:fF".parse().expect("a MAC");
        assert_eq!((mac, mac.to_string().as_str()), (Mac([2, 0, 0x5e, 0x10, 0, 0xff]), "02:00:5e:10:00:ff"));
        for text in
            ["", "02:00:5e:10:00", "02:00:5e:10:00:ff:01", "2:0:5e:10:0:ff", "02-00-5e-10-00-ff", "+2:00:5e:10:00:ff"]
        {
            let says = format!("`{text}` is not a MAC address: write six bytes, as 02:00:5e:10:00:ff");
            assert_eq!(text.parse::<Mac>().map_err(|e| e.to_string()), Err(says));
        }
    }

    #[test]
    fn groups() {
        assert!(Mac::BROADCAST.is_group());
        assert!(Mac([0x33, 0x33, 0, 0, 0, 1]).is_group());
        assert!(!Mac([2, 0, 0, 0, 0, 1]).is_group());
    }
}
