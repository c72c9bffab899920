//! Which of several unequal uplinks takes the next flow: a smooth weighted deficit. Read first: Balinski and Young, "The Quota Method of
//! Apportionment" (American Mathematical Monthly 82, 1975).
//!
//! Ground rules:
//!
//! - An uplink that has no flow comes first, the one of the highest weight of those: as many flows as uplinks, and each has one.
//! - Then an uplink may have a flow only while it has less than its share of all flows, the next one included, and of those that may, the
//!   one whose flows would be the least for its weight has it. Without the first half of that (D'Hondt's method) the highest weight would
//!   have more than its share; without the second (the largest deficit, which "smooth weighted round robin" is) the bound below it is worse.
//! - Who is counted and who is not is the caller's: flows that last, most often. Chance has no part.
//!
//! The bound: while no flow ends, an uplink has less than one flow more than its share, or one flow; and so it lacks less than one for each
//! other uplink. Whatever flows ended, one with more than its share gets none until it has less.

use alloc::vec::Vec;

/// An uplink, as far as its share of the flows goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Share {
    /// Its weight, in bit/s or whatever all have theirs in; 0 counts as 1.
    pub weight: u64,
    /// Whether it may take flows. One that may not has no share, and its flows are nobody's deficit.
    pub is_usable: bool,
    /// Flows that it carries now.
    pub flows: u32,
}

/// Hands out flows one after the other: an iterator over places among the shares, without an end unless none is usable.
#[derive(Clone, Debug)]
pub struct Weighted {
    shares: Vec<Share>,
    weights: u128,
    flows: u64,
}

impl Weighted {
    /// Of these uplinks, with the flows that they carry.
    pub fn new(shares: &[Share]) -> Self {
        let shares: Vec<Share> = shares.iter().map(|share| Share { weight: share.weight.max(1), ..*share }).collect();
        let usable = || shares.iter().filter(|share| share.is_usable);
        let weights = usable().map(|share| u128::from(share.weight)).sum();
        let flows = usable().map(|share| u64::from(share.flows)).sum();
        Self { shares, weights, flows }
    }

    /// The uplinks, with the flows that they carry and those that were handed out.
    pub fn shares(&self) -> &[Share] {
        &self.shares
    }

    /// Whether the sums are those of the shares.
    pub fn is_valid(&self) -> bool {
        let usable = || self.shares.iter().filter(|share| share.is_usable);
        self.weights == usable().map(|share| u128::from(share.weight)).sum::<u128>()
            && self.flows == usable().map(|share| u64::from(share.flows)).sum::<u64>()
            && self.shares.iter().all(|share| share.weight > 0)
    }

    /// The place of the uplink that the next flow is for; nothing is handed out.
    fn pick(&self) -> Option<usize> {
        let usable = || self.shares.iter().enumerate().filter(|(_, share)| share.is_usable);
        let idle = usable().filter(|(_, share)| share.flows == 0);
        // Of equals the first: `max_by` would take the last.
        if let Some((at, _)) = idle.rev().max_by_key(|(_, share)| share.weight) {
            return Some(at);
        }
        let next = u128::from(self.flows) + 1;
        let lacks = |share: &Share| u128::from(share.flows) * self.weights < u128::from(share.weight) * next;
        // Flows after this one, for the weight, compared across.
        let order = |one: &Share, other: &Share| {
            let cross = |flows: u32, weight: u64| (u128::from(flows) + 1) * u128::from(weight);
            cross(one.flows, other.weight).cmp(&cross(other.flows, one.weight))
        };
        usable().filter(|(_, share)| lacks(share)).min_by(|(_, one), (_, other)| order(one, other)).map(|(at, _)| at)
    }
}

impl Iterator for Weighted {
    type Item = usize;

    /// The place of the uplink that the next flow is for, which then counts as one of its flows. Steps: the uplinks. Allocates nothing.
    fn next(&mut self) -> Option<usize> {
        let at = self.pick()?;
        let share = &mut self.shares[at];
        share.flows = share.flows.saturating_add(1);
        self.flows += 1;
        debug_assert!(self.is_valid());
        Some(at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shares(weights: &[u64]) -> Vec<Share> {
        weights.iter().map(|weight| Share { weight: *weight, is_usable: true, flows: 0 }).collect()
    }

    #[test]
    fn the_articles_uplinks_in_turn() {
        let order: Vec<usize> = Weighted::new(&shares(&[20, 50, 5])).take(20).collect();
        assert_eq!(order[..3], [1, 0, 2], "each has one, the fastest first");
        let counts = [0, 1, 2].map(|at| order.iter().filter(|one| **one == at).count());
        // Of 5.3, 13.3 and 1.3.
        assert_eq!(counts, [5, 14, 1], "{order:?}");
        // Never the same one for long, though it is two thirds of all.
        assert!(order.windows(5).all(|five| five.iter().any(|at| *at != five[0])), "{order:?}");
    }

    #[test]
    fn who_has_too_many_waits_and_who_is_unusable_has_none() {
        let mut uneven = shares(&[1, 1, 1]);
        (uneven[0].flows, uneven[1].flows, uneven[2].is_usable) = (4, 1, false);
        assert_eq!(Weighted::new(&uneven).take(5).collect::<Vec<_>>(), [1, 1, 1, 0, 1]);
        uneven.iter_mut().for_each(|share| share.is_usable = false);
        assert_eq!(Weighted::new(&uneven).next(), None);
        assert_eq!(Weighted::new(&[]).next(), None);
    }

    #[test]
    fn extreme_numbers_do_no_harm() {
        let share = |weight, flows| Share { weight, is_usable: true, flows };
        let mut one = Weighted::new(&[share(u64::MAX, u32::MAX), share(0, u32::MAX), share(u64::MAX, 7)]);
        assert_eq!(one.by_ref().take(3).collect::<Vec<_>>(), [2, 2, 2]);
        assert!(one.is_valid());
    }

    fn weights() -> impl Strategy<Value = Vec<u64>> {
        proptest::collection::vec(1_u64..1_000_000_000, 1..12)
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn every_uplink_has_a_flow_and_its_share(weights in weights(), flows in 1_usize..400) {
            let mut turns = Weighted::new(&shares(&weights));
            for _ in 0..flows {
                turns.next().unwrap();
                let served = turns.shares().iter().filter(|share| share.flows > 0).count();
                prop_assert_eq!(served, weights.len().min(turns.flows as usize));
            }
            for share in turns.shares() {
                let due = share.weight as f64 / turns.weights as f64 * flows as f64;
                let has = f64::from(share.flows);
                prop_assert!(has <= 1.0 || has < due + 1.0 + 1e-6, "{has} of {due}");
                prop_assert!(has > due - weights.len().max(2) as f64 + 1.0 - 1e-6, "{has} of {due}");
            }
        }

        /// Where nobody's first flow is more than its share, nobody is a whole flow off.
        #[test]
        fn equal_weights_take_turns(uplinks in 1_usize..12, flows in 1_usize..400) {
            let turns: Vec<usize> = Weighted::new(&shares(&vec![7; uplinks])).take(flows).collect();
            prop_assert!(turns.iter().enumerate().all(|(at, turn)| *turn == at % uplinks), "{turns:?}");
        }

        /// The uplinks carry any flows, which end at any time; who has more than its share gets none.
        #[test]
        fn the_order_depends_on_the_flows_alone(
            weights in weights(), carried in proptest::collection::vec(0_u32..50, 12), flows in 1_usize..100
        ) {
            let mut uplinks = shares(&weights);
            uplinks.iter_mut().zip(&carried).for_each(|(share, flows)| share.flows = *flows);
            let mut turns = Weighted::new(&uplinks);
            let whole: Vec<usize> = turns.clone().take(flows).collect();
            for at in whole {
                let fresh = Weighted::new(turns.shares()).next();
                prop_assert_eq!(fresh, Some(at));
                let share = turns.shares()[at];
                let due = share.weight as f64 / turns.weights as f64 * (turns.flows + 1) as f64;
                prop_assert!(share.flows == 0 || f64::from(share.flows) < due + 1e-6);
                turns.next();
            }
        }
    }
}
