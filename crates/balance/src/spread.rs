//! Balancers that look at no queue: by flow (ECMP, WCMP), by packet at random, by packet in turn.

use crate::{FlowHash, Port, Sampler};

/// Equal-cost multipath: all packets of a flow by one port. RFC 2992, with the hash scaled to the group's size instead of regions kept
/// in a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ecmp {
    /// The switch's own; see [`FlowHash::at`].
    pub seed: u64,
}

impl Ecmp {
    /// The flow's port.
    ///
    /// # Panics
    /// Where the group is empty.
    pub const fn pick(self, group: &[Port], flow: FlowHash) -> Port {
        group[flow.at(self.seed).below(group.len() as u32) as usize]
    }
}

/// Weighted-cost multipath: as [`Ecmp`], each port with a share of the flows by its weight. Read first: Zhou et al., "WCMP: Weighted Cost
/// Multipathing for Improved Fairness in Data Centers" (EuroSys 2014).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wcmp {
    /// The switch's own; see [`FlowHash::at`].
    pub seed: u64,
}

impl Wcmp {
    /// The place in the group, and so the port, of a flow; `weights` are of its places. Steps: the places.
    ///
    /// # Panics
    /// Where all weights are 0, or they sum up to 2^32 or more.
    pub fn pick(self, weights: &[u32], flow: FlowHash) -> usize {
        let sum = weights.iter().fold(0_u32, |sum, weight| sum.checked_add(*weight).expect("weights fit in 32 bits"));
        assert!(sum > 0, "one weight at least is not 0");
        let mut at = flow.at(self.seed).below(sum);
        let mut place = 0;
        while at >= weights[place] {
            at -= weights[place];
            place += 1;
        }
        place
    }
}

/// Each packet by any port: random packet spraying.
///
/// # Panics
/// Where the group is empty.
pub fn random(group: &[Port], sampler: &mut impl Sampler) -> Port {
    group[sampler.below(group.len() as u32) as usize]
}

/// Each packet by the port after the last one's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RoundRobin {
    next: usize,
}

impl RoundRobin {
    /// The next port.
    ///
    /// # Panics
    /// Where the group is empty.
    pub const fn pick(&mut self, group: &[Port]) -> Port {
        let at = if self.next < group.len() { self.next } else { 0 };
        self.next = at + 1;
        group[at]
    }
}
