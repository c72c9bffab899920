//! The limits that traffic is held to: each one drops, gates or paces, and counts what it did.
//!
//! A [class](ClassId) of traffic lies below a chain of limits, the nearest first. A packet of it is first held against those that
//! drop ([`Mode::Drop`]; all of them are charged or none), and then waits for those that pace ([`Mode::Pace`]). A limit that
//! gates ([`Mode::Gate`], [`Mode::Borrow`]) holds back [sources](SourceId), the queues that packets are read from: it says
//! which may be read now. Where a packet comes to it from elsewhere, it cannot hold that back and drops instead. A queue cannot be
//! peeked into, and a super-packet is more than was earned: what [`Mode::Gate`] has let in is paced, too, and while a burst of it
//! waits the queue is not read.
//!
//! Generic over what a packet is: `T` is handed in and comes out again. Everything that does not is handed back and counted.
//! What waits takes no more memory than it may in all, whatever the classes allow themselves.

mod count;
mod shared;
mod shares;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use weirgate_shape::{
    Borrow, Bucket, Fate, Gate, Limit, Load, Member, Pacer, QueueId, Short, granularity, quantum, take_all,
};
use weirgate_units::{BitRate, Bytes, Duration, Instant};

pub use weirgate_shape::{ClassSettings, CodelSettings, Flow, Signal};

pub use self::count::{Delays, LimitCounters};
pub use self::shared::SharedLimit;
use self::shares::Part;

/// The largest packet on most links; what quanta and bursts are made for.
const PACKET: Bytes = Bytes::new(1_514);

/// As much as there is.
const ALL: Bytes = Bytes::new(u64::MAX);

/// Room for what waits for a limit of `rate`: what passes in 250 ms, so that one connection over a long round trip is kept busy and
/// one that never slows down does not wait for seconds. At least 128 KB.
pub fn queue_max(rate: BitRate) -> Bytes {
    rate.bytes_in(Duration::from_millis(250)).max(Bytes::new(128 << 10))
}

/// What a class may take of `memory`, which all that waits shares: a quarter, whatever its packets' sizes; its flows are equal within
/// that. Where all of the memory runs short, they are equal within what is free.
pub const fn class_max(memory: Bytes) -> Bytes {
    Bytes::new(memory.as_u64() / 4)
}

/// How a limit holds traffic to its rate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Mode {
    /// What comes too early waits.
    #[default]
    Pace,
    /// What comes too early stays where it is: the queue is not read. For queues whose owner notices that they are full.
    Gate,
    /// As the article's first improvement: a queue is read whole, and then not before that is repaid. To be compared with.
    Borrow,
    /// What comes too early is dropped. To be compared with.
    Drop,
}

impl Mode {
    /// Whether it holds back the queue that packets come by, and so all that comes by it.
    pub const fn gates(self) -> bool {
        matches!(self, Self::Gate | Self::Borrow)
    }
}

/// What a limit allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitSettings {
    /// Zero: nothing passes.
    pub rate: BitRate,
    /// What may pass at once after idling.
    pub burst: Bytes,
    /// By what means.
    pub mode: Mode,
}

/// A limit, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(u32);

/// A class of traffic, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(u32);

/// A queue that packets are read from, by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SourceId(u32);

impl LimitId {
    /// Limits are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl ClassId {
    /// Classes are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

impl SourceId {
    /// Sources are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A packet on its way in.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// What it belongs to.
    pub class: ClassId,
    /// The queue that it was read from.
    pub source: Option<SourceId>,
    /// Whose it is.
    pub flow: Flow,
    /// As the class's limits count it.
    pub size: Bytes,
    /// What it takes of memory while it waits.
    pub memory: Bytes,
    /// How its sender learns that it waits for too long. What comes with [`Signal::Backpressure`] waits for as long as it takes, so
    /// its source is to have a `backlog_max` (see [`Limits::add_source`]; the daemon's is 256 KiB for each vhost-user queue).
    pub signal: Signal,
}

/// What is to become of a packet that comes in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Admission {
    /// It may be sent at once, and was charged for.
    Pass,
    /// It is to wait.
    Wait,
    /// It came too early for a limit that drops, and is to be dropped.
    Refused,
}

/// Why a packet was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// It came too early for a limit that drops.
    Rate,
    /// Its queue, or the memory of all queues, was full.
    Room,
    /// Its flow's queue was too long for too long, and its sender learns that by a loss (CoDel, RFC 8289).
    Codel,
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release<T> {
    /// The packet.
    pub item: T,
    /// Its class.
    pub class: ClassId,
    /// The limit that it waited for.
    pub by: LimitId,
    /// The instant that it was to leave at.
    pub at: Instant,
    /// Whether it is to be marked (ECN CE), or dropped and why.
    pub fate: ReleaseFate,
}

/// What is to become of a packet that came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReleaseFate {
    /// It is sent.
    Send,
    /// It is sent, marked where its sender can read that.
    Mark,
    /// It is dropped.
    Drop(Reason),
    /// The first packet of a super-packet is dropped, and the others are sent.
    DropPart,
}

/// The item that waits, and what is needed when it leaves.
#[derive(Debug)]
struct Held<T> {
    item: T,
    source: Option<SourceId>,
}

#[derive(Debug)]
enum Means {
    Pace(weirgate_shape::LimitId),
    /// Which queue may be read, and what paces what was.
    Gate(Box<Gate>, weirgate_shape::LimitId),
    Borrow(Borrow),
    Drop(Bucket),
    /// A [`Mode::Drop`] that is shared.
    Lease(Member),
}

#[derive(Debug)]
struct State {
    means: Means,
    /// Of the whole limit, as the burst is.
    rate: BitRate,
    burst: Bytes,
    /// What came to a gate, in bytes; a pacer counts for itself.
    offered: u64,
    counters: LimitCounters,
}

impl State {
    /// Counts a packet, and how long it waited where this limit lets wait: one that drops may stand in a chain with one that paces,
    /// and that wait is not its own.
    fn passed_after(&mut self, waited: Duration, size: Bytes) {
        self.counters.passed(size);
        if matches!(self.means, Means::Pace(_) | Means::Gate(..)) {
            self.counters.delayed += u64::from(waited > Duration::ZERO);
            self.counters.delays.add(waited);
        }
    }
}

impl Limit for State {
    fn take(&mut self, now: Instant, size: Bytes) -> Result<(), Short> {
        self.offered = self.offered.wrapping_add(size.as_u64());
        // Whatever was saved up before.
        let nothing = Err(Short { ready_at: None });
        match &mut self.means {
            Means::Pace(_) => Ok(()),
            Means::Gate(gate, _) => gate.take(now, size),
            Means::Borrow(borrow) if borrow.is_open(now) => {
                borrow.handle_sent(now, size);
                Ok(())
            }
            Means::Drop(bucket) if self.rate != BitRate::ZERO => bucket.take(now, size),
            Means::Lease(member) if self.rate != BitRate::ZERO => take_lease(member, now, size),
            Means::Borrow(_) | Means::Drop(_) | Means::Lease(_) => nothing,
        }
    }

    fn refund(&mut self, size: Bytes) {
        match &mut self.means {
            Means::Gate(gate, _) => gate.refund(size),
            Means::Drop(bucket) => bucket.refund(size),
            Means::Lease(member) => member.refund(size),
            // The article's has no way back, and a pacer charges as things leave.
            Means::Borrow(_) | Means::Pace(_) => {}
        }
    }
}

#[derive(Debug)]
struct Class {
    chain: Vec<LimitId>,
    /// Those of them that can refuse a packet before it waits: all but those that pace.
    refusing: Vec<LimitId>,
    /// Where it waits; `None`: no limit above it paces.
    paced: Option<weirgate_shape::ClassId>,
    /// Whether all that waits there was let in by gates.
    gated: bool,
    /// Packets that wait there.
    waiting: u64,
}

#[derive(Clone, Copy, Debug)]
struct Source {
    gated_by: Option<(LimitId, Option<QueueId>)>,
    backlog_max: Option<Bytes>,
    /// What was read from it and waits now.
    waiting: Bytes,
    /// Whether it has something to be read, as far as is known.
    ready: bool,
}

/// Limits, the classes below them and the sources above them.
#[derive(Debug)]
pub struct Limits<T> {
    limits: Vec<State>,
    classes: Vec<Class>,
    /// The class of each of the pacer's, by its number, and the limit of each of its limits.
    paced: Vec<ClassId>,
    pacing: Vec<LimitId>,
    sources: Vec<Source>,
    pacer: Pacer<Held<T>>,
    memory_max: Bytes,
    /// Limits that are kept together with others, and as which member.
    shared: Vec<Part>,
    /// When their shares are divided anew.
    balance_at: Instant,
}

impl<T> Limits<T> {
    /// No limits yet. Rates of those to come are best between `slowest` and `fastest`: the wheel is made for them, until one
    /// [changes](Self::set_rate). At most `memory_max` waits in all.
    pub fn new(now: Instant, slowest: BitRate, fastest: BitRate, memory_max: Bytes) -> Self {
        let (tick, slots) = granularity(slowest, fastest, PACKET);
        Self {
            limits: Vec::new(),
            classes: Vec::new(),
            paced: Vec::new(),
            pacing: Vec::new(),
            sources: Vec::new(),
            pacer: Pacer::new(now, tick, slots).within(memory_max),
            memory_max,
            shared: Vec::new(),
            balance_at: now,
        }
    }

    /// Adds a limit.
    ///
    /// # Panics
    /// Past 2^32 limits.
    pub fn add_limit(&mut self, now: Instant, settings: LimitSettings) -> LimitId {
        let id = LimitId(u32::try_from(self.limits.len()).expect("fewer than 2^32 limits"));
        let LimitSettings { rate, burst, mode } = settings;
        let mut pace = || {
            self.pacing.push(id);
            self.pacer.add_limit(now, rate, burst)
        };
        let means = match mode {
            Mode::Pace => Means::Pace(pace()),
            Mode::Gate => {
                let gate = Gate::new(now, rate, burst, quantum(rate, PACKET));
                Means::Gate(Box::new(gate), pace())
            }
            Mode::Borrow => Means::Borrow(Borrow::new(now, rate)),
            Mode::Drop => Means::Drop(Bucket::new(now, rate, burst)),
        };
        self.limits.push(State { means, rate, burst, offered: 0, counters: LimitCounters::default() });
        id
    }

    /// Adds a limit that is kept together with other threads' [`Limits`], as its member number `member`; call
    /// [`balance`](Self::balance) for it.
    ///
    /// # Panics
    /// Past 2^32 limits, or where there is no such member.
    pub fn add_shared_limit(&mut self, now: Instant, shared: &Arc<SharedLimit>, member: usize) -> LimitId {
        let id = self.add_limit(now, LimitSettings { rate: shared.rate(), ..shared.settings() });
        if let Some(lease) = shared.lease() {
            self.limits[id.index()].means = Means::Lease(lease);
        }
        self.set_share(now, id, shared.share(member));
        let seen = (shared.rate(), shared.share(member));
        self.shared.push(Part { limit: id, shared: Arc::clone(shared), member, seen, is_behind: false });
        id
    }

    /// Adds a class below the limits of `chain`, the nearest first. `settings` is for where it waits.
    ///
    /// # Panics
    /// Past 2^32 classes.
    pub fn add_class(&mut self, settings: ClassSettings, chain: &[LimitId]) -> ClassId {
        let id = ClassId(u32::try_from(self.classes.len()).expect("fewer than 2^32 classes"));
        let means = || chain.iter().map(|limit| &self.limits[limit.index()].means);
        let paced: Vec<_> = means()
            .filter_map(|means| match means {
                Means::Pace(limit) | Means::Gate(_, limit) => Some(*limit),
                Means::Borrow(_) | Means::Drop(_) | Means::Lease(_) => None,
            })
            .collect();
        let paces = |limit: &LimitId| matches!(self.limits[limit.index()].means, Means::Pace(_));
        let gated = !chain.iter().any(paces);
        let refusing = chain.iter().filter(|limit| !paces(limit)).copied().collect();
        // What a gate has let in is little, and is not dropped.
        let most = class_max(self.memory_max);
        let (queue_max, memory_max) = (settings.queue_max.min(most), most);
        let settings = if gated {
            ClassSettings { codel: None, queue_max: ALL, memory_max: ALL, ..settings }
        } else {
            ClassSettings { queue_max, memory_max, ..settings }
        };
        let paced = (!paced.is_empty()).then(|| {
            self.paced.push(id);
            self.pacer.add_class(settings, &paced)
        });
        self.classes.push(Class { chain: chain.to_vec(), refusing, paced, gated, waiting: 0 });
        id
    }

    /// Adds a queue that packets are read from, held back by `gate` where that gates, and while `backlog_max` of what was read from
    /// it waits, or a burst of the gate.
    ///
    /// # Panics
    /// Past 2^32 sources.
    pub fn add_source(&mut self, gate: Option<LimitId>, backlog_max: Option<Bytes>) -> SourceId {
        let id = SourceId(u32::try_from(self.sources.len()).expect("fewer than 2^32 sources"));
        let gated_by = gate.and_then(|limit| match &mut self.limits[limit.index()].means {
            Means::Gate(gate, _) => Some((limit, Some(gate.add_queue()))),
            Means::Borrow(_) => Some((limit, None)),
            Means::Pace(_) | Means::Drop(_) | Means::Lease(_) => None,
        });
        self.sources.push(Source { gated_by, backlog_max, waiting: Bytes::ZERO, ready: false });
        id
    }

    /// The limit that holds a source back, where one does.
    pub fn gate(&self, source: SourceId) -> Option<LimitId> {
        self.sources[source.index()].gated_by.map(|(limit, _)| limit)
    }

    /// The limits of a class, in their order.
    pub fn chain(&self, class: ClassId) -> &[LimitId] {
        &self.classes[class.index()].chain
    }

    /// How much of a source may wait before it is left unread: no more than its gate lets in at once.
    fn backlog_max(&self, source: SourceId) -> Option<Bytes> {
        let Source { gated_by, backlog_max, .. } = self.sources[source.index()];
        let Some((limit, Some(_))) = gated_by else { return backlog_max };
        let burst = self.limits[limit.index()].burst.max(PACKET);
        Some(backlog_max.map_or(burst, |most| most.min(burst)))
    }

    /// How exactly what waits is released: a slot of the wheel.
    pub const fn tick(&self) -> Duration {
        self.pacer.tick()
    }

    /// The memory that what waits takes.
    pub const fn memory(&self) -> Bytes {
        self.pacer.memory()
    }

    /// What was read from a source and waits: a queue whose backlog is long is better left unread.
    pub fn backlog(&self, source: SourceId) -> Bytes {
        self.sources[source.index()].waiting
    }

    /// A limit's rate.
    pub fn rate(&self, limit: LimitId) -> BitRate {
        self.limits[limit.index()].rate
    }

    /// The lowest rate above a class; `None`: nothing limits it. A packet that takes long at this is better cut before.
    pub fn lowest_rate(&self, class: ClassId) -> Option<BitRate> {
        self.classes[class.index()].chain.iter().map(|limit| self.rate(*limit)).min()
    }

    /// The largest packet that can pass: one that is longer than what a limit that drops lets through at once never does, nor one
    /// that does not fit into the queue where it waits. What is longer is better cut before.
    pub fn largest(&self, class: ClassId) -> Bytes {
        let Class { chain, paced, gated, .. } = &self.classes[class.index()];
        let bursts = chain.iter().filter_map(|limit| {
            let State { means, burst, .. } = &self.limits[limit.index()];
            matches!(means, Means::Drop(_) | Means::Lease(_) | Means::Gate(..)).then_some(*burst)
        });
        // A flow has half of the queue.
        let room = paced.filter(|_| !gated).map(|paced| Bytes::new(self.pacer.queue_max(paced).as_u64() / 2));
        bursts.chain(room).min().unwrap_or(ALL)
    }

    /// What a limit did until `now`. Steps: the classes that wait for it.
    pub fn counters(&self, limit: LimitId, now: Instant) -> LimitCounters {
        let State { means, counters, .. } = &self.limits[limit.index()];
        let mut counters = counters.until(now);
        if let Means::Pace(limit) | Means::Gate(_, limit) = means {
            counters.missed_bytes = self.pacer.missed(*limit).as_u64();
            counters.throttled = counters.throttled.saturating_add(self.pacer.throttled(now, *limit));
            let classes = self.pacer.waiting_for(*limit).map(|class| self.paced[class.index()]);
            counters.waiting = classes.map(|class| self.classes[class.index()].waiting).sum();
        }
        counters
    }

    /// Changes a limit's rate from `now` on, for what waits as well: nothing of that is lost, however long it takes to leave, by CoDel
    /// either. Where it is shared, the other members hear of it when they [`balance`](Self::balance). Steps: the limits, the classes, and
    /// slots of the wheel where it is made anew.
    pub fn set_rate(&mut self, now: Instant, limit: LimitId, rate: BitRate) {
        self.limits[limit.index()].rate = rate;
        self.spare(now, limit);
        self.fit_wheel(now);
        let share = self.shared(limit).map_or(rate, |(shared, member)| {
            shared.set_rate(now, rate);
            shared.share(member)
        });
        self.set_share(now, limit, share);
    }

    /// Changes what may pass at once after idling, from `now` on; where the limit is shared, say the same to each member. Steps: the
    /// shared limits.
    pub fn set_burst(&mut self, now: Instant, limit: LimitId, burst: Bytes) {
        self.limits[limit.index()].burst = burst;
        if let Some((shared, _)) = self.shared(limit) {
            shared.set_burst(burst);
        }
        self.set_share(now, limit, self.share(limit));
    }

    /// Changes what may wait in a class, at most [its part of the memory](class_max). Nothing where it waits for nothing, or for gates
    /// only: what those have let in is not dropped.
    pub fn set_queue_max(&mut self, class: ClassId, queue_max: Bytes) {
        let Class { paced, gated, .. } = self.classes[class.index()];
        if let Some(paced) = paced.filter(|_| !gated) {
            self.pacer.set_queue_max(paced, queue_max.min(class_max(self.memory_max)));
        }
    }

    /// What the limit is kept with, and as which member; `None`: it is this one's alone.
    fn shared(&self, limit: LimitId) -> Option<(&SharedLimit, usize)> {
        let part = self.shared.iter().find(|part| part.limit == limit)?;
        Some((&part.shared, part.member))
    }

    /// What waits for a limit is not to be dropped for a rate that it has no more.
    fn spare(&mut self, now: Instant, limit: LimitId) {
        if let Means::Pace(limit) | Means::Gate(_, limit) = &self.limits[limit.index()].means {
            self.pacer.spare(now, *limit);
        }
    }

    /// Holds at `share` of a limit's rate, with as much of its burst.
    fn set_share(&mut self, now: Instant, limit: LimitId, share: BitRate) {
        let State { means, rate, burst, .. } = &mut self.limits[limit.index()];
        let burst = part(*burst, share, *rate);
        match means {
            Means::Pace(limit) => {
                self.pacer.set_rate(now, *limit, share);
                self.pacer.set_burst(now, *limit, burst);
            }
            Means::Gate(gate, limit) => {
                gate.set_rate(now, share);
                gate.set_burst(now, burst);
                gate.set_quantum(quantum(share, PACKET));
                self.pacer.set_rate(now, *limit, share);
                self.pacer.set_burst(now, *limit, burst);
            }
            Means::Borrow(borrow) => borrow.set_rate(now, share),
            Means::Drop(bucket) => {
                bucket.set_rate(now, share);
                bucket.set_depth(now, burst);
            }
            // Its aggregate has both.
            Means::Lease(_) => {}
        }
    }

    /// Makes the wheel for the rates that there are now.
    fn fit_wheel(&mut self, now: Instant) {
        let rates = || self.limits.iter().map(|limit| limit.rate).filter(|rate| *rate != BitRate::ZERO);
        if let Some((slowest, fastest)) = rates().min().zip(rates().max()) {
            let (tick, slots) = granularity(slowest, fastest, PACKET);
            self.pacer.set_granularity(now, tick, slots);
        }
    }

    // ---- sources ----

    /// Says that a source has something to be read. Constant time.
    pub fn handle_ready(&mut self, source: SourceId) {
        let state = &mut self.sources[source.index()];
        state.ready = true;
        if let Some((limit, Some(queue))) = state.gated_by
            && let Means::Gate(gate, _) = &mut self.limits[limit.index()].means
        {
            gate.handle_ready(queue);
        }
    }

    /// How much may be read from `source` now, in bytes as its limit counts them: stop at the first packet with which so much was
    /// read. `None`: nothing, until [`source_at`](Self::source_at), or until something that waited has left.
    ///
    /// Steps: as [`Gate::poll_queue`].
    pub fn may_read(&mut self, now: Instant, source: SourceId) -> Option<Bytes> {
        let Source { gated_by, waiting, ready, .. } = self.sources[source.index()];
        let is_full = self.backlog_max(source).is_some_and(|most| waiting >= most);
        let Some((limit, queue)) = gated_by else { return (!is_full).then_some(ALL) };
        if is_full {
            if let (Means::Gate(gate, _), Some(queue)) = (&mut self.limits[limit.index()].means, queue) {
                // Or nobody's turn would come before something of its backlog has left.
                gate.skip(queue);
            }
            return None;
        }
        let State { means, counters, .. } = &mut self.limits[limit.index()];
        let (open, allowed) = match (means, queue) {
            (Means::Gate(gate, paced), Some(queue)) => {
                let turn = gate.poll_queue(now);
                // While what it let in waits, that is counted already.
                let open = turn.is_some() || self.pacer.is_waited_for(*paced);
                (open, turn.filter(|(of, _)| *of == queue).map(|(_, allowed)| allowed))
            }
            (Means::Borrow(borrow), _) => (borrow.is_open(now), borrow.is_open(now).then_some(ALL)),
            _ => (true, Some(ALL)),
        };
        if !open && ready {
            counters.throttle(now);
        } else {
            counters.unthrottle(now);
        }
        allowed
    }

    /// Whether a source is read to its end whenever it may be, as [`Mode::Borrow`] says, however long others wait meanwhile.
    pub fn is_read_whole(&self, source: SourceId) -> bool {
        let gated_by = self.sources[source.index()].gated_by;
        gated_by.is_some_and(|(limit, _)| matches!(self.limits[limit.index()].means, Means::Borrow(_)))
    }

    /// Says what was read from a source, and whether it has more.
    pub fn handle_read(&mut self, now: Instant, source: SourceId, read: Bytes, more: bool) {
        let state = &mut self.sources[source.index()];
        state.ready = more;
        let Some((limit, queue)) = state.gated_by else { return };
        let limit = &mut self.limits[limit.index()];
        limit.offered = limit.offered.wrapping_add(read.as_u64());
        match (&mut limit.means, queue) {
            (Means::Gate(gate, _), Some(queue)) => gate.handle_read(now, queue, read, more),
            (Means::Borrow(borrow), _) if read > Bytes::ZERO => borrow.handle_sent(now, read),
            _ => {}
        }
    }

    /// When a source that has something may be read; an instant that has passed: now. `None`: no time is known (what was read from
    /// it waits, and [`poll_at`](Self::poll_at) says for how long; or its gate's rate is zero), or it has nothing.
    pub fn source_at(&self, source: SourceId) -> Option<Instant> {
        let Source { gated_by, waiting, ready, .. } = self.sources[source.index()];
        if !ready || self.backlog_max(source).is_some_and(|most| waiting >= most) {
            return None;
        }
        let Some((limit, _)) = gated_by else { return Some(Instant::ZERO) };
        match &self.limits[limit.index()].means {
            Means::Gate(gate, _) => gate.poll_at(),
            Means::Borrow(borrow) => borrow.poll_at(),
            Means::Pace(_) | Means::Drop(_) | Means::Lease(_) => Some(Instant::ZERO),
        }
    }

    // ---- packets ----

    /// Whether a packet may be sent at once, is dropped, or is to be [queued](Self::queue). Steps: twice the limits of its chain.
    pub fn admit(&mut self, now: Instant, class: ClassId, source: Option<SourceId>, size: Bytes) -> Admission {
        if let Err(by) = self.charge(now, class, self.gated_by(source), size) {
            self.limits[by.index()].counters.dropped_rate += 1;
            return Admission::Refused;
        }
        let Class { chain, paced, .. } = &self.classes[class.index()];
        let Some(paced) = *paced else {
            for limit in chain {
                self.limits[limit.index()].counters.passed(size);
            }
            return Admission::Pass;
        };
        // What need not wait is neither put anywhere nor held back.
        if !self.pacer.take(now, paced, size) {
            return Admission::Wait;
        }
        for limit in chain {
            self.limits[limit.index()].passed_after(Duration::ZERO, size);
        }
        Admission::Pass
    }

    /// Has a packet wait that [`admit`](Self::admit) said this of. Steps: as [`Pacer::handle_packet`].
    ///
    /// # Errors
    /// The packet, where there is no room for it; it is counted as dropped.
    pub fn queue(&mut self, now: Instant, arrival: &Arrival, item: T) -> Result<(), T> {
        let Arrival { class, source, flow, size, memory, signal } = *arrival;
        let Some(paced) = self.classes[class.index()].paced else { return Err(item) };
        let held = Held { item, source };
        if let Err(Held { item, .. }) = self.pacer.handle_packet(now, paced, flow, Load { size, memory }, signal, held)
        {
            self.refund(class, self.gated_by(source), size);
            let by = self.pacing[self.pacer.held_by(paced).index()];
            self.limits[by.index()].counters.dropped_room += 1;
            return Err(item);
        }
        self.classes[class.index()].waiting += 1;
        if let Some(source) = source {
            self.sources[source.index()].waiting += size;
        }
        Ok(())
    }

    /// The next packet whose instant has come, or that was dropped meanwhile. Call until `None`. Steps: as [`Pacer::poll`], and
    /// the limits of its chain.
    pub fn poll(&mut self, now: Instant) -> Option<Release<T>> {
        let out = self.pacer.poll(now)?;
        let class = self.paced[out.class.index()];
        if let Some(source) = out.item.source {
            let waiting = &mut self.sources[source.index()].waiting;
            *waiting = waiting.saturating_sub(out.size);
        }
        let (state, by) = (&mut self.classes[class.index()], self.pacing[out.by.index()]);
        state.waiting -= 1;
        if out.fate == Fate::Drop {
            self.limits[by.index()].counters.dropped_codel += 1;
            self.handle_lost(class, out.item.source, out.size);
        } else {
            for limit in &state.chain {
                let waited = if *limit == by { out.waited } else { Duration::ZERO };
                self.limits[limit.index()].passed_after(waited, out.size);
            }
        }
        let fate = match out.fate {
            Fate::Send => ReleaseFate::Send,
            Fate::Mark => ReleaseFate::Mark,
            Fate::Drop => ReleaseFate::Drop(Reason::Codel),
            Fate::DropPart => ReleaseFate::DropPart,
        };
        Some(Release { item: out.item.item, class, by, at: out.at, fate })
    }

    /// Says that a packet that was to be marked, since it had waited for `limit`, could be.
    pub fn handle_marked(&mut self, limit: LimitId) {
        self.limits[limit.index()].counters.marked += 1;
    }

    /// Says that so much of a packet, of which a part was to be dropped, since it had waited for `limit`, was: it has not passed its
    /// class's limits. One part counts as one packet that was dropped.
    pub fn handle_part_dropped(&mut self, limit: LimitId, class: ClassId, source: Option<SourceId>, size: Bytes) {
        self.limits[limit.index()].counters.dropped_codel += 1;
        for limit in &self.classes[class.index()].chain {
            let passed = &mut self.limits[limit.index()].counters.passed_bytes;
            *passed = passed.saturating_sub(size.as_u64());
        }
        self.handle_lost(class, source, size);
    }

    /// When [`poll`](Self::poll) will have something; an instant that has passed: now.
    pub fn poll_at(&self) -> Option<Instant> {
        self.pacer.poll_at()
    }

    /// What always holds: nothing waits where no memory is counted. Walks everything; for tests.
    pub fn is_valid(&self) -> bool {
        let mut paced = self.classes.iter().filter_map(|class| class.paced);
        let waits = paced.any(|class| self.pacer.waiting(class) > Bytes::ZERO);
        self.pacer.is_valid() && (!waits || self.memory() > Bytes::ZERO)
    }

    /// Charges the limits of the chain that cannot let the packet wait, all or none; which one refused.
    fn charge(&mut self, now: Instant, class: ClassId, gated_by: Option<LimitId>, size: Bytes) -> Result<(), LimitId> {
        let Self { limits, classes, .. } = self;
        if classes[class.index()].refusing.is_empty() {
            return Ok(());
        }
        let chain = classes[class.index()].refusing.iter().filter(|limit| Some(**limit) != gated_by);
        take_all(now, size, limits, chain.map(|limit| limit.index())).map_err(|refused| LimitId(refused.by as u32))
    }

    /// Puts back what was charged for a packet that passed this class's limits, and was dropped by what came after them. Those that
    /// pace have spent the time.
    pub fn handle_lost(&mut self, class: ClassId, source: Option<SourceId>, size: Bytes) {
        self.refund(class, self.gated_by(source), size);
    }

    fn gated_by(&self, source: Option<SourceId>) -> Option<LimitId> {
        self.gate(source?)
    }

    fn refund(&mut self, class: ClassId, gated_by: Option<LimitId>, size: Bytes) {
        for limit in self.classes[class.index()].refusing.iter().filter(|limit| Some(**limit) != gated_by) {
            self.limits[limit.index()].refund(size);
        }
    }
}

/// Of a burst, as much as `share` is of the `whole` rate; of a part, two packets at least, so that each can pass something.
fn part(burst: Bytes, share: BitRate, whole: BitRate) -> Bytes {
    if share >= whole {
        return burst;
    }
    let part = u128::from(burst.as_u64()) * u128::from(share.as_bits_per_sec()) / u128::from(whole.as_bits_per_sec());
    Bytes::new(part as u64).max(PACKET + PACKET).min(burst)
}

/// Takes from a shared limit; who is refused has nothing to send, and keeps no credit from the others.
fn take_lease(member: &mut Member, now: Instant, size: Bytes) -> Result<(), Short> {
    member.take(now, size).inspect_err(|_| member.release())
}
