//! Balancers without a state to speak of: by flow (ECMP, WCMP), by packet at random, in turn, or to the shortest queue of all.

use crate::{Depths, FlowHash, Port, Sampler};

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

/// Each packet to the shortest queue of all, of equals to any (JSQ). Switches that route adaptively know a queue's length in steps of
/// `quantum` bytes; with 1 it is exact. Steps: the group.
///
/// # Panics
/// Where the group is empty, or `quantum` is 0.
pub fn shortest(group: &[Port], quantum: u64, depths: &impl Depths, sampler: &mut impl Sampler) -> Port {
    let candidates = group.iter().map(|port| (depths.depth(*port) / quantum, *port));
    least(candidates, None, sampler).expect("a group of next hops has one at least")
}

/// The candidate of the least load; of several, `kept` where it is one of them, else any, each with the same chance.
pub(crate) fn least<L: Ord>(
    candidates: impl Iterator<Item = (L, Port)>,
    kept: Option<Port>,
    sampler: &mut impl Sampler,
) -> Option<Port> {
    let mut found: Option<(L, Port)> = None;
    let mut ties = 1;
    for (load, port) in candidates {
        match &mut found {
            Some((least, _)) if load > *least => {}
            Some((least, had)) if load == *least => {
                ties += 1;
                // Each of them with the same chance, in one pass.
                let stays = kept == Some(*had);
                if kept == Some(port) || (!stays && sampler.below(ties) == 0) {
                    *had = port;
                }
            }
            _ => (found, ties) = (Some((load, port)), 1),
        }
    }
    found.map(|(_, port)| port)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::FiveTuple;
    use crate::testing::Pcg;

    fn group(ports: u16) -> Vec<Port> {
        (0..ports).map(Port).collect()
    }

    /// The hashes of so many flows.
    fn flows(flows: u16) -> impl Iterator<Item = FlowHash> {
        let flow = |port| FiveTuple {
            source: [10, 0, 0, 1].into(),
            destination: [10, 0, 1, 1].into(),
            protocol: 6,
            source_port: port,
            destination_port: 80,
        };
        (0..flows).map(move |port| FlowHash::new(&flow(port), 1))
    }

    /// How many of each of `places`, by its place.
    fn count(places: usize, of: impl Iterator<Item = usize>) -> Vec<u32> {
        let mut counts = vec![0; places];
        of.for_each(|at| counts[at] += 1);
        counts
    }

    #[test]
    fn a_flow_keeps_its_port_and_ports_have_equal_shares() {
        let (group, ecmp) = (group(16), Ecmp { seed: 3 });
        let pick = |flow| usize::from(ecmp.pick(&group, flow).0);
        assert!(flows(100).all(|flow| pick(flow) == pick(flow)));
        let counts = count(16, flows(16_000).map(pick));
        assert!(counts.iter().all(|count| (850..1_150).contains(count)), "{counts:?}");
    }

    /// With one seed for all, flows that a switch sends one way would all be sent one way by the next one as well.
    #[test]
    fn switches_with_seeds_of_their_own_do_not_polarise() {
        let group = group(8);
        let first = Ecmp { seed: 1 };
        let same_way: Vec<_> = flows(16_000).filter(|flow| first.pick(&group, *flow) == Port(0)).collect();
        let used = |second: Ecmp| {
            let counts = count(8, same_way.iter().map(|flow| usize::from(second.pick(&group, *flow).0)));
            counts.iter().filter(|count| **count > same_way.len() as u32 / 16).count()
        };
        assert_eq!([used(first), used(Ecmp { seed: 2 })], [1, 8]);
    }

    #[test]
    fn weights_are_shares_of_the_flows() {
        let wcmp = Wcmp { seed: 3 };
        let counts = count(3, flows(40_000).map(|flow| wcmp.pick(&[1, 0, 3], flow)));
        assert!(counts[1] == 0 && (9_500..10_500).contains(&counts[0]), "{counts:?}");
    }

    #[test]
    fn the_shortest_queue_is_taken_and_of_equals_any() {
        let (group, mut sampler) = (group(4), Pcg::new(1));
        let depths = |port: Port| [900, 120, 100, 180][usize::from(port.0)];
        assert_eq!(shortest(&group, 1, &depths, &mut sampler), Port(2));
        let counts = count(4, (0..3_000).map(|_| usize::from(shortest(&group, 100, &depths, &mut sampler).0)));
        assert!(counts[0] == 0 && counts[1..].iter().all(|count| (900..1_100).contains(count)), "{counts:?}");
    }

    #[test]
    fn turns_are_taken_though_the_group_shrinks() {
        let (group, mut turns) = (group(3), RoundRobin::default());
        let picks: Vec<u16> = (0..4).map(|_| turns.pick(&group).0).collect();
        assert_eq!(picks, [0, 1, 2, 0]);
        assert_eq!([turns.pick(&group[..1]), turns.pick(&group[..1])], [Port(0); 2]);
    }
}
