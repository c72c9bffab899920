//! DRILL by flow: the first packet of a flow goes where DRILL would send it, the others follow it. The article compares this with DRILL to
//! tell what choosing for each packet is worth.

use alloc::boxed::Box;
use alloc::vec;

use super::{Looks, Memory};
use crate::{Depths, FlowHash, Port, Sampler};

/// The most places of a table of flows.
const PLACES_MAX: u32 = 1 << 24;

/// Which port each flow has, for as long as the port is there. Flows whose hashes share a place share a port, as in a switch's table.
///
/// Ground rules. The table is of all engines of a switch, whose packets of one flow go the same way; what an engine remembers of queues
/// stays its own, and is handed in. No flow is ever forgotten: a port is chosen anew only where it has gone from the group.
#[derive(Clone, Debug)]
pub struct DrillPerFlow {
    looks: Looks,
    places: Box<[Option<Port>]>,
}

impl DrillPerFlow {
    /// First packets look at so many queues. `places`: rounded up to a power of two, 1 at least and 2^24 at most, of 4 bytes each.
    pub fn new(looks: Looks, places: u32) -> Self {
        let places = places.clamp(1, PLACES_MAX).next_power_of_two() as usize;
        Self { looks, places: vec![None; places].into_boxed_slice() }
    }

    /// The port of `group` for the flow's packet; `memory` is the engine's, of this group, and only read and written where a port is
    /// chosen. Allocates nothing; steps: the group, and those of [`Memory::pick`].
    ///
    /// # Panics
    /// Where the group is empty.
    pub fn pick(
        &mut self,
        flow: FlowHash,
        group: &[Port],
        memory: &mut Memory,
        depths: &impl Depths,
        sampler: &mut impl Sampler,
    ) -> Port {
        let place = flow.as_u64() as usize & (self.places.len() - 1);
        match self.places[place] {
            Some(port) if group.contains(&port) => port,
            _ => {
                let port = memory.pick(self.looks, group, depths, sampler);
                self.places[place] = Some(port);
                port
            }
        }
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

    #[test]
    fn the_first_packet_decides_and_the_others_follow_it() {
        let (mut flows, mut memory) = (DrillPerFlow::new(Looks::RECOMMENDED, 16), Memory::default());
        let short = |port: Port| [9, 1, 5][port.0 as usize - 4];
        // It draws the first two queues, of which the second is shorter.
        let first = flows.pick(flow(1), &GROUP, &mut memory, &short, &mut Told(vec![0, 0]));
        assert_eq!((first, memory.places()), (Port(5), &[1][..]));
        // Nothing is drawn for the others, and nothing remembered, however long that queue is.
        let full = |port: Port| [0, 99, 0][port.0 as usize - 4];
        for _ in 0..3 {
            assert_eq!(flows.pick(flow(1), &GROUP, &mut memory, &full, &mut Told(vec![])), Port(5));
        }
        assert_eq!(memory.places(), [1]);
        // Other flows choose for themselves: one goes by the queue that is remembered, one by a drawn one.
        assert_eq!(flows.pick(flow(2), &GROUP, &mut memory, &short, &mut Told(vec![2, 0])), Port(5));
        assert_eq!(flows.pick(flow(3), &GROUP, &mut memory, &full, &mut Told(vec![2, 0])), Port(6));
        assert_eq!(flows.pick(flow(1), &GROUP, &mut memory, &full, &mut Told(vec![])), Port(5));
    }

    #[test]
    fn a_flow_whose_port_has_gone_decides_again_and_stays_there() {
        let (mut flows, mut memory) = (DrillPerFlow::new(Looks::RECOMMENDED, 16), Memory::default());
        let even = |_: Port| 7;
        assert_eq!(flows.pick(flow(1), &GROUP, &mut memory, &even, &mut Told(vec![1, 0])), Port(5));
        let left = [Port(4), Port(6)];
        memory.clear();
        assert_eq!(flows.pick(flow(1), &left, &mut memory, &even, &mut Told(vec![1, 0])), Port(6));
        // The link is back.
        assert_eq!(flows.pick(flow(1), &GROUP, &mut memory, &even, &mut Told(vec![])), Port(6));
    }

    #[test]
    fn flows_share_a_place_by_the_low_bits_of_their_hashes() {
        let (mut flows, mut memory) = (DrillPerFlow::new(Looks::RECOMMENDED, 5), Memory::default());
        let even = |_: Port| 7;
        let port = flows.pick(flow(3), &GROUP, &mut memory, &even, &mut Pcg::new(1));
        // Five places are eight.
        assert_eq!(flows.pick(flow(3 + 8), &GROUP, &mut memory, &even, &mut Told(vec![])), port);
        let other = flows.pick(flow(3 + 4), &GROUP, &mut memory, &even, &mut Told(vec![2, 0]));
        assert_eq!(other, Port(6));
        let places = |places| DrillPerFlow::new(Looks::RECOMMENDED, places).places.len();
        assert_eq!([0, 1, u32::MAX].map(places), [1, 1, 1 << 24]);
    }
}
