//! Which uplink the next flows of a pool are for.

use weirgate_balance::{Share, Weighted};

use crate::uplink::health::State;
use crate::uplink::{Kind, Place};

/// Flows that have a place before the daemon looks again; after them the order begins anew.
pub(super) const SLOTS: usize = 128;

/// An uplink that lacks more flows than this does not have all the next ones: most of those that others have may be idle.
const LACKS_MAX: u64 = 32;

/// An order does as long as what began and ended since it was made is less than this part of all flows.
const SLACK: u64 = 64;

/// An uplink, as far as an order goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Candidate {
    /// How it stands for each family.
    pub(super) states: [State; 2],
    pub(super) is_backup: bool,
    pub(super) is_drained: bool,
    pub(super) weight: u64,
    /// Flows that it carries, by kind.
    pub(super) flows: [u32; 4],
}

impl Candidate {
    /// Of those with the lowest number the new flows are for all; `None`: none are for it.
    fn rank(&self, kind: Kind) -> Option<u8> {
        let rank = match self.states[kind.family as usize] {
            State::Up => 0,
            State::Suspect => 2,
            // Better than nothing: it answers.
            State::Returning => 4,
            State::Silent | State::Down => return None,
        };
        (!self.is_drained).then_some(rank + u8::from(self.is_backup))
    }
}

/// Which of a pool's uplinks new flows of a kind are for now.
pub(super) fn usable(candidates: &[Candidate], pool: &[Place], kind: Kind) -> Vec<Place> {
    let ranked = || pool.iter().filter_map(|place| Some((candidates[*place].rank(kind)?, *place)));
    let best = ranked().map(|(rank, _)| rank).min();
    ranked().filter(|(rank, _)| Some(*rank) == best).map(|(_, place)| place).collect()
}

/// An order, and the flows that there were when it was made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Turns {
    pub(super) order: Vec<Place>,
    usable: Vec<Place>,
    weights: Vec<u64>,
    flows: Vec<u32>,
}

impl Turns {
    /// That of these uplinks with the flows that they have now.
    pub(super) fn new(candidates: &[Candidate], pool: &[Place], kind: Kind) -> Self {
        let usable = usable(candidates, pool, kind);
        let of = |place: &Place| candidates[*place];
        let shares: Vec<Share> = usable
            .iter()
            .map(|place| Share { weight: of(place).weight, is_usable: true, flows: of(place).flows[kind.index()] })
            .collect();
        let order = Weighted::new(&bounded(&shares)).take(SLOTS).map(|at| usable[at]).collect();
        let weights = shares.iter().map(|share| share.weight).collect();
        let flows = shares.iter().map(|share| share.flows).collect();
        Self { order, usable, weights, flows }
    }

    /// Whether what is in force is as good as `fresh`: the same uplinks and weights, and since it was made nothing happened but that flows
    /// began, as many as it has a place for, which went where it says.
    pub(super) fn does_for(&self, fresh: &Self) -> bool {
        if self.usable != fresh.usable || self.weights != fresh.weights {
            return false;
        }
        let begun: u64 = fresh.flows.iter().map(|flows| u64::from(*flows)).sum();
        let before: u64 = self.flows.iter().map(|flows| u64::from(*flows)).sum();
        let slack = before / SLACK;
        let new = begun.saturating_sub(before);
        if new > SLOTS as u64 / 2 || before.saturating_sub(begun) > slack {
            return false;
        }
        let mut foretold = self.flows.clone();
        for place in self.order.iter().take(new as usize) {
            if let Some(at) = self.usable.iter().position(|usable| usable == place) {
                foretold[at] += 1;
            }
        }
        let is_near =
            |(one, other): (&u32, &u32)| u64::from(one.abs_diff(*other)) <= slack && (*one == 0) == (*other == 0);
        foretold.iter().zip(&fresh.flows).all(is_near)
    }
}

/// The same shares, of which none lacks more than [`LACKS_MAX`] flows.
fn bounded(shares: &[Share]) -> Vec<Share> {
    let (all, weights) = shares
        .iter()
        .fold((0, 0), |(flows, weights), share| (flows + u64::from(share.flows), weights + u128::from(share.weight)));
    let lifted = |share: &Share| {
        let due = (u128::from(all) * u128::from(share.weight)).checked_div(weights).unwrap_or(0) as u64;
        let least = due.saturating_sub(LACKS_MAX).min(u64::from(u32::MAX)) as u32;
        Share { flows: share.flows.max(least), ..*share }
    };
    shares.iter().map(lifted).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TCP: Kind = Kind::ALL[0];

    fn up(weight: u64, flows: u32) -> Candidate {
        Candidate { states: [State::Up, State::Down], is_backup: false, is_drained: false, weight, flows: [flows; 4] }
    }

    #[test]
    fn backups_and_doubtful_ones_are_for_when_nothing_better_works() {
        let backup = Candidate { is_backup: true, ..up(1, 0) };
        let of = |state, other: Candidate| Candidate { states: [state, State::Down], ..other };
        let mut all = [up(1, 0), up(1, 0), backup];
        let usable_now = |all: &[Candidate]| usable(all, &[0, 1, 2], TCP);
        assert_eq!(usable_now(&all), [0, 1]);
        all[0] = of(State::Suspect, all[0]);
        assert_eq!(usable_now(&all), [1]);
        all[1].is_drained = true;
        assert_eq!(usable_now(&all), [2], "who works, before who may not");
        all[2] = of(State::Silent, all[2]);
        assert_eq!(usable_now(&all), [0]);
        all[0] = of(State::Down, all[0]);
        assert_eq!(usable_now(&all), [0; 0]);
        all[2] = of(State::Returning, all[2]);
        assert_eq!(usable_now(&all), [2]);
        assert_eq!(usable(&all, &[0, 1], TCP), [0; 0], "not of this pool");
        assert_eq!(usable(&all, &[0, 1, 2], Kind::ALL[2]), [0; 0], "no way for IPv6");
    }

    #[test]
    fn an_order_does_as_long_as_flows_begin_where_it_says() {
        let mut all = [up(20, 0), up(50, 0), up(5, 0)];
        let pool = [0, 1, 2];
        let turns = Turns::new(&all, &pool, TCP);
        assert_eq!((turns.order.len(), &turns.order[..3]), (SLOTS, &[1, 0, 2][..]));
        for place in &turns.order[..SLOTS / 2] {
            all[*place].flows[0] += 1;
            assert!(turns.does_for(&Turns::new(&all, &pool, TCP)));
        }
        all[turns.order[SLOTS / 2]].flows[0] += 1;
        assert!(!turns.does_for(&Turns::new(&all, &pool, TCP)), "it would begin anew soon");
        let changes: [fn(&mut [Candidate; 3]); 3] =
            [|all| all[1].weight = 40, |all| all[0].states[0] = State::Suspect, |all| all[0].flows[0] = 3];
        for change in changes {
            let mut other = [up(20, 0), up(50, 0), up(5, 0)];
            change(&mut other);
            assert!(!turns.does_for(&Turns::new(&other, &pool, TCP)));
        }
        let mut ended = [up(20, 3), up(50, 7), up(5, 1)];
        let turns = Turns::new(&ended, &pool, TCP);
        ended[1].flows[0] = 6;
        assert!(!turns.does_for(&Turns::new(&ended, &pool, TCP)));
    }
}
