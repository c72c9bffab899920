//! Where a flow is to go: what stands before its bytes, and what may be reached.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use weirgate_units::Prefix;

/// The longest one: a kind, an IPv6 address and a port.
pub const LEN_MAX: usize = 19;

/// What stands before a flow's bytes: the IP version, the address and the port, in network order.
pub fn put(to: SocketAddr) -> Vec<u8> {
    let mut out = Vec::with_capacity(LEN_MAX);
    match to.ip() {
        IpAddr::V4(ip) => {
            out.push(4);
            out.extend(ip.octets());
        }
        IpAddr::V6(ip) => {
            out.push(6);
            out.extend(ip.octets());
        }
    }
    out.extend(to.port().to_be_bytes());
    out
}

/// Reads it: where to, and how long it was. `Ok(None)`: not all of it is there.
///
/// # Errors
/// It is none.
pub fn parse(bytes: &[u8]) -> Result<Option<(SocketAddr, usize)>, Nowhere> {
    let (ip, rest) = match bytes.split_first() {
        None => return Ok(None),
        Some((4, rest)) => match rest.split_first_chunk::<4>() {
            Some((ip, rest)) => (IpAddr::from(Ipv4Addr::from(*ip)), rest),
            None => return Ok(None),
        },
        Some((6, rest)) => match rest.split_first_chunk::<16>() {
            Some((ip, rest)) => (IpAddr::from(Ipv6Addr::from(*ip)), rest),
            None => return Ok(None),
        },
        Some(_) => return Err(Nowhere),
    };
    let Some((port, rest)) = rest.split_first_chunk::<2>() else { return Ok(None) };
    Ok(Some((SocketAddr::new(ip, u16::from_be_bytes(*port)), bytes.len() - rest.len())))
}

/// A flow that does not say where to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a flow that does not say where to")]
pub struct Nowhere;

/// Which addresses flows may go to.
#[derive(Clone, Debug, Default)]
pub struct Reach(pub Vec<Prefix>);

impl Reach {
    /// Whether one of them is this; where none is named, all are but the host's own, those of its link and those of many.
    pub fn holds(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        if !self.0.is_empty() {
            return self.0.iter().any(|network| network.contains(ip));
        }
        let is_link = match ip {
            IpAddr::V4(ip) => ip.is_link_local() || ip.is_broadcast(),
            IpAddr::V6(ip) => ip.is_unicast_link_local(),
        };
        !(ip.is_loopback() || ip.is_unspecified() || ip.is_multicast() || is_link)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_read_as_it_was_written_however_it_is_cut() {
        for text in ["192.0.2.7:443", "[2001:db8::1]:65535"] {
            let to: SocketAddr = text.parse().unwrap();
            let mut bytes = put(to);
            assert!(bytes.len() <= LEN_MAX);
            for len in 0..bytes.len() {
                assert_eq!(parse(&bytes[..len]), Ok(None));
            }
            let len = bytes.len();
            bytes.extend(b"GET");
            assert_eq!(parse(&bytes), Ok(Some((to, len))));
        }
        assert_eq!(parse(&[5, 0]), Err(Nowhere));
    }

    #[test]
    fn the_hosts_own_addresses_are_reached_where_that_was_said_only() {
        let ip = |text: &str| -> IpAddr { text.parse().unwrap() };
        let own = ["127.0.0.1", "::1", "::ffff:127.0.0.1", "169.254.1.1", "fe80::1", "0.0.0.0", "224.0.0.1", "ff02::1"];
        for text in own {
            assert!(!Reach::default().holds(ip(text)), "{text}");
        }
        assert!(Reach::default().holds(ip("192.0.2.1")) && Reach::default().holds(ip("2001:db8::1")));
        let named = Reach(vec!["127.0.0.0/8".parse().unwrap(), "10.0.0.0/8".parse().unwrap()]);
        assert!(named.holds(ip("127.0.0.1")) && named.holds(ip("10.1.2.3")) && !named.holds(ip("192.0.2.1")));
    }
}
