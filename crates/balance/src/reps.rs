//! REPS: each packet has an entropy, which switches hash; those whose packets came through unmarked are used again. Read first: Bonato et
//! al., "REPS: recycled entropy packet spraying for adaptive load balancing and failure mitigation" (arXiv 2407.21625).

use weirgate_units::{Duration, Instant};

use crate::Sampler;

/// Entropies that are remembered: the article's 8.
const KEPT: usize = 8;

/// How many different entropies there are: a UDP source port's.
const ENTROPIES: u32 = 1 << 16;

/// The entropies of a connection: 40 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Reps {
    /// A ring of what came through, the latest before `head`.
    kept: [u16; KEPT],
    /// Which of them were not used again yet.
    fresh: u8,
    head: u8,
    /// How many places were ever filled.
    filled: u8,
    /// The next one while frozen.
    turn: u8,
    /// Only what has come through is used, again and again: paths have failed.
    frozen_until: Instant,
    /// First packets, for which there is nothing to recycle.
    explore: u32,
}

impl Reps {
    /// A connection that draws for its first `explore` packets: about a window.
    pub const fn new(explore: u32) -> Self {
        Self { kept: [0; KEPT], fresh: 0, head: 0, filled: 0, turn: 0, frozen_until: Instant::ZERO, explore }
    }

    /// The entropy of the next packet: the oldest that came through and was not used again, else a drawn one; while frozen, what came
    /// through in turn.
    pub fn next(&mut self, now: Instant, sampler: &mut impl Sampler) -> u16 {
        let draw = |sampler: &mut _| Sampler::below(sampler, ENTROPIES) as u16;
        if self.explore > 0 {
            self.explore -= 1;
            return draw(sampler);
        }
        // From the oldest on.
        let places = || (0..KEPT as u8).map(|at| (self.head + at) % KEPT as u8);
        if let Some(at) = places().find(|at| self.fresh >> at & 1 == 1) {
            self.fresh &= !(1 << at);
            return self.kept[usize::from(at)];
        }
        if now < self.frozen_until && self.filled > 0 {
            let at = self.turn % self.filled;
            self.turn = at + 1;
            return self.kept[usize::from(at)];
        }
        draw(sampler)
    }

    /// A packet with this entropy was acknowledged. One that was marked is not used again.
    pub fn handle_ack(&mut self, entropy: u16, is_marked: bool) {
        if is_marked {
            return;
        }
        self.kept[usize::from(self.head)] = entropy;
        self.fresh |= 1 << self.head;
        self.head = (self.head + 1) % KEPT as u8;
        self.filled = (self.filled + 1).min(KEPT as u8);
    }

    /// The connection's timer has run out: for so long, no path is taken but those that work.
    pub fn handle_timeout(&mut self, now: Instant, pause: Duration) {
        if self.filled > 0 && self.explore == 0 {
            self.frozen_until = now + pause;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Told;

    #[test]
    fn what_came_through_unmarked_is_used_once_more() {
        let (mut reps, now) = (Reps::new(2), Instant::ZERO);
        let mut sampler = Told(vec![7, 8, 9]);
        assert_eq!([reps.next(now, &mut sampler), reps.next(now, &mut sampler)], [7, 8]);
        reps.handle_ack(7, false);
        reps.handle_ack(8, true);
        assert_eq!([reps.next(now, &mut sampler), reps.next(now, &mut sampler)], [7, 9]);
    }

    #[test]
    fn the_oldest_first_and_the_newest_eight() {
        let (mut reps, now) = (Reps::new(0), Instant::ZERO);
        (0..11).for_each(|entropy| reps.handle_ack(entropy, false));
        let used: Vec<u16> = (0..8).map(|_| reps.next(now, &mut Told(vec![]))).collect();
        assert_eq!(used, [3, 4, 5, 6, 7, 8, 9, 10]);
    }

    #[test]
    fn after_a_timeout_nothing_is_drawn() {
        let (mut reps, pause) = (Reps::new(0), Duration::from_micros(100));
        reps.handle_ack(4, false);
        reps.handle_ack(5, false);
        reps.handle_timeout(Instant::ZERO, pause);
        let used: Vec<u16> = (0..6).map(|_| reps.next(Instant::ZERO, &mut Told(vec![]))).collect();
        assert_eq!(used, [4, 5, 4, 5, 4, 5]);
        assert_eq!(reps.next(Instant::ZERO + pause, &mut Told(vec![1])), 1);
    }
}
