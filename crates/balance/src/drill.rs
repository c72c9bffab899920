//! DRILL: each packet to the least loaded of a few ports, drawn and remembered. Read first: Ghorbani, Yang, Godfrey, Ganjali, Firoozshahian,
//! "DRILL: Micro Load Balancing for Low-latency Data Center Networks" (SIGCOMM 2017), section 3.2.
//!
//! Ground rules. An engine decides alone: its memory is its own, one for each group of next hops, and nothing is shared but the depths
//! that it reads. Of `n` ports `d` distinct ones are drawn, and the `m` remembered ones are looked at again, at the depths that they
//! have now; a port can be both. The least loaded is taken, on a tie the one drawn first, and a drawn one before a remembered one. The
//! `m` least loaded of all that were looked at are remembered, the winner among them.
//!
//! Without memory (`m = 0`) the queues of unequal ports can grow without bound though there is room for all (Theorem 1 of the article);
//! with it they cannot.

mod engine;
mod per_flow;

use crate::{Depths, Port, Sampler};

pub use engine::Engine;
pub use per_flow::DrillPerFlow;

/// The most ports that can be drawn, and remembered, for one packet.
pub const LOOKS_MAX: usize = 32;

/// How many ports are looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Looks {
    d: u8,
    m: u8,
    rule: Rule,
}

/// What the article leaves open, and what else it could have meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Rule {
    /// Distinct ports are drawn, and on a tie a drawn one is taken before a remembered one.
    #[default]
    Drawn,
    /// On a tie a remembered port is taken before a drawn one.
    Remembered,
    /// A port can be drawn more than once: each draw is of all ports.
    Replacement,
}

/// It cannot be drawn or remembered so much, or nothing would be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LooksError;

impl core::fmt::Display for LooksError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "DRILL(d,m) needs d of 1 to {LOOKS_MAX} and m of 0 to {LOOKS_MAX}")
    }
}

impl core::error::Error for LooksError {}

impl Looks {
    /// DRILL(2,1), which the article recommends.
    pub const RECOMMENDED: Self = Self { d: 2, m: 1, rule: Rule::Drawn };

    /// `d` ports are drawn, `m` remembered.
    ///
    /// # Errors
    /// Where `d` is 0, or one of them is above [`LOOKS_MAX`].
    pub const fn new(d: usize, m: usize) -> Result<Self, LooksError> {
        if d == 0 || d > LOOKS_MAX || m > LOOKS_MAX {
            return Err(LooksError);
        }
        Ok(Self { d: d as u8, m: m as u8, rule: Rule::Drawn })
    }

    /// As many, by another rule.
    #[must_use]
    pub const fn with(self, rule: Rule) -> Self {
        Self { rule, ..self }
    }

    /// Ports drawn.
    pub const fn d(self) -> usize {
        self.d as usize
    }

    /// Ports remembered.
    pub const fn m(self) -> usize {
        self.m as usize
    }

    /// How they are drawn, and who is taken on a tie.
    pub const fn rule(self) -> Rule {
        self.rule
    }
}

/// What one engine remembers of one group of next hops. How many lies beside the first one, mostly in one cache line.
#[derive(Clone, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Memory {
    len: u8,
    /// Places in the group, the least loaded first.
    places: [u16; LOOKS_MAX],
}

impl Default for Memory {
    fn default() -> Self {
        Self { places: [0; LOOKS_MAX], len: 0 }
    }
}

impl Memory {
    /// What is remembered, the least loaded first, as places in the group.
    pub fn places(&self) -> &[u16] {
        &self.places[..usize::from(self.len)]
    }

    /// Forgets everything: where the group has changed, places name other ports.
    pub const fn clear(&mut self) {
        self.len = 0;
    }

    /// The port of `group` for the next packet. Allocates nothing; steps: `d` and `m`, squared where they are many.
    ///
    /// # Panics
    /// Where the group is empty.
    pub fn pick(&mut self, looks: Looks, group: &[Port], depths: &impl Depths, sampler: &mut impl Sampler) -> Port {
        // As much room as is needed: clearing it would be most of the work.
        match looks.m {
            0 | 1 => self.pick_in::<1>(looks, group, depths, sampler),
            2..=4 => self.pick_in::<4>(looks, group, depths, sampler),
            _ => self.pick_in::<LOOKS_MAX>(looks, group, depths, sampler),
        }
    }

    fn pick_in<const KEPT: usize>(
        &mut self,
        looks: Looks,
        group: &[Port],
        depths: &impl Depths,
        sampler: &mut impl Sampler,
    ) -> Port {
        assert!(!group.is_empty(), "a group of next hops has one at least");
        let mut least = Least { looks: [(0, 0); KEPT], len: 0 };
        if looks.rule == Rule::Remembered {
            self.remember(&mut least, group, depths);
        }
        let d = looks.d().min(group.len());
        let mut drawn = [0_u16; LOOKS_MAX];
        for at in 0..d {
            if looks.rule == Rule::Replacement {
                let place = sampler.below(group.len() as u32) as u16;
                least.insert(place, depths.depth(group[usize::from(place)]));
                continue;
            }
            // The k-th of those that were not drawn yet: distinct without a second try.
            let mut place = sampler.below((group.len() - at) as u32) as u16;
            let mut sorted = 0;
            while sorted < at && drawn[sorted] <= place {
                place += 1;
                sorted += 1;
            }
            drawn.copy_within(sorted..at, sorted + 1);
            drawn[sorted] = place;
            least.insert(place, depths.depth(group[usize::from(place)]));
        }
        if looks.rule != Rule::Remembered {
            self.remember(&mut least, group, depths);
        }
        self.len = looks.m.min(least.len as u8);
        for (kept, (place, _)) in self.places[..usize::from(self.len)].iter_mut().zip(&least.looks) {
            *kept = *place;
        }
        group[usize::from(least.looks[0].0)]
    }

    /// Looks at what is remembered.
    fn remember<const KEPT: usize>(&self, least: &mut Least<KEPT>, group: &[Port], depths: &impl Depths) {
        for place in self.places() {
            // A group that has shrunk is to be forgotten; until it is, nothing outside is read.
            if let Some(port) = group.get(usize::from(*place)) {
                least.insert(*place, depths.depth(*port));
            }
        }
    }
}

/// The least loaded places that were looked at, with their depths, the least first; of equals, who was looked at first.
struct Least<const KEPT: usize> {
    looks: [(u16, u64); KEPT],
    len: usize,
}

impl<const KEPT: usize> Least<KEPT> {
    fn insert(&mut self, place: u16, depth: u64) {
        let looks = &self.looks[..self.len];
        // Seen twice, a port counts once: its depth is the same.
        if looks.iter().any(|(seen, _)| *seen == place) {
            return;
        }
        let at = looks.iter().position(|(_, other)| depth < *other).unwrap_or(self.len);
        if at == KEPT {
            return;
        }
        self.len = KEPT.min(self.len + 1);
        self.looks.copy_within(at..self.len - 1, at + 1);
        self.looks[at] = (place, depth);
    }
}

#[cfg(test)]
mod tests;
