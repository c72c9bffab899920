//! The client's address made anonymous before it is stored.
//!
//! Read first: RFC 7011's companion RFC 6235 (IP flow anonymisation: truncation, 4.1.1), RFC 6302 (why a server that
//! wants to identify a subscriber behind a shared address logs the source port).
//!
//! The method is **truncation**: of the end that opened the connection, the host bits below the client network (/24 and
//! /56, or what the configuration says) are zero, and the port is not stored. The other end, the server's, stays.
//!
//! Rejected: a keyed pseudonym of the host bits. It would keep clients apart, but a permutation of the 256 hosts of a
//! /24 is undone by anybody who knows one moment at which a few of them were active, and it stays personal data for as
//! long as the key exists. Nothing here needs it: decisions are made per network, connections are told apart by their
//! cookie, and treated and held-out clients by the column `arm`. Rejected too: keeping the port, which beside a time
//! names one subscriber behind a shared address.
//!
//! What it does not do: a /56 of IPv6 is often one household, so there the household remains and only the device is
//! gone. Set the client network to /48 or shorter where that is too much.

use core::net::IpAddr;

use weirgate_sockets::record::Direction;
use weirgate_sockets::sample::{Sample, mapped};
use weirgate_units::Prefix;

/// Whether the client's address is stored whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Anonymise {
    /// Both addresses are stored as they are.
    #[default]
    Off,
    /// The client's address is stored without its host bits, and its port is not.
    Client,
}

impl Anonymise {
    /// Takes what names the client out of `sample`.
    ///
    /// The client is the end that opened the connection: the remote one where it was accepted, this host where it was
    /// opened here. Where nothing tells, the remote end is taken for the client, since the doubt must not cost it.
    /// `network_len` is the length of the remote end's network; this host's own address keeps its /24 or /56.
    pub fn apply(self, direction: Direction, network_len: u8, sample: &mut Sample) {
        if self == Self::Off {
            return;
        }
        match direction {
            Direction::Accepted | Direction::Unknown => {
                sample.remote = mapped(Prefix::of(sample.remote().ip(), network_len).address());
                sample.remote_port = 0;
            }
            Direction::Connected => {
                sample.local = mapped(Prefix::client_network(sample.local().ip()).address());
                sample.local_port = 0;
            }
        }
    }

    /// `client` as it may be shown or stored: truncated to `network` where that is asked for.
    pub fn address(self, client: IpAddr, network: Prefix) -> IpAddr {
        match self {
            Self::Off => client,
            Self::Client => Prefix::of(client, network.len()).address(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Sample {
        Sample {
            local: mapped("203.0.113.9".parse().unwrap()),
            local_port: 443,
            remote: mapped("192.0.2.77".parse().unwrap()),
            remote_port: 50_000,
            ..Sample::default()
        }
    }

    #[test]
    fn the_end_that_opened_the_connection_is_the_client() {
        for (direction, local, remote) in [
            (Direction::Accepted, "203.0.113.9:443", "192.0.2.0:0"),
            (Direction::Unknown, "203.0.113.9:443", "192.0.2.0:0"),
            (Direction::Connected, "203.0.113.0:0", "192.0.2.77:50000"),
        ] {
            let mut s = sample();
            Anonymise::Client.apply(direction, 24, &mut s);
            assert_eq!((s.local().to_string().as_str(), s.remote().to_string().as_str()), (local, remote));
            let mut s = sample();
            Anonymise::Off.apply(direction, 24, &mut s);
            assert_eq!(s.remote().to_string(), "192.0.2.77:50000");
        }
    }

    #[test]
    fn ipv6_keeps_the_site_and_loses_the_device() {
        let mut s = Sample { remote: mapped("2001:db8:1:2345:6789:abcd:ef01:2345".parse().unwrap()), ..sample() };
        Anonymise::Client.apply(Direction::Accepted, 56, &mut s);
        assert_eq!(s.remote().ip().to_string(), "2001:db8:1:2300::");
    }
}
