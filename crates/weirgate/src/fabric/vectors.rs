//! `weirgate fabric vectors`: what the hardware in `hdl/` is tested with, clock by clock: what it is given, drawn at random, and what it
//! has to answer, which is what `balance` does. Read first: docs/hardware.md.

use std::collections::VecDeque;
use std::io::{self, Write};

use serde::Serialize;
use weirgate_balance::{Engine, FlowHash, Lfsr, Looks, Port, Sampler as _, Wcmp};

/// Clocks from when a packet comes until its port is known (hdl/drill_engine.v).
const LATENCY: usize = 5;
/// The same of hdl/component_hash.v, and when weights are read there.
const COMPONENT_LATENCY: usize = 5;
const WEIGHTS_AFTER: usize = 3;
/// Load and links behave alike for a part of the decisions, so many parts at least.
const PHASES_MIN: u64 = 16;
/// Flows for which weights stay the same.
const COMPONENT_FLOWS: u64 = 16;

/// A switch in hardware, as hdl/drill_switch.v has its parameters.
#[derive(Clone, Debug)]
pub struct Switch {
    /// Ports drawn and remembered.
    pub looks: Looks,
    /// 2 to 64.
    pub ports: usize,
    /// 1 to 64.
    pub engines: usize,
    /// Groups of next hops, 1 to 16.
    pub groups: usize,
    /// 1 to 32.
    pub depth_bits: u32,
    /// Of a packet's size, 1 to 8.
    pub size_bits: u32,
    /// Clocks from when a port is known until the packet is in its queue, 1 at least.
    pub enqueue: usize,
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Clocks.
    pub clocks: u64,
    /// Packets that have a port.
    pub decisions: u64,
    /// Packets whose group had none.
    pub without: u64,
    /// Changes of a group.
    pub changes: u64,
    /// Ports that went down.
    pub downs: u64,
    /// The deepest queue.
    pub depth_max: u64,
}

impl Switch {
    /// Writes so many decisions, in words of 64 bits, the highest byte first, as Verilog's `$fread` reads them. First the seeds; then a row
    /// for each clock: whether a group changes, which, and its ports; links that are up; engines that have a packet, of which groups and
    /// sizes; queues that a unit leaves; engines whose packet has a port now, and the ports. Of several engines the first one is in the
    /// lowest bits; of more than eight, groups, sizes and ports are as many words as eight bits for each engine take, the lowest first.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(&self, decisions: u64, seed: u64, to: &mut impl Write) -> io::Result<Summary> {
        let mut bench = Bench::new(self, seed);
        for engine in bench.engines.iter().rev() {
            let registers: Vec<u32> = engine.sampler.registers().collect();
            for words in registers.chunks(3).rev() {
                for word in words {
                    write_row(to, &[u64::from(*word)])?;
                }
            }
        }
        // Groups have no ports until they are told.
        for group in 0..self.groups {
            bench.clock(&Stimulus { change: Some((group, bench.all)), ..bench.idle() }, to)?;
        }
        let mut load = Load::new(seed, decisions / PHASES_MIN);
        while bench.asked < decisions {
            let stimulus = load.next(self, &bench);
            bench.clock(&stimulus, to)?;
        }
        for _ in 0..LATENCY {
            bench.clock(&bench.idle(), to)?;
        }
        Ok(bench.summary)
    }
}

/// What a switch is given in a clock.
#[derive(Clone, Debug)]
struct Stimulus {
    change: Option<(usize, u64)>,
    up: u64,
    /// By engine: group and size.
    packets: Vec<Option<(usize, u64)>>,
    leaves: u64,
}

/// A switch that picks by `balance`.
struct Bench<'s> {
    switch: &'s Switch,
    /// The mask of all ports.
    all: u64,
    engines: Vec<OneEngine>,
    masks: Vec<u64>,
    up: u64,
    /// By group, those that are up.
    groups: Vec<Vec<Port>>,
    depths: Vec<u64>,
    /// By the clocks until they are in a queue: ports and sizes.
    coming: VecDeque<Vec<(Port, u64)>>,
    /// Decisions that were asked for and are known by now or will be.
    asked: u64,
    summary: Summary,
}

struct OneEngine {
    drill: Engine,
    sampler: Lfsr,
    /// Of the packets whose port is not known yet.
    sizes: VecDeque<u64>,
}

impl<'s> Bench<'s> {
    fn new(switch: &'s Switch, seed: u64) -> Self {
        let all = !0 >> (64 - switch.ports);
        let engine = |at| OneEngine {
            drill: Engine::new(switch.looks, switch.groups, LATENCY),
            sampler: Lfsr::new(FlowHash::from_u64(at as u64).at(seed).as_u64(), switch.looks.d()),
            sizes: VecDeque::from([0; LATENCY]),
        };
        Self {
            switch,
            all,
            engines: (0..switch.engines).map(engine).collect(),
            masks: vec![0; switch.groups],
            up: all,
            groups: vec![Vec::new(); switch.groups],
            depths: vec![0; switch.ports],
            coming: vec![Vec::new(); switch.enqueue - 1].into(),
            asked: 0,
            summary: Summary::default(),
        }
    }

    fn idle(&self) -> Stimulus {
        Stimulus { change: None, up: self.up, packets: vec![None; self.engines.len()], leaves: 0 }
    }

    /// A clock passes; its row is written.
    fn clock(&mut self, given: &Stimulus, to: &mut impl Write) -> io::Result<()> {
        let (group_bits, port_bits) = (bits(self.switch.groups), bits(self.switch.ports));
        let [mut ask, mut picked] = [0_u64; 2];
        let [mut group, mut size, mut port] = [(); 3].map(|()| Wide::of(given.packets.len()));
        let mut known = Vec::new();
        for (at, (engine, packet)) in self.engines.iter_mut().zip(&given.packets).enumerate() {
            engine.sampler.clock();
            engine.sizes.push_back(packet.map_or(0, |(_, size)| size));
            let depths = |port: Port| self.depths[usize::from(port.0)];
            let asked = packet.map(|(group, _)| (group, self.groups[group].as_slice()));
            if let Some((_, ports)) = asked {
                self.asked += u64::from(!ports.is_empty());
                self.summary.without += u64::from(ports.is_empty());
            }
            let pick = engine.drill.clock(asked, &depths, &mut engine.sampler);
            let its_size = engine.sizes.pop_front().unwrap_or(0);
            if let Some((of, bytes)) = packet {
                ask |= 1 << at;
                group.put(at, group_bits, *of as u64);
                size.put(at, self.switch.size_bits, *bytes);
            }
            if let Some(pick) = pick {
                picked |= 1 << at;
                port.put(at, port_bits, pick.0.into());
                known.push((pick, its_size));
                self.summary.decisions += 1;
            }
        }
        let (changes, (of, mask)) = (u64::from(given.change.is_some()), given.change.unwrap_or_default());
        let Stimulus { up, leaves, .. } = *given;
        write_row(to, &[changes, of as u64, mask, up, ask])?;
        write_row(to, group.words())?;
        write_row(to, size.words())?;
        write_row(to, &[leaves, picked])?;
        write_row(to, port.words())?;
        self.summary.clocks += 1;
        self.coming.push_back(known);
        self.enqueue(leaves);
        self.change(given);
        Ok(())
    }

    /// Queues at the next clock.
    fn enqueue(&mut self, leaves: u64) {
        let most = (1 << self.switch.depth_bits) - 1;
        for (at, depth) in self.depths.iter_mut().enumerate() {
            *depth = depth.saturating_sub(leaves >> at & 1);
        }
        for (port, size) in self.coming.pop_front().unwrap_or_default() {
            self.depths[usize::from(port.0)] += size;
        }
        for depth in &mut self.depths {
            *depth = most.min(*depth);
            self.summary.depth_max = self.summary.depth_max.max(*depth);
        }
    }

    /// Groups at the next clock.
    fn change(&mut self, given: &Stimulus) {
        if given.change.is_none() && given.up == self.up {
            return;
        }
        if let Some((group, mask)) = given.change {
            self.masks[group] = mask;
            self.summary.changes += 1;
        }
        self.summary.downs += u64::from((self.up & !given.up).count_ones());
        self.up = given.up;
        for (ports, mask) in self.groups.iter_mut().zip(&self.masks) {
            let mask = mask & self.up;
            *ports = (0..self.depths.len() as u16).filter(|port| mask >> port & 1 == 1).map(Port).collect();
        }
        self.engines.iter_mut().for_each(|engine| engine.drill.forget());
    }
}

/// Packets, and what happens to links and groups, at random, in phases: long and short queues, calm and restless groups.
struct Load {
    chance: Lfsr,
    phase_max: u64,
    clocks_left: u64,
    /// Of 256 clocks of an engine, so many have a packet.
    ask: u32,
    /// Of 256 clocks of a queue, a unit leaves in so many; where ports are unequal, in a quarter, half or three quarters of these.
    leave: u32,
    is_unequal: bool,
    size_bits: u32,
    /// Of 4,096 clocks, so many change a group or a link.
    restless: u32,
}

impl Load {
    fn new(seed: u64, phase_max: u64) -> Self {
        let chance = Lfsr::new(FlowHash::from_u64(!0).at(seed).as_u64(), 2);
        Self { chance, phase_max, clocks_left: 0, ask: 0, leave: 0, is_unequal: false, size_bits: 0, restless: 0 }
    }

    fn one_of<const N: usize>(&mut self, values: [u32; N]) -> u32 {
        values[self.chance.below(N as u32) as usize]
    }

    fn begin_phase(&mut self, switch: &Switch) {
        self.clocks_left =
            u64::from(self.one_of([1 << 4, 1 << 6, 1 << 8, 1 << 10, 1 << 12, 1 << 14])).min(self.phase_max).max(1);
        self.ask = self.one_of([256, 256, 192, 64]);
        self.leave = self.one_of([256, 128, 32, 4]);
        self.is_unequal = self.one_of([0, 1]) == 1;
        self.size_bits = self.one_of([1, 1, 2, 4, 8]).min(switch.size_bits);
        self.restless = self.one_of([0, 0, 8, 64, 512]);
    }

    fn next(&mut self, switch: &Switch, bench: &Bench<'_>) -> Stimulus {
        if self.clocks_left == 0 {
            self.begin_phase(switch);
        }
        self.clocks_left -= 1;
        let mut given = bench.idle();
        for packet in &mut given.packets {
            if self.chance.below(256) < self.ask {
                let group = self.chance.below(switch.groups as u32) as usize;
                *packet = Some((group, u64::from(self.chance.below(1 << self.size_bits))));
            }
        }
        for port in 0..switch.ports as u32 {
            let leave = if self.is_unequal { self.leave * (1 + port % 4) / 4 } else { self.leave };
            given.leaves |= u64::from(self.chance.below(256) < leave) << port;
        }
        if self.chance.below(4_096) < self.restless {
            let group = self.chance.below(switch.groups as u32) as usize;
            given.change = Some((group, self.mask(bench.all)));
        }
        if self.chance.below(4_096) < self.restless {
            let port = self.chance.below(switch.ports as u32);
            // Down for a third as long as up.
            if bench.up >> port & 1 == 0 || self.chance.below(3) == 0 {
                given.up ^= 1 << port;
            }
        }
        given
    }

    /// All ports, half of them, a sixteenth, or one; now and then none.
    fn mask(&mut self, all: u64) -> u64 {
        match self.chance.below(4) {
            0 => all,
            1 => all & any(&mut self.chance),
            2 => (0..4).fold(all, |mask, _| mask & any(&mut self.chance)),
            _ => 1 << self.chance.below(all.count_ones()),
        }
    }
}

/// A group's symmetric components, as hdl/component_hash.v has its parameters.
#[derive(Clone, Copy, Debug)]
pub struct Components {
    /// 2 to 8.
    pub components: usize,
    /// Of the sum of their weights, 4 to 16.
    pub bits: u32,
}

impl Components {
    /// Writes so many flows, and the components that they go by, in words as [`Switch::write`] does, a row for each clock: the flow's hash,
    /// the switch's seed; of a flow that came three clocks ago the weights of its components (sums of each one's and those before it, the
    /// first in the lowest bits; two words, the lower first); of one that came five clocks ago whether there is one, and its component.
    /// How many clocks these are.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub fn write(self, flows: u64, seed: u64, to: &mut impl Write) -> io::Result<u64> {
        let mut chance = Lfsr::new(seed, 2);
        let (mut of_switch, mut weights) = (0, Vec::new());
        let mut looked_up = VecDeque::from([0; WEIGHTS_AFTER]);
        let mut known = VecDeque::from([None; COMPONENT_LATENCY]);
        let clocks = flows + COMPONENT_LATENCY as u64;
        for clock in 0..clocks {
            if clock % COMPONENT_FLOWS == 0 {
                (of_switch, weights) = (any(&mut chance), self.weights(&mut chance));
            }
            let flow = FlowHash::from_u64(any(&mut chance));
            known.push_back(Some(Wcmp { seed: of_switch }.pick(&weights, flow)));
            looked_up.push_back(self.bounds(&weights));
            let (component, bounds) = (known.pop_front().flatten(), looked_up.pop_front().unwrap_or(0));
            let (is_known, component) = (u64::from(component.is_some()), component.unwrap_or(0) as u64);
            write_row(to, &[flow.as_u64(), of_switch, bounds as u64, (bounds >> 64) as u64, is_known, component])?;
        }
        Ok(clocks)
    }

    /// Weights, some of them 0, but not all; their sum is below 2^bits.
    fn weights(self, chance: &mut Lfsr) -> Vec<u32> {
        let most = ((1 << self.bits) - 1) / self.components as u32;
        let mut weights = vec![0; self.components];
        for weight in &mut weights {
            if chance.below(4) > 0 {
                *weight = chance.below(most + 1);
            }
        }
        if weights.iter().all(|weight| *weight == 0) {
            weights[chance.below(self.components as u32) as usize] = 1;
        }
        weights
    }

    fn bounds(self, weights: &[u32]) -> u128 {
        let (mut sum, mut bounds) = (0, 0);
        for (at, weight) in weights.iter().enumerate() {
            sum += u128::from(*weight);
            bounds |= sum << (at as u32 * self.bits);
        }
        bounds
    }
}

/// All of 64 bits.
fn any(chance: &mut Lfsr) -> u64 {
    (0..4).fold(0, |word, _| word << 16 | u64::from(chance.below(1 << 16)))
}

fn write_row(to: &mut impl Write, words: &[u64]) -> io::Result<()> {
    words.iter().try_for_each(|word| to.write_all(&word.to_be_bytes()))
}

/// What all engines have, beside each other: eight bits of each of 64 at the most.
struct Wide {
    all: [u64; 8],
    /// So many of them are written.
    words: usize,
}

impl Wide {
    /// Of so many engines.
    fn of(engines: usize) -> Self {
        Self { all: [0; 8], words: engines.div_ceil(8) }
    }

    /// Of so many bits each, the one at this place, which was 0.
    fn put(&mut self, at: usize, bits: u32, value: u64) {
        let (word, shift) = (at * bits as usize / 64, at * bits as usize % 64);
        self.all[word] |= value << shift;
        if shift + bits as usize > 64 {
            self.all[word + 1] |= value >> (64 - shift);
        }
    }

    fn words(&self) -> &[u64] {
        &self.all[..self.words]
    }
}

/// Bits of a number below this one.
const fn bits(bound: usize) -> u32 {
    usize::BITS - (bound - 1).leading_zeros()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SWITCH: Switch =
        Switch { looks: Looks::RECOMMENDED, ports: 5, engines: 2, groups: 3, depth_bits: 5, size_bits: 4, enqueue: 2 };

    fn words(bytes: &[u8]) -> Vec<u64> {
        let (words, rest) = bytes.as_chunks();
        assert!(rest.is_empty());
        words.iter().copied().map(u64::from_be_bytes).collect()
    }

    /// What is written, after the seeds by clocks.
    fn rows(switch: &Switch, seed: u64) -> (Summary, Vec<[u64; 10]>) {
        let mut bytes = Vec::new();
        let summary = switch.write(3_000, seed, &mut bytes).unwrap();
        let words = words(&bytes);
        let (seeds, words) = words.split_at(switch.engines * 3 * switch.looks.d().div_ceil(2));
        assert!(seeds.iter().all(|seed| (16..1 << 32).contains(seed)));
        let (rows, rest) = words.as_chunks();
        assert!(rest.is_empty() && rows.len() as u64 == summary.clocks);
        (summary, rows.to_vec())
    }

    /// Read as a switch would be: each packet of a group with ports has one of them five clocks later, in a queue that is as long as the
    /// rows say it is, and where all ports are drawn it is the shortest.
    #[test]
    fn ports_are_those_of_the_groups_and_depths_that_the_rows_say() {
        let all = Switch { looks: Looks::new(5, 0).unwrap(), ..SWITCH };
        let (summary, clocks) = rows(&all, 3);
        let (mut masks, mut up, mut depths) = ([0_u64; 3], 0x1f_u64, [0_u64; 5]);
        let mut decisions = 0;
        for (at, clock) in clocks.iter().enumerate() {
            let [change, group, mask, now_up, ask, groups, _, leaves, ..] = *clock;
            for engine in 0..2 {
                let ports = masks[(groups >> (2 * engine) & 3) as usize] & up;
                let known = clocks.get(at + 5).map_or([0, 0], |row| [row[8], row[9]]);
                let is_picked = known[0] >> engine & 1 == 1;
                assert_eq!(is_picked, ask >> engine & 1 == 1 && ports != 0, "clock {at}");
                if is_picked {
                    let port = (known[1] >> (3 * engine) & 7) as usize;
                    let least = (0..5).filter(|port| ports >> port & 1 == 1).map(|port| depths[port]).min();
                    assert!(ports >> port & 1 == 1 && Some(depths[port]) == least, "clock {at}: {port} of {depths:?}");
                    decisions += 1;
                }
            }
            // At the next clock: what left, and what was decided two clocks before it.
            depths.iter_mut().enumerate().for_each(|(port, depth)| *depth = depth.saturating_sub(leaves >> port & 1));
            for engine in 0..2 {
                let decided = (at + 1).checked_sub(2).map(|then| &clocks[then]).filter(|row| row[8] >> engine & 1 == 1);
                if let Some(row) = decided {
                    let asked = &clocks[at - 1 - LATENCY];
                    depths[(row[9] >> (3 * engine) & 7) as usize] += asked[6] >> (4 * engine) & 15;
                }
            }
            depths.iter_mut().for_each(|depth| *depth = 31.min(*depth));
            up = now_up;
            if change == 1 {
                masks[group as usize] = mask;
            }
        }
        assert_eq!(decisions, summary.decisions);
        assert!(decisions >= 3_000 && summary.depth_max == 31, "{summary:?}");
        assert!(summary.without > 0 && summary.changes > 10 && summary.downs > 4, "{summary:?}");
    }

    #[test]
    fn vectors_are_the_seeds_own() {
        assert_eq!(rows(&SWITCH, 1), rows(&SWITCH, 1));
        assert_ne!(rows(&SWITCH, 1).1, rows(&SWITCH, 2).1);
    }

    #[test]
    fn components_have_the_flows_of_their_weights() {
        let mut bytes = Vec::new();
        Components { components: 4, bits: 16 }.write(20_000, 1, &mut bytes).unwrap();
        let (mut expected, mut flows, mut weights) = ([0.0; 4], [0.0; 4], VecDeque::new());
        let words = words(&bytes);
        let (rows, _) = words.as_chunks();
        for &[_, _, low, high, is_known, component] in rows {
            assert_eq!(high, 0);
            // The weights of a flow come two clocks before its component.
            weights.push_back(low);
            if is_known == 1 {
                flows[component as usize] += 1.0;
                let bounds = weights[0];
                let sum = |at: usize| (bounds >> (16 * at) & 0xffff) as f64;
                (0..4).for_each(|at| expected[at] += (sum(at) - if at > 0 { sum(at - 1) } else { 0.0 }) / sum(3));
            }
            if weights.len() > COMPONENT_LATENCY - WEIGHTS_AFTER {
                weights.pop_front();
            }
        }
        for (flows, expected) in flows.iter().zip(expected) {
            assert!((flows - expected).abs() < 4.0 * expected.sqrt(), "{flows} flows, expected {expected}");
        }
        assert_eq!(flows.iter().sum::<f64>(), 20_000.0);
    }

    #[test]
    fn what_many_engines_have_takes_several_words() {
        let mut wide = Wide::of(8);
        wide.put(7, 8, 255);
        assert_eq!(wide.words(), [0xff << 56]);
        let mut wide = Wide::of(64);
        assert_eq!(wide.words(), [0; 8]);
        // The second one is at bit 126: two bits of one word and four of the next.
        [(0, 63), (21, 0b10_1001), (63, 7)].into_iter().for_each(|(at, value)| wide.put(at, 6, value));
        assert_eq!(wide.words(), [0x3f, 1 << 62, 0b1010, 0, 0, 7 << (378 - 320), 0, 0]);
    }

    #[test]
    fn bits_hold_all_numbers_below() {
        assert_eq!([2, 3, 4, 5, 48, 64].map(bits), [1, 2, 2, 3, 6, 6]);
    }
}
