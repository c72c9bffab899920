//! Numbers, texts and networks as bytes, little-endian and without alignment, and back. Every count is checked against the bytes that are
//! left.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weirgate_sockets::sample::CcName;
use weirgate_units::Prefix;

pub(crate) struct Writer(pub(crate) Vec<u8>);
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

/// What is wrong with bytes: the part of them that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Damaged(pub(crate) &'static str);

type Read<T> = Result<T, Damaged>;

impl Writer {
    pub(crate) fn u8(&mut self, n: u8) {
        self.0.push(n);
    }

    pub(crate) fn u32(&mut self, n: u32) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    pub(crate) fn u64(&mut self, n: u64) {
        self.0.extend_from_slice(&n.to_le_bytes());
    }

    pub(crate) fn text(&mut self, s: &str) {
        self.u8(s.len() as u8);
        self.0.extend_from_slice(&s.as_bytes()[..usize::from(s.len() as u8)]);
    }

    pub(crate) fn prefix(&mut self, p: Prefix) {
        self.u8(p.len());
        match p.address() {
            IpAddr::V4(a) => {
                self.u8(4);
                self.u32(a.to_bits());
            }
            IpAddr::V6(a) => {
                self.u8(6);
                self.u64((a.to_bits() >> 64) as u64);
            }
        }
    }
}

impl Reader<'_> {
    pub(crate) fn take<const N: usize>(&mut self) -> Read<[u8; N]> {
        let (head, rest) = self.0.split_first_chunk::<N>().ok_or(Damaged("it ends too early"))?;
        self.0 = rest;
        Ok(*head)
    }

    pub(crate) fn u8(&mut self) -> Read<u8> {
        Ok(self.take::<1>()?[0])
    }

    pub(crate) fn u16(&mut self) -> Read<u16> {
        Ok(u16::from_le_bytes(self.take()?))
    }

    pub(crate) fn u32(&mut self) -> Read<u32> {
        Ok(u32::from_le_bytes(self.take()?))
    }

    pub(crate) fn u64(&mut self) -> Read<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    /// A number of items of at least `size` bytes each, that can still come.
    pub(crate) fn count(&mut self, size: usize) -> Read<usize> {
        let n = self.u32()? as usize;
        if n.saturating_mul(size) > self.0.len() {
            return Err(Damaged("a count"));
        }
        Ok(n)
    }

    pub(crate) fn text(&mut self) -> Read<String> {
        let n = usize::from(self.u8()?);
        let (head, rest) = self.0.split_at_checked(n).ok_or(Damaged("a text"))?;
        self.0 = rest;
        Ok(core::str::from_utf8(head).map_err(|_| Damaged("a text"))?.to_owned())
    }

    pub(crate) fn cc(&mut self) -> Read<CcName> {
        CcName::new(&self.text()?).ok_or(Damaged("a congestion control's name"))
    }

    pub(crate) fn prefix(&mut self) -> Read<Prefix> {
        let (len, family) = (self.u8()?, self.u8()?);
        let (address, width): (IpAddr, u8) = match family {
            4 => (Ipv4Addr::from_bits(self.u32()?).into(), 32),
            6 => (Ipv6Addr::from_bits(u128::from(self.u64()?) << 64).into(), 64),
            _ => return Err(Damaged("an address family")),
        };
        let prefix = Prefix::of(address, len);
        let ok = len <= width && prefix.address() == address;
        ok.then_some(prefix).ok_or(Damaged("a network"))
    }
}
