//! A policy on its way from the controller to the edges of a point of presence: its bytes, which are signed, and what an edge checks
//! before it obeys.
//!
//! Ground rules, all of them [`Held::check`]'s: nobody obeys what is not signed by a key that he knows, is of another point of presence, is
//! older than what he obeys already, has expired, or was made in the future. Going back to a lower version is a generation of its own, which
//! is signed with the rest: whatever is of an earlier one is refused from then on, whoever sends it.

use weirgate_sockets::sample::CcName;
use weirgate_units::{Bytes, Duration, Prefix, UnixTime};

use crate::bytes::{Damaged, Reader, Writer};
use crate::canary::goes_first;
use crate::holdout::Holdout;
use crate::policy::Policy;

const MAGIC: &[u8; 4] = b"WGPS";
const VERSION: u8 = 2;
/// Bytes of a signature by Ed25519 (RFC 8032).
pub const SIGNATURE: usize = 64;
/// Bytes of a network of IPv4's: length, family, four of the address, and the place of its congestion control.
pub const NETWORK_V4: usize = 7;
/// Bytes of a network of IPv6's: the address's upper half has eight.
pub const NETWORK_V6: usize = 11;
/// What no snapshot is longer than: 2.3 million networks of IPv4's, or 1.5 million of IPv6's, where a policy has a million at most
/// ([`Limits::networks_max`](crate::Limits::networks_max)).
pub const SIZE_MAX: Bytes = Bytes::new(16 << 20);
/// How far the clocks of controller and edge may be apart.
pub const SKEW_MAX: Duration = Duration::from_secs(300);

/// A policy for one point of presence.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Snapshot {
    /// The point of presence.
    pub pop: String,
    /// Grows where the controller's books were begun anew, and versions with them.
    pub generation: u64,
    /// Grows with each that is made for it in one generation.
    pub version: u64,
    /// When it was made.
    pub made: UnixTime,
    /// Until when it may be obeyed.
    pub until: UnixTime,
    /// What every edge obeys.
    pub policy: Policy,
    /// The share of edges that go first, in parts per million ([`share_of`](crate::canary::share_of)), and the networks that they treat
    /// beside those of the policy.
    pub first: (u32, Vec<(Prefix, CcName)>),
}

/// Why bytes are not obeyed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// They are no snapshot.
    #[error("not a snapshot of a policy that this version of Weirgate reads ({0})")]
    Damaged(&'static str),
    /// No key that is known here has signed them.
    #[error("not signed by a key that is trusted here: was it changed on its way, or has the controller another key?")]
    Signature,
    /// They are for others.
    #[error("of point of presence `{0}`: this host's is another ([host] pop)")]
    OtherPop(String),
    /// What is obeyed is newer.
    #[error(
        "version {offered} is not newer than {held}, which is obeyed here: sent again by somebody, or by a controller that lost its books"
    )]
    Older {
        /// What is obeyed.
        held: Held,
        /// What was offered.
        offered: Held,
    },
    /// Its time is over.
    #[error("its time was over {0} ago: is the controller running, and is this host's clock right?")]
    Expired(Duration),
    /// Its time has not begun.
    #[error("made {0} from now: are the clocks of this host and of the controller right?")]
    Future(Duration),
}

/// For people, to the second.
const fn seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs())
}

/// What an edge knows of the last snapshot that it obeyed, to be kept for as long as its keys are trusted. What is greater is newer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Held {
    /// Its generation.
    pub generation: u64,
    /// Its version; 0: there was none.
    pub version: u64,
}

impl core::fmt::Display for Held {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self.generation {
            0 => write!(f, "{}", self.version),
            generation => write!(f, "{} of generation {generation}", self.version),
        }
    }
}

impl Snapshot {
    /// Its bytes, to be signed: the same for equal snapshots. [`NETWORK_V4`] or [`NETWORK_V6`] for each network, and less than 1 KB beside
    /// them.
    pub fn to_bytes(&self) -> Vec<u8> {
        let Self { pop, generation, version, made, until, policy, first: (share_ppm, first) } = self;
        let mut w = Writer(Vec::with_capacity(128 + (policy.networks.len() + first.len()) * NETWORK_V6));
        w.0.extend_from_slice(MAGIC);
        w.u8(VERSION);
        w.text(pop);
        w.u64(*generation);
        w.u64(*version);
        w.u64(made.as_nanos());
        w.u64(until.as_nanos());
        w.u8(u8::from(policy.stay) | u8::from(policy.cap_start) << 1);
        w.u32(policy.version);
        w.u64(policy.holdout.seed);
        w.u32(policy.holdout.epoch);
        w.u32(policy.holdout.share_ppm);
        w.text(policy.default_cc.as_ref().map_or("", CcName::as_str));
        w.u64(policy.switch_after.as_u64());
        let mut names: Vec<CcName> = Vec::new();
        for (_, cc) in policy.networks.iter().chain(first) {
            if !names.contains(cc) {
                names.push(*cc);
            }
        }
        w.u8(names.len() as u8);
        names.iter().for_each(|name| w.text(name.as_str()));
        w.u32(*share_ppm);
        for networks in [&policy.networks, first] {
            w.u32(networks.len() as u32);
            for (network, cc) in networks {
                w.prefix(*network);
                w.u8(names.iter().position(|name| name == cc).unwrap_or_default() as u8);
            }
        }
        w.0
    }

    /// The snapshot whose bytes these are.
    fn from_bytes(bytes: &[u8]) -> Result<Self, Damaged> {
        let mut r = Reader(bytes);
        if r.take::<4>()? != *MAGIC || r.u8()? != VERSION {
            return Err(Damaged("its beginning"));
        }
        let (pop, generation, version) = (r.text()?, r.u64()?, r.u64()?);
        let [made, until] = [r.u64()?, r.u64()?].map(UnixTime::from_nanos);
        let flags = Some(r.u8()?).filter(|flags| *flags < 4).ok_or(Damaged("a flag"))?;
        let policy_version = r.u32()?;
        let holdout = Holdout { seed: r.u64()?, epoch: r.u32()?, share_ppm: r.u32()? };
        if holdout.share_ppm > 1_000_000 {
            return Err(Damaged("the holdout's share"));
        }
        let default_cc = match r.text()?.as_str() {
            "" => None,
            name => Some(CcName::new(name).ok_or(Damaged("a congestion control's name"))?),
        };
        let switch_after = Bytes::new(r.u64()?);
        let names = (0..r.u8()?).map(|_| r.cc()).collect::<Result<Vec<CcName>, Damaged>>()?;
        let share_ppm = r.u32()?;
        let (networks, first) = (networks(&mut r, &names)?, networks(&mut r, &names)?);
        if !r.0.is_empty() {
            return Err(Damaged("it goes on behind its end"));
        }
        let (stay, cap_start) = (flags & 1 != 0, flags & 2 != 0);
        let policy = Policy { version: policy_version, networks, holdout, default_cc, switch_after, stay, cap_start };
        let snapshot = Self { pop, generation, version, made, until, policy, first: (share_ppm, first) };
        match is_in_order(&snapshot.for_those_that_go_first().networks) {
            true => Ok(snapshot),
            false => Err(Damaged("networks that overlap")),
        }
    }

    /// What the edge `host` obeys.
    pub fn policy_for(&self, host: &str) -> Policy {
        if goes_first(host, self.first.0) { self.for_those_that_go_first() } else { self.policy.clone() }
    }

    fn for_those_that_go_first(&self) -> Policy {
        let mut networks = [&self.policy.networks[..], &self.first.1].concat();
        networks.sort_unstable_by_key(|(network, _)| *network);
        Policy { networks, ..self.policy.clone() }
    }

    /// Whether it is still to be obeyed at `now`.
    pub fn is_alive(&self, now: UnixTime) -> bool {
        now < self.until
    }

    /// What is kept of it when it is obeyed.
    pub const fn held(&self) -> Held {
        Held { generation: self.generation, version: self.version }
    }

    /// What is sent: the signature, and what is signed.
    pub fn seal(&self, sign: impl FnOnce(&[u8]) -> [u8; SIGNATURE]) -> Vec<u8> {
        let bytes = self.to_bytes();
        [&sign(&bytes)[..], &bytes].concat()
    }
}

/// Networks with their congestion controls, of which `names` are there.
fn networks(r: &mut Reader<'_>, names: &[CcName]) -> Result<Vec<(Prefix, CcName)>, Damaged> {
    let mut networks = Vec::new();
    for _ in 0..r.count(NETWORK_V4)? {
        let (network, cc) = (r.prefix()?, r.u8()?);
        networks.push((network, *names.get(usize::from(cc)).ok_or(Damaged("a congestion control"))?));
    }
    if is_in_order(&networks) { Ok(networks) } else { Err(Damaged("networks that overlap or are out of order")) }
}

/// Whether they ascend and none overlaps another: in ascending order a network is followed by those within it.
fn is_in_order(networks: &[(Prefix, CcName)]) -> bool {
    networks.windows(2).all(|pair| pair[0].0 < pair[1].0 && !pair[0].0.overlaps(pair[1].0))
}

impl Held {
    /// The snapshot that was sent as `bytes` to an edge of `pop`, if it is to be obeyed at `now` after the one that this is of.
    /// `is_signed` says whether a trusted key has signed what it is given by the signature that it is given; nothing else is looked at
    /// before.
    ///
    /// # Errors
    /// [`Refused`] says why it is not.
    pub fn check(
        self,
        bytes: &[u8],
        pop: &str,
        now: UnixTime,
        is_signed: impl FnOnce(&[u8], &[u8; SIGNATURE]) -> bool,
    ) -> Result<Snapshot, Refused> {
        let Some((signature, signed)) = bytes.split_first_chunk::<SIGNATURE>() else {
            return Err(Refused::Damaged("it ends too early"));
        };
        if bytes.len() as u64 > SIZE_MAX.as_u64() {
            return Err(Refused::Damaged("it is longer than any"));
        }
        if !is_signed(signed, signature) {
            return Err(Refused::Signature);
        }
        let snapshot = Snapshot::from_bytes(signed).map_err(|Damaged(what)| Refused::Damaged(what))?;
        if snapshot.pop != pop {
            return Err(Refused::OtherPop(snapshot.pop));
        }
        if !snapshot.is_alive(now) {
            return Err(Refused::Expired(seconds(now.saturating_since(snapshot.until))));
        }
        if snapshot.made > now + SKEW_MAX {
            return Err(Refused::Future(seconds(snapshot.made.saturating_since(now))));
        }
        if snapshot.held() <= self {
            return Err(Refused::Older { held: self, offered: snapshot.held() });
        }
        Ok(snapshot)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::validate::Limits;

    const HOUR: Duration = Duration::from_secs(3_600);

    fn at(hours: u64) -> UnixTime {
        UnixTime::from_nanos(1_800_000_000_000_000_000) + HOUR.saturating_mul(hours)
    }

    fn policy() -> Policy {
        let [bbr, cubic] = ["bbr", "cubic"].map(|name| CcName::new(name).expect("a name"));
        let network = |text: &str| text.parse::<Prefix>().expect("a network");
        Policy {
            version: 7,
            networks: vec![
                (network("192.0.2.0/24"), bbr),
                (network("198.51.100.0/24"), cubic),
                (network("2001:db8:0:100::/56"), bbr),
            ],
            holdout: Holdout { seed: 11, epoch: 3, share_ppm: 100_000 },
            default_cc: Some(cubic),
            switch_after: Bytes::new(100_000),
            stay: false,
            cap_start: true,
        }
    }

    fn snapshot(version: u64) -> Snapshot {
        Snapshot {
            pop: "ams".to_owned(),
            version,
            made: at(version),
            until: at(version) + HOUR,
            generation: 0,
            policy: policy(),
            first: (100_000, vec![("203.0.113.0/24".parse().expect("a network"), CcName::from_kernel(b"bbr"))]),
        }
    }

    /// A stand-in for a signature, which depends on every byte.
    fn sum(bytes: &[u8]) -> [u8; SIGNATURE] {
        let sum = bytes.iter().fold(5_u64, |sum, byte| crate::holdout::mix(sum ^ u64::from(*byte)));
        let mut signature = [0; SIGNATURE];
        signature[..8].copy_from_slice(&sum.to_le_bytes());
        signature
    }

    fn is_signed(bytes: &[u8], signature: &[u8; SIGNATURE]) -> bool {
        *signature == sum(bytes)
    }

    #[test]
    fn what_was_sealed_is_obeyed() {
        let sent = snapshot(3).seal(sum);
        assert_eq!(Held::default().check(&sent, "ams", at(3), is_signed), Ok(snapshot(3)));
        let empty = Policy { networks: vec![], default_cc: None, ..policy() };
        let empty = Snapshot { policy: empty, first: (0, vec![]), ..snapshot(3) };
        assert_eq!(Held::default().check(&empty.seal(sum), "ams", at(3), is_signed), Ok(empty));
        assert!(snapshot(3).to_bytes().len() < 150);
    }

    #[test]
    fn a_network_takes_what_is_said_and_a_million_fit() {
        let of = |networks: Vec<Prefix>| {
            let bbr = CcName::from_kernel(b"bbr");
            let policy = Policy { networks: networks.into_iter().map(|network| (network, bbr)).collect(), ..policy() };
            Snapshot { policy, first: (0, vec![]), ..snapshot(3) }.seal(sum).len()
        };
        let v4 = |n: u32| Prefix::of(core::net::Ipv4Addr::from_bits(n << 8).into(), 24);
        let v6 = |n: u32| Prefix::of(core::net::Ipv6Addr::from_bits(u128::from(n) << 72).into(), 56);
        let none = of(vec![]);
        assert_eq!(of((0..1_000).map(v4).collect()) - of(vec![v4(0)]), 999 * NETWORK_V4);
        assert_eq!(of((0..1_000).map(v6).collect()) - of(vec![v6(0)]), 999 * NETWORK_V6);
        let beside = of(vec![v4(0)]) - NETWORK_V4;
        assert!(none <= beside && beside < 1_024, "{none} {beside}");
        let most = Limits { networks_max: 1_000_000, ..Limits::default() };
        assert!(
            most.check().is_ok() && Limits { networks_max: most.networks_max + 1, ..most.clone() }.check().is_err()
        );
        let largest = Snapshot { policy: Policy { networks: vec![], ..policy() }, ..snapshot(3) };
        let networks: Vec<_> = (0..most.networks_max).map(|n| (v6(n), CcName::from_kernel(b"bbr"))).collect();
        let sent = Snapshot { first: (100_000, networks), ..largest }.seal(sum);
        assert!((sent.len() as u64) < SIZE_MAX.as_u64());
        assert!(Held::default().check(&sent, "ams", at(3), is_signed).is_ok());
    }

    #[test]
    fn edges_that_go_first_treat_more() {
        let all = (0..1_000).map(|n| snapshot(3).policy_for(&format!("edge-{n}")).networks.len());
        let all: Vec<usize> = all.collect();
        let first = all.iter().filter(|networks| **networks == 4).count();
        assert!((60..140).contains(&first) && all.iter().all(|networks| [3, 4].contains(networks)), "{first}");
        let overlapping = Snapshot { first: (0, vec![snapshot(3).policy.networks[0]]), ..snapshot(3) };
        assert!(Snapshot::from_bytes(&overlapping.to_bytes()).is_err());
    }

    #[test]
    fn what_is_older_late_early_or_of_others_is_refused_and_says_why() {
        let sent = snapshot(3).seal(sum);
        let offer =
            |held: Held, sent: &[u8], pop: &str, now| held.check(sent, pop, now, is_signed).expect_err("refused");
        let held = snapshot(3).held();
        assert_eq!(offer(held, &sent, "ams", at(3)), Refused::Older { held, offered: held }, "again");
        let newer = snapshot(9).held();
        assert_eq!(offer(newer, &sent, "ams", at(3)), Refused::Older { held: newer, offered: held });
        assert_eq!(offer(Held::default(), &sent, "fra", at(3)), Refused::OtherPop("ams".into()));
        assert_eq!(offer(Held::default(), &sent, "ams", at(4)), Refused::Expired(Duration::ZERO));
        let before = |time: Duration| UnixTime::from_nanos(at(3).as_nanos() - time.as_nanos());
        let early = before(SKEW_MAX.saturating_add(Duration::from_nanos(1)));
        assert_eq!(offer(Held::default(), &sent, "ams", early), Refused::Future(SKEW_MAX));
        assert!(Held::default().check(&sent, "ams", before(SKEW_MAX), is_signed).is_ok());
        assert_eq!(Held::default().check(&sent, "ams", at(3), |_, _| false), Err(Refused::Signature));
    }

    #[test]
    fn a_later_generation_goes_back_and_nothing_of_an_earlier_one_is_obeyed_again() {
        let of = |generation, version| Snapshot { generation, version, made: at(9), until: at(11), ..snapshot(1) };
        let check = |held: Held, sent: &Snapshot| held.check(&sent.seal(sum), "ams", at(10), is_signed);
        let is_older = |held, sent: &Snapshot| matches!(check(held, sent), Err(Refused::Older { .. }));
        let (before, back, next) = (of(0, 8), of(1, 1), of(1, 2));
        assert_eq!(check(before.held(), &back), Ok(back.clone()));
        assert_eq!(check(back.held(), &next), Ok(next.clone()));
        assert!(is_older(back.held(), &back) && is_older(next.held(), &back), "again");
        assert!(is_older(back.held(), &before) && is_older(next.held(), &of(0, 99)), "of a higher version");
        let Err(why) = check(next.held(), &back) else { panic!("it is obeyed") };
        assert!(why.to_string().starts_with("version 1 of generation 1 is not newer than 2 of generation 1"), "{why}");
    }

    proptest! {
        /// Bytes that somebody signed who should not have: an error, or a policy that is in order.
        #[test]
        fn any_signed_bytes_are_refused_or_in_order(
            changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4), cut in any::<prop::sample::Index>(),
            is_cut in any::<bool>(),
        ) {
            let mut bytes = snapshot(3).to_bytes();
            for (at, to) in changes {
                let at = at.index(bytes.len());
                bytes[at] = to;
            }
            if is_cut {
                bytes.truncate(cut.index(bytes.len()));
            }
            if let Ok(read) = Snapshot::from_bytes(&bytes) {
                prop_assert!(is_in_order(&read.policy.networks) && is_in_order(&read.for_those_that_go_first().networks));
                prop_assert_eq!(Snapshot::from_bytes(&read.to_bytes()), Ok(read));
            }
        }

        /// One bit on its way.
        #[test]
        fn nothing_that_was_changed_is_obeyed(place in any::<prop::sample::Index>(), bit in 0_u8..8) {
            let mut sent = snapshot(3).seal(sum);
            let place = place.index(sent.len());
            sent[place] ^= 1 << bit;
            prop_assert_eq!(Held::default().check(&sent, "ams", at(3), is_signed), Err(Refused::Signature));
        }
    }
}
