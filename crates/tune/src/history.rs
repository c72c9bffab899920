//! The last rounds of one network as bits: known or not, in each rule's group or not. Bit 0 is the newest round.
//!
//! Shifted only when touched, so that a round costs nothing for a network that is not heard of.

use crate::config::{RULES_MAX, WINDOW_MAX};

/// A sliding window of at most [`WINDOW_MAX`] rounds; 72 bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct History {
    /// In halves, so that the type's alignment is that of a `u64` and its owner has no holes.
    known: [u64; 2],
    member: [[u64; 2]; RULES_MAX],
    /// The round of bit 0.
    round: u32,
}

/// What a window says of one rule.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(crate) struct Span {
    /// Known rounds in the window.
    pub(crate) known: u32,
    /// Share of them in the group, 0 where none is known.
    pub(crate) duty: f64,
    /// Changes between consecutive known rounds, over the number of such pairs.
    pub(crate) flaps: f64,
}

impl History {
    /// Notes a known round: bit i of `groups` says whether the network was in rule i's group. Rounds come in ascending
    /// order; one that is not newer than the last is ignored.
    pub(crate) fn push(&mut self, round: u32, groups: u8) {
        if round <= self.round && !self.is_empty() {
            return;
        }
        let by = round.saturating_sub(self.round);
        let shifted = |bits: [u64; 2], bit: bool| split(join(bits).checked_shl(by).unwrap_or(0) | u128::from(bit));
        self.known = shifted(self.known, true);
        for (i, member) in self.member.iter_mut().enumerate() {
            *member = shifted(*member, groups >> i & 1 == 1);
        }
        self.round = round;
    }

    /// What the `window` rounds up to and including `now` say of `rule`. O(1): a handful of bit counts and at most
    /// [`WINDOW_MAX`] steps where rounds are unknown.
    pub(crate) fn span(&self, rule: usize, now: u32, window: u32) -> Span {
        let (known, member) = self.window(rule, now, window);
        let n = known.count_ones();
        if n == 0 {
            return Span::default();
        }
        let (known, member) = squeeze(known, member);
        let pairs = known >> 1;
        let flaps = ((member ^ (member >> 1)) & pairs).count_ones();
        Span {
            known: n,
            duty: f64::from(member.count_ones()) / f64::from(n),
            flaps: if n > 1 { f64::from(flaps) / f64::from(n - 1) } else { 0.0 },
        }
    }

    /// Known rounds among the `window` up to `now`.
    pub(crate) fn known(&self, now: u32, window: u32) -> u32 {
        self.window(0, now, window).0.count_ones()
    }

    /// Whether `round` is known, and bit i: whether the network was in rule i's group.
    pub(crate) fn at(&self, round: u32) -> (bool, u8) {
        let Some(back) = self.round.checked_sub(round).filter(|b| *b < WINDOW_MAX) else { return (false, 0) };
        let bit = |bits: [u64; 2]| join(bits) >> back & 1 == 1;
        let groups = self.member.iter().enumerate().fold(0, |g, (i, m)| g | u8::from(bit(*m)) << i);
        (bit(self.known), groups)
    }

    /// The parts that are stored: known, members, round.
    pub(crate) fn parts(&self) -> ([u64; 2], [[u64; 2]; RULES_MAX], u32) {
        (self.known, self.member, self.round)
    }

    /// From stored parts; members that are not known are dropped.
    pub(crate) fn from_parts(known: [u64; 2], member: [[u64; 2]; RULES_MAX], round: u32) -> Self {
        Self { known, member: member.map(|m| [m[0] & known[0], m[1] & known[1]]), round }
    }

    /// No member bit without its known bit.
    pub(crate) fn is_valid(&self) -> bool {
        self.member.iter().all(|m| m[0] & !self.known[0] == 0 && m[1] & !self.known[1] == 0)
    }

    fn is_empty(&self) -> bool {
        self.known == [0; 2]
    }

    fn window(&self, rule: usize, now: u32, window: u32) -> (u128, u128) {
        // Bits newer than `now` do not exist; the window loses what lies between `round` and `now`.
        let kept = window.min(WINDOW_MAX).saturating_sub(now.saturating_sub(self.round));
        let mask = if kept >= 128 { u128::MAX } else { (1 << kept) - 1 };
        (join(self.known) & mask, join(self.member[rule]) & mask)
    }
}

/// Closes the gaps of unknown rounds, so that neighbours are consecutive known rounds.
fn squeeze(known: u128, member: u128) -> (u128, u128) {
    let n = known.count_ones();
    if known.trailing_ones() >= n {
        return (known, member);
    }
    let (mut rest, mut out) = (known, 0);
    for to in 0..n {
        out |= (member >> rest.trailing_zeros() & 1) << to;
        rest &= rest - 1;
    }
    (if n >= 128 { u128::MAX } else { (1 << n) - 1 }, out)
}

const fn join(bits: [u64; 2]) -> u128 {
    bits[0] as u128 | (bits[1] as u128) << 64
}

const fn split(bits: u128) -> [u64; 2] {
    [bits as u64, (bits >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn duty_and_flaps_of_a_row_of_rounds() {
        let mut h = History::default();
        // 1 1 0 1, two unknown rounds, 1 0
        for (round, member) in [(10, 1), (11, 1), (12, 0), (13, 1), (16, 1), (17, 0)] {
            h.push(round, member);
        }
        let span = h.span(0, 17, 48);
        assert_eq!((span.known, span.duty, span.flaps), (6, 4.0 / 6.0, 3.0 / 5.0));
        assert_eq!(h.at(12), (true, 0));
        assert_eq!(h.at(14), (false, 0));
        assert_eq!(h.span(0, 17, 2).duty, 0.5);
        assert_eq!(h.known(22, 8), 2, "five rounds later only 16 and 17 remain of eight");
        assert_eq!(h.span(0, 2_000, 48), Span::default());
    }

    proptest! {
        /// The bits against a plain list of rounds.
        #[test]
        fn agrees_with_a_list(rounds in prop::collection::vec((1u32..6, 0u8..8), 1..200), window in 1u32..=128) {
            let (mut h, mut list, mut now) = (History::default(), Vec::new(), 0);
            for (gap, groups) in rounds {
                now += gap;
                h.push(now, groups);
                list.push((now, groups));
                prop_assert!(h.is_valid());
            }
            for later in [0, 3, 130] {
                let end = now + later;
                for rule in 0..RULES_MAX {
                    let kept: Vec<bool> =
                        list.iter().filter(|(r, _)| end - r < window).map(|(_, g)| g >> rule & 1 == 1).collect();
                    let span = h.span(rule, end, window);
                    prop_assert_eq!(span.known as usize, kept.len());
                    if kept.len() > 1 {
                        let members = kept.iter().filter(|m| **m).count() as f64;
                        let flaps = kept.windows(2).filter(|p| p[0] != p[1]).count() as f64;
                        prop_assert_eq!(span.duty, members / kept.len() as f64);
                        prop_assert_eq!(span.flaps, flaps / (kept.len() as f64 - 1.0));
                    }
                }
            }
        }
    }
}
