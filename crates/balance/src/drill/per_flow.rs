//! DRILL by flow: the first packet of a flow goes where DRILL would send it, the others follow it. The article compares this with DRILL to
//! tell what choosing for each packet is worth.

use alloc::boxed::Box;
use alloc::vec;

use weirgate_units::{Duration, Instant};

use super::{Looks, Memory};
use crate::flowlet::rounded;
use crate::{Depths, FlowHash, Port, Sampler};

/// A place where no packet went for so long is free: packets seldom wait for longer on the way (300 KB at 10 Gbit/s are 240 us), so that a
/// flow that pauses for as long is seldom put out of order by finding another one there.
const IDLE: Duration = Duration::from_micros(500);

/// Which port each flow has, for as long as the port is there. Flows whose hashes share a place at the same time share a port, as in a
/// switch's table.
///
/// Ground rules. The table is of all engines of a switch, whose packets of one flow go the same way; what an engine remembers of queues
/// stays its own, and is handed in. A flow is forgotten only where another one takes a place that was idle for 500 us, and one that
/// shares another's place where it pauses for as long. A port is chosen anew where it has gone from the group.
#[derive(Clone, Debug)]
pub struct DrillPerFlow {
    looks: Looks,
    places: Box<[Place]>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    /// When the last packet went, in microseconds modulo 2^32.
    last_us: u32,
    /// Which of the flows that have their place here.
    tag: u16,
    port: Port,
}

/// Of a place that nobody has taken yet: a switch has fewer ports.
const NOBODYS: Port = Port(u16::MAX);

impl DrillPerFlow {
    /// First packets look at so many queues. `places`: rounded up to a power of two, 1 at least and 2^24 at most, of 8 bytes each.
    pub fn new(looks: Looks, places: u32) -> Self {
        let places = rounded(places) as usize;
        Self { looks, places: vec![Place { last_us: 0, tag: 0, port: NOBODYS }; places].into_boxed_slice() }
    }

    /// Bytes that a table of so many places takes.
    pub fn memory(places: u32) -> u64 {
        u64::from(rounded(places)) * size_of::<Place>() as u64
    }

    /// The port of `group` for the flow's packet; `memory` is the engine's, of this group, and only read and written where a port is
    /// chosen. Allocates nothing; steps: the group, and those of [`Memory::pick`].
    ///
    /// # Panics
    /// Where the group is empty.
    pub fn pick(
        &mut self,
        now: Instant,
        flow: FlowHash,
        group: &[Port],
        memory: &mut Memory,
        depths: &impl Depths,
        sampler: &mut impl Sampler,
    ) -> Port {
        let place = flow.as_u64() as usize & (self.places.len() - 1);
        let tag = (flow.as_u64() >> self.places.len().trailing_zeros()) as u16;
        let now_us = (now.as_nanos() / 1_000) as u32;
        let Place { last_us, tag: other, port } = self.places[place];
        let is_idle = Duration::from_micros(now_us.wrapping_sub(last_us).into()) >= IDLE;
        let follows = (tag == other || !is_idle) && group.contains(&port);
        let port = if follows { port } else { memory.pick(self.looks, group, depths, sampler) };
        // A guest does not take a place over.
        let tag = if is_idle || !follows { tag } else { other };
        self.places[place] = Place { last_us: now_us, tag, port };
        port
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Pcg, Told};

    const GROUP: [Port; 3] = [Port(4), Port(5), Port(6)];

    fn flow(hash: u64) -> FlowHash {
        FlowHash::from_u64(hash)
    }

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn the_first_packet_decides_and_the_others_follow_it() {
        let (mut flows, mut memory) = (DrillPerFlow::new(Looks::RECOMMENDED, 16), Memory::default());
        let short = |port: Port| [9, 1, 5][port.0 as usize - 4];
        // It draws the first two queues, of which the second is shorter.
        let first = flows.pick(at(0), flow(1), &GROUP, &mut memory, &short, &mut Told(vec![0, 0]));
        assert_eq!((first, memory.places()), (Port(5), &[1][..]));
        // Nothing is drawn for the others, and nothing remembered, however long that queue is.
        let full = |port: Port| [0, 99, 0][port.0 as usize - 4];
        for _ in 0..3 {
            assert_eq!(flows.pick(at(0), flow(1), &GROUP, &mut memory, &full, &mut Told(vec![])), Port(5));
        }
        assert_eq!(memory.places(), [1]);
        // Other flows choose for themselves: one goes by the queue that is remembered, one by a drawn one.
        assert_eq!(flows.pick(at(0), flow(2), &GROUP, &mut memory, &short, &mut Told(vec![2, 0])), Port(5));
        assert_eq!(flows.pick(at(0), flow(3), &GROUP, &mut memory, &full, &mut Told(vec![2, 0])), Port(6));
        assert_eq!(flows.pick(at(0), flow(1), &GROUP, &mut memory, &full, &mut Told(vec![])), Port(5));
    }

    #[test]
    fn a_flow_whose_port_has_gone_decides_again_and_stays_there() {
        let (mut flows, mut memory) = (DrillPerFlow::new(Looks::RECOMMENDED, 16), Memory::default());
        let even = |_: Port| 7;
        assert_eq!(flows.pick(at(0), flow(1), &GROUP, &mut memory, &even, &mut Told(vec![1, 0])), Port(5));
        let left = [Port(4), Port(6)];
        memory.clear();
        assert_eq!(flows.pick(at(0), flow(1), &left, &mut memory, &even, &mut Told(vec![1, 0])), Port(6));
        // The link is back.
        assert_eq!(flows.pick(at(0), flow(1), &GROUP, &mut memory, &even, &mut Told(vec![])), Port(6));
    }

    #[test]
    fn a_flow_that_is_over_leaves_its_place_to_another_one() {
        let (mut flows, mut memory) = (DrillPerFlow::new(Looks::RECOMMENDED, 16), Memory::default());
        let even = |_: Port| 7;
        let mut pick =
            |micros, hash, told| flows.pick(at(micros), flow(hash), &GROUP, &mut memory, &even, &mut Told(told));
        assert_eq!(pick(0, 1, vec![1, 0]), Port(5));
        // One that comes meanwhile shares its port, and does not take its place.
        assert_eq!(pick(400, 1 + 16, vec![]), Port(5));
        assert_eq!(pick(100_000, 1, vec![]), Port(5), "it has only paused");
        assert_eq!(pick(100_500, 1 + 16, vec![2, 0]), Port(6));
        assert_eq!(pick(100_900, 1, vec![]), Port(6), "the other one has its place");
    }

    #[test]
    fn flows_share_a_place_by_the_low_bits_of_their_hashes() {
        let (mut flows, mut memory) = (DrillPerFlow::new(Looks::RECOMMENDED, 5), Memory::default());
        let even = |_: Port| 7;
        let port = flows.pick(at(0), flow(3), &GROUP, &mut memory, &even, &mut Pcg::new(1));
        // Five places are eight.
        assert_eq!(flows.pick(at(0), flow(3 + 8), &GROUP, &mut memory, &even, &mut Told(vec![])), port);
        let other = flows.pick(at(0), flow(3 + 4), &GROUP, &mut memory, &even, &mut Told(vec![2, 0]));
        assert_eq!(other, Port(6));
        let places = |places| DrillPerFlow::new(Looks::RECOMMENDED, places).places.len();
        assert_eq!([0, 1, u32::MAX].map(places), [1, 1, 1 << 24]);
    }
}
