//! A switch: by which port a packet goes on.

use weirgate_balance::{
    Conga, Depths, DrillPerFlow, Ecmp, Estimator, FlowHash, Flowlets, Header, LetFlow, Memory, Port, RoundRobin,
    Schedule, Wcmp, random, shortest,
};
use weirgate_units::Instant;

use crate::Scheme;
use crate::chance::Chance;
use crate::packet::{NO_FEEDBACK, Packet};
use crate::routes::{NO_GROUP, Table};

/// A switch is no leaf.
pub(crate) const NO_LEAF: u16 = u16::MAX;

/// What a switch knows and remembers. What every packet needs is in its first cache line, what balancers draw and remember in the second.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Switch {
    pub(crate) table: Table,
    /// The line at its port 0; the others follow.
    pub(crate) first_line: u32,
    /// Its place among the leaves.
    pub(crate) leaf: u16,
    /// Engines that decide for themselves: ports are theirs in turn.
    pub(crate) engines: u16,
    seed: u64,
    chance: Chance,
    /// DRILL's, by engine and component.
    memories: Vec<Memory>,
    /// By engine and group.
    turns: Vec<RoundRobin>,
    pub(crate) ports: usize,
    flows: Option<Flows>,
    conga: Option<Conga>,
    /// CONGA's, by port, above the leaves.
    estimators: Vec<Estimator>,
}

/// Flows that keep their ports.
#[derive(Debug)]
enum Flows {
    LetFlow(LetFlow),
    /// For as long as they are there.
    Drill(DrillPerFlow),
}

/// Places in the table of flows that DRILL places once: so many that they hardly ever share one at the same time.
pub(crate) const DRILL_PLACES: u32 = 1 << 19;

impl Switch {
    pub(crate) fn new(
        first_line: u32,
        ports: usize,
        leaf: u16,
        engines: u16,
        seed: u64,
        stream: u64,
        scheme: &Scheme,
    ) -> Self {
        let mut chance = Chance::new(seed, stream);
        let flows = match scheme {
            Scheme::LetFlow { gap, places } => Some(Flows::LetFlow(LetFlow::new(Flowlets::new(
                *places,
                weirgate_units::Duration::from_nanos(gap.as_nanos()),
            )))),
            Scheme::DrillPerFlow(looks) => Some(Flows::Drill(DrillPerFlow::new(*looks, DRILL_PLACES))),
            _ => None,
        };
        let seed = u64::from(chance.bits()) << 32 | u64::from(chance.bits());
        Self {
            first_line,
            ports,
            leaf,
            engines: engines.max(1),
            seed,
            table: Table::default(),
            chance,
            memories: Vec::new(),
            turns: Vec::new(),
            flows,
            conga: None,
            estimators: Vec::new(),
        }
    }

    /// Routing has found other ways: what is remembered of groups is forgotten.
    pub(crate) fn set_table(&mut self, table: Table) {
        let engines = usize::from(self.engines);
        self.memories = vec![Memory::default(); engines * table.components];
        self.turns = vec![RoundRobin::default(); engines * table.groups.len()];
        self.table = table;
    }

    /// Reads what the next packet to a leaf will look at first.
    #[inline]
    pub(crate) fn fetch(&self, leaf: u16) -> u32 {
        self.table.group(leaf).map_or(0, |group| u32::from(group.ports[0].0))
    }

    pub(crate) fn set_conga(&mut self, conga: Option<Conga>, estimators: Vec<Estimator>) {
        (self.conga, self.estimators) = (conga, estimators);
    }

    /// The port for a packet to another leaf, that came by `in_port`; none, if there is no way.
    #[inline]
    pub(crate) fn pick(
        &mut self,
        scheme: &Scheme,
        now: Instant,
        packet: &mut Packet,
        in_port: u16,
        depths: &impl Depths,
    ) -> Option<Port> {
        let at = self.table.by_leaf[usize::from(packet.leaf)];
        if at == NO_GROUP {
            return None;
        }
        let group = &self.table.groups[usize::from(at)];
        let ports = &*group.ports;
        // CONGA's feedback goes by packets that have no choice as well.
        if let ([port], false) = (ports, matches!(scheme, Scheme::Conga(_))) {
            return Some(*port);
        }
        let flow = FlowHash::from_u64(u64::from(packet.hash));
        let engine = usize::from(in_port % self.engines);
        let port = match scheme {
            Scheme::Drill(looks) => {
                let memory = engine * self.table.components + group.first_component;
                if group.components.len() == 1 {
                    // All ports: another list of them would be another cache miss.
                    debug_assert_eq!(group.components[0], group.ports);
                    self.memories[memory].pick(*looks, ports, depths, &mut self.chance)
                } else {
                    // Another seed than that of the hash within a component would have: there is none.
                    let component = Wcmp { seed: self.seed }.pick(&group.component_weights, flow);
                    let ports = &group.components[component];
                    self.memories[memory + component].pick(*looks, ports, depths, &mut self.chance)
                }
            }
            Scheme::DrillPerFlow(_) => {
                let Some(Flows::Drill(flows)) = &mut self.flows else { unreachable!("made with the scheme") };
                let memory = &mut self.memories[engine * self.table.components + group.first_component];
                flows.pick(now, flow, ports, memory, depths, &mut self.chance)
            }
            Scheme::Random => random(ports, &mut self.chance),
            Scheme::RoundRobin => self.turns[engine * self.table.groups.len() + usize::from(at)].pick(ports),
            Scheme::Shortest { quantum } => shortest(ports, *quantum, depths, &mut self.chance),
            Scheme::Wcmp => ports[Wcmp { seed: self.seed }.pick(&group.weights, flow)],
            Scheme::Ecmp | Scheme::Label(_) | Scheme::Reps => Ecmp { seed: self.seed }.pick(ports, flow),
            Scheme::LetFlow { .. } => {
                let Some(Flows::LetFlow(flows)) = &mut self.flows else { unreachable!("made with the scheme") };
                flows.pick(now, flow, ports, &mut self.chance)
            }
            Scheme::Presto if self.leaf == packet.from_leaf => ports[usize::from(packet.tree) % ports.len()],
            Scheme::Presto => {
                // A digit for each choice above the leaf: by the same number at two stages half of the ways there would be left out.
                let turns = group.schedule.as_ref().map_or(&[][..], Schedule::turns);
                let count = turns.len().max(1) as u32;
                let digit = packet.hash % count;
                packet.hash /= count;
                ports[turns.get(digit as usize).map_or(0, |tree| usize::from(*tree))]
            }
            Scheme::Conga(_) => match &mut self.conga {
                Some(conga) if self.leaf == packet.from_leaf => {
                    let leaf = usize::from(packet.leaf);
                    let (port, header) = conga.pick(now, leaf, flow, ports, &mut self.chance);
                    packet.uplink = header.uplink;
                    packet.feedback = header.feedback.map_or(NO_FEEDBACK, |(uplink, congestion)| [uplink, congestion]);
                    port
                }
                _ => Ecmp { seed: self.seed }.pick(ports, flow),
            },
        };
        if let Scheme::Conga(_) = scheme {
            self.mark(now, packet, port);
        }
        Some(port)
    }

    /// A packet has come to the leaf that it goes to.
    pub(crate) fn handle_arrived(&mut self, now: Instant, packet: &Packet) {
        if let Some(conga) = &mut self.conga
            && packet.from_leaf != self.leaf
        {
            conga.handle_received(now, usize::from(packet.from_leaf), &header(packet));
        }
    }

    /// CONGA: the packet leaves by a port.
    fn mark(&mut self, now: Instant, packet: &mut Packet, port: Port) {
        let size = weirgate_units::Bytes::new(u64::from(packet.wire));
        let mut header = header(packet);
        match &mut self.conga {
            Some(conga) => conga.handle_sent(now, port, size, &mut header),
            None => {
                let estimator = &mut self.estimators[usize::from(port.0)];
                estimator.handle_sent(now, size);
                estimator.mark(now, &mut header);
            }
        }
        packet.congestion = header.congestion;
    }
}

fn header(packet: &Packet) -> Header {
    let feedback = (packet.feedback != NO_FEEDBACK).then_some((packet.feedback[0], packet.feedback[1]));
    Header { uplink: packet.uplink, congestion: packet.congestion, feedback }
}
