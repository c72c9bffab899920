//! The books: what is kept of each client network from round to round, and how it is found.

use core::hash::{BuildHasher, Hasher};
use core::net::IpAddr;
use std::collections::HashMap;

use weirgate_units::Prefix;

use crate::config::Config;
use crate::decision::{What, Why};
use crate::history::History;
use crate::holdout::mix;
use crate::trial::Trial;

/// One client network. About 200 bytes with its place in the index; trials and details are kept for few.
#[derive(Debug, PartialEq)]
pub(crate) struct Network {
    pub(crate) prefix: Prefix,
    pub(crate) history: History,
    /// The last round in which a connection was heard of.
    pub(crate) seen: u32,
    /// The round of the last selection or release, 0 before the first.
    pub(crate) since: u32,
    /// Cannot be selected before this round.
    pub(crate) barred_until: u32,
    /// Place among this round's tallies, [`NONE`] before its first connection.
    pub(crate) tally: u32,
    pub(crate) clients: Clients,
    /// Present while the network is selected.
    pub(crate) trial: Option<Box<Trial>>,
    pub(crate) detail: Option<Box<Detail>>,
    pub(crate) last: Option<Box<(u32, What, Why)>>,
}

/// No place.
pub(crate) const NONE: u32 = u32::MAX;

/// Distinct clients of an epoch, by linear counting (Whang et al. 1990) in 64 bits: within 15 % up to about 100.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Clients {
    pub(crate) epoch: u32,
    pub(crate) now: u64,
    pub(crate) before: u64,
}

/// Round-by-round numbers for `explain`.
#[derive(Debug, PartialEq)]
pub(crate) struct Detail {
    /// (round, untreated votes, median), at index round % window.
    pub(crate) rounds: Box<[(u32, u32, f32)]>,
}

/// All networks, by slot and by address.
#[derive(Debug)]
pub(crate) struct Book {
    slots: Vec<Option<Network>>,
    free: Vec<u32>,
    v4: HashMap<u32, u32, Seeded>,
    v6: HashMap<u64, u32, Seeded>,
    len_v4: u8,
    len_v6: u8,
    max: u32,
    pub(crate) details: u32,
}

impl Clients {
    /// Notes clients in `epoch`, each by its bit.
    pub(crate) fn add(&mut self, epoch: u32, bits: u64) {
        self.turn(epoch);
        self.now |= bits;
    }

    /// Distinct clients in the epoch before `epoch`, or so far in it where those are more.
    pub(crate) fn estimate(mut self, epoch: u32) -> u32 {
        self.turn(epoch);
        let zeros = |bits: u64| f64::from(bits.count_zeros().max(1));
        let fewest = zeros(self.now).min(zeros(self.before));
        (64.0 * (64.0 / fewest).ln()).round() as u32
    }

    fn turn(&mut self, epoch: u32) {
        if epoch > self.epoch {
            self.before = if epoch - self.epoch == 1 { self.now } else { 0 };
            (self.now, self.epoch) = (0, epoch);
        }
    }
}

impl Detail {
    pub(crate) fn new(window: u32) -> Self {
        Self { rounds: vec![(0, 0, 0.0); window as usize].into() }
    }

    pub(crate) fn set(&mut self, round: u32, votes: u32, median: f32) {
        let at = round as usize % self.rounds.len();
        self.rounds[at] = (round, votes, median);
    }

    /// The round that is kept where `round` would be, 0 where none is.
    pub(crate) fn at_place_of(&self, round: u32) -> u32 {
        self.rounds[round as usize % self.rounds.len()].0
    }

    pub(crate) fn at(&self, round: u32) -> Option<(u32, f32)> {
        let (r, votes, median) = self.rounds[round as usize % self.rounds.len()];
        (r == round && round > 0).then_some((votes, median))
    }
}

impl Book {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            slots: Vec::new(),
            free: Vec::new(),
            v4: HashMap::with_hasher(Seeded(config.seed)),
            v6: HashMap::with_hasher(Seeded(config.seed)),
            len_v4: config.network_len_v4,
            len_v6: config.network_len_v6,
            max: config.networks_max,
            details: 0,
        }
    }

    /// Networks in the books.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// The slot of the network that `client` belongs to, made if need be; `None` where the books are full.
    pub(crate) fn slot_of(&mut self, client: IpAddr) -> Option<u32> {
        let full = self.len() >= self.max as usize;
        let (slots, free) = (&mut self.slots, &mut self.free);
        let mut new = |len: u8| {
            let network = Some(Network::new(Prefix::of(client, len)));
            if let Some(slot) = free.pop() {
                slots[slot as usize] = network;
                return slot;
            }
            slots.push(network);
            (slots.len() - 1) as u32
        };
        match client.to_canonical() {
            IpAddr::V4(a) => {
                let key = mask_v4(a.to_bits(), self.len_v4);
                if full {
                    return self.v4.get(&key).copied();
                }
                Some(*self.v4.entry(key).or_insert_with(|| new(self.len_v4)))
            }
            IpAddr::V6(a) => {
                let key = mask_v6(a.to_bits(), self.len_v6);
                if full {
                    return self.v6.get(&key).copied();
                }
                Some(*self.v6.entry(key).or_insert_with(|| new(self.len_v6)))
            }
        }
    }

    /// The slot of a client network, or of the client network that holds a longer `prefix`.
    pub(crate) fn find(&self, prefix: Prefix) -> Option<u32> {
        match prefix.address() {
            IpAddr::V4(a) if prefix.len() >= self.len_v4 => self.v4.get(&mask_v4(a.to_bits(), self.len_v4)),
            IpAddr::V6(a) if prefix.len() >= self.len_v6 => self.v6.get(&mask_v6(a.to_bits(), self.len_v6)),
            _ => None,
        }
        .copied()
    }

    /// Puts a network that was stored into the books; false where it is there already, the books are full, or its
    /// length is not that of the configuration.
    pub(crate) fn insert(&mut self, network: Network) -> bool {
        let len = if network.prefix.address().is_ipv4() { self.len_v4 } else { self.len_v6 };
        if network.prefix.len() != len || self.len() >= self.max as usize || self.find(network.prefix).is_some() {
            return false;
        }
        let Some(slot) = self.slot_of(network.prefix.address()) else { return false };
        self.details += u32::from(network.detail.is_some());
        self.slots[slot as usize] = Some(network);
        true
    }

    /// The network in a slot that is known to be in use.
    #[expect(clippy::expect_used, reason = "slots are handed out by this type alone, and taken back by `remove` alone")]
    pub(crate) fn get(&self, slot: u32) -> &Network {
        self.slots[slot as usize].as_ref().expect("slot in use")
    }

    /// The network in a slot that is known to be in use.
    #[expect(clippy::expect_used, reason = "slots are handed out by this type alone, and taken back by `remove` alone")]
    pub(crate) fn get_mut(&mut self, slot: u32) -> &mut Network {
        self.slots[slot as usize].as_mut().expect("slot in use")
    }

    /// All networks in order of slots, which is the order in which they were first seen.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (u32, &Network)> {
        self.slots.iter().enumerate().filter_map(|(i, n)| Some((i as u32, n.as_ref()?)))
    }

    /// Keeps a round's numbers for `explain`, where there is room for its network. The last tenth of the room is for those
    /// that are `watched`: selected, or in a group lately.
    pub(crate) fn note_detail(&mut self, slot: u32, watched: bool, max: u32, entry: (u32, u32, f32), window: u32) {
        let room = self.details < if watched { max } else { max - max / 10 };
        let network = self.get_mut(slot);
        if network.detail.is_none() && room {
            network.detail = Some(Box::new(Detail::new(window)));
            self.details += 1;
        }
        if let Some(detail) = &mut self.get_mut(slot).detail {
            detail.set(entry.0, entry.1, entry.2);
        }
    }

    /// Forgets networks that are neither selected nor barred: those not heard of for `idle` rounds, then, where the
    /// books are nearly full, the longest idle until a tenth is free, or half where networks were turned away
    /// (`pressed`). Returns (expired, evicted). O(networks).
    pub(crate) fn forget_idle(&mut self, now: u32, idle: u32, pressed: bool) -> (u32, u32) {
        let mut candidates: Vec<(u32, u32)> = self
            .iter()
            .filter(|(_, n)| n.trial.is_none() && n.barred_until <= now && n.seen < now)
            .map(|(slot, n)| (n.seen, slot))
            .collect();
        let expired = candidates.iter().filter(|(seen, _)| now - seen >= idle).count();
        let full = pressed || self.len() * 20 >= self.max as usize * 19;
        let most = if pressed { self.max as usize / 2 } else { self.max as usize / 10 * 9 };
        let over = if full { (self.len() - expired).saturating_sub(most) } else { 0 };
        let gone = (expired + over).min(candidates.len());
        if gone > 0 && gone < candidates.len() {
            candidates.select_nth_unstable(gone - 1);
        }
        for (_, slot) in &candidates[..gone] {
            self.remove(*slot);
        }
        (expired as u32, (gone - expired) as u32)
    }

    fn remove(&mut self, slot: u32) {
        let Some(network) = self.slots[slot as usize].take() else { return };
        match network.prefix.address() {
            IpAddr::V4(a) => self.v4.remove(&mask_v4(a.to_bits(), self.len_v4)),
            IpAddr::V6(a) => self.v6.remove(&mask_v6(a.to_bits(), self.len_v6)),
        };
        self.details -= u32::from(network.detail.is_some());
        self.free.push(slot);
    }

    /// Every network is found where it is, and the counts are those of the slots.
    pub(crate) fn is_valid(&self) -> bool {
        self.v4.len() + self.v6.len() == self.len()
            && self.iter().all(|(slot, n)| self.find(n.prefix) == Some(slot) && n.history.is_valid())
            && self.iter().filter(|(_, n)| n.detail.is_some()).count() == self.details as usize
    }
}

impl Network {
    pub(crate) fn new(prefix: Prefix) -> Self {
        Self {
            prefix,
            history: History::default(),
            seen: 0,
            since: 0,
            barred_until: 0,
            tally: NONE,
            clients: Clients::default(),
            trial: None,
            detail: None,
            last: None,
        }
    }
}

fn mask_v4(bits: u32, len: u8) -> u32 {
    bits & u32::MAX.checked_shl(32 - u32::from(len)).unwrap_or(0)
}

/// The upper half says all: client networks are at most /64.
fn mask_v6(bits: u128, len: u8) -> u64 {
    (bits >> 64) as u64 & u64::MAX.checked_shl(64 - u32::from(len)).unwrap_or(0)
}

/// Hashes one integer with a secret: deterministic, and a client cannot choose its bucket.
#[derive(Clone, Debug)]
pub(crate) struct Seeded(u64);

pub(crate) struct SeededHasher(u64);

impl BuildHasher for Seeded {
    type Hasher = SeededHasher;

    fn build_hasher(&self) -> SeededHasher {
        SeededHasher(self.0)
    }
}

impl Hasher for SeededHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for b in bytes {
            self.write_u64(u64::from(*b));
        }
    }

    fn write_u32(&mut self, n: u32) {
        self.write_u64(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = mix(self.0 ^ n);
    }
}
