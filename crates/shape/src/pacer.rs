//! Delay instead of drop: packets wait in flow queues, and leave by the wheel at the rate of every limit above them.
//!
//! Two stages, after Saeed et al., "Carousel" (SIGCOMM 2017). *Stage one:* each [class](ClassId) has flow queues, served by
//! deficit round robin with CoDel at the exit of each (Hoeiland-Joergensen et al., RFC 8290), so that a sender that does not
//! slow down fills its own queue and nobody else's. *Stage two:* only the next packet of a class, its head, is given an instant,
//! and waits for it in the timing wheel. So nearly everything that waits has no instant yet: a new rate holds at once (the head
//! is stamped again), and who comes with little to send waits for one packet of the others. Carousel stamps two; where a
//! limit's burst covers a packet, the next one's instant is not later for being found only when the head has left.
//!
//! A packet passes the limits of its chain one after the other, and has a place in each from when it comes to it. Carousel charges
//! all of them beforehand and takes the latest instant: one pass through the wheel less, but then the packets of many
//! classes, each held up by its own limit, can leave together whatever the limit above them says.
//! Classes that contend for a limit take turns by packets, not by bytes: with larger packets a class has more of it.
//!
//! **What leaves.** In every window of time `t`, at most `rate * t + burst` passes a limit, whenever [`Pacer::poll`] is called: a
//! packet has its place among those that wait for the limit, and is charged as it passes; what was earned beyond the burst because
//! the poll came late is lost ([`Pacer::missed`] counts it). A packet larger than the burst passes when all of that is there, and is paid for afterwards. What
//! passes a limit below others leaves when those let it. A limit is met in full as long as the poll comes within the time that
//! its burst, less a packet, lasts of [`Pacer::poll_at`].
//!
//! **What is lost.** Whatever does not leave is handed back: by [`Pacer::handle_packet`] where there is no room, by
//! [`Pacer::poll`] where CoDel says so. Its owner counts it. A flow may use as much of its class's room as it leaves free
//! (Choudhury and Hahne, "Dynamic queue length thresholds", 1998): one that never slows down gets half of it, and whoever
//! comes next finds room.

use std::collections::VecDeque;

use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::bucket::{Amount, Bucket, Short};
use crate::codel::{Codel, Settings as CodelSettings};
use crate::wheel::Wheel;

/// Flow queues that a flow's number leaves the choice of (Hoeiland-Joergensen, Taht, Morton, "Piece of CAKE", 2018). With one, of 28 flows
/// over 1,024 queues two share one in every third case, and have half of what the others have; with eight, nine of 100 flows meet in one
/// case of 10,000.
const WAYS: usize = 8;

/// A limit of a [`Pacer`], by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(u32);

/// A class of a [`Pacer`], by number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClassId(u32);

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

/// How a class queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassSettings {
    /// Flow queues, rounded up to a power of two, at most 65,536. A flow has one for itself unless more than seven others wait whose
    /// numbers lead to the same eight of them.
    pub flows: u32,
    /// All that may wait.
    pub queue_max: Bytes,
    /// What a flow may send in its turn: a packet's size.
    pub quantum: Bytes,
    /// When a flow's queue is too long; `None`: never.
    pub codel: Option<CodelSettings>,
    /// Packets that waited longer than this say so, to be marked (ECN, RFC 3168) by those who can.
    pub mark_above: Option<Duration>,
}

impl Default for ClassSettings {
    fn default() -> Self {
        Self {
            flows: 1_024,
            queue_max: Bytes::new(8 << 20),
            quantum: Bytes::new(1_514),
            codel: Some(CodelSettings::default()),
            mark_above: None,
        }
    }
}

/// What came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Out<T> {
    /// The packet.
    pub item: T,
    /// Its class.
    pub class: ClassId,
    /// Its size.
    pub size: Bytes,
    /// The instant that it was to leave at; for a dropped one, when it was dropped.
    pub at: Instant,
    /// How long it waited.
    pub waited: Duration,
    /// What is to become of it.
    pub fate: Fate,
}

/// What is to become of a packet that came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It is sent.
    Send,
    /// It is sent, with congestion marked where its sender can read that.
    Mark,
    /// Its flow's queue is too long: it is dropped.
    Drop,
}

/// Limits, classes below them, and the wheel.
#[derive(Debug)]
pub struct Pacer<T> {
    limits: Vec<Limit>,
    classes: Vec<Class<T>>,
    wheel: Wheel<(ClassId, u32)>,
    /// Classes with a packet whose instant has come.
    ready: VecDeque<ClassId>,
    /// What CoDel dropped and was not handed out yet.
    dropped: VecDeque<Out<T>>,
}

#[derive(Debug)]
struct Limit {
    bucket: Bucket,
    /// Bytes charged so far.
    charged: u64,
    /// What has a place and has not passed.
    pending: Bytes,
    /// Nanobits that were earned while something was pending, and found the bucket full.
    missed: i128,
}

#[derive(Debug)]
struct Class<T> {
    settings: ClassSettings,
    /// Indices of limits, the nearest first.
    chain: Vec<LimitId>,
    flows: Box<[Flow<T>]>,
    /// Whose queue each is, or was last.
    owners: Box<[u32]>,
    /// Flows that have something, in the order of their turns; those that are new in the class go first, once.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    waiting: Bytes,
    head: Option<Head<T>>,
    /// Grows when its head is stamped again: what the wheel holds of before is void.
    generation: u32,
    /// Whether it is in `ready`.
    is_ready: bool,
}

#[derive(Debug)]
struct Flow<T> {
    queue: VecDeque<Waiting<T>>,
    /// How many leave until none is left of flows that only share it.
    guests: usize,
    waiting: Bytes,
    deficit: i64,
    listed: bool,
    codel: Codel,
}

#[derive(Debug)]
struct Waiting<T> {
    item: T,
    size: Bytes,
    since: Instant,
}

#[derive(Debug)]
struct Head<T> {
    waiting: Waiting<T>,
    /// Limits of the chain that it has passed.
    passed: usize,
    /// When it has passed the next one; `None`: that one's rate is zero.
    at: Option<Instant>,
}

impl<T> Pacer<T> {
    /// A pacer whose wheel has ticks of `tick` and `slots` of them; see [`granularity`].
    pub fn new(now: Instant, tick: Duration, slots: usize) -> Self {
        Self {
            limits: Vec::new(),
            classes: Vec::new(),
            wheel: Wheel::new(now, tick, slots),
            ready: VecDeque::new(),
            dropped: VecDeque::new(),
        }
    }

    /// Adds a limit. `burst` may leave at once after idling.
    ///
    /// # Panics
    /// Past 2^32 limits.
    pub fn add_limit(&mut self, now: Instant, rate: BitRate, burst: Bytes) -> LimitId {
        let id = LimitId(u32::try_from(self.limits.len()).expect("fewer than 2^32 limits"));
        self.limits.push(Limit { bucket: Bucket::new(now, rate, burst), charged: 0, pending: Bytes::ZERO, missed: 0 });
        id
    }

    /// Adds a class below the limits of `chain`.
    ///
    /// # Panics
    /// Past 2^32 classes.
    pub fn add_class(&mut self, settings: ClassSettings, chain: &[LimitId]) -> ClassId {
        let id = ClassId(u32::try_from(self.classes.len()).expect("fewer than 2^32 classes"));
        let flows = settings.flows.clamp(1, 65_536).next_power_of_two();
        self.classes.push(Class {
            settings,
            chain: chain.to_vec(),
            flows: (0..flows).map(|_| Flow::default()).collect(),
            owners: vec![0; flows as usize].into(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            waiting: Bytes::ZERO,
            head: None,
            generation: 0,
            is_ready: false,
        });
        id
    }

    /// A limit's rate.
    pub fn rate(&self, limit: LimitId) -> BitRate {
        self.limits[limit.index()].bucket.rate()
    }

    /// What was charged to a limit so far, and whether it is behind at `now`: something waits for it (due by now, even: it is asked
    /// when that is), or what comes to it would have to.
    pub fn demand(&self, now: Instant, limit: LimitId) -> (Bytes, bool) {
        let Limit { bucket, charged, pending, .. } = &self.limits[limit.index()];
        let owes = bucket.earns_at(Bytes::ZERO).is_none_or(|at| at > now);
        (Bytes::new(*charged), *pending > Bytes::ZERO || owes)
    }

    /// What a limit could have let pass so far and did not, though something waited: [`poll`](Self::poll) was called so late that
    /// the bucket was full.
    pub fn missed(&self, limit: LimitId) -> Bytes {
        let bytes = self.limits[limit.index()].missed / Bytes::NANO;
        Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// What waits in a class, its head included.
    pub fn waiting(&self, class: ClassId) -> Bytes {
        self.classes[class.index()].waiting
    }

    /// Whether there is room for `size` more of a flow: who can be held back should be, before a packet is handed in.
    pub fn has_room(&self, class: ClassId, flow: u32, size: Bytes) -> bool {
        let class = &self.classes[class.index()];
        class.has_room(class.flow(flow), size)
    }

    /// Charges for a packet of `size` that need not be put in at all: nothing waits in its class or for one of its limits, and each
    /// of them has it. False: nothing was charged. Steps: twice the limits of its chain.
    pub fn take(&mut self, now: Instant, class: ClassId, size: Bytes) -> bool {
        let Class { chain, waiting, .. } = &self.classes[class.index()];
        let passes = *waiting == Bytes::ZERO && chain.iter().all(|limit| self.limits[limit.index()].is_open(now, size));
        if passes {
            for limit in chain {
                self.limits[limit.index()].charge(now, size);
            }
        }
        passes
    }

    /// Puts a packet into its class; `flow` is any number that packets of one flow share, a hash of their addresses.
    /// Constant time, but for the allocator where a queue grows.
    ///
    /// # Errors
    /// The packet, where there is no room for it.
    pub fn handle_packet(&mut self, now: Instant, class: ClassId, flow: u32, size: Bytes, item: T) -> Result<(), T> {
        let state = &mut self.classes[class.index()];
        let at = state.flow(flow);
        if !state.has_room(at, size) {
            return Err(item);
        }
        state.push(at, flow, Waiting { item, size, since: now });
        if state.head.is_none() {
            self.fill(now, class);
        }
        Ok(())
    }

    /// The next packet whose instant has come, or that was dropped meanwhile. Call until `None`. Steps, beside what CoDel drops:
    /// on average a flow's turn for each quantum of what leaves; in one call at most a turn of each of the class's flows for each
    /// quantum of the largest packet (62 KB are 42 of 1,514 B), where all of them owe that much. Classes that were due and turn
    /// out to have to wait after all, because the poll came late, are looked at as well.
    pub fn poll(&mut self, now: Instant) -> Option<Out<T>> {
        if let Some(dropped) = self.dropped.pop_front() {
            return Some(dropped);
        }
        loop {
            // One each time, before the next one that is ready: who needs not wait keeps nobody waiting who had to.
            let due = self.wheel.poll(now);
            if let Some((class, generation)) = due
                && self.classes[class.index()].generation == generation
            {
                self.make_ready(class);
            }
            let Some(class) = self.ready.front().copied() else {
                if due.is_some() {
                    continue;
                }
                return None;
            };
            let Some(at) = self.climb(now, class) else {
                self.classes[class.index()].is_ready = false;
                self.ready.pop_front();
                self.arm(now, class);
                continue;
            };
            let state = &mut self.classes[class.index()];
            let Head { waiting, .. } = state.head.take()?;
            state.waiting = state.waiting.saturating_sub(waiting.size);
            let waited = at.saturating_since(waiting.since);
            let mark = state.settings.mark_above.is_some_and(|above| waited > above);
            self.fill(now, class);
            // Another class's turn, so that one that has saved up a burst does not keep the others waiting.
            self.ready.rotate_left(1);
            let fate = if mark { Fate::Mark } else { Fate::Send };
            return Some(Out { item: waiting.item, class, size: waiting.size, at, waited, fate });
        }
    }

    /// When [`poll`](Self::poll) will have something; an instant that has passed: now.
    pub fn poll_at(&self) -> Option<Instant> {
        if !self.ready.is_empty() || !self.dropped.is_empty() {
            return Some(Instant::ZERO);
        }
        self.wheel.poll_at()
    }

    /// Changes a limit's rate from `now` on, for what waits as well. Steps: the classes, and those that wait for it once more.
    pub fn set_rate(&mut self, now: Instant, limit: LimitId, rate: BitRate) {
        let Self { limits, classes, .. } = self;
        let state = &mut limits[limit.index()];
        state.earn(now);
        state.bucket.set_rate(now, rate);
        state.pending = Bytes::ZERO;
        let waits = |class: &Class<T>| {
            let head = class.head.as_ref()?;
            // Those that were stopped go last.
            (class.chain.get(head.passed) == Some(&limit)).then(|| head.at.unwrap_or(Instant::from_nanos(u64::MAX)))
        };
        let mut affected: Vec<_> =
            classes.iter().enumerate().filter_map(|(at, class)| Some((waits(class)?, at))).collect();
        // In the order in which they would have passed it.
        affected.sort_unstable();
        for (_, class) in affected {
            let class = ClassId(class as u32);
            let state = &mut self.classes[class.index()];
            if let Some(head) = &mut state.head {
                head.at = self.limits[limit.index()].place(now, head.waiting.size);
            }
            state.generation = state.generation.wrapping_add(1);
            self.arm(now, class);
        }
    }

    /// Changes what may leave at once after idling, from `now` on. Packets that have their instants keep them.
    pub fn set_burst(&mut self, now: Instant, limit: LimitId, burst: Bytes) {
        let state = &mut self.limits[limit.index()];
        state.earn(now);
        state.bucket.set_depth(now, burst);
    }

    /// Changes what may wait in a class. What waits beyond it stays.
    pub fn set_queue_max(&mut self, class: ClassId, queue_max: Bytes) {
        self.classes[class.index()].settings.queue_max = queue_max;
    }

    /// What always holds: the sums are right, flows with packets have turns, heads have their places. Walks everything; for tests.
    pub fn is_valid(&self) -> bool {
        let places = |limit: usize| {
            let heads = self.classes.iter().filter_map(|class| Some((class, class.head.as_ref()?)));
            let here = heads.filter(|(class, head)| class.chain.get(head.passed).is_some_and(|at| at.index() == limit));
            here.map(|(_, head)| head.waiting.size.as_u64()).sum::<u64>()
        };
        self.wheel.is_valid()
            && self.limits.iter().all(|limit| limit.bucket.is_valid())
            && self.limits.iter().enumerate().all(|(at, limit)| limit.pending.as_u64() == places(at))
            && self.classes.iter().all(Class::is_valid)
    }

    /// Gives the class's next packet its instant.
    fn fill(&mut self, now: Instant, class: ClassId) {
        let state = &mut self.classes[class.index()];
        let dropped = &mut self.dropped;
        let mut drop = |waiting: Waiting<T>| {
            dropped.push_back(Out {
                class,
                size: waiting.size,
                at: now,
                waited: now.saturating_since(waiting.since),
                item: waiting.item,
                fate: Fate::Drop,
            });
        };
        let Some(waiting) = state.pop(now, &mut drop) else { return };
        let at = match state.chain.first() {
            Some(limit) => self.limits[limit.index()].place(now, waiting.size),
            None => Some(now),
        };
        state.head = Some(Head { waiting, passed: 0, at });
        self.arm(now, class);
    }

    /// Takes the class's head past the limits whose instants have come; when it has passed the last one.
    fn climb(&mut self, now: Instant, class: ClassId) -> Option<Instant> {
        let Class { head, chain, .. } = &mut self.classes[class.index()];
        let head = head.as_mut()?;
        loop {
            let at = head.at.filter(|at| *at <= now)?;
            let Some(limit) = chain.get(head.passed) else { return Some(at) };
            if let Err(short) = self.limits[limit.index()].pass(now, head.waiting.size) {
                head.at = short.ready_at;
                return None;
            }
            head.passed += 1;
            if let Some(next) = chain.get(head.passed) {
                head.at = self.limits[next.index()].place(now, head.waiting.size);
            }
        }
    }

    /// Has the class's turn come with its head's instant: at once, or by the wheel.
    fn arm(&mut self, now: Instant, class: ClassId) {
        let state = &mut self.classes[class.index()];
        if state.is_ready {
            return;
        }
        match state.head.as_ref().and_then(|head| head.at) {
            Some(at) if at <= now => self.make_ready(class),
            Some(at) => self.wheel.insert(at, (class, state.generation)),
            None => {}
        }
    }

    fn make_ready(&mut self, class: ClassId) {
        let state = &mut self.classes[class.index()];
        if !state.is_ready {
            state.is_ready = true;
            self.ready.push_back(class);
        }
    }
}

impl Limit {
    /// Earns what the time since the last call is worth.
    fn earn(&mut self, now: Instant) {
        let lost = self.bucket.earn(now);
        if self.pending > Bytes::ZERO {
            self.missed = self.missed.saturating_add(lost);
        }
    }

    /// Gives a packet of `size` its place; when it passes. `None`: the rate is zero.
    fn place(&mut self, now: Instant, size: Bytes) -> Option<Instant> {
        self.earn(now);
        let before = self.pending;
        self.pending += size;
        let at = self.bucket.earns_at(before + self.needs(size));
        at.filter(|_| self.bucket.rate() != BitRate::ZERO)
    }

    /// Charges for a packet that has a place, unless it has to wait after all: somebody came late before, and what was earned
    /// meanwhile was more than can be saved up.
    fn pass(&mut self, now: Instant, size: Bytes) -> Result<(), Short> {
        self.earn(now);
        self.bucket.check(now, self.needs(size))?;
        self.charge(now, size);
        self.pending = self.pending.saturating_sub(size);
        Ok(())
    }

    /// Whether a packet of `size` passes at once, before nobody.
    fn is_open(&mut self, now: Instant, size: Bytes) -> bool {
        let needs = self.needs(size);
        self.pending == Bytes::ZERO && self.bucket.rate() != BitRate::ZERO && self.bucket.check(now, needs).is_ok()
    }

    fn charge(&mut self, now: Instant, size: Bytes) {
        self.bucket.charge(now, size);
        self.charged = self.charged.wrapping_add(size.as_u64());
    }

    /// What must be there for it: all of it, where so much can be saved up.
    fn needs(&self, size: Bytes) -> Bytes {
        size.min(self.bucket.depth())
    }
}

impl<T> Default for Flow<T> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            guests: 0,
            waiting: Bytes::ZERO,
            deficit: 0,
            listed: false,
            codel: Codel::default(),
        }
    }
}

impl<T> Class<T> {
    /// The queue of a flow: its own, or one of its set that nobody waits in, or else one that it shares, for as long as
    /// packets of it may wait there: they would be overtaken.
    fn flow(&self, flow: u32) -> usize {
        let shared = flow as usize & (self.flows.len() - 1);
        let ways = WAYS.min(self.flows.len());
        let set = shared & !(ways - 1);
        let owners = &self.owners[set..set + ways];
        let own = owners.iter().position(|owner| *owner == flow);
        let free = || self.flows[set..set + ways].iter().position(|flow| !flow.listed);
        let way = own.or_else(|| if self.flows[shared].guests > 0 { None } else { free() });
        way.map_or(shared, |way| set + way)
    }

    fn has_room(&self, at: usize, size: Bytes) -> bool {
        let free = self.settings.queue_max.saturating_sub(self.waiting);
        size <= free && self.flows[at].waiting <= free.saturating_sub(size)
    }

    fn push(&mut self, at: usize, number: u32, waiting: Waiting<T>) {
        let flow = &mut self.flows[at];
        if !flow.listed && self.owners[at] != number {
            self.owners[at] = number;
            flow.codel = Codel::default();
        }
        self.waiting += waiting.size;
        flow.waiting += waiting.size;
        flow.queue.push_back(waiting);
        if self.owners[at] != number {
            flow.guests = flow.queue.len();
        }
        if !flow.listed {
            flow.listed = true;
            flow.deficit = i64::try_from(self.settings.quantum.as_u64()).unwrap_or(i64::MAX);
            self.new.push_back(at as u32);
        }
    }

    /// The next packet by deficit round robin; what CoDel finds too many on the way goes to `drop`.
    fn pop(&mut self, now: Instant, drop: &mut dyn FnMut(Waiting<T>)) -> Option<Waiting<T>> {
        let quantum = i64::try_from(self.settings.quantum.as_u64().max(1)).unwrap_or(i64::MAX);
        loop {
            let is_new = !self.new.is_empty();
            let at = *if is_new { self.new.front()? } else { self.old.front()? };
            let flow = &mut self.flows[at as usize];
            if flow.deficit <= 0 {
                flow.deficit = flow.deficit.saturating_add(quantum);
                self.next_turn(is_new, at);
                continue;
            }
            let Some(waiting) = flow.queue.pop_front() else {
                // A new flow that has emptied goes round once more, or it would be new again at once (RFC 8290, 4.2).
                flow.codel.handle_empty();
                if is_new && !self.old.is_empty() {
                    self.next_turn(true, at);
                } else {
                    flow.listed = false;
                    if is_new {
                        self.new.pop_front()
                    } else {
                        self.old.pop_front()
                    };
                }
                continue;
            };
            flow.waiting = flow.waiting.saturating_sub(waiting.size);
            flow.guests = flow.guests.saturating_sub(1);
            let sojourn = now.saturating_since(waiting.since);
            let too_many = self.settings.codel.is_some_and(|codel| {
                flow.codel.handle_dequeue(now, sojourn, flow.waiting, self.settings.quantum, &codel)
            });
            if too_many {
                self.waiting = self.waiting.saturating_sub(waiting.size);
                drop(waiting);
                continue;
            }
            flow.deficit = flow.deficit.saturating_sub(i64::try_from(waiting.size.as_u64()).unwrap_or(i64::MAX));
            return Some(waiting);
        }
    }

    fn next_turn(&mut self, is_new: bool, flow: u32) {
        if is_new {
            self.new.pop_front()
        } else {
            self.old.pop_front()
        };
        self.old.push_back(flow);
    }

    fn is_valid(&self) -> bool {
        let queued: u64 = self.flows.iter().flat_map(|f| &f.queue).map(|w| w.size.as_u64()).sum();
        let head = self.head.as_ref().map_or(0, |head| head.waiting.size.as_u64());
        queued + head == self.waiting.as_u64()
            && (queued == 0 || self.head.is_some())
            && self.flows.iter().all(|f| (f.queue.is_empty() || f.listed) && f.guests <= f.queue.len())
            && self.owners.len() == self.flows.len()
            && self.new.len() + self.old.len() == self.flows.iter().filter(|f| f.listed).count()
    }
}

/// A wheel for limits from `slowest` to `fastest` whose packets are `packet_max` at most: the tick is the time between two
/// packets at the fastest rate, 1 us at least and 100 us at most (finer costs wake-ups, coarser shows in 10 ms windows), and
/// there are slots for two packets at the slowest rate, 2^20 at most. What is due later than the wheel reaches is looked
/// at again when it comes round.
pub fn granularity(slowest: BitRate, fastest: BitRate, packet_max: Bytes) -> (Duration, usize) {
    let tick = fastest.time_for(packet_max).as_nanos().clamp(1_000, 100_000);
    let horizon = slowest.time_for(packet_max).as_nanos().saturating_mul(2);
    let slots = (horizon / tick).clamp(64, 1 << 20);
    (Duration::from_nanos(tick), slots.next_power_of_two() as usize)
}

#[cfg(all(test, not(loom)))]
mod tests;
