//! Wheels and what could stand in their place, on one stream of packets in virtual time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::hint::black_box;
use std::time::{Duration as Wall, Instant as Clock};

use hierarchical_hash_wheel_timer::wheels::quad_wheel::{QuadWheelWithOverflow, no_prune};
use hierarchical_hash_wheel_timer::wheels::{Skip, TimerEntryWithDelay};
use rand_core::{Rng, SeedableRng};
use rand_pcg::Pcg64Mcg;
use weirgate_linux::clock;
use weirgate_shape::{ClassSettings, CodelSettings, Pacer, Signal, Wheel};
use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::stats::median;

/// Flows of the small runs.
pub(super) const FLOWS: usize = 20_000;
/// What "very many" is.
pub(super) const MILLIONS: usize = 20_000_000;
/// A power of two, as the wheel has it.
const TICK: Duration = Duration::from_nanos(2_048);
/// Eight seconds and a half: the slowest flow's fifth packet is due in seven, and one beyond the horizon would come out early.
pub(super) const SLOTS: usize = 1 << 22;
/// Over which so many are spread that no cache holds them.
const SPAN: Duration = Duration::from_secs(2);
const BATCH: usize = 32;
/// Packets per run: long enough that a run takes tens of milliseconds.
const PACKETS: usize = 2_000_000;

/// Nanoseconds per packet, in and out; NaN where an arm was not run.
pub(super) struct Cost {
    pub(super) wheel: f64,
    pub(super) heap: f64,
    pub(super) hash_wheel: f64,
    pub(super) path: f64,
}

/// Something that packets wait in.
trait Waiting {
    fn insert(&mut self, at: u64, flow: u32);
    /// Takes out a batch, moving on to when something is due where need be.
    fn release(&mut self, out: &mut Vec<u32>);
}

struct OurWheel(Wheel<u32>);

impl OurWheel {
    fn new() -> Self {
        Self(Wheel::new(Instant::ZERO, TICK, SLOTS))
    }
}

impl Waiting for OurWheel {
    fn insert(&mut self, at: u64, flow: u32) {
        self.0.insert(Instant::from_nanos(at), flow);
    }

    fn release(&mut self, out: &mut Vec<u32>) {
        // What is inserted is due after what came out, so time does not go back.
        while out.len() < BATCH
            && let Some(now) = self.0.poll_at()
            && let Some(flow) = self.0.poll(now)
        {
            out.push(flow);
        }
    }
}

struct Heap(BinaryHeap<Reverse<(u64, u32)>>);

impl Waiting for Heap {
    fn insert(&mut self, at: u64, flow: u32) {
        self.0.push(Reverse((at, flow)));
    }

    fn release(&mut self, out: &mut Vec<u32>) {
        while out.len() < BATCH
            && let Some(Reverse((_, flow))) = self.0.pop()
        {
            out.push(flow);
        }
    }
}

#[derive(Debug)]
struct Entry {
    flow: u32,
    delay: Wall,
}

impl TimerEntryWithDelay for Entry {
    fn delay(&self) -> Wall {
        self.delay
    }
}

struct HashWheel {
    wheel: QuadWheelWithOverflow<Entry>,
    tick: u64,
    due: Vec<Entry>,
}

impl Waiting for HashWheel {
    fn insert(&mut self, at: u64, flow: u32) {
        let ticks = at.div_ceil(TICK.as_nanos()).saturating_sub(self.tick).max(1);
        let entry = Entry { flow, delay: Wall::from_millis(ticks) };
        // A delay of at least one tick is never refused.
        let _ = self.wheel.insert(entry);
    }

    fn release(&mut self, out: &mut Vec<u32>) {
        while out.len() < BATCH {
            if let Some(e) = self.due.pop() {
                out.push(e.flow);
                continue;
            }
            match self.wheel.can_skip() {
                Skip::Empty => return,
                Skip::None => {}
                Skip::Millis(n) => {
                    self.wheel.skip(n);
                    self.tick += u64::from(n);
                }
            }
            self.due = self.wheel.tick();
            self.tick += 1;
        }
    }
}

/// Time between two packets of each flow: rates log-uniform over 1:1000, 24 Gbit/s of 1,500 B packets in all.
fn intervals(seed: u64) -> Vec<u64> {
    let mut random = Pcg64Mcg::seed_from_u64(seed);
    let weights: Vec<f64> = (0..FLOWS).map(|_| 1_000_f64.powf(f64::from(random.next_u32()) / 2_f64.powi(32))).collect();
    let sum: f64 = weights.iter().sum();
    weights.iter().map(|w| (12_000.0 / (24e9 * w / sum) * 1e9) as u64).collect()
}

/// Nanoseconds per packet of `waiting`, which holds `held` packets of the flows all the time.
fn cost_of(waiting: &mut impl Waiting, held: usize, intervals: &[u64]) -> f64 {
    // (last instant, interval) of each flow.
    let mut flows: Vec<(u64, u64)> = intervals.iter().map(|interval| (0, *interval)).collect();
    let mut step = |flow: u32| {
        let (last, interval) = &mut flows[flow as usize];
        *last += *interval;
        *last
    };
    // A flow's next one, as one of it leaves.
    let ahead = held.div_ceil(FLOWS) as u64 * intervals.iter().max().copied().unwrap_or(0);
    assert!(ahead < TICK.as_nanos() * SLOTS as u64, "a packet that is due in {ahead} ns is beyond the wheel's horizon");
    for n in 0..held {
        let flow = (n % FLOWS) as u32;
        waiting.insert(step(flow), flow);
    }
    let mut out = Vec::with_capacity(BATCH);
    let mut turn = |packets: usize| {
        let mut done = 0;
        while done < packets {
            out.clear();
            waiting.release(&mut out);
            done += out.len();
            for flow in &out {
                waiting.insert(step(*flow), *flow);
            }
        }
        done
    };
    turn(PACKETS / 10);
    let start = Clock::now();
    let done = turn(PACKETS);
    start.elapsed().as_nanos() as f64 / done as f64
}

/// Percent of the releases that come within a slot of their instant, by the real clock: a packet of each flow waits, and one that
/// leaves is followed by its flow's next; whoever polls does nothing else.
pub(super) fn punctual_pct(packets: usize, seed: u64) -> f64 {
    let intervals = intervals(seed);
    let start = clock::monotonic();
    let mut wheel = Wheel::new(start, TICK, SLOTS);
    // Spread over their first interval.
    let first = |(flow, interval): (usize, &u64)| start + Duration::from_nanos(interval * (flow as u64 % 97 + 1) / 97);
    let mut stamps: Vec<Instant> = intervals.iter().enumerate().map(first).collect();
    for (flow, at) in stamps.iter().enumerate() {
        wheel.insert(*at, flow);
    }
    let (mut done, mut punctual) = (0_usize, 0_usize);
    while done < packets {
        let now = clock::monotonic();
        while let Some(flow) = wheel.poll(now) {
            done += 1;
            punctual += usize::from(now.saturating_since(stamps[flow]) <= TICK);
            stamps[flow] += Duration::from_nanos(intervals[flow]);
            wheel.insert(stamps[flow], flow);
        }
    }
    100.0 * punctual as f64 / done as f64
}

/// The median costs with `held` packets waiting.
pub(super) fn with_flows(held: usize, repeats: usize, seed: u64) -> Cost {
    let intervals = intervals(seed);
    let mut runs: [Vec<f64>; 4] = Default::default();
    for _ in 0..repeats {
        runs[0].push(cost_of(&mut OurWheel::new(), held, &intervals));
        runs[1].push(cost_of(&mut Heap(BinaryHeap::with_capacity(held)), held, &intervals));
        let mut hash = HashWheel { wheel: QuadWheelWithOverflow::new(no_prune), tick: 0, due: Vec::new() };
        runs[2].push(cost_of(&mut hash, held, &intervals));
        runs[3].push(path(held));
    }
    let [wheel, heap, hash_wheel, path] = runs.map(median);
    Cost { wheel, heap, hash_wheel, path }
}

/// The whole path: `held` packets wait in the pacer, and each that leaves is followed by one of its flow.
fn path(held: usize) -> f64 {
    let mut pacer: Pacer<u32> = Pacer::new(Instant::ZERO, TICK, SLOTS);
    let size = Bytes::new(1_500);
    let tenant = pacer.add_limit(Instant::ZERO, BitRate::from_bits_per_sec(24_000_000_000), Bytes::new(150_000));
    let settings = ClassSettings {
        flows: 32_768,
        queue_max: Bytes::new(u64::MAX),
        // Everything stands here, on purpose: CoDel looks and drops nothing.
        codel: Some(CodelSettings { target: Duration::MAX, ..CodelSettings::default() }),
        ..ClassSettings::default()
    };
    // A class per 100 Mbit/s.
    let classes: Vec<_> = (0..240)
        .map(|_| {
            let own = pacer.add_limit(Instant::ZERO, BitRate::from_bits_per_sec(100_000_000), Bytes::new(15_000));
            pacer.add_class(settings, &[own, tenant])
        })
        .collect();
    let class = |flow: u32| classes[flow as usize % classes.len()];
    for n in 0..held {
        let flow = (n % FLOWS) as u32;
        // There is room for everything.
        let _ = pacer.handle_packet(Instant::ZERO, class(flow), flow, size, Signal::Loss, flow);
    }
    let mut now = Instant::ZERO;
    let mut batch = Vec::with_capacity(BATCH);
    let mut turn = |packets: usize| {
        let mut done = 0;
        while done < packets {
            now = pacer.poll_at().unwrap_or(now).max(now);
            batch.clear();
            while batch.len() < BATCH
                && let Some(out) = pacer.poll(now)
            {
                batch.push(out.item);
            }
            done += batch.len();
            for flow in &batch {
                let _ = pacer.handle_packet(now, class(*flow), *flow, size, Signal::Loss, *flow);
            }
        }
        done
    };
    turn(PACKETS / 10);
    let start = Clock::now();
    let done = turn(PACKETS);
    black_box(done);
    start.elapsed().as_nanos() as f64 / done as f64
}

/// With so many waiting that no cache holds them: stamps in order or uniformly random over two seconds, all in, all out.
pub(super) fn with_millions(held: usize, in_order: bool, seed: u64) -> Cost {
    let span = SPAN.as_nanos();
    let stamps = || {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        (0..held).map(move |n| {
            let n = n as u64;
            if in_order {
                (u128::from(n) * u128::from(span) / held as u128) as u64
            } else {
                ((u128::from(random.next_u64()) * u128::from(span)) >> 64) as u64
            }
        })
    };
    let wheel = all(&mut OurWheel::new(), stamps());
    let heap = all(&mut Heap(BinaryHeap::new()), stamps());
    Cost { wheel, heap, hash_wheel: f64::NAN, path: f64::NAN }
}

/// Nanoseconds per packet when all of `stamps` go in and then come out.
fn all(waiting: &mut impl Waiting, stamps: impl ExactSizeIterator<Item = u64>) -> f64 {
    let held = stamps.len();
    let start = Clock::now();
    for (n, at) in stamps.enumerate() {
        waiting.insert(at, n as u32);
    }
    let mut out = Vec::with_capacity(BATCH);
    let mut done = 0;
    while done < held {
        out.clear();
        waiting.release(&mut out);
        done += out.len();
    }
    start.elapsed().as_nanos() as f64 / held as f64
}
