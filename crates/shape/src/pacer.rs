//! Delay instead of drop: packets wait in flow queues, and leave by the wheel at the rate of every limit above them.
//!
//! Two stages, after Saeed et al., "Carousel" (SIGCOMM 2017). *Stage one:* each [class](ClassId) has flow queues, served by
//! deficit round robin with CoDel at the exit of each (Hoeiland-Joergensen et al., RFC 8290), so that a sender that does not
//! slow down fills its own queue and nobody else's. *Stage two:* only the next packet of a class, its head, waits for a limit, and
//! only the one of these heads whose turn is next has an instant, in the timing wheel. So nearly everything that waits has no
//! instant yet: a new rate holds at once (that one head is stamped again), and who comes with little to send waits for one packet
//! of the others. Carousel stamps two; where a limit's burst covers a packet, the next one's instant is not later for being found
//! only when the head has left.
//!
//! A packet passes the limits of its chain one after the other, and has a turn at each from when it comes to it. Carousel charges
//! all of them beforehand and takes the latest instant: one pass through the wheel less, but then the packets of many
//! classes, each held up by its own limit, can leave together whatever the limit above them says.
//! Classes that contend for a limit share it by bytes: their heads pass in the order of their start tags (Goyal, Vin, Cheng,
//! "Start-time fair queueing", SIGCOMM 1996), so none gets ahead of another by more than a packet of each.
//!
//! **What leaves.** In every window of time `t`, at most `rate * t + burst` passes a limit, whenever [`Pacer::poll`] is called: a
//! packet is charged as it passes; what was earned beyond the burst because the poll came late is lost ([`Pacer::missed`] counts
//! it). A packet larger than the burst passes when all of that is there, and is paid for afterwards. What passes a limit below
//! others leaves when those let it. A limit is met in full as long as the poll comes within the time that its burst, less a packet,
//! lasts of [`Pacer::poll_at`].
//!
//! **Whom CoDel tells.** A packet comes with how its sender learns that its queue is too long ([`Signal`]). Where CoDel would
//! drop one that can be marked, that one leaves marked instead (RFC 8290, 4.2; Linux's fq_codel with `ecn`), and of what will be
//! many packets ([`Signal::PartLoss`]) the first one is lost: a sender that has lost 45 of them learns no more, and has 44 more to send again. What backpressure
//! holds back is told already, and CoDel looks past it: a flow queue of nothing else is never too long, and in one that mixes
//! the others are judged by how long they waited themselves and by what of their own kind is behind them.
//!
//! **What is lost.** Whatever does not leave is handed back: by [`Pacer::handle_packet`] where there is no room, by
//! [`Pacer::poll`] where CoDel says so. Its owner counts it. A flow may use as much of its class's room as it leaves free
//! (Choudhury and Hahne, "Dynamic queue length thresholds for shared-memory packet switches", 1998, with a factor of 1): one that never
//! slows down, marked or not, gets half of it, and whoever comes next finds room. Room is of two kinds, the bytes that may
//! wait in a class and the memory that what waits takes ([`Pacer::within`]): of small packets the second is used up long before the
//! first.

mod class;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use weirgate_units::{BitRate, Bytes, Duration, Instant};

use self::class::{Class, Head, Waiting};
use crate::bucket::{Amount, Bucket};
use crate::codel::Settings as CodelSettings;
use crate::wheel::Wheel;

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
    /// Flow queues, rounded up to a power of two, at least eight and at most 65,536; made by eights, when the first packet comes. A flow
    /// has one for itself unless more than seven others wait whose numbers lead to the same eight of them.
    pub flows: u32,
    /// All that may wait, beside what backpressure holds back.
    pub queue_max: Bytes,
    /// The memory that it may take, with what backpressure holds back.
    pub memory_max: Bytes,
    /// What a flow may send in its turn: a packet's size.
    pub quantum: Bytes,
    /// When a flow's queue is too long; `None`: never.
    pub codel: Option<CodelSettings>,
    /// Whether a [flow](Flow) whose round trip is known has [what is for that](CodelSettings::for_rtt), where it is more patient.
    pub by_flow_rtt: bool,
    /// Packets that waited longer than this say so, to be marked (ECN, RFC 3168) by those who can.
    pub mark_above: Option<Duration>,
}

impl Default for ClassSettings {
    fn default() -> Self {
        Self {
            flows: 1_024,
            queue_max: Bytes::new(8 << 20),
            memory_max: Bytes::new(u64::MAX),
            quantum: Bytes::new(1_514),
            codel: Some(CodelSettings::default()),
            by_flow_rtt: true,
            mark_above: None,
        }
    }
}

/// How a packet's sender learns that its queue is too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Signal {
    /// By a loss, or not at all.
    Loss,
    /// By the loss of its first part: it will be many packets, of which one lost says as much as all.
    PartLoss,
    /// By a mark: its transport is ECN-capable (RFC 3168), and is spared the loss.
    Mark,
    /// By backpressure: it can send no more until some of this has left. What waits of it is bounded by who reads from it, and not
    /// by CoDel, which neither drops nor marks it, nor by the class's room.
    Backpressure,
}

/// Whose a packet is. Of a number alone the round trip is not known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flow {
    /// Any number that the flow's packets share and others' hardly ever, a hash of their addresses.
    pub number: u32,
    /// Its round trip without queues, where it is known; what was said of it is believed until its queue is another flow's.
    pub rtt: Option<Duration>,
}

impl From<u32> for Flow {
    fn from(number: u32) -> Self {
        Self { number, rtt: None }
    }
}

/// What a packet takes: of its limits' rates, and of memory while it waits. Of a size alone that is as much memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Load {
    /// As its limits count it.
    pub size: Bytes,
    /// Its buffer.
    pub memory: Bytes,
}

impl From<Bytes> for Load {
    fn from(size: Bytes) -> Self {
        Self { size, memory: size }
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
    /// The instant that it was to leave at, where nobody who was late kept it; for a dropped one, when it was dropped.
    pub at: Instant,
    /// How long it waited.
    pub waited: Duration,
    /// The limit of its chain that held it up for longest when it was its class's head; where none did, the one before it.
    pub by: LimitId,
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
    /// Its flow's queue is too long, and its sender learns that by a loss: it is dropped.
    Drop,
    /// The same of one that will be many packets: it is sent without the first of them. Its limits were charged for all.
    DropPart,
}

/// Limits, classes below them, and the wheel.
#[derive(Debug)]
pub struct Pacer<T> {
    limits: Vec<Limit>,
    classes: Vec<Class<T>>,
    wheel: Wheel<(LimitId, u32)>,
    /// Limits that a packet may pass, as far as is known.
    ready: VecDeque<LimitId>,
    /// What CoDel dropped and was not handed out yet.
    dropped: VecDeque<Out<T>>,
    /// What all that waits may take of memory, and takes now.
    memory_max: Bytes,
    memory: Bytes,
}

#[derive(Debug)]
struct Limit {
    bucket: Bucket,
    /// Bytes charged so far.
    charged: u64,
    /// Of the heads that wait for it, the one with the lowest tag first.
    turns: BinaryHeap<Reverse<Turn>>,
    /// Turns so far.
    count: u64,
    /// The tag of what passed last: virtual time, in bytes.
    tag: u64,
    /// When the first of the heads passes; `None`: there is none, or the rate is zero.
    at: Option<Instant>,
    /// The instant at which the wheel has it, and by which number; what the wheel has of before is void.
    armed: Option<Instant>,
    generation: u32,
    /// Whether it is in `ready`.
    is_ready: bool,
    /// Nanobits that were earned while something waited, and found the bucket full.
    missed: i128,
    /// How long something waited for it, until it last had nobody waiting; and since when somebody does, if so.
    throttled: Duration,
    since: Instant,
}

/// A head that waits for a limit. They pass in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn {
    /// Where the class's share of the limit stands, in virtual time: what it has had, or what the others had meanwhile.
    tag: u64,
    /// Of equal tags, who came first.
    number: u64,
    class: ClassId,
    size: Bytes,
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
            memory_max: Bytes::new(u64::MAX),
            memory: Bytes::ZERO,
        }
    }

    /// What waits takes at most so much memory in all; a class as much as is free, and no more than its own
    /// [`memory_max`](ClassSettings::memory_max).
    #[must_use]
    pub fn within(self, memory_max: Bytes) -> Self {
        Self { memory_max, ..self }
    }

    /// Adds a limit. `burst` may leave at once after idling.
    ///
    /// # Panics
    /// Past 2^32 limits.
    pub fn add_limit(&mut self, now: Instant, rate: BitRate, burst: Bytes) -> LimitId {
        let id = LimitId(u32::try_from(self.limits.len()).expect("fewer than 2^32 limits"));
        self.limits.push(Limit::new(Bucket::new(now, rate, burst)));
        id
    }

    /// Adds a class below the limits of `chain`.
    ///
    /// # Panics
    /// Past 2^32 classes, or where there is no limit: nothing would ever wait.
    pub fn add_class(&mut self, settings: ClassSettings, chain: &[LimitId]) -> ClassId {
        assert!(!chain.is_empty(), "a class has a limit above it");
        let id = ClassId(u32::try_from(self.classes.len()).expect("fewer than 2^32 classes"));
        self.classes.push(Class::new(settings, chain));
        id
    }

    /// A limit's rate.
    pub fn rate(&self, limit: LimitId) -> BitRate {
        self.limits[limit.index()].bucket.rate()
    }

    /// What was charged to a limit so far, and whether it is behind at `now`: something waits for it (due by now, even: it is asked
    /// when that is), or what comes to it would have to.
    pub fn demand(&self, now: Instant, limit: LimitId) -> (Bytes, bool) {
        let Limit { bucket, charged, turns, .. } = &self.limits[limit.index()];
        let owes = bucket.earns_at(Bytes::ZERO).is_none_or(|at| at > now);
        (Bytes::new(*charged), !turns.is_empty() || owes)
    }

    /// What a limit could have let pass so far and did not, though something waited: [`poll`](Self::poll) was called so late that
    /// the bucket was full.
    pub fn missed(&self, limit: LimitId) -> Bytes {
        let bytes = self.limits[limit.index()].missed / Bytes::NANO;
        Bytes::new(u64::try_from(bytes).unwrap_or(u64::MAX))
    }

    /// Whether the head of a class waits for a limit.
    pub fn is_waited_for(&self, limit: LimitId) -> bool {
        !self.limits[limit.index()].turns.is_empty()
    }

    /// The classes whose heads wait for a limit, in any order; what waits behind a head waits for the same.
    pub fn waiting_for(&self, limit: LimitId) -> impl Iterator<Item = ClassId> + '_ {
        self.limits[limit.index()].turns.iter().map(|Reverse(turn)| turn.class)
    }

    /// How many flows wait for a limit, those included that have just emptied. Steps: the classes that wait for it.
    pub fn flows_waiting_for(&self, limit: LimitId) -> u32 {
        let listed = |class: ClassId| {
            let Class { new, old, .. } = &self.classes[class.index()];
            new.len() + old.len()
        };
        u32::try_from(self.waiting_for(limit).map(listed).sum::<usize>()).unwrap_or(u32::MAX)
    }

    /// How long the heads of classes waited for a limit until `now`; where several do, that counts once.
    pub fn throttled(&self, now: Instant, limit: LimitId) -> Duration {
        let Limit { throttled, since, turns, .. } = &self.limits[limit.index()];
        let more = if turns.is_empty() { Duration::ZERO } else { now.saturating_since(*since) };
        throttled.saturating_add(more)
    }

    /// The limit that the head of a class waits for; where there is none, the one that held up the last one.
    pub fn held_by(&self, class: ClassId) -> LimitId {
        let Class { chain, head, held_by, .. } = &self.classes[class.index()];
        chain[head.as_ref().map_or(*held_by, |head| head.passed)]
    }

    /// What waits in a class, its head included.
    pub fn waiting(&self, class: ClassId) -> Bytes {
        self.classes[class.index()].waiting
    }

    /// How exact an instant is in the wheel.
    pub const fn tick(&self) -> Duration {
        self.wheel.tick()
    }

    /// The memory that all that waits takes.
    pub const fn memory(&self) -> Bytes {
        self.memory
    }

    /// Charges for a packet of `size` that need not be put in at all: nothing waits in its class or for one of its limits, and each
    /// of them has it. False: nothing was charged. Steps: twice the limits of its chain.
    pub fn take(&mut self, now: Instant, class: ClassId, size: Bytes) -> bool {
        let Class { chain, head, .. } = &self.classes[class.index()];
        let passes = head.is_none() && chain.iter().all(|limit| self.limits[limit.index()].is_open(now, size));
        if passes {
            for limit in chain {
                self.limits[limit.index()].charge(now, size);
            }
        }
        passes
    }

    /// Puts a packet into its class; `signal` says how its sender learns of a queue that is too long. Constant time, but for the
    /// allocator where a queue grows, and logarithmic in the classes that wait for the same limit.
    ///
    /// # Errors
    /// The packet, where there is no room for it.
    pub fn handle_packet(
        &mut self,
        now: Instant,
        class: ClassId,
        flow: impl Into<Flow>,
        load: impl Into<Load>,
        signal: Signal,
        item: T,
    ) -> Result<(), T> {
        let (flow, load) = (flow.into(), load.into());
        let free = self.memory_max.saturating_sub(self.memory);
        let state = &mut self.classes[class.index()];
        let at = state.flow(flow.number);
        let has_room = match signal {
            Signal::Backpressure => state.memory + load.memory <= free.min(state.settings.memory_max),
            Signal::Loss | Signal::PartLoss | Signal::Mark => state.has_room(at, load, free),
        };
        if !has_room {
            return Err(item);
        }
        self.memory += load.memory;
        state.push(at, flow, Waiting { item, load, since: now, signal });
        if state.head.is_none() {
            self.fill(now, class);
        }
        Ok(())
    }

    /// The next packet whose instant has come, or that was dropped meanwhile. Call until `None`. Steps, beside what CoDel drops:
    /// on average a flow's turn for each quantum of what leaves; in one call at most a turn of each of the class's flows for each
    /// quantum of the largest packet (62 KB are 42 of 1,514 B), where all of them owe that much; at each limit of the chain the
    /// logarithm of the classes that wait for it.
    pub fn poll(&mut self, now: Instant) -> Option<Out<T>> {
        if let Some(dropped) = self.dropped.pop_front() {
            return Some(dropped);
        }
        loop {
            // One each time, before the next one that is ready: who needs not wait keeps nobody waiting who had to.
            let due = self.wheel.poll(now);
            if let Some((limit, generation)) = due
                && self.limits[limit.index()].generation == generation
            {
                self.make_ready(limit);
            }
            let Some(limit) = self.ready.front().copied() else {
                if due.is_some() {
                    continue;
                }
                return None;
            };
            let Some((class, at)) = self.limits[limit.index()].pass(now) else {
                self.limits[limit.index()].is_ready = false;
                self.ready.pop_front();
                self.arm(now, limit);
                continue;
            };
            let out = self.rise(now, class, at);
            // Another limit's turn, so that one that has saved up a burst does not keep the others waiting.
            self.ready.rotate_left(1);
            if out.is_some() {
                return out;
            }
        }
    }

    /// When [`poll`](Self::poll) will have something; an instant that has passed: now.
    pub fn poll_at(&self) -> Option<Instant> {
        if !self.ready.is_empty() || !self.dropped.is_empty() {
            return Some(Instant::ZERO);
        }
        self.wheel.poll_at()
    }

    /// Changes a limit's rate from `now` on, for what waits as well. Constant time.
    pub fn set_rate(&mut self, now: Instant, limit: LimitId, rate: BitRate) {
        let state = &mut self.limits[limit.index()];
        state.earn(now);
        state.bucket.set_rate(now, rate);
        self.stamp(now, limit);
    }

    /// Has CoDel leave alone what waits below a limit at `now`, and begin anew with what comes later: to be called where the rate that
    /// queues were kept short for is no longer the limit's. Steps: the classes.
    pub fn spare(&mut self, now: Instant, limit: LimitId) {
        for class in self.classes.iter_mut().filter(|class| class.chain.contains(&limit)) {
            class.spared = Some(now);
        }
    }

    /// Makes the wheel anew where its ticks or slots are others; what waits keeps its instants. Steps: slots and limits.
    pub fn set_granularity(&mut self, now: Instant, tick: Duration, slots: usize) {
        let wheel = Wheel::new(now, tick, slots);
        if (wheel.tick(), wheel.horizon()) == (self.wheel.tick(), self.wheel.horizon()) {
            return;
        }
        self.wheel = wheel;
        for (id, limit) in (0..).map(LimitId).zip(&self.limits) {
            if let Some(at) = limit.armed {
                self.wheel.insert(at, (id, limit.generation));
            }
        }
    }

    /// Changes what may leave at once after idling, from `now` on. Constant time.
    pub fn set_burst(&mut self, now: Instant, limit: LimitId, burst: Bytes) {
        let state = &mut self.limits[limit.index()];
        state.earn(now);
        state.bucket.set_depth(now, burst);
        self.stamp(now, limit);
    }

    /// What may wait in a class.
    pub fn queue_max(&self, class: ClassId) -> Bytes {
        self.classes[class.index()].settings.queue_max
    }

    /// Changes what may wait in a class. What waits beyond it stays.
    pub fn set_queue_max(&mut self, class: ClassId, queue_max: Bytes) {
        self.classes[class.index()].settings.queue_max = queue_max;
    }

    /// What always holds: the sums are right, flows with packets and heads have turns, limits that may be passed are asked. Walks
    /// everything; for tests.
    pub fn is_valid(&self) -> bool {
        let waiting = |limit: usize| {
            let heads = self.classes.iter().filter_map(|class| Some((class, class.head.as_ref()?)));
            heads.filter(|(class, head)| class.chain.get(head.passed).is_some_and(|at| at.index() == limit)).count()
        };
        self.wheel.is_valid()
            && self.limits.iter().all(Limit::is_valid)
            && self.limits.iter().enumerate().all(|(at, l)| l.turns.len() == waiting(at))
            && self.classes.iter().all(Class::is_valid)
            && self.classes.iter().fold(Bytes::ZERO, |sum, class| sum + class.memory) == self.memory
            && self.memory <= self.memory_max
    }

    /// Makes the class's next packet its head.
    fn fill(&mut self, now: Instant, class: ClassId) {
        let state = &mut self.classes[class.index()];
        let (dropped, memory, by) = (&mut self.dropped, &mut self.memory, state.chain[state.held_by]);
        let mut drop = |waiting: Waiting<T>| {
            *memory = memory.saturating_sub(waiting.load.memory);
            dropped.push_back(Out {
                class,
                size: waiting.load.size,
                at: now,
                waited: now.saturating_since(waiting.since),
                by,
                item: waiting.item,
                fate: Fate::Drop,
            });
        };
        let Some((waiting, is_told)) = state.pop(now, &mut drop) else { return };
        state.head = Some(Head { waiting, is_told, passed: 0, at: now, held: Duration::ZERO });
        // What passes the last one leaves, which is said by a poll.
        let last = state.chain.len() - 1;
        self.slip(now, class, last);
        self.join(now, class);
    }

    /// Takes the class's head past limits that it need not wait for, before number `end` of its chain: whoever contends for a limit is
    /// there before that has its next turn. How many of the chain are behind it then.
    fn slip(&mut self, now: Instant, class: ClassId, end: usize) -> usize {
        let Class { head, chain, tags, .. } = &mut self.classes[class.index()];
        let Some(Head { waiting, passed, .. }) = head else { return 0 };
        let size = waiting.load.size;
        while *passed < end && self.limits[chain[*passed].index()].slip(now, size, &mut tags[*passed]) {
            *passed += 1;
        }
        *passed
    }

    /// Gives the class's head a turn at the next limit of its chain.
    fn join(&mut self, now: Instant, class: ClassId) {
        let Class { head, chain, tags, .. } = &mut self.classes[class.index()];
        let Some(Head { waiting, passed, .. }) = head else { return };
        let limit = chain[*passed];
        let state = &mut self.limits[limit.index()];
        if state.join(now, class, waiting.load.size, &mut tags[*passed]) {
            state.stamp(now);
            self.arm(now, limit);
        }
    }

    /// The class's head has passed a limit at `at`, and leaves, or has a turn at the next one.
    fn rise(&mut self, now: Instant, class: ClassId, at: Instant) -> Option<Out<T>> {
        let Class { head, chain, held_by, .. } = &mut self.classes[class.index()];
        let head = head.as_mut()?;
        let limit = chain[head.passed];
        let held = at.saturating_since(head.at);
        if held > head.held {
            (head.held, *held_by) = (held, head.passed);
        }
        head.passed += 1;
        head.at = now;
        let (risen, end) = (head.passed, chain.len());
        let out = if risen == end {
            self.leave(now, class, at)
        } else if self.slip(now, class, end) == end {
            self.leave(now, class, now)
        } else {
            self.join(now, class);
            None
        };
        // Unless the class is the first there again.
        if self.limits[limit.index()].at.is_none() {
            self.stamp(now, limit);
        }
        out
    }

    /// The class's head, which has passed all limits, the last one at `at`.
    fn leave(&mut self, now: Instant, class: ClassId, at: Instant) -> Option<Out<T>> {
        let state = &mut self.classes[class.index()];
        let Head { waiting, is_told, .. } = state.head.take()?;
        let by = state.chain[state.held_by];
        state.forget(&waiting);
        self.memory = self.memory.saturating_sub(waiting.load.memory);
        let waited = at.saturating_since(waiting.since);
        let fate = if is_told && waiting.signal == Signal::PartLoss {
            Fate::DropPart
        } else if is_told || state.settings.mark_above.is_some_and(|above| waited > above) {
            Fate::Mark
        } else {
            Fate::Send
        };
        self.fill(now, class);
        Some(Out { item: waiting.item, class, size: waiting.load.size, at, waited, by, fate })
    }

    /// Says when the first that waits for a limit passes it, and has it asked then.
    fn stamp(&mut self, now: Instant, limit: LimitId) {
        self.limits[limit.index()].stamp(now);
        self.arm(now, limit);
    }

    /// Has the limit's turn come at its instant: at once, or by the wheel.
    fn arm(&mut self, now: Instant, limit: LimitId) {
        let state = &mut self.limits[limit.index()];
        if state.is_ready {
            return;
        }
        match state.at {
            Some(at) if at <= now => self.make_ready(limit),
            // An earlier one that it has there does as well: it is asked then, and put in again.
            Some(at) if state.armed.is_none_or(|armed| at < armed) => {
                if self.wheel.is_empty() {
                    // Its horizon is ahead of where it was turned to last, which can be long ago.
                    let _nothing = self.wheel.poll(now);
                }
                state.armed = Some(at);
                state.generation = state.generation.wrapping_add(1);
                self.wheel.insert(at, (limit, state.generation));
            }
            Some(_) | None => {}
        }
    }

    fn make_ready(&mut self, limit: LimitId) {
        let state = &mut self.limits[limit.index()];
        if !state.is_ready {
            state.is_ready = true;
            state.armed = None;
            state.generation = state.generation.wrapping_add(1);
            self.ready.push_back(limit);
        }
    }
}

impl Limit {
    const fn new(bucket: Bucket) -> Self {
        Self {
            bucket,
            charged: 0,
            turns: BinaryHeap::new(),
            count: 0,
            tag: 0,
            at: None,
            armed: None,
            generation: 0,
            is_ready: false,
            missed: 0,
            throttled: Duration::ZERO,
            since: Instant::ZERO,
        }
    }

    /// Earns what the time since the last call is worth.
    fn earn(&mut self, now: Instant) {
        let lost = self.bucket.earn(now);
        if !self.turns.is_empty() {
            self.missed = self.missed.saturating_add(lost);
        }
    }

    /// Gives a head of `size` a turn, at `tag` or virtual time, whichever is later; `tag` is its class's next one then. True: its
    /// turn is the next one.
    fn join(&mut self, now: Instant, class: ClassId, size: Bytes, tag: &mut u64) -> bool {
        self.earn(now);
        if self.turns.is_empty() {
            self.since = now;
        }
        let turn = Turn { tag: self.tag.max(*tag), number: self.count, class, size };
        *tag = turn.tag.saturating_add(size.as_u64());
        self.count += 1;
        self.turns.push(Reverse(turn));
        self.first() == Some(turn)
    }

    /// Lets a head of `size` pass, and charges for it, if nobody waits here and it need not either; tags are as though it had
    /// [joined](Self::join). False: nothing was done.
    fn slip(&mut self, now: Instant, size: Bytes, tag: &mut u64) -> bool {
        let passes = self.is_open(now, size);
        if passes {
            self.tag = self.tag.max(*tag);
            *tag = self.tag.saturating_add(size.as_u64());
            self.charge(now, size);
        }
        passes
    }

    fn first(&self) -> Option<Turn> {
        self.turns.peek().map(|Reverse(turn)| *turn)
    }

    /// Says when the first head passes.
    fn stamp(&mut self, now: Instant) {
        self.earn(now);
        let needs = self.first().filter(|_| self.bucket.rate() != BitRate::ZERO).map(|turn| self.needs(turn.size));
        self.at = needs.and_then(|needs| self.bucket.earns_at(needs));
    }

    /// Lets the first head pass and charges for it, if its instant has come: whose it is, and the instant.
    fn pass(&mut self, now: Instant) -> Option<(ClassId, Instant)> {
        let at = self.at.filter(|at| *at <= now)?;
        let Turn { tag, class, size, .. } = self.first()?;
        self.earn(now);
        if let Err(short) = self.bucket.check(now, self.needs(size)) {
            self.at = short.ready_at;
            return None;
        }
        self.turns.pop();
        if self.turns.is_empty() {
            self.throttled = self.throttled.saturating_add(now.saturating_since(self.since));
        }
        self.tag = tag;
        self.at = None;
        self.charge(now, size);
        Some((class, at))
    }

    /// Whether a packet of `size` passes at once, before nobody.
    fn is_open(&mut self, now: Instant, size: Bytes) -> bool {
        let needs = self.needs(size);
        self.turns.is_empty() && self.bucket.rate() != BitRate::ZERO && self.bucket.check(now, needs).is_ok()
    }

    fn charge(&mut self, now: Instant, size: Bytes) {
        self.bucket.charge(now, size);
        self.charged = self.charged.wrapping_add(size.as_u64());
    }

    /// What must be there for it: all of it, where so much can be saved up.
    fn needs(&self, size: Bytes) -> Bytes {
        size.min(self.bucket.depth())
    }

    fn is_valid(&self) -> bool {
        let passes = !self.turns.is_empty() && self.bucket.rate() != BitRate::ZERO;
        self.bucket.is_valid()
            && self.at.is_some() == passes
            && (!passes || self.is_ready || self.armed.is_some_and(|armed| self.at.is_some_and(|at| armed <= at)))
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
