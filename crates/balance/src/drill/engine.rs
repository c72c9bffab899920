//! A forwarding engine in time, as hardware is: a decision each clock, known some clocks later.

use alloc::boxed::Box;
use alloc::vec;
use core::mem;

use super::{Looks, Memory};
use crate::{Depths, Port, Sampler};

/// An engine whose decisions take `latency` clocks. With 0 it is a [`Memory`] for each group, which is what a simulator has that decides
/// at the instant at which a packet comes.
///
/// Ground rules. Decisions are made in order, each with what the one before has remembered, and at the depths of the clock in which it
/// was asked for: latency changes when a decision is known, and so when its packet comes to the queue, and nothing else.
#[derive(Clone, Debug)]
pub struct Engine {
    looks: Looks,
    /// By group.
    memories: Box<[Memory]>,
    /// What was decided in the last clocks, as many as the latency; `at` is the oldest one.
    under_way: Box<[Option<Port>]>,
    at: usize,
}

impl Engine {
    /// An engine that remembers nothing yet of so many groups of next hops.
    pub fn new(looks: Looks, groups: usize, latency: usize) -> Self {
        let memories = vec![Memory::default(); groups].into_boxed_slice();
        Self { looks, memories, under_way: vec![None; latency].into_boxed_slice(), at: 0 }
    }

    /// The groups have changed: what is remembered of them is forgotten, and what was decided stays decided.
    pub fn forget(&mut self) {
        self.memories.iter_mut().for_each(Memory::clear);
    }

    /// A clock passes. `asked` is a group's number and its ports, where a packet has come; what comes back is the port of the packet that
    /// came `latency` clocks ago: none where none came, or its group had no ports. Allocates nothing; steps: those of [`Memory::pick`].
    ///
    /// # Panics
    /// Where there is no such group.
    pub fn clock(
        &mut self,
        asked: Option<(usize, &[Port])>,
        depths: &impl Depths,
        sampler: &mut impl Sampler,
    ) -> Option<Port> {
        let decided = asked.and_then(|(group, ports)| {
            let memory = &mut self.memories[group];
            (!ports.is_empty()).then(|| memory.pick(self.looks, ports, depths, sampler))
        });
        let Some(oldest) = self.under_way.get_mut(self.at) else { return decided };
        let known = mem::replace(oldest, decided);
        self.at = (self.at + 1) % self.under_way.len();
        known
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Pcg, Told};

    const GROUP: [Port; 3] = [Port(4), Port(5), Port(6)];

    #[test]
    fn decisions_come_later_and_are_those_of_the_depths_then() {
        let mut engine = Engine::new(Looks::RECOMMENDED, 2, 2);
        let first = |port: Port| u64::from(port.0);
        let last = |port: Port| u64::from(9 - port.0);
        let mut clock = |asked, depths: &dyn Fn(Port) -> u64, told: &[u32]| {
            engine.clock(asked, &|port| depths(port), &mut Told(told.to_vec()))
        };
        assert_eq!(clock(Some((0, &GROUP[..])), &first, &[0, 0]), None);
        // The depths are the other way round, and 4 is remembered: what was decided stays.
        assert_eq!(clock(Some((0, &GROUP[..])), &last, &[0, 0]), None);
        assert_eq!(clock(None, &last, &[]), Some(Port(4)));
        assert_eq!(clock(Some((1, &[])), &last, &[]), Some(Port(5)));
        assert_eq!(clock(None, &last, &[]), None, "nobody asked");
        assert_eq!(clock(None, &last, &[]), None, "there was no port");
    }

    /// With a latency of 0 it is what the simulator calls, whatever the groups; with more it is the same, later.
    #[test]
    fn latency_changes_nothing_but_when_a_decision_is_known() {
        let looks = Looks::new(2, 2).unwrap();
        let mut load = Pcg::new(5);
        let mut engines = [0, 1, 5].map(|latency| (Engine::new(looks, 2, latency), Pcg::new(6), Vec::new()));
        let (mut memories, mut sampler) = ([Memory::default(), Memory::default()], Pcg::new(6));
        let mut picks = Vec::new();
        for clock in 0..2_000_usize {
            let depths: Vec<u64> = (0..7).map(|_| u64::from(load.below(4))).collect();
            let depth = |port: Port| depths[usize::from(port.0)];
            if load.below(50) == 0 {
                engines.iter_mut().for_each(|(engine, ..)| engine.forget());
                memories.iter_mut().for_each(Memory::clear);
            }
            let group = load.below(2) as usize;
            let asked = (load.below(4) > 0).then_some((group, &GROUP[group..]));
            picks.push(asked.map(|(group, ports)| memories[group].pick(looks, ports, &depth, &mut sampler)));
            for (engine, sampler, answers) in &mut engines {
                answers.push(engine.clock(asked, &depth, sampler));
            }
            for (engine, _, answers) in &engines {
                let latency = engine.under_way.len();
                let expected = clock.checked_sub(latency).and_then(|then| picks[then]);
                assert_eq!(answers[clock], expected, "clock {clock}, latency {latency}");
            }
        }
    }
}
