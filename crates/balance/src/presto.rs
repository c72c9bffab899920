//! Presto: flows are cut into cells of 64 KB, and the cells of a flow take the network's spanning trees in turn. Read first: He et al.,
//! "Presto: edge-based load balancing for fast datacenter networks" (SIGCOMM 2015), section 3.

use alloc::vec::Vec;
use core::fmt;

use weirgate_units::Bytes;

/// What a cell is at most: a TSO super-packet.
pub const CELL: Bytes = Bytes::new(64 << 10);

/// The most turns of a schedule: twice as many as a switch has ports at the most.
const TURNS_MAX: u64 = 131_072;

/// In which order the cells to one destination take the trees that lead there, each as often as its weight says, as evenly spread as can
/// be. Where a link has failed, the trees over it are left out or have less weight.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Schedule {
    turns: Vec<u16>,
}

/// No tree has any weight, or the weights have no schedule of 131,072 turns at most: round them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScheduleError;

impl fmt::Display for ScheduleError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "no tree has weight, or the weights add up to more than {TURNS_MAX} in lowest terms: round them")
    }
}

impl core::error::Error for ScheduleError {}

impl Schedule {
    /// By the weight of each tree.
    ///
    /// # Errors
    /// [`ScheduleError`].
    pub fn new(weights: &[u64]) -> Result<Self, ScheduleError> {
        let gcd = weights.iter().copied().fold(0, gcd).max(1);
        let weights: Vec<u64> = weights.iter().map(|weight| weight / gcd).collect();
        let sum = weights.iter().try_fold(0_u64, |sum, weight| sum.checked_add(*weight)).ok_or(ScheduleError)?;
        if sum == 0 || sum > TURNS_MAX || weights.len() > usize::from(u16::MAX) {
            return Err(ScheduleError);
        }
        // Each turn every tree earns its weight, and the one that has most pays for all.
        let mut earned = alloc::vec![0_i64; weights.len()];
        let turn = |_| {
            earned.iter_mut().zip(&weights).for_each(|(earned, weight)| *earned += *weight as i64);
            let most = (0..earned.len()).rev().max_by_key(|at| earned[*at]).unwrap_or(0);
            earned[most] -= sum as i64;
            most as u16
        };
        Ok(Self { turns: (0..sum).map(turn).collect() })
    }

    /// The trees in their order.
    pub fn turns(&self) -> &[u16] {
        &self.turns
    }
}

/// The greatest common divisor; of a number and 0, the number.
pub const fn gcd(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// Where a flow's sender is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cells {
    /// The turn of the cell that is being filled.
    turn: u64,
    number: u64,
    filled: u64,
}

/// What a packet of a flow carries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell {
    /// The cell's number in its flow, from 0: what comes late is put in order by it.
    pub number: u64,
    /// The tree that it takes.
    pub tree: u16,
}

impl Cells {
    /// A flow that begins with this turn of its schedule: flows should begin with different ones.
    pub const fn new(turn: u64) -> Self {
        Self { turn, number: 0, filled: 0 }
    }

    /// The cell of the flow's next packet, of `size` bytes of payload. A packet is in one cell: that which it would overfill is over.
    pub fn next(&mut self, schedule: &Schedule, size: Bytes) -> Cell {
        let size = size.as_u64();
        if self.filled > 0 && self.filled.saturating_add(size) > CELL.as_u64() {
            (self.turn, self.number, self.filled) = (self.turn.wrapping_add(1), self.number + 1, 0);
        }
        self.filled = self.filled.saturating_add(size);
        let turns = &schedule.turns;
        Cell { number: self.number, tree: turns[(self.turn % turns.len() as u64) as usize] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn cells_of_64_kb_take_the_trees_in_turn() {
        let schedule = Schedule::new(&[10, 10, 10]).unwrap();
        assert_eq!(schedule.turns(), [0, 1, 2]);
        let mut cells = Cells::new(1);
        let packets: Vec<Cell> = (0..100).map(|_| cells.next(&schedule, Bytes::new(1_460))).collect();
        // 44 packets of 1,460 B fill a cell.
        let of = |number, tree| Cell { number, tree };
        assert_eq!(
            [packets[0], packets[43], packets[44], packets[87], packets[88]],
            [of(0, 1), of(0, 1), of(1, 2), of(1, 2), of(2, 0)]
        );
    }

    #[test]
    fn weights_are_turns() {
        assert_eq!(Schedule::new(&[40, 0, 80]).unwrap().turns(), [2, 0, 2]);
        assert_eq!(Schedule::new(&[0, 0]), Err(ScheduleError));
        assert_eq!(Schedule::new(&[131_072, 1]), Err(ScheduleError));
        assert_eq!(Schedule::new(&[u64::MAX, u64::MAX]).unwrap().turns(), [0, 1]);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// In all turns each tree has its weight, and in any first part of them what that would be but for less than one.
        #[test]
        fn trees_are_spread_evenly(weights in prop::collection::vec(0_u64..40, 1..8)) {
            prop_assume!(weights.iter().sum::<u64>() > 0);
            let schedule = Schedule::new(&weights).unwrap();
            let sum: u64 = weights.iter().sum();
            let mut had = vec![0_u64; weights.len()];
            for (turn, tree) in schedule.turns().iter().enumerate() {
                had[usize::from(*tree)] += 1;
                for (had, weight) in had.iter().zip(&weights) {
                    let due = (turn as u64 + 1) * weight;
                    prop_assert!((had * sum).abs_diff(due) < sum * weights.len() as u64);
                }
            }
            let all = schedule.turns().len() as u64;
            prop_assert!(had.iter().zip(&weights).all(|(had, weight)| had * sum == weight * all));
        }
    }
}
