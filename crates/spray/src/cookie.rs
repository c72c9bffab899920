//! Cookies: whoever sends one back is reached at the address that it was sent to (RFC 9147, section 5.1; RFC 9000, section 8.1.2).
//!
//! A side that is sent more first messages than it can answer sends cookies, keeps nothing of who asked, and looks first at what comes with
//! one: forged addresses bring none.

use std::net::{IpAddr, SocketAddr};

use aws_lc_rs::{constant_time, hmac};
use weirgate_units::{Duration, Instant};

use crate::wire::Cookie;

/// A cookie is good for so long, and for twice as long at most.
const LASTS: Duration = Duration::from_secs(60);

/// Makes them and knows them again.
#[derive(Debug)]
pub struct Cookies(hmac::Key);

impl Cookies {
    /// By a key that nobody else knows.
    pub fn new(key: [u8; 32]) -> Self {
        Self(hmac::Key::new(hmac::HMAC_SHA256, &key))
    }

    /// For who is at this address.
    pub fn of(&self, now: Instant, remote: SocketAddr) -> Cookie {
        self.at(now.as_nanos() / LASTS.as_nanos(), remote)
    }

    /// Whether it is one that was made for this address of late.
    pub fn is_valid(&self, now: Instant, remote: SocketAddr, cookie: Cookie) -> bool {
        let turn = now.as_nanos() / LASTS.as_nanos();
        [turn, turn.saturating_sub(1)].into_iter().any(|turn| {
            let its = self.at(turn, remote);
            constant_time::verify_slices_are_equal(&its.0, &cookie.0).is_ok()
        })
    }

    /// One of so many places for a host's address, as nobody else can reckon it; an IPv6 network of 64 bits is a host.
    pub fn place(&self, host: IpAddr, places: usize) -> usize {
        let network = match host {
            IpAddr::V4(host) => host.to_ipv6_mapped().to_bits(),
            IpAddr::V6(host) => host.to_bits() >> 64,
        };
        let tag = hmac::sign(&self.0, &network.to_be_bytes());
        let first = tag.as_ref().first_chunk().map_or(0, |first| u64::from_be_bytes(*first));
        (first % places.max(1) as u64) as usize
    }

    fn at(&self, turn: u64, remote: SocketAddr) -> Cookie {
        let host = match remote.ip() {
            IpAddr::V4(host) => host.to_ipv6_mapped(),
            IpAddr::V6(host) => host,
        };
        let said = [&turn.to_be_bytes()[..], &host.octets(), &remote.port().to_be_bytes()].concat();
        let tag = hmac::sign(&self.0, &said);
        Cookie(tag.as_ref().first_chunk().copied().unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cookie_is_good_for_one_address_and_a_while() {
        let (cookies, others) = (Cookies::new([1; 32]), Cookies::new([2; 32]));
        let at = |secs| Instant::ZERO + Duration::from_secs(secs);
        let remote = |text: &str| text.parse::<SocketAddr>().unwrap();
        for (own, foreign) in [
            ("192.0.2.1:7", ["192.0.2.2:7", "192.0.2.1:8"]),
            ("[2001:db8::1]:7", ["[2001:db8::2]:7", "[2001:db8::1]:8"]),
        ] {
            let cookie = cookies.of(at(59), remote(own));
            assert!([59, 60, 119].into_iter().all(|secs| cookies.is_valid(at(secs), remote(own), cookie)));
            assert!(!cookies.is_valid(at(120), remote(own), cookie) && !others.is_valid(at(59), remote(own), cookie));
            assert!(foreign.into_iter().all(|other| !cookies.is_valid(at(59), remote(other), cookie)));
            assert!(!cookies.is_valid(at(59), remote(own), Cookie::default()));
        }
    }

    #[test]
    fn hosts_have_places_of_their_own_and_ipv6_networks_one() {
        let cookies = Cookies::new([1; 32]);
        let place = |host: String| cookies.place(host.parse().unwrap(), 256);
        let places: std::collections::BTreeSet<usize> = (0..200).map(|n| place(format!("192.0.2.{n}"))).collect();
        assert!((100..=200).contains(&places.len()), "{}", places.len());
        assert_eq!(place("2001:db8::1".into()), place("2001:db8::ffff:1".into()));
        assert_ne!(place("2001:db8::1".into()), place("2001:db8:0:1::1".into()));
    }
}
