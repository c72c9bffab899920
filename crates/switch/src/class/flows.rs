//! Rules that ask for one flow each: one look finds the right one of any number.

use std::collections::HashMap;

use super::Placed;
use super::rule::Rule;
use crate::frame::{FlowKey, Frame, Seeded};

/// Rules by the flow that they ask for, and by the port where they ask for that too.
#[derive(Clone, Debug)]
pub(super) struct Flows<C> {
    at_port: HashMap<AtPort, Placed<C>, Seeded>,
    anywhere: HashMap<FlowKey, Placed<C>, Seeded>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct AtPort {
    flow: FlowKey,
    port: u16,
}

impl<C: Copy> Flows<C> {
    pub(super) fn new(seed: u64) -> Self {
        Self { at_port: HashMap::with_hasher(Seeded(seed)), anywhere: HashMap::with_hasher(Seeded(seed)) }
    }

    /// Adds the rule at `place`, behind those that were added before; false where it is none for one flow.
    pub(super) fn insert(&mut self, place: u32, rule: &Rule<C>) -> bool {
        let Some(flow) = rule.flow() else { return false };
        let placed = Placed { place, class: rule.class };
        match rule.port {
            Some(port) => self.at_port.entry(AtPort { flow, port }).or_insert(placed),
            None => self.anywhere.entry(flow).or_insert(placed),
        };
        true
    }

    pub(super) fn is_empty(&self) -> bool {
        self.at_port.is_empty() && self.anywhere.is_empty()
    }

    /// The first rule that asks for the frame's flow.
    pub(super) fn first(&self, port: u16, frame: &Frame) -> Option<Placed<C>> {
        if self.is_empty() {
            return None;
        }
        let flow = asked_for(frame)?;
        let at_port = if self.at_port.is_empty() { None } else { self.at_port.get(&AtPort { flow, port }) };
        let anywhere = if self.anywhere.is_empty() { None } else { self.anywhere.get(&flow) };
        Placed::first(at_port.copied(), anywhere.copied())
    }
}

/// The flow of a frame as rules see it, which is not [`Frame::flow`]: a datagram's first fragment has its ports, what has none is of no
/// flow, and a mapped IPv4 address is IPv4.
fn asked_for(frame: &Frame) -> Option<FlowKey> {
    let ip = frame.ip.as_ref()?;
    let (source_port, destination_port) = ip.transport.ports()?;
    let (source, destination) = (ip.source.to_canonical(), ip.destination.to_canonical());
    Some(FlowKey { source, destination, protocol: ip.protocol, source_port, destination_port })
}
