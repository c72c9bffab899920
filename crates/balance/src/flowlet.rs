//! Flowlets: a flow's packets after a pause are free to take another path, since those before the pause have arrived. Read first: Kandula
//! et al., "Dynamic load balancing without packet reordering" (CCR 2007); Vanini et al., "Let it flow" (NSDI 2017).

use alloc::boxed::Box;
use alloc::vec;

use weirgate_units::{Duration, Instant};

use crate::{FlowHash, Port, Sampler};

/// How many places a table of so many has: a power of two, 1 at least and 2^24 at most.
pub(crate) fn rounded(places: u32) -> u32 {
    places.clamp(1, 1 << 24).next_power_of_two()
}

/// Which port each flowlet has. Flows whose hashes share a place share a flowlet, as in a switch's table.
#[derive(Clone, Debug)]
pub struct Flowlets {
    places: Box<[Flowlet]>,
    /// The pause after which a flowlet is over.
    gap: Duration,
}

#[derive(Clone, Copy, Debug)]
struct Flowlet {
    port: Port,
    last: Option<Instant>,
}

/// What is known of a flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// Its flowlet goes on, by this port.
    Flowlet(Port),
    /// It has paused; before, it went by this port.
    Paused(Port),
    /// It was never seen.
    Unknown,
}

impl Flowlets {
    /// `places`: rounded up to a power of two, at least 1. CONGA's switch has 65,536 and a `gap` of 500 us.
    pub fn new(places: u32, gap: Duration) -> Self {
        let places = rounded(places) as usize;
        Self { places: vec![Flowlet { port: Port(0), last: None }; places].into_boxed_slice(), gap }
    }

    /// Bytes that a table of so many places takes.
    pub fn memory(places: u32) -> u64 {
        u64::from(rounded(places)) * size_of::<Flowlet>() as u64
    }

    /// What is known of a flow that sends a packet now.
    pub fn know(&self, now: Instant, flow: FlowHash) -> Known {
        let Flowlet { port, last } = self.places[self.place(flow)];
        match last {
            None => Known::Unknown,
            Some(last) if now.saturating_since(last) < self.gap => Known::Flowlet(port),
            Some(_) => Known::Paused(port),
        }
    }

    /// A packet of the flow takes `port`.
    pub fn note(&mut self, now: Instant, flow: FlowHash, port: Port) {
        let place = self.place(flow);
        self.places[place] = Flowlet { port, last: Some(now) };
    }

    const fn place(&self, flow: FlowHash) -> usize {
        flow.as_u64() as usize & (self.places.len() - 1)
    }
}

/// LetFlow: each flowlet takes any port. Flowlets of a crowded path are shorter, so flows leave it sooner.
#[derive(Clone, Debug)]
pub struct LetFlow {
    flowlets: Flowlets,
}

impl LetFlow {
    /// With this table; the article's `gap` is 500 us.
    pub const fn new(flowlets: Flowlets) -> Self {
        Self { flowlets }
    }

    /// The port of `group` for the flow's packet.
    ///
    /// # Panics
    /// Where the group is empty.
    pub fn pick(&mut self, now: Instant, flow: FlowHash, group: &[Port], sampler: &mut impl Sampler) -> Port {
        let port = match self.flowlets.know(now, flow) {
            // A port that has gone from the group is nobody's.
            Known::Flowlet(port) if group.contains(&port) => port,
            _ => crate::random(group, sampler),
        };
        self.flowlets.note(now, flow, port);
        port
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Told;

    #[test]
    fn a_flowlet_keeps_its_port_until_a_pause() {
        let mut letflow = LetFlow::new(Flowlets::new(16, Duration::from_micros(500)));
        let flow = FlowHash::from_u64(5);
        let group = [Port(1), Port(2), Port(3)];
        let at = |micros| Instant::ZERO + Duration::from_micros(micros);
        let mut sampler = Told(vec![2, 0, 1]);
        assert_eq!(letflow.pick(at(0), flow, &group, &mut sampler), Port(3));
        assert_eq!(letflow.pick(at(499), flow, &group, &mut sampler), Port(3), "499 us after the last");
        assert_eq!(letflow.pick(at(998), flow, &group, &mut sampler), Port(3));
        assert_eq!(letflow.pick(at(1_498), flow, &group, &mut sampler), Port(1), "a pause of 500 us");
        assert_eq!(letflow.pick(at(1_500), flow, &group[1..], &mut sampler), Port(3), "the link has failed");
    }
}
