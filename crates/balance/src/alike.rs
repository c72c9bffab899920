//! Which uplinks are alike. Packets of one flow may go over like uplinks in any order; over unlike ones a flow stays where it is.
//!
//! Ground rules:
//!
//! - Two are alike where they have the same medium tag, which a person gave them, or where their rates are within 20 % and their smallest
//!   round-trip times within the larger of 2 ms and 10 %, for 60 s on end. They are that no longer where one of the two is outside 1.5
//!   times its bound for 60 s on end. What is not known says nothing, for or against.
//! - Alike is said of pairs, and does not carry over from pair to pair: a class holds uplinks of which any two are alike. Uplinks are
//!   taken in their order, each into the first class that it fits.
//! - A class is an integer, and [`Alike::components`] gives it to [`crate::symmetry`] in a rate's place, to which links of unequal rate are
//!   never alike. So what may be sprayed is found in one way for fabrics and uplinks.

use alloc::collections::VecDeque;
use alloc::vec;
use alloc::vec::Vec;
use core::fmt;

use weirgate_units::{BitRate, Duration, Instant};

use crate::symmetry::Symmetry;
use crate::topology::{Kind, LinkSettings, Topology};

/// For how long two have to be near each other, or far, before they are taken for that.
pub const DWELL: Duration = Duration::from_secs(60);

/// Round-trip times are within this, where that is more than [`RTT_PERCENT`] of the larger.
const RTT_FLOOR: Duration = Duration::from_millis(2);
const RTT_PERCENT: u64 = 10;
const RATE_PERCENT: u64 = 20;

/// What is measured of an uplink.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Measure {
    /// Its rate.
    pub rate: Option<BitRate>,
    /// Its smallest round-trip time of the last minute.
    pub min_rtt: Option<Duration>,
}

/// Two uplinks that became alike, or are that no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// Their places, the smaller first.
    pub pair: [usize; 2],
    /// Whether they are alike from now on.
    pub is_alike: bool,
    /// Why.
    pub why: Why,
}

/// Why two uplinks are alike, or not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// They have the same medium tag.
    Medium,
    /// What was measured of the two at last, after a minute of the same.
    Measured([Measure; 2]),
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Medium => f.write_str("they are of the same medium"),
            Self::Measured([one, other]) => {
                let rate = |of: &Measure| of.rate.unwrap_or_default();
                let rtt = |of: &Measure| of.min_rtt.unwrap_or_default();
                let (a, b) = (rate(one), rate(other));
                write!(f, "for a minute their rates were like {a} and {b}, their round-trip times like ")?;
                write!(f, "{} and {}", rtt(one), rtt(other))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Pair {
    is_alike: bool,
    /// Since when they are what they are not taken for yet.
    turning: Option<Instant>,
}

/// How near two uplinks are to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nearness {
    /// Within the bounds.
    Near,
    /// Outside them, and not by far enough.
    Between,
    /// Outside 1.5 times the bounds.
    Far,
}

/// The uplinks of a host, by their places.
#[derive(Clone, Debug)]
pub struct Alike {
    mediums: Vec<Option<u32>>,
    measures: Vec<Measure>,
    /// Of `a < b`, at `a * uplinks + b`.
    pairs: Vec<Pair>,
    classes: Vec<u32>,
    changes: VecDeque<Change>,
}

impl Alike {
    /// Uplinks with these medium tags, of which nothing is measured yet.
    pub fn new(mediums: &[Option<u32>]) -> Self {
        let len = mediums.len();
        let mut alike = Self {
            mediums: mediums.to_vec(),
            measures: vec![Measure::default(); len],
            pairs: vec![Pair::default(); len * len],
            classes: vec![0; len],
            changes: VecDeque::new(),
        };
        for [a, b] in alike.all_pairs() {
            if alike.is_same_medium([a, b]) {
                alike.pairs[a * len + b].is_alike = true;
                alike.changes.push_back(Change { pair: [a, b], is_alike: true, why: Why::Medium });
            }
        }
        alike.classify();
        alike
    }

    /// What is measured of an uplink from now on.
    ///
    /// # Panics
    /// Where there is no such uplink.
    pub fn handle_measure(&mut self, now: Instant, at: usize, measure: Measure) {
        self.handle_time(now);
        self.measures[at] = measure;
        self.handle_time(now);
    }

    /// Judges what is due. Steps: the square of the uplinks, and its third power where something changes.
    pub fn handle_time(&mut self, now: Instant) {
        let mut is_changed = false;
        for pair in self.all_pairs() {
            is_changed |= self.judge(now, pair);
        }
        if is_changed {
            self.classify();
        }
        debug_assert!(self.is_valid());
    }

    /// When [`Self::handle_time`] has something to do, if nothing else is measured.
    pub fn poll_at(&self) -> Option<Instant> {
        self.pairs.iter().filter_map(|pair| Some(pair.turning? + DWELL)).min()
    }

    /// What changed, the earliest first; to be asked until there is nothing more.
    pub fn poll_change(&mut self) -> Option<Change> {
        self.changes.pop_front()
    }

    /// Each uplink's class, by its place; numbered from 0 in the order of their first uplinks.
    pub fn classes(&self) -> &[u32] {
        &self.classes
    }

    /// Uplinks over which packets of one flow may go in any order: the symmetric components of a network of two switches with a link for
    /// each uplink, whose rate is its class. By places; those of the most uplinks first.
    pub fn components(&self) -> Vec<Vec<usize>> {
        let mut topology = Topology::new();
        let [here, there] = [0, 1].map(|_| {
            let leaf = topology.add(Kind::Switch { stage: 0 });
            let host = topology.add(Kind::Host);
            let settings = LinkSettings { rate: BitRate::from_bits_per_sec(1), delay: Duration::ZERO };
            let linked = topology.link(host, leaf, settings);
            debug_assert!(linked.is_ok(), "a leaf has room for a host");
            leaf
        });
        for class in &self.classes {
            let rate = BitRate::from_bits_per_sec(u64::from(*class) + 1);
            let linked = topology.link(here, there, LinkSettings { rate, delay: Duration::ZERO });
            debug_assert!(linked.is_ok(), "there are fewer uplinks than ports");
        }
        let components = Symmetry::new(&topology).components(here, there);
        // The host has the first port.
        let places = |ports: &[crate::Port]| ports.iter().map(|port| usize::from(port.0) - 1).collect::<Vec<_>>();
        let mut components: Vec<Vec<usize>> = components.iter().map(|component| places(&component.ports)).collect();
        components.sort_by_key(|places| core::cmp::Reverse(places.len()));
        components
    }

    /// Whether classes hold pairs that are alike and no others, and all of the same medium are alike.
    pub fn is_valid(&self) -> bool {
        let len = self.mediums.len();
        let is_sound = |[a, b]: [usize; 2]| {
            let pair = &self.pairs[a * len + b];
            pair.is_alike || (self.classes[a] != self.classes[b] && !self.is_same_medium([a, b]))
        };
        self.measures.len() == len && self.classes.len() == len && self.all_pairs().into_iter().all(is_sound)
    }

    fn all_pairs(&self) -> Vec<[usize; 2]> {
        let len = self.mediums.len();
        (0..len).flat_map(|a| (a + 1..len).map(move |b| [a, b])).collect()
    }

    fn is_same_medium(&self, [a, b]: [usize; 2]) -> bool {
        self.mediums[a].is_some() && self.mediums[a] == self.mediums[b]
    }

    /// Whether the pair has changed.
    fn judge(&mut self, now: Instant, [a, b]: [usize; 2]) -> bool {
        if self.is_same_medium([a, b]) {
            return false;
        }
        let measures = [self.measures[a], self.measures[b]];
        let nearness = nearness(measures);
        let pair = &mut self.pairs[a * self.mediums.len() + b];
        let turns = nearness == if pair.is_alike { Some(Nearness::Far) } else { Some(Nearness::Near) };
        if !turns {
            pair.turning = None;
            return false;
        }
        let since = *pair.turning.get_or_insert(now);
        if now.saturating_since(since) < DWELL {
            return false;
        }
        *pair = Pair { is_alike: !pair.is_alike, turning: None };
        let change = Change { pair: [a, b], is_alike: pair.is_alike, why: Why::Measured(measures) };
        self.changes.push_back(change);
        true
    }

    fn classify(&mut self) {
        let len = self.mediums.len();
        let mut classes: Vec<Vec<usize>> = Vec::new();
        for at in 0..len {
            let fits = |class: &&mut Vec<usize>| class.iter().all(|other| self.pairs[other * len + at].is_alike);
            match classes.iter_mut().find(fits) {
                Some(class) => class.push(at),
                None => classes.push(vec![at]),
            }
        }
        for (number, class) in classes.iter().enumerate() {
            class.iter().for_each(|at| self.classes[*at] = number as u32);
        }
    }
}

/// `None` where something of the two is not known.
fn nearness([one, other]: [Measure; 2]) -> Option<Nearness> {
    let rates = [one.rate?.as_bits_per_sec(), other.rate?.as_bits_per_sec()];
    let rtts = [one.min_rtt?.as_nanos(), other.min_rtt?.as_nanos()];
    let is_within = |[a, b]: [u64; 2], percent: u64, floor: u64| {
        let bound = u128::from(a.max(b)) * u128::from(percent) / 100;
        u128::from(a.abs_diff(b)) <= bound.max(u128::from(floor))
    };
    let floor = RTT_FLOOR.as_nanos();
    let is_near = is_within(rates, RATE_PERCENT, 0) && is_within(rtts, RTT_PERCENT, floor);
    let is_far = !is_within(rates, RATE_PERCENT * 3 / 2, 0) || !is_within(rtts, RTT_PERCENT * 3 / 2, floor * 3 / 2);
    Some(match (is_near, is_far) {
        (true, _) => Nearness::Near,
        (false, true) => Nearness::Far,
        (false, false) => Nearness::Between,
    })
}

#[cfg(test)]
mod tests;
