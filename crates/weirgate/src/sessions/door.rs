//! Which first messages are looked at. Each costs an exchange of keys, and anybody can send as many as the link carries, from whatever
//! address he likes.
//!
//! So few are looked at; while more come their senders are given cookies, and those that come back with one, which shows that somebody is at
//! that address, are looked at beside all others, of each address few.

use std::net::SocketAddr;

use anyhow::Result;
use weirgate_shape::Bucket;
use weirgate_spray::cookie::Cookies;
use weirgate_spray::wire::Cookie;
use weirgate_units::{Instant, PacketRate, Packets};

use super::Seldom;
use crate::random;

/// Those that are looked at of all, with a cookie or without one, and how many at once. Whose message was passed over repeats it.
const ALL: (PacketRate, Packets) = (PacketRate::from_packets_per_sec(500), Packets::new(50));

/// Those with a cookie, of one address; addresses that share a place share this.
const EACH: (PacketRate, Packets) = (PacketRate::from_packets_per_sec(5), Packets::new(10));
const PLACES: usize = 256;

/// What is done with a first message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It is looked at.
    Looked,
    /// Its sender is told to repeat it with this.
    Asked(Cookie),
    /// Nothing: who floods has cookies as well.
    Dropped,
}

#[derive(Debug)]
pub(super) struct Door {
    cookies: Cookies,
    anybody: Bucket<Packets>,
    proven: Bucket<Packets>,
    each: Vec<Bucket<Packets>>,
    floods: Seldom,
}

impl Door {
    pub(super) fn new(now: Instant) -> Result<Self> {
        let bucket = |(rate, depth)| Bucket::new(now, rate, depth);
        Ok(Self {
            cookies: Cookies::new(random::bytes()?),
            anybody: bucket(ALL),
            proven: bucket(ALL),
            each: (0..PLACES).map(|_| bucket(EACH)).collect(),
            floods: Seldom::default(),
        })
    }

    /// What is done with the first message that came from `remote` with this cookie.
    pub(super) fn judge(&mut self, now: Instant, remote: SocketAddr, cookie: Cookie) -> Verdict {
        let one = Packets::new(1);
        if self.anybody.take(now, one).is_ok() {
            return Verdict::Looked;
        }
        if self.floods.is_due(now) {
            tracing::warn!(
                "more than {} callers have to show their addresses: somebody may be flooding this port",
                ALL.0
            );
        }
        if cookie == Cookie::default() || !self.cookies.is_valid(now, remote, cookie) {
            return Verdict::Asked(self.cookies.of(now, remote));
        }
        let its = &mut self.each[self.cookies.place(remote.ip(), PLACES)];
        let may = its.take(now, one).is_ok() && self.proven.take(now, one).is_ok();
        if may { Verdict::Looked } else { Verdict::Dropped }
    }
}

#[cfg(test)]
mod tests {
    use weirgate_units::Duration;

    use super::*;

    #[test]
    fn of_a_flood_few_are_looked_at_and_who_is_there_is_looked_at_beside_it() {
        let now = Instant::ZERO + Duration::from_secs(1);
        let mut door = Door::new(now).unwrap();
        let at = |us: u64| now + Duration::from_micros(us);
        let forged = |n: u64| SocketAddr::from(([10, 0, (n >> 8) as u8, n as u8], 4_000));
        let looked = |door: &mut Door, times: std::ops::RangeInclusive<u64>| {
            let verdicts = times.map(|n| door.judge(at(n * 100), forged(n), Cookie::default()));
            verdicts.filter(|verdict| *verdict == Verdict::Looked).count()
        };
        assert_eq!((0..100).map(|_| looked(&mut door, 0..=0)).sum::<usize>(), 50, "at once");
        assert_eq!(looked(&mut door, 1..=10_000), 500, "in a second");
        // Somebody who is there, ten of whose messages are looked at at once and five a second.
        let (now, here) = (at(1_000_000), SocketAddr::from(([192, 0, 2, 1], 5_000)));
        let Verdict::Asked(cookie) = door.judge(now, here, Cookie::default()) else { panic!("it is a flood") };
        let mut judge = |us, cookie| door.judge(now + Duration::from_micros(us), here, cookie);
        assert!((0..10).all(|_| judge(0, cookie) == Verdict::Looked));
        assert_eq!(judge(0, cookie), Verdict::Dropped);
        assert_eq!(judge(0, Cookie([1; 16])), Verdict::Asked(cookie));
        assert_eq!(looked(&mut door, 20_000..=20_000), 1, "and anybody's again once it is over");
    }
}
