//! Frames between ports, through the limits: the pipeline of the software switch.
//!
//! A frame that comes in is read ([`Frame`]), finds its way ([`Macs`](crate::Macs): learnt, flooded, or the port's fixed peer), and is
//! classified twice ([`Classifier`]): by the port it came from and by the port it goes to. A super-packet that would take longer than
//! [`STEP`] at the lowest rate on its way, or is more than a limit ever lets pass, is cut before it waits. Then the limits of the first
//! class, and those of the second ([`Limits`]); what is released is handed out, to be sent by whoever drives this.
//!
//! No clock, no device: [`Bridge::handle_frame`] in, [`Bridge::poll_frame`] out, [`Bridge::poll_at`] says when. Nothing that comes
//! in is dropped without being counted, here or by the limit that dropped it.
//!
//! Not over [`Port`](weirgate_port::Port)s, as [`Switch`](crate::Switch) is: a frame comes with the queue that it was read from, which a
//! limit may want left unread, and with holds and offloads that it keeps; whoever read it is told what it counts for; and a device may
//! have no room for what is sent, and gets it again. A `Port`, one way for packets that it takes in any case, says none of that.

mod handshakes;
#[cfg(test)]
mod tests;
mod ways;

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;
use weirgate_port::{Offload, Packet};
use weirgate_units::{BitRate, Bytes, Duration, Instant, Packets};

use self::handshakes::Handshakes;
use self::ways::Ways;
use crate::class::{Cached, Classifier, Rule, RuleError};
use crate::frame::{Accounting, Ecn, Frame, Ip, Mac, Segments, Sums, Transport};
use crate::limits::{
    Admission, Arrival, ClassId, ClassSettings, Flow, LimitCounters, LimitId, LimitSettings, Limits, ReleaseFate,
    SharedLimit, Signal, SourceId,
};
use crate::macs::{Decision, MacsFull};

/// The longest that a super-packet may take at the lowest rate on its way without being cut: what others wait for behind it, and
/// what a look at any window of time may miss at either end (of 100 ms, half a percent).
pub const STEP: Duration = Duration::from_micros(500);

/// Packets that a super-packet may be: 64 KiB in segments of 48 bytes, the shortest that Linux's TCP makes (`TCP_MIN_MSS`).
const SEGMENTS_MAX: Packets = Packets::new(65_536 / 48);

/// A port, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BridgePort(u16);

impl BridgePort {
    /// Ports are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// Which way a class looks at a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// What comes in by it.
    From,
    /// What goes out by it.
    To,
}

/// A class of traffic: its limits and how they count.
#[derive(Clone, Debug)]
pub struct BridgeClass {
    /// The limits above it, the nearest first.
    pub limits: Vec<LimitId>,
    /// How its frames are counted, by all of them.
    pub accounting: Accounting,
    /// Where they wait.
    pub queue: ClassSettings,
}

/// A class of this bridge, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassRef(u32);

/// What a bridge did beside its limits, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BridgeCounters {
    /// Handed in. This and `added` are the sum of `sent`, `limited`, what was [`Dropped`] of all ports, and what waits.
    pub received: u64,
    /// Handed out. A flooded one counts at each port, a super-packet that was cut with each of its pieces.
    pub sent: u64,
    /// Pieces made of super-packets, and copies made of flooded frames, less one for each.
    pub added: u64,
    /// Dropped by a limit.
    pub limited: u64,
    /// Super-packets that were cut.
    pub cut: u64,
    /// Marked with congestion (ECN CE); others that were to be marked are not ECN-capable and were sent as they were.
    pub marked: u64,
}

impl BridgeCounters {
    /// These and another thread's.
    pub const fn and(mut self, other: &Self) -> Self {
        self.received += other.received;
        self.sent += other.sent;
        self.added += other.added;
        self.limited += other.limited;
        self.cut += other.cut;
        self.marked += other.marked;
        self
    }
}

/// Frames of a port that were dropped, but by no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// They contradict themselves.
    pub malformed: u64,
    /// Their receiver is where they came from, or their sender cannot be.
    pub filtered: u64,
}

#[derive(Debug, Default)]
struct Port {
    /// Where all goes that comes in by it, if it has one.
    peer: Option<BridgePort>,
    dropped: Dropped,
}

/// Where a frame comes from.
#[derive(Clone, Copy, Debug)]
struct Origin {
    port: BridgePort,
    source: Option<SourceId>,
    /// The class whose limits are before it there.
    class: Option<ClassRef>,
}

/// A frame that waits, or is about to be sent.
#[derive(Debug)]
struct Item {
    packet: Packet,
    to: Target,
    /// The limits on its way, those of where it comes from first; and how many of the two are behind it.
    stages: [Option<Stage>; 2],
    passed: usize,
    source: Option<SourceId>,
    /// Whose it is, once it has waited.
    flow: Flow,
    signal: Signal,
}

/// The limits of a class, and what a frame counts for in it.
#[derive(Clone, Copy, Debug)]
struct Stage {
    class: ClassId,
    accounting: Accounting,
    size: Bytes,
}

/// Where a frame goes.
#[derive(Clone, Copy, Debug)]
enum Target {
    Port(BridgePort),
    /// To every port but one, once it has passed the limits of where it comes from.
    AllBut(BridgePort),
}

#[derive(Debug)]
struct Class {
    id: ClassId,
    accounting: Accounting,
}

/// Ports, classes and limits.
#[derive(Debug)]
pub struct Bridge {
    ports: Vec<Port>,
    ways: Ways,
    handshakes: Handshakes,
    classes: Vec<Class>,
    from: Cached<ClassRef>,
    to: Cached<ClassRef>,
    limits: Limits<u32>,
    /// What waits, by the number that limits have it by: it is moved once, however many queues it goes through.
    waiting: Slab<Item>,
    leaving: VecDeque<(BridgePort, Packet)>,
    /// Their memory.
    leaving_memory: Bytes,
    seed: u64,
    counters: BridgeCounters,
}

/// Rules, and what was found by them where that takes long.
fn classifier(rules: Vec<Rule<ClassRef>>, seed: u64) -> Result<Cached<ClassRef>, RuleError> {
    Ok(Cached::where_it_pays(Classifier::new(rules, seed)?, seed))
}

impl Bridge {
    /// A bridge without ports. The rates of its limits are best between `slowest` and `fastest`; what waits takes at most
    /// `memory_max`. `seed` is to be secret: flows and addresses are hashed with it.
    pub fn new(now: Instant, slowest: BitRate, fastest: BitRate, memory_max: Bytes, seed: u64) -> Self {
        let none = || classifier(Vec::new(), seed).expect("no rules are sound rules");
        Self {
            ports: Vec::new(),
            ways: Ways::new(seed),
            handshakes: Handshakes::new(seed),
            classes: Vec::new(),
            from: none(),
            to: none(),
            limits: Limits::new(now, slowest, fastest, memory_max),
            waiting: Slab::new(),
            leaving: VecDeque::new(),
            leaving_memory: Bytes::ZERO,
            seed,
            counters: BridgeCounters::default(),
        }
    }

    /// Adds a port.
    ///
    /// # Panics
    /// Past 2^16 ports.
    pub fn add_port(&mut self) -> BridgePort {
        let id = BridgePort(u16::try_from(self.ports.len()).expect("fewer than 2^16 ports"));
        self.ports.push(Port::default());
        id
    }

    /// Sends everything that comes in by `a` out by `b`, and the other way round: no addresses are learnt there.
    pub fn join(&mut self, a: BridgePort, b: BridgePort) {
        self.ports[a.index()].peer = Some(b);
        self.ports[b.index()].peer = Some(a);
    }

    /// Learns addresses and round trips together with `other`, which serves other queues of the same ports on another thread and has
    /// the same seed.
    pub fn learn_with(&mut self, other: &Self) {
        self.ways = Ways::with(&other.ways);
        self.handshakes = Handshakes::with(&other.handshakes);
    }

    /// Adds a limit.
    pub fn add_limit(&mut self, now: Instant, settings: LimitSettings) -> LimitId {
        self.limits.add_limit(now, settings)
    }

    /// Adds a limit that is kept together with other threads'; see [`Limits::add_shared_limit`].
    pub fn add_shared_limit(&mut self, now: Instant, shared: &Arc<SharedLimit>, member: usize) -> LimitId {
        self.limits.add_shared_limit(now, shared, member)
    }

    /// Takes this thread's shares of what is kept together; see [`Limits::balance`].
    pub fn balance(&mut self, now: Instant) {
        self.limits.balance(now);
    }

    /// When to [`balance`](Self::balance) at the latest.
    pub fn balance_at(&self, now: Instant) -> Option<Instant> {
        self.limits.balance_at(now)
    }

    /// Gives back what this thread need not keep while it has nothing to do; see [`Limits::handle_idle`].
    pub fn handle_idle(&mut self) {
        self.limits.handle_idle();
    }

    /// Adds a class; [`set_rules`](Self::set_rules) says what belongs to it.
    ///
    /// # Panics
    /// Past 2^32 classes.
    pub fn add_class(&mut self, class: &BridgeClass) -> ClassRef {
        let at = ClassRef(u32::try_from(self.classes.len()).expect("fewer than 2^32 classes"));
        let id = self.limits.add_class(class.queue, &class.limits);
        self.classes.push(Class { id, accounting: class.accounting });
        at
    }

    /// Adds a queue of a port that frames are read from, held back by `gate`, and by its backlog where that is not to exceed
    /// `backlog_max`.
    pub fn add_source(&mut self, gate: Option<LimitId>, backlog_max: Option<Bytes>) -> SourceId {
        self.limits.add_source(gate, backlog_max)
    }

    /// Says which frames belong to which class, in both directions. What no rule asks for is not limited.
    ///
    /// # Errors
    /// The rule that cannot be; nothing is changed.
    pub fn set_rules(&mut self, from: Vec<Rule<ClassRef>>, to: Vec<Rule<ClassRef>>) -> Result<(), RuleError> {
        let from = classifier(from, self.seed)?;
        self.to = classifier(to, self.seed)?;
        self.from = from;
        Ok(())
    }

    /// What was done beside the limits.
    pub const fn counters(&self) -> &BridgeCounters {
        &self.counters
    }

    /// What came by a port and was dropped beside the limits.
    pub fn dropped(&self, port: BridgePort) -> Dropped {
        self.ports[port.index()].dropped
    }

    /// The limits; rates are changed by [`set_rate`](Self::set_rate).
    pub fn limit_counters(&self, limit: LimitId, now: Instant) -> LimitCounters {
        self.limits.counters(limit, now)
    }

    /// A limit's rate.
    pub fn rate(&self, limit: LimitId) -> BitRate {
        self.limits.rate(limit)
    }

    /// Changes a limit's rate from `now` on, for what waits as well.
    pub fn set_rate(&mut self, now: Instant, limit: LimitId, rate: BitRate) {
        self.limits.set_rate(now, limit, rate);
    }

    /// Has an address at a port only, whatever others say; see [`Macs::set`](crate::Macs::set).
    ///
    /// # Errors
    /// Where there is no room for more of these.
    pub fn set_address(&mut self, mac: Mac, port: BridgePort) -> Result<(), MacsFull> {
        self.ways.set(mac, port)
    }

    /// Says that a port is gone: what was learnt of it is forgotten.
    pub fn handle_gone(&mut self, port: BridgePort) {
        self.ways.forget_port(port);
    }

    /// Changes what may pass a limit at once after idling; see [`Limits::set_burst`].
    pub fn set_burst(&mut self, now: Instant, limit: LimitId, burst: Bytes) {
        self.limits.set_burst(now, limit, burst);
    }

    /// Changes what may wait in a class.
    pub fn set_queue_max(&mut self, class: ClassRef, queue_max: Bytes) {
        self.limits.set_queue_max(self.classes[class.0 as usize].id, queue_max);
    }

    /// How exactly waiting frames are released: a slot of the wheel.
    pub const fn tick(&self) -> Duration {
        self.limits.tick()
    }

    /// The memory that waiting frames take.
    pub const fn memory(&self) -> Bytes {
        self.limits.memory()
    }

    // ---- sources: see the methods of the same names of [`Limits`] ----

    /// Says that a source has something to be read.
    pub fn handle_ready(&mut self, source: SourceId) {
        self.limits.handle_ready(source);
    }

    /// How much may be read from a source now; `None`: nothing, until [`source_at`](Self::source_at) or until something was sent.
    pub fn may_read(&mut self, now: Instant, source: SourceId) -> Option<Bytes> {
        self.limits.may_read(now, source)
    }

    /// As [`Limits::is_read_whole`].
    pub fn is_read_whole(&self, source: SourceId) -> bool {
        self.limits.is_read_whole(source)
    }

    /// Says what was read from a source, as [`handle_frame`](Self::handle_frame) counted it, and whether it has more.
    pub fn handle_read(&mut self, now: Instant, source: SourceId, read: Bytes, more: bool) {
        self.limits.handle_read(now, source, read, more);
    }

    /// When a source that has something may be read, where that is known; an instant that has passed: now.
    pub fn source_at(&self, source: SourceId) -> Option<Instant> {
        self.limits.source_at(source)
    }

    // ---- frames ----

    /// Takes a frame in, read by `port` from `source`; gives what it counts for to the first of its classes, which is what
    /// [`handle_read`](Self::handle_read) wants to know. Steps: the frame's headers, its classes' rules and limits, and, where it
    /// is cut or flooded, the pieces and ports.
    pub fn handle_frame(
        &mut self,
        now: Instant,
        port: BridgePort,
        source: Option<SourceId>,
        mut packet: Packet,
    ) -> Bytes {
        self.counters.received += 1;
        // Looked at where it was written: who copies it right then waits for that.
        let mut read = Frame::ethernet(packet.bytes());
        let Ok(frame) = &mut read else {
            self.ports[port.index()].dropped.malformed += 1;
            return packet.size();
        };
        // Behind its end there may be as much as anybody likes, which no limit would count.
        frame.len = frame.end();
        packet.set_len(frame.len);
        if packet.offload().gso.is_some() && Accounting::default().size(frame, packet.offload()).packets > SEGMENTS_MAX
        {
            self.ports[port.index()].dropped.malformed += 1;
            return packet.size();
        }
        self.handshakes.handle_frame(now, frame);
        let class = self.from.classify(port.0, frame);
        let to = match self.decide(now, port, frame) {
            Decision::To(to) => Target::Port(to),
            Decision::Flood => Target::AllBut(port),
            Decision::Filter => {
                self.ports[port.index()].dropped.filtered += 1;
                return self.stage(class, frame, &packet).map_or(packet.size(), |stage| stage.size);
            }
        };
        self.forward(now, frame, Origin { port, source, class }, to, packet)
    }

    /// The next frame that is to be sent, and by which port. Call until `None`.
    ///
    /// Steps: those of [`Limits::poll`] for the one that comes out and for each that is dropped before it; what is dropped was let in, so
    /// over time no more than that. A frame for all ports is one of theirs each.
    pub fn poll_frame(&mut self, now: Instant) -> Option<(BridgePort, Packet)> {
        loop {
            if let Some((to, packet)) = self.leaving.pop_front() {
                self.counters.sent += 1;
                self.leaving_memory = self.leaving_memory.saturating_sub(packet.memory());
                return Some((to, packet));
            }
            let release = self.limits.poll(now)?;
            let Some(mut item) = self.waiting.try_remove(release.item as usize) else { continue };
            match release.fate {
                ReleaseFate::Drop(_) => {
                    self.drop_limited(&item);
                    continue;
                }
                ReleaseFate::Mark if mark(&mut item.packet) => {
                    self.counters.marked += 1;
                    self.limits.handle_marked(release.by);
                }
                ReleaseFate::DropPart => {
                    if !self.drop_first(&mut item, release.by) {
                        continue;
                    }
                }
                ReleaseFate::Mark => {}
                ReleaseFate::Send => {}
            }
            item.packet.set_at(release.at);
            item.passed += 1;
            self.offer(now, item, None);
        }
    }

    /// Whether it has frames that no limit holds back.
    pub fn is_leaving(&self) -> bool {
        !self.leaving.is_empty()
    }

    /// The memory of the frames that no limit holds back. It is counted by nobody's bound, so take in no more where it is much,
    /// before they are [handed out](Self::poll_frame): a frame for all is as many as there are ports.
    pub fn leaving(&self) -> Bytes {
        self.leaving_memory
    }

    /// When [`poll_frame`](Self::poll_frame) will have something; an instant that has passed: now.
    pub fn poll_at(&self) -> Option<Instant> {
        if self.is_leaving() { Some(Instant::ZERO) } else { self.limits.poll_at() }
    }

    /// What always holds; for tests.
    pub fn is_valid(&self) -> bool {
        let waits = self.waiting.iter().map(|(_, item)| item.packet.memory()).fold(Bytes::ZERO, |sum, of| sum + of);
        self.limits.is_valid() && self.ways.is_valid() && waits == self.limits.memory()
    }

    fn decide(&mut self, now: Instant, port: BridgePort, frame: &Frame) -> Decision<BridgePort> {
        if let Some(peer) = self.ports[port.index()].peer {
            return Decision::To(peer);
        }
        let Some(link) = &frame.link else { return Decision::Filter };
        self.ways.decide(now, port, link)
    }

    /// Sends one frame on its way, cut where it is too long; what it counts for to the first of its classes.
    fn forward(&mut self, now: Instant, frame: &Frame, from: Origin, to: Target, packet: Packet) -> Bytes {
        let Origin { port, source, class } = from;
        let towards = match to {
            Target::Port(to) => self.to.classify(to.0, frame),
            Target::AllBut(_) => None,
        };
        let classes = [class, towards];
        let stages = classes.map(|class| self.stage(class, frame, &packet));
        // What a source's gate is told is what the class counts that the gate stands in; of others, the first.
        let gated = source
            .and_then(|source| self.limits.gate(source))
            .and_then(|gate| stages.iter().flatten().find(|stage| self.limits.chain(stage.class).contains(&gate)));
        let first = gated.or_else(|| stages.iter().flatten().next()).map(|stage| stage.size);
        let counted = first.or_else(|| match to {
            Target::Port(_) => None,
            Target::AllBut(port) => {
                let class = |to: BridgePort| self.to.classifier().classify(to.0, frame);
                self.others(port).filter_map(|to| Some(self.stage(class(to), frame, &packet)?.size)).max()
            }
        });
        let counted = counted.unwrap_or(packet.size());
        match self.segments_max(classes, frame, packet.offload()) {
            None => {
                let signal = signal(frame, &packet);
                self.offer(now, Item { packet, to, stages, passed: 0, source, flow: 0.into(), signal }, Some(frame))
            }
            Some(most) => {
                let Ok(pieces) = Segments::new(packet.bytes(), frame, packet.offload(), most, Sums::Partial) else {
                    self.ports[port.index()].dropped.malformed += 1;
                    return counted;
                };
                self.counters.cut += 1;
                self.counters.added += pieces.len() as u64 - 1;
                for piece in pieces {
                    let mut piece = piece.packet();
                    piece.set_hold(packet.hold().cloned());
                    match Frame::ethernet(piece.bytes()) {
                        Ok(frame) => {
                            let signal = signal(&frame, &piece);
                            let stages = classes.map(|class| self.stage(class, &frame, &piece));
                            let item = Item { packet: piece, to, stages, passed: 0, source, flow: 0.into(), signal };
                            self.offer(now, item, Some(&frame));
                        }
                        Err(_) => self.ports[port.index()].dropped.malformed += 1,
                    }
                }
            }
        }
        counted
    }

    fn others(&self, port: BridgePort) -> impl Iterator<Item = BridgePort> + use<> {
        (0..self.ports.len() as u16).map(BridgePort).filter(move |to| *to != port)
    }

    /// Takes a frame to the limits that are still before it, and sends it where it has passed all. One that has not waited yet comes
    /// with what was `read` of it.
    fn offer(&mut self, now: Instant, mut item: Item, read: Option<&Frame>) {
        while let Some(stage) = item.stages.get(item.passed) {
            if let Some(Stage { class, size, .. }) = *stage {
                match self.limits.admit(now, class, item.source, size) {
                    Admission::Pass => {}
                    Admission::Refused => return self.drop_limited(&item),
                    Admission::Wait => {
                        if let Some(hash) = read.and_then(|frame| frame.flow_hash(self.seed)) {
                            item.flow = Flow { number: hash as u32, rtt: self.handshakes.rtt(hash) };
                        }
                        return self.queue(now, class, size, item);
                    }
                }
            }
            item.passed += 1;
        }
        match item.to {
            Target::Port(to) => {
                self.leaving_memory += item.packet.memory();
                self.leaving.push_back((to, item.packet));
            }
            Target::AllBut(port) => self.flood(now, port, &item),
        }
    }

    fn queue(&mut self, now: Instant, class: ClassId, size: Bytes, item: Item) {
        let Item { source, flow, signal, .. } = item;
        let arrival = Arrival { class, source, flow, size, memory: item.packet.memory(), signal };
        // Memory bounds what waits, far below 2^32.
        let at = self.waiting.insert(item);
        if self.limits.queue(now, &arrival, at as u32).is_err() {
            let item = self.waiting.remove(at);
            self.drop_limited(&item);
        }
    }

    /// Sends a frame on its way to every port but `port`; the limits of where it comes from are behind it.
    fn flood(&mut self, now: Instant, port: BridgePort, item: &Item) {
        let Ok(frame) = Frame::ethernet(item.packet.bytes()) else {
            self.ports[port.index()].dropped.malformed += 1;
            return;
        };
        self.counters.added += (self.ports.len() as u64).saturating_sub(2);
        self.ports[port.index()].dropped.filtered += u64::from(self.ports.len() < 2);
        let from = Origin { port, source: item.source, class: None };
        for to in self.others(port) {
            let mut copy = Packet::copy_of(item.packet.bytes());
            copy.set_offload(*item.packet.offload());
            copy.set_hold(item.packet.hold().cloned());
            self.forward(now, &frame, from, Target::Port(to), copy);
        }
    }

    /// Counts what a limit dropped. Where it was one after others, they have it back: of two limits that drop, the first is not
    /// used up by what the second refuses.
    fn drop_limited(&mut self, item: &Item) {
        self.counters.limited += 1;
        if let (1, [Some(Stage { class, size, .. }), _]) = (item.passed, item.stages) {
            self.limits.handle_lost(class, item.source, size);
        }
    }

    /// Takes the first packet from a super-packet that waited for `limit`, and counts it as dropped there; false: it has no other, or cannot
    /// be cut, and is dropped whole.
    fn drop_first(&mut self, item: &mut Item, limit: LimitId) -> bool {
        let before = item.stages;
        let Some(Stage { class, size, .. }) = before[item.passed] else { return true };
        let Some((packet, signal)) = without_first(&item.packet, &mut item.stages) else {
            self.drop_limited(item);
            self.limits.handle_part_dropped(limit, class, item.source, size);
            return false;
        };
        (item.packet, item.signal) = (packet, signal);
        self.counters.added += 1;
        self.counters.limited += 1;
        let lost = |at: usize| {
            let [before, left] = [before, item.stages].map(|stages: [Option<Stage>; 2]| stages[at]);
            Some((before?.class, before?.size.saturating_sub(left?.size)))
        };
        if let Some((class, size)) = lost(item.passed) {
            self.limits.handle_part_dropped(limit, class, item.source, size);
        }
        // As of a whole one: limits before it that drop have it back.
        if let (1, Some((class, size))) = (item.passed, lost(0)) {
            self.limits.handle_lost(class, item.source, size);
        }
        true
    }

    fn stage(&self, class: Option<ClassRef>, frame: &Frame, packet: &Packet) -> Option<Stage> {
        let Class { id, accounting } = &self.classes[class?.0 as usize];
        Some(Stage { class: *id, accounting: *accounting, size: accounting.size(frame, packet.offload()).bytes })
    }

    /// Into pieces of how many segments a super-packet is to be cut; `None`: it may stay whole.
    fn segments_max(&self, classes: [Option<ClassRef>; 2], frame: &Frame, offload: &Offload) -> Option<u16> {
        offload.gso?;
        let classes = classes.iter().flatten().map(|class| &self.classes[class.0 as usize]);
        let lowest = classes
            .filter_map(|class| {
                let most = self.limits.lowest_rate(class.id)?.bytes_in(STEP).min(self.limits.largest(class.id));
                let size = class.accounting.size(frame, offload);
                (most < size.bytes).then(|| {
                    let segment = size.bytes.as_u64().div_ceil(size.packets.as_u64().max(1));
                    most.as_u64() / segment.max(1)
                })
            })
            .min()?;
        Some(u16::try_from(lowest).unwrap_or(u16::MAX).max(1))
    }
}

/// How a packet's sender learns that it waits for too long. One whose completion is deferred until this has left (a virtual
/// machine's, see [`Packet::hold`]) waits itself meanwhile, ECN-capable or not.
fn signal(frame: &Frame, packet: &Packet) -> Signal {
    if packet.hold().is_some() {
        Signal::Backpressure
    } else if frame.ip.is_some_and(|ip| ip.ecn != Ecn::NotEct) {
        Signal::Mark
    } else if frame.ip.is_some_and(|ip| is_many(&ip, packet.offload())) {
        Signal::PartLoss
    } else {
        Signal::Loss
    }
}

/// Whether a packet will be many of TCP's.
fn is_many(ip: &Ip, offload: &Offload) -> bool {
    let headers = u32::from(ip.header_len) + u32::from(ip.transport.header_len());
    let is_tcp = matches!(ip.transport, Transport::Tcp { .. });
    is_tcp && offload.gso.is_some_and(|gso| ip.total_len > headers + u32::from(gso.size.get()))
}

/// A super-packet without its first segment, and how what is left of it tells its sender: that is what it counts for at `stages` from then
/// on. `None`: it has no other.
fn without_first(packet: &Packet, stages: &mut [Option<Stage>]) -> Option<(Packet, Signal)> {
    let frame = Frame::ethernet(packet.bytes()).ok()?;
    let segments = Segments::new(packet.bytes(), &frame, packet.offload(), 1, Sums::Partial).ok()?;
    let mut rest = segments.without_first()?.packet();
    rest.set_hold(packet.hold().cloned());
    let frame = Frame::ethernet(rest.bytes()).ok()?;
    for stage in stages.iter_mut().flatten() {
        stage.size = stage.accounting.size(&frame, rest.offload()).bytes;
    }
    let signal = signal(&frame, &rest);
    Some((rest, signal))
}

/// Marks a packet with congestion (ECN CE); false where it cannot be.
fn mark(packet: &mut Packet) -> bool {
    Frame::ethernet(packet.bytes()).is_ok_and(|mut frame| frame.mark_ce(packet.bytes_mut()).is_ok())
}
