//! A run: the network, its hosts, and what happens to them, one event after the other.

mod build;
mod hosts;

use weirgate_balance::Port;
use weirgate_balance::symmetry::Symmetry;
use weirgate_balance::topology::{Link, Node, Topology, TopologyError};
use weirgate_shape::Wheel;
use weirgate_units::{Duration, Instant};

use crate::chance::Chance;
use crate::events::{EventId, Events};
use crate::flow::Flows;
use crate::line::{Line, Target, Visible};
use crate::measure::{Carried, Hop, Measures};
use crate::packet::{Event, Kind};
use crate::switch::Switch;
use crate::tcp::Reply;
use crate::workload::Workload;
use crate::{LineCounters, Scheme, Span, TcpSettings, Time};

/// What a run is made of, beside its network and its workload.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Of everything random.
    pub seed: u64,
    /// How load is balanced.
    pub scheme: Scheme,
    /// The hosts' TCP.
    pub tcp: TcpSettings,
    /// Room for packets.
    pub buffers: Buffers,
    /// A packet is marked where so many bytes wait (ECN); nothing: none is.
    pub mark: Option<u64>,
    /// Engines of each switch, which decide each for itself. Ports are theirs in turn.
    pub engines: u16,
    /// How long a packet is on its way from an engine to its queue, where others do not see it yet.
    pub enqueue_delay: Span,
    /// How long routing takes to learn of a link that went down or up. The switches at both ends of one that went down know at once.
    pub routing_delay: Span,
    /// How often queues are measured; nothing: never.
    pub sample_every: Option<Span>,
}

impl Settings {
    /// The article's switches: 300 KB for each port, one engine, queues measured each 10 us.
    pub fn new(seed: u64, scheme: Scheme) -> Self {
        Self {
            seed,
            scheme,
            tcp: TcpSettings::default(),
            buffers: Buffers::PerPort(300_000),
            mark: None,
            engines: 1,
            enqueue_delay: Span::ZERO,
            routing_delay: Span::ZERO,
            sample_every: Some(Span::from_micros(10)),
        }
    }
}

/// Room for packets in a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Buffers {
    /// Bytes for each port.
    PerPort(u64),
    /// Bytes for all ports of a switch: who needs them has them.
    Shared(u64),
}

/// A link goes down, or comes up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// When.
    pub at: Time,
    /// Which.
    pub link: Link,
    /// Whether it is up then.
    pub is_up: bool,
}

/// A run.
#[derive(Debug)]
pub struct Simulation {
    settings: Settings,
    topology: Topology,
    symmetry: Option<Symmetry>,
    leaves: Vec<Node>,
    now: Time,
    events: Events<Event>,
    /// Those of each node follow each other, by port.
    lines: Vec<Line>,
    /// By node.
    first_lines: Vec<u32>,
    /// What engines see of them; empty, if there is no delay.
    visible: Vec<Visible>,
    switches: Vec<Switch>,
    /// By node.
    targets: Vec<Target>,
    /// By leaf, which of the switches it is.
    leaf_switches: Vec<u32>,
    hosts: Vec<Host>,
    flows: Flows,
    timers: Wheel<(u32, u32)>,
    timers_at: Time,
    workload: Box<dyn Workload>,
    arrival_at: Time,
    changes: Vec<Change>,
    measures: Measures,
    /// The uplinks of each leaf, and the downlinks to it: their queues should be alike.
    alike: Vec<(bool, Vec<u32>)>,
    replies: Vec<Reply>,
    /// What each line loses is drawn from its own.
    losses: Vec<Chance>,
    digest: u64,
    /// Events that will happen before [`fetch`](Self::fetch) is of use again.
    fetched: usize,
}

#[derive(Clone, Debug)]
struct Host {
    /// Its own line.
    line: u32,
    /// The line that leads to it.
    last_line: u32,
    leaf: u16,
    chance: Chance,
}

/// Timers of flows are as coarse as a kernel's: rounded up to 2^20 ns.
const TIMER_TICK: Duration = Duration::from_nanos(1 << 20);

/// The first of the streams that lines' losses are drawn from, one each, and hosts' first one: switches have those from 1 on.
const LOSSES: u64 = 1 << 40;
const HOSTS: u64 = 1 << 41;

/// Events whose data are fetched at a time: as many reads as a processor has under way, twice over. With 16 and 64 it is as fast.
const FETCHED: usize = 32;

/// A host's own queue has room for all.
const ALL: u64 = u64::MAX;

impl Simulation {
    /// A run of `workload` in a network; links that are down stay down unless `changes` has them come up.
    ///
    /// # Errors
    /// Where the network cannot be used.
    pub fn new(
        topology: Topology,
        settings: Settings,
        workload: Box<dyn Workload>,
        mut changes: Vec<Change>,
    ) -> Result<Self, TopologyError> {
        topology.check()?;
        changes.sort_by_key(|change| change.at);
        let leaves = topology.leaves();
        let symmetry = matches!(settings.scheme, Scheme::Drill(_)).then(|| Symmetry::new(&topology));
        let mut simulation = Self {
            symmetry,
            now: Time::ZERO,
            events: Events::new(),
            lines: Vec::new(),
            first_lines: Vec::new(),
            visible: Vec::new(),
            switches: Vec::new(),
            targets: Vec::new(),
            leaf_switches: Vec::new(),
            hosts: Vec::new(),
            flows: Flows::default(),
            timers: Wheel::new(Instant::ZERO, TIMER_TICK, 1 << 12),
            timers_at: Time::MAX,
            workload,
            arrival_at: Time::MAX,
            changes,
            measures: Measures::default(),
            alike: Vec::new(),
            replies: Vec::new(),
            losses: Vec::new(),
            digest: settings.seed,
            fetched: 0,
            settings,
            topology,
            leaves,
        };
        simulation.build();
        simulation.build_conga();
        simulation.route();
        if let Some(every) = simulation.settings.sample_every {
            simulation.events.schedule(Time::ZERO + every, Event::Sample);
        }
        for (number, change) in simulation.changes.iter().enumerate() {
            simulation.events.schedule(change.at, Event::Change(number as u32));
        }
        simulation.arm_arrival();
        Ok(simulation)
    }

    /// From now on a link loses this share of the packets that `from`, one of its ends, sends by it, each for itself: a link that is
    /// damaged but not down, of which routing learns nothing. From 0 to 1, in steps of 2^-32; what is beyond is as one step below 1.
    ///
    /// # Panics
    /// Where `from` is not an end of the link.
    pub fn set_loss(&mut self, link: Link, from: Node, share: f64) {
        let line = self.line_of(link, from);
        self.lines[line].loss = (share * 4_294_967_296.0) as u32;
    }

    /// The time now.
    pub const fn now(&self) -> Time {
        self.now
    }

    /// What was measured so far.
    pub const fn measures(&self) -> &Measures {
        &self.measures
    }

    /// Forgets what was measured so far. Measured are flows that begin from now on: all, or the next `flows`. When all of these have begun,
    /// the workload goes on for as long as that took, or until 99 % have ended; then nothing begins any more, so that the last ones, which
    /// wait for a timer, do not cost a long run. The run is [over](Self::is_over) when all have ended.
    pub fn begin_measures(&mut self, flows: Option<u64>) {
        let limit = flows.unwrap_or(u64::MAX);
        self.measures = Measures { began: self.now, limit, hops: self.measures.hops.clone(), ..Measures::default() };
        for line in &mut self.lines {
            line.begin_counts(self.now);
        }
        self.flows.iter_mut().for_each(|flow| flow.is_measured = false);
    }

    /// A hash of all packet arrivals so far, at switches and hosts, of each its time, its line and its number in its flow: the same on every
    /// machine. Timers, samples and failures are in it by the packets that come of them.
    pub const fn digest(&self) -> u64 {
        self.digest
    }

    /// Whether all flows have ended, and none will begin.
    pub fn is_over(&self) -> bool {
        self.flows.len() == 0 && (self.measures.is_enough(self.now) || self.workload.poll_at().is_none())
    }

    /// Flows that have begun and not ended.
    pub const fn flows_under_way(&self) -> usize {
        self.flows.len()
    }

    /// Flows that are measured and have begun, and all that have still to begin; nothing, where the workload does not know how many.
    pub fn flows_to_measure(&self) -> Option<u64> {
        Some(self.measures.started + self.workload.flows_left()?)
    }

    /// What each line did, with its place among the hops.
    pub fn lines(&self) -> impl Iterator<Item = (Hop, &LineCounters)> {
        self.lines.iter().map(|line| (self.measures.hops[usize::from(line.hop)], &line.counters))
    }

    /// What was carried while the flows that are measured began.
    pub fn carried(&self) -> Carried {
        self.measures.carried.clone().unwrap_or_else(|| self.carried_until_now())
    }

    fn carried_until_now(&self) -> Carried {
        let (mut uplinks, mut lines) = (Vec::new(), Vec::new());
        let mut leaves = self.leaves.iter().peekable();
        for node in self.topology.nodes() {
            // Leaves are in the order of nodes.
            let is_leaf = leaves.next_if_eq(&&node).is_some();
            let first = self.first_lines[node.index()] as usize;
            for (port, link) in self.topology.ports(node).iter().enumerate() {
                if self.topology.is_up(*link) {
                    let (rate, line) = (self.topology.settings(*link).rate, &self.lines[first + port]);
                    let carried = line.carried(self.now);
                    lines.push((self.measures.hops[usize::from(line.hop)], rate, carried));
                    if is_leaf && !self.topology.is_host(self.topology.far_end(*link, node)) {
                        uplinks.push((rate, carried));
                    }
                }
            }
        }
        let time = self.now.saturating_since(self.measures.began);
        Carried { time, payload: self.measures.delivered, uplinks, lines }
    }

    /// Packets that left a queue: hops.
    pub fn packet_hops(&self) -> u64 {
        self.lines.iter().map(|line| line.counters.packets).sum()
    }

    /// Runs until a time, or until [`is_over`](Self::is_over). Whether it is not.
    pub fn run_until(&mut self, until: Time) -> bool {
        while !self.is_over() {
            match self.events.pop_at() {
                Some(at) if at <= until => self.step(),
                _ => {
                    self.now = until;
                    return true;
                }
            }
        }
        false
    }

    /// The next event, which there is.
    fn step(&mut self) {
        if self.fetched == 0 {
            self.fetched = self.fetch();
        }
        self.fetched -= 1;
        let Some((now, id)) = self.events.pop() else { return };
        self.now = now;
        let Event::Packet(packet) = &self.events[id] else { return self.other(now, id) };
        self.digest = (self.digest ^ now.as_picos() ^ (u64::from(packet.line) << 40 | u64::from(packet.seq)))
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .rotate_left(23);
        let line = &mut self.lines[packet.line as usize];
        if line.has_lost(packet.epoch, now) || (line.loss > 0 && self.losses[packet.line as usize].bits() < line.loss) {
            line.counters.lost += 1;
            return self.lose(id);
        }
        match line.to {
            Target::Switch(switch) => {
                let in_port = line.far_port;
                self.forward(now, id, switch as usize, in_port);
            }
            Target::Host(_) => self.receive(now, id),
        }
    }

    /// Reads what the next events will look at first, so that they find it in the caches: one by one, each would wait for memory in turn.
    /// All packets first, then what they lead to: what is read by what has not come yet ends the reading ahead. How many events, 1 at
    /// least.
    fn fetch(&self) -> usize {
        let mut packets = [(0, 0, 0); FETCHED];
        let mut count = 0;
        for (ahead, id) in packets.iter_mut().zip(self.events.ahead(FETCHED)) {
            if let Event::Packet(packet) = &self.events[id] {
                *ahead = (packet.line, packet.leaf, packet.flow);
            }
            count += 1;
        }
        let read = packets[..count].iter().map(|(line, leaf, flow)| match self.lines[*line as usize].to {
            Target::Switch(switch) => self.switches[switch as usize].fetch(*leaf),
            Target::Host(_) => self.flows.fetch(*flow),
        });
        std::hint::black_box(read.fold(0, u32::wrapping_add));
        count.max(1)
    }

    fn other(&mut self, now: Time, id: EventId) {
        match self.events.take(id) {
            Event::Packet(_) => unreachable!("that was looked at"),
            Event::Timers => self.handle_timers(now),
            Event::Wake(flow) => {
                self.flows[flow].is_waking = false;
                self.flows[flow].events -= 1;
                self.pump(now, flow);
                self.end(flow);
            }
            Event::Shim(flow) => self.handle_shim(now, flow),
            Event::Arrival => {
                if self.arrival_at <= now {
                    self.arrival_at = Time::MAX;
                }
                while let Some(start) = if self.measures.is_enough(self.now) { None } else { self.workload.poll(now) } {
                    self.start(now, start);
                }
                self.arm_arrival();
            }
            Event::Sample => self.sample(now),
            Event::Change(number) => {
                let Change { link, is_up, .. } = self.changes[number as usize];
                for from in self.topology.ends(link) {
                    let line = self.line_of(link, from);
                    self.lines[line].set_up(now, is_up);
                    if let Some(visible) = self.visible.get_mut(line) {
                        *visible = Visible::default();
                    }
                    self.leave_out_what_is_down(from);
                }
                self.events.schedule(now + self.settings.routing_delay, Event::Reroute(number));
            }
            Event::Reroute(number) => {
                let Change { at, link, is_up } = self.changes[number as usize];
                match &mut self.symmetry {
                    Some(symmetry) => symmetry.set_up(&mut self.topology, link, is_up),
                    None => self.topology.set_up(link, is_up),
                }
                // Of links that change at once routing learns at once.
                if self.changes.get(number as usize + 1).is_none_or(|next| next.at != at) {
                    self.route();
                }
            }
        }
    }

    /// A packet has come to a switch.
    #[inline]
    fn forward(&mut self, now: Time, id: EventId, at: usize, in_port: u16) {
        let Event::Packet(packet) = &mut self.events[id] else { return };
        let switch = &mut self.switches[at];
        let line = if packet.leaf == switch.leaf {
            switch.handle_arrived(now.to_instant(), packet);
            self.hosts[packet.host as usize].last_line
        } else {
            let first = switch.first_line;
            let (lines, visible) = (&self.lines, &mut self.visible);
            let port = if visible.is_empty() {
                let depths = |port: Port| lines[first as usize + usize::from(port.0)].depth(now);
                switch.pick(&self.settings.scheme, now.to_instant(), packet, in_port, &depths)
            } else {
                for port in switch.table.group(packet.leaf).map_or(&[][..], |group| &group.ports) {
                    visible[first as usize + usize::from(port.0)].advance(now);
                }
                let depths = |port: Port| {
                    let line = first as usize + usize::from(port.0);
                    visible[line].depth(&lines[line], now)
                };
                switch.pick(&self.settings.scheme, now.to_instant(), packet, in_port, &depths)
            };
            let Some(port) = port else {
                self.measures.no_route += 1;
                return self.lose(id);
            };
            first + u32::from(port.0)
        };
        let enqueued_at = now + self.settings.enqueue_delay;
        let room = match self.settings.buffers {
            Buffers::PerPort(bytes) => bytes,
            Buffers::Shared(bytes) => self.shared_room(enqueued_at, at, line, bytes),
        };
        self.send(now, enqueued_at, id, line, room);
    }

    /// What a port may hold, when a packet comes to its queue, of a buffer that all ports of a switch share: what it has, and what is left.
    fn shared_room(&self, now: Time, at: usize, line: u32, bytes: u64) -> u64 {
        let first = self.switches[at].first_line as usize;
        let used: u64 = self.lines[first..first + self.switches[at].ports].iter().map(|line| line.depth(now)).sum();
        self.lines[line as usize].depth(now) + bytes.saturating_sub(used)
    }

    /// A packet goes into a queue, if there is room.
    #[inline]
    fn send(&mut self, now: Time, enqueued_at: Time, id: EventId, number: u32, room: u64) {
        let line = &mut self.lines[number as usize];
        let Event::Packet(packet) = &mut self.events[id] else { return };
        if !line.is_up {
            line.counters.lost += 1;
            return self.lose(id);
        }
        let Some(taken) = line.take(enqueued_at, packet.wire, room) else {
            return self.lose(id);
        };
        (packet.line, packet.epoch) = (number, line.epoch);
        packet.ce |= taken.is_marked && packet.kind == Kind::Data;
        self.events.reschedule(id, taken.arrives_at);
        if enqueued_at > now
            && let Some(visible) = self.visible.get_mut(number as usize)
        {
            visible.note(now, enqueued_at, taken.leaves_at);
        }
    }

    /// A packet is no more.
    fn lose(&mut self, id: EventId) {
        let Event::Packet(packet) = self.events.take(id) else { return };
        let flow = &mut self.flows[packet.flow];
        flow.lost += u32::from(packet.kind == Kind::Data);
        flow.events -= 1;
        self.end(packet.flow);
    }

    fn sample(&mut self, now: Time) {
        // While the last ones end, queues are nobody's.
        if self.measures.is_enough(self.now) || self.is_over() {
            return;
        }
        for visible in &mut self.visible {
            visible.advance(now);
        }
        let depth = |at: usize| match self.visible.get(at) {
            // What is still on its way to the queue is not in it.
            Some(visible) => visible.depth(&self.lines[at], now),
            None => self.lines[at].depth(now),
        };
        for (is_up, lines) in &self.alike {
            let there = lines.iter().map(|line| *line as usize).filter(|line| self.lines[*line].is_up);
            self.measures.sample(*is_up, there.map(depth));
        }
        if let Some(every) = self.settings.sample_every {
            self.events.schedule(now + every, Event::Sample);
        }
    }
}
