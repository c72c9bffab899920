//! Stage one: a class's flow queues, by deficit round robin, with CoDel at the exit of each.

use std::collections::VecDeque;

use weirgate_units::{Bytes, Duration, Instant};

use super::{ClassSettings, Flow, LimitId, Load, Signal};
use crate::codel::Codel;

/// Flow queues that a flow's number leaves the choice of (Hoeiland-Joergensen, Taht, Morton, "Piece of CAKE", 2018). With one, of 28 flows
/// over 1,024 queues two share one in every third case, and have half of what the others have; with eight, nine of 100 flows meet in one
/// case of 10,000.
const WAYS: usize = 8;

#[derive(Debug)]
pub(super) struct Class<T> {
    pub(super) settings: ClassSettings,
    /// The nearest limit first.
    pub(super) chain: Vec<LimitId>,
    /// At each of them, the tag of its next turn, unless virtual time is beyond that.
    pub(super) tags: Vec<u64>,
    sets: Box<[Option<Box<Set<T>>>]>,
    /// Flows that have something, in the order of their turns; those that are new in the class go first, once.
    pub(super) new: VecDeque<u32>,
    pub(super) old: VecDeque<u32>,
    pub(super) waiting: Bytes,
    /// Of these, what backpressure holds back.
    backpressured: Bytes,
    /// What all of it takes of memory.
    pub(super) memory: Bytes,
    pub(super) head: Option<Head<T>>,
    /// Which of the chain held up a head last: of these, for longest.
    pub(super) held_by: usize,
    /// What has waited since then or longer is none of CoDel's business.
    pub(super) spared: Option<Instant>,
}

/// Flow queues among which a flow finds its own; there from the first packet on that is for one of them, since most classes have few
/// flows.
#[derive(Debug)]
struct Set<T> {
    flows: [FlowQueue<T>; WAYS],
    /// Whose queue each is, or was last.
    owners: [u32; WAYS],
}

// The README says what a class takes for 128 of them.
#[cfg(target_pointer_width = "64")]
const _: () = assert!(size_of::<Set<()>>() == 992);

#[derive(Debug)]
struct FlowQueue<T> {
    queue: VecDeque<Waiting<T>>,
    /// How many leave until none is left of flows that only share it.
    guests: usize,
    waiting: Bytes,
    /// Of these, what backpressure holds back.
    backpressured: Bytes,
    /// What all of it takes of memory.
    memory: Bytes,
    deficit: i64,
    listed: bool,
    /// Of the flow that it is, or was last, the round trip in microseconds; 0: it is not known.
    rtt_us: u32,
    codel: Codel,
}

#[derive(Debug)]
pub(super) struct Waiting<T> {
    pub(super) item: T,
    pub(super) load: Load,
    pub(super) since: Instant,
    pub(super) signal: Signal,
}

#[derive(Debug)]
pub(super) struct Head<T> {
    pub(super) waiting: Waiting<T>,
    /// Whether CoDel found one too many, and this one tells its sender so as it leaves.
    pub(super) is_told: bool,
    /// Limits of the chain that it has passed.
    pub(super) passed: usize,
    /// When it came to the next one.
    pub(super) at: Instant,
    /// For how long one of these held it up at most.
    pub(super) held: Duration,
}

impl<T> Default for Set<T> {
    fn default() -> Self {
        Self { flows: std::array::from_fn(|_| FlowQueue::default()), owners: [0; WAYS] }
    }
}

impl<T> Default for FlowQueue<T> {
    fn default() -> Self {
        Self {
            queue: VecDeque::new(),
            guests: 0,
            waiting: Bytes::ZERO,
            backpressured: Bytes::ZERO,
            memory: Bytes::ZERO,
            deficit: 0,
            listed: false,
            rtt_us: 0,
            codel: Codel::default(),
        }
    }
}

impl<T> Class<T> {
    pub(super) fn new(settings: ClassSettings, chain: &[LimitId]) -> Self {
        let flows = settings.flows.clamp(WAYS as u32, 65_536).next_power_of_two() as usize;
        Self {
            settings,
            chain: chain.to_vec(),
            tags: vec![0; chain.len()],
            sets: (0..flows / WAYS).map(|_| None).collect(),
            new: VecDeque::new(),
            old: VecDeque::new(),
            waiting: Bytes::ZERO,
            backpressured: Bytes::ZERO,
            memory: Bytes::ZERO,
            head: None,
            held_by: 0,
            spared: None,
        }
    }

    /// The queue of a flow: its own, or one of its set that nobody waits in, or else one that it shares, for as long as
    /// packets of it may wait there: they would be overtaken.
    pub(super) fn flow(&self, flow: u32) -> usize {
        let shared = flow as usize & (self.sets.len() * WAYS - 1);
        let first = shared / WAYS * WAYS;
        let Some(set) = &self.sets[shared / WAYS] else { return first };
        let own = set.owners.iter().position(|owner| *owner == flow);
        let free = || set.flows.iter().position(|flow| !flow.listed);
        let way = own.or_else(|| if set.flows[shared - first].guests > 0 { None } else { free() });
        way.map_or(shared, |way| first + way)
    }

    /// A flow has half of the room that others leave: of the bytes that may wait, and of the memory, of which a class has no more than
    /// is `free` beside it. What backpressure holds back is bounded by who reads it, and takes none of the bytes.
    pub(super) fn has_room(&self, at: usize, load: Load, free_memory: Bytes) -> bool {
        let free = self.settings.queue_max.saturating_sub(self.waiting.saturating_sub(self.backpressured));
        let memory_free = self.settings.memory_max.min(free_memory).saturating_sub(self.memory);
        let of = |flow: &FlowQueue<T>| (flow.waiting.saturating_sub(flow.backpressured), flow.memory);
        let none = (Bytes::ZERO, Bytes::ZERO);
        let (waiting, held) = self.sets[at / WAYS].as_ref().map_or(none, |set| of(&set.flows[at % WAYS]));
        waiting + load.size <= free && held + load.memory <= memory_free
    }

    /// What is no longer in the class.
    pub(super) fn forget(&mut self, waiting: &Waiting<T>) {
        let Load { size, memory } = waiting.load;
        self.waiting = self.waiting.saturating_sub(size);
        self.memory = self.memory.saturating_sub(memory);
        if waiting.signal == Signal::Backpressure {
            self.backpressured = self.backpressured.saturating_sub(size);
        }
    }

    pub(super) fn push(&mut self, at: usize, of: Flow, waiting: Waiting<T>) {
        let Flow { number, rtt } = of;
        let set = self.sets[at / WAYS].get_or_insert_default();
        let (flow, owner) = (&mut set.flows[at % WAYS], &mut set.owners[at % WAYS]);
        if !flow.listed && *owner != number {
            *owner = number;
            flow.rtt_us = 0;
            flow.codel = Codel::default();
        }
        if let Some(rtt) = rtt
            && *owner == number
        {
            flow.rtt_us = u32::try_from(rtt.as_nanos() / 1_000).unwrap_or(u32::MAX);
        }
        let Load { size, memory } = waiting.load;
        self.waiting += size;
        self.memory += memory;
        flow.waiting += size;
        flow.memory += memory;
        if waiting.signal == Signal::Backpressure {
            flow.backpressured += size;
            self.backpressured += size;
        }
        flow.queue.push_back(waiting);
        if *owner != number {
            flow.guests = flow.queue.len();
        }
        if !flow.listed {
            flow.listed = true;
            flow.deficit = i64::try_from(self.settings.quantum.as_u64()).unwrap_or(i64::MAX);
            self.new.push_back(at as u32);
        }
    }

    /// The next packet by deficit round robin, and whether CoDel has it tell its sender as it leaves; what CoDel finds too many
    /// on the way and cannot goes to `drop`.
    pub(super) fn pop(&mut self, now: Instant, drop: &mut dyn FnMut(Waiting<T>)) -> Option<(Waiting<T>, bool)> {
        let quantum = i64::try_from(self.settings.quantum.as_u64().max(1)).unwrap_or(i64::MAX);
        loop {
            let is_new = !self.new.is_empty();
            let at = *if is_new { self.new.front()? } else { self.old.front()? };
            let set = self.sets[at as usize / WAYS].as_mut()?;
            let flow = &mut set.flows[at as usize % WAYS];
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
            let Load { size, memory } = waiting.load;
            flow.waiting = flow.waiting.saturating_sub(size);
            flow.memory = flow.memory.saturating_sub(memory);
            flow.guests = flow.guests.saturating_sub(1);
            let mut too_many = false;
            if waiting.signal == Signal::Backpressure {
                flow.backpressured = flow.backpressured.saturating_sub(size);
            } else if self.spared.is_some_and(|spared| waiting.since <= spared) {
                flow.codel = Codel::default();
            } else if let Some(codel) = self.settings.codel {
                let rtt = if self.settings.by_flow_rtt { flow.rtt_us } else { 0 };
                let codel = codel.and_for_rtt(Duration::from_micros(rtt.into()));
                let sojourn = now.saturating_since(waiting.since);
                let left = flow.waiting.saturating_sub(flow.backpressured);
                too_many = flow.codel.handle_dequeue(now, sojourn, left, self.settings.quantum, &codel);
            }
            if too_many && waiting.signal == Signal::Loss {
                self.forget(&waiting);
                drop(waiting);
                continue;
            }
            flow.deficit = flow.deficit.saturating_sub(i64::try_from(size.as_u64()).unwrap_or(i64::MAX));
            return Some((waiting, too_many));
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

    pub(super) fn is_valid(&self) -> bool {
        let sums = |all: &mut dyn Iterator<Item = &Waiting<T>>| {
            all.fold([Bytes::ZERO; 3], |[sum, backpressured, memory], Waiting { load, signal, .. }| {
                let held = if *signal == Signal::Backpressure { load.size } else { Bytes::ZERO };
                [sum + load.size, backpressured + held, memory + load.memory]
            })
        };
        let flows = || self.sets.iter().flatten().flat_map(|set| &set.flows);
        let head = self.head.as_ref().map(|head| &head.waiting);
        let mut all = flows().flat_map(|flow| &flow.queue).chain(head);
        sums(&mut all) == [self.waiting, self.backpressured, self.memory]
            && (self.head.is_some() || flows().all(|flow| flow.queue.is_empty()))
            && flows().all(|flow| sums(&mut flow.queue.iter()) == [flow.waiting, flow.backpressured, flow.memory])
            && flows().all(|flow| (flow.queue.is_empty() || flow.listed) && flow.guests <= flow.queue.len())
            && self.new.len() + self.old.len() == flows().filter(|flow| flow.listed).count()
    }
}
