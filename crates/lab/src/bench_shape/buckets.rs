//! One check against a rate, and one rate for two threads.

use std::hint::black_box;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration as Wall, Instant as Clock};

use governor::clock::FakeRelativeClock;
use governor::{Quota, RateLimiter};
use weirgate_shape::{Aggregate, Bucket, Color, Member, SrTcm};
use weirgate_units::{BitRate, Bytes, Instant};

use crate::stats::median;

const CHECKS: u64 = 5_000_000;
/// By each thread that shares a limit.
const DECISIONS: u64 = 20_000_000;
const RATE: BitRate = BitRate::from_bits_per_sec(10_000_000_000);
const FAST_RATE: BitRate = BitRate::from_bits_per_sec(1_000_000_000_000);

/// A limit that threads share, and what they ask it for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub(super) rate: BitRate,
    pub(super) packet: Bytes,
    /// So many times as fast does time run to them. They ask for some hundreds of times as many packets as come at 10 Gbit/s: where time
    /// runs as fast as they, all are granted, by leases of the same size.
    pub(super) fast: u64,
    /// Not where the decisions of a lease take about as long as the word that it comes from takes from one processor to another: then that
    /// is what is measured.
    pub(super) is_judged: bool,
}

const fn shared(rate: BitRate, packet: u64, fast: u64, is_judged: bool) -> Shared {
    Shared { rate, packet: Bytes::new(packet), fast, is_judged }
}

/// In the last row a lease is 41 packets, and 0.1 to 0.3 us of decisions.
pub(super) const SHARED: [Shared; 4] = [
    shared(RATE, 1_500, 1, true),
    shared(FAST_RATE, 1_500, 1, true),
    shared(RATE, 64, 50, true),
    shared(RATE, 1_500, 1_000, false),
];
const PACKET: Bytes = Bytes::new(1_500);
/// Between two packets: a little more than the rate gives, so that some do not conform.
const GAP: u64 = 1_100;

/// Nanoseconds per check.
pub(super) struct Checks {
    pub(super) bucket: f64,
    pub(super) srtcm: f64,
    pub(super) rte_meter: f64,
    pub(super) governor: f64,
}

/// One aggregate, by one thread and by two, each deciding as fast as it can.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scaling {
    /// Bytes.
    pub(super) lease: u64,
    /// What was granted of what two threads asked for, in percent.
    pub(super) granted_pct: f64,
    /// Million decisions per second.
    pub(super) one_mps: f64,
    pub(super) two_mps: f64,
    pub(super) two_over_one: f64,
    /// The same of one word that is exchanged for every packet.
    pub(super) bare_two_over_one: f64,
}

fn per_check(mut check: impl FnMut(u64) -> bool) -> f64 {
    let start = Clock::now();
    let mut passed = 0_u64;
    for n in 0..CHECKS {
        passed += u64::from(check(black_box(n * GAP)));
    }
    black_box(passed);
    start.elapsed().as_nanos() as f64 / CHECKS as f64
}

/// The medians.
pub(super) fn checks(repeats: usize) -> Checks {
    let mut runs: [Vec<f64>; 4] = Default::default();
    for _ in 0..repeats {
        let mut bucket = Bucket::new(Instant::ZERO, RATE, Bytes::new(15_000));
        runs[0].push(per_check(|now| bucket.take(Instant::from_nanos(now), PACKET).is_ok()));
        let mut meter = SrTcm::new(Instant::ZERO, RATE, Bytes::new(15_000), Bytes::new(15_000));
        runs[1].push(per_check(|now| meter.mark(Instant::from_nanos(now), PACKET, Color::Green) == Color::Green));
        let mut meter = RteMeter::new(RATE, 15_000, 15_000);
        runs[2].push(per_check(|now| meter.check(now, 1_500)));
        let clock = FakeRelativeClock::default();
        let quota = Quota::per_second(NonZeroU32::new(833_333).unwrap_or(NonZeroU32::MIN));
        let limiter = RateLimiter::direct_with_clock(quota, clock.clone());
        runs[3].push(per_check(|_| {
            clock.advance(Wall::from_nanos(GAP));
            limiter.check().is_ok()
        }));
    }
    let [bucket, srtcm, rte_meter, governor] = runs.map(median);
    Checks { bucket, srtcm, rte_meter, governor }
}

/// The method of DPDK's rte_meter (lib/meter): whole periods of at least 100 cycles, each worth whole bytes. What that
/// rounds is its error: always over the rate, by up to 1 %.
struct RteMeter {
    time: u64,
    period: u64,
    bytes_per_period: u64,
    committed: u64,
    excess: u64,
    committed_max: u64,
    excess_max: u64,
}

impl RteMeter {
    fn new(rate: BitRate, committed_max: u64, excess_max: u64) -> Self {
        let bytes = rate.as_bytes_per_sec() as f64;
        let period = 1e9 / bytes;
        let (bytes_per_period, period) = if period >= 100.0 {
            (1, period as u64)
        } else {
            let n = (100.0 / period).ceil();
            (n as u64, (1e9 * n / bytes) as u64)
        };
        Self {
            time: 0,
            period,
            bytes_per_period,
            committed: committed_max,
            excess: excess_max,
            committed_max,
            excess_max,
        }
    }

    fn check(&mut self, now: u64, size: u64) -> bool {
        let periods = (now - self.time) / self.period;
        self.time += periods * self.period;
        self.committed += periods * self.bytes_per_period;
        if self.committed > self.committed_max {
            self.excess = (self.excess + self.committed - self.committed_max).min(self.excess_max);
            self.committed = self.committed_max;
        }
        if self.committed >= size {
            self.committed -= size;
            return true;
        }
        if self.excess >= size {
            self.excess -= size;
        }
        false
    }
}

/// Decisions per second of `threads` threads, each with what `member` makes, and the share of them that grants, in percent. To them time
/// runs so many times as `fast`.
fn decisions<M: FnMut(Instant) -> bool + Send>(threads: usize, fast: u64, member: impl Fn() -> M) -> [f64; 2] {
    let start = Clock::now();
    let passed: u64 = thread::scope(|scope| {
        let run = |mut take: M| {
            scope.spawn(move || {
                let mut passed = 0_u64;
                for _ in 0..DECISIONS / 32 {
                    // The time as a poll loop has it: one reading for a batch.
                    let now = Instant::from_nanos(start.elapsed().as_nanos() as u64 * fast);
                    passed += (0..32).map(|_| u64::from(take(now))).sum::<u64>();
                }
                passed
            })
        };
        let running: Vec<_> = (0..threads).map(|_| run(member())).collect();
        running.into_iter().filter_map(|t| t.join().ok()).sum()
    });
    let all = DECISIONS as f64 * threads as f64;
    [all / start.elapsed().as_secs_f64(), passed as f64 / all * 100.0]
}

/// The medians, one thread and two interleaved.
pub(super) fn scaling(of: Shared, repeats: usize) -> Scaling {
    let Shared { rate, packet, fast, .. } = of;
    let new = || Arc::new(Aggregate::new(Instant::ZERO, rate, Bytes::new(10_000_000), PACKET));
    let cost = rate.time_for(packet).as_nanos();
    let mut runs: [Vec<f64>; 5] = Default::default();
    for _ in 0..repeats {
        for threads in [1, 2] {
            let shared = new();
            let [rate, granted_pct] = decisions(threads, fast, || {
                let mut member = Member::new(shared.clone());
                move |now| member.take(now, packet).is_ok()
            });
            runs[threads - 1].push(rate);
            if threads == 2 {
                runs[4].push(granted_pct);
            }
            // A word that holds the instant at which all that was granted is earned: GCRA, as governor has it.
            let word = Arc::new(AtomicU64::new(0));
            let [rate, _] = decisions(threads, fast, || {
                let word = word.clone();
                move |now: Instant| {
                    let (now, burst) = (now.as_nanos(), cost * 6_667);
                    let next = |at: u64| (at <= now + burst).then(|| at.max(now) + cost);
                    word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).is_ok()
                }
            });
            runs[threads + 1].push(rate);
        }
    }
    let [one, two, bare_one, bare_two, granted_pct] = runs.map(median);
    Scaling {
        lease: new().lease().as_u64(),
        granted_pct,
        one_mps: one / 1e6,
        two_mps: two / 1e6,
        two_over_one: two / one,
        bare_two_over_one: bare_two / bare_one,
    }
}
