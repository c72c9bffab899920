//! No balancer allocates for a packet, not for the first one either: an allocator counts what this test's thread asks for.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::hint::black_box;

use weirgate_balance::{
    Cells, Conga, CongaSettings, DrillPerFlow, Ecmp, Engine, Estimator, FiveTuple, FlowHash, Flowlets, Label,
    LabelSettings, LetFlow, Lfsr, Looks, Memory, Port, Reps, RoundRobin, Rule, Schedule, Share, Wcmp, Weighted, random,
    shortest,
};
use weirgate_units::{BitRate, Bytes, Duration, Instant};

thread_local! {
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, which counts. What is grown or zeroed is asked for by `alloc` as well.
struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: all memory is the system's; what counts is a number of the thread, for which nothing is allocated.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the layout is the caller's, who promises the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: it came from `alloc` above, and so from there.
        unsafe { System.dealloc(at, layout) }
    }
}

/// How often memory is asked for while packets of some flows are balanced, with pauses that end flowlets.
fn allocations<R>(mut balance: impl FnMut(Instant, FlowHash) -> R) -> u64 {
    let before = ALLOCATIONS.get();
    for packet in 0..10_000_u64 {
        let now = Instant::from_nanos(packet * 1_000 + packet / 1_000 * 1_000_000);
        black_box(balance(now, FlowHash::from_u64(packet % 97 * 0x9e37_79b9)));
    }
    ALLOCATIONS.get() - before
}

#[track_caller]
fn none<R>(balancer: &str, balance: impl FnMut(Instant, FlowHash) -> R) {
    assert_eq!(allocations(balance), 0, "{balancer}");
}

const GROUP: [Port; 4] = [Port(0), Port(1), Port(2), Port(3)];

const RATE: BitRate = BitRate::from_bits_per_sec(10_000_000_000);

const PACKET: Bytes = Bytes::new(1_538);

fn depths(port: Port) -> u64 {
    u64::from(port.0 ^ 2) * PACKET.as_u64()
}

#[test]
fn what_allocates_is_counted() {
    assert_eq!(allocations(|_, flow| Box::new(flow)), 10_000);
}

#[test]
fn switches_allocate_nothing_for_a_packet() {
    let mut sampler = Lfsr::new(1, 2);
    none("ecmp", |_, flow| Ecmp { seed: 1 }.pick(&GROUP, flow));
    none("wcmp", |_, flow| Wcmp { seed: 1 }.pick(&[1, 0, 3, 2], flow));
    none("random", |_, _| random(&GROUP, &mut sampler));
    let mut turns = RoundRobin::default();
    none("round robin", |_, _| turns.pick(&GROUP));
    none("shortest", |_, _| shortest(&GROUP, 1_538, &depths, &mut sampler));
    for (d, m) in [(2, 1), (1, 3), (32, 32)] {
        for rule in [Rule::Drawn, Rule::Remembered, Rule::Replacement] {
            let (looks, mut memory) = (Looks::new(d, m).unwrap().with(rule), Memory::default());
            none("drill", |_, _| memory.pick(looks, &GROUP, &depths, &mut sampler));
        }
    }
    let mut engine = Engine::new(Looks::RECOMMENDED, 1, 3);
    none("an engine", |_, _| engine.clock(Some((0, &GROUP[..])), &depths, &mut sampler));
    let (mut flows, mut memory) = (DrillPerFlow::new(Looks::RECOMMENDED, 64), Memory::default());
    none("drill by flow", |now, flow| flows.pick(now, flow, &GROUP, &mut memory, &depths, &mut sampler));
    let mut letflow = LetFlow::new(Flowlets::new(64, Duration::from_micros(500)));
    none("letflow", |now, flow| letflow.pick(now, flow, &GROUP, &mut sampler));
    let uplinks = GROUP.map(|port| (port, RATE));
    let mut leaves = [(); 2].map(|()| Conga::new(CongaSettings::default(), &uplinks, &[4, 4]));
    let mut spine = Estimator::new(RATE, CongaSettings::default());
    none("conga", |now, flow| {
        for (from, to) in [(0, 1), (1, 0)] {
            let (port, mut header) = leaves[from].pick(now, to, flow, &GROUP, &mut sampler);
            leaves[from].handle_sent(now, port, PACKET, &mut header);
            spine.handle_sent(now, PACKET);
            spine.mark(now, &mut header);
            leaves[to].handle_received(now, from, &header);
        }
    });
}

#[test]
fn hosts_allocate_nothing_for_a_packet() {
    let mut sampler = Lfsr::new(1, 2);
    let flow = FiveTuple {
        source: [10, 0, 0, 1].into(),
        destination: [10, 0, 1, 1].into(),
        protocol: 6,
        source_port: 40_000,
        destination_port: 80,
    };
    none("a flow's hash", |_, _| FlowHash::new(&flow, 1));
    let (schedule, mut cells) = (Schedule::new(&[1, 2, 1]).unwrap(), Cells::new(0));
    none("presto", |_, _| cells.next(&schedule, PACKET));
    for settings in [LabelSettings::PLB, LabelSettings::FLOW_BENDER] {
        let mut label = Label::new(&mut sampler);
        none("a label", |now, flow| {
            if flow.as_u64() == 0 {
                label.handle_timeout(now, &settings, &mut sampler);
            }
            label.handle_round(now, &settings, 1_000, 600, false, &mut sampler)
        });
    }
    let mut reps = Reps::new(64);
    none("reps", |now, flow| {
        if flow.as_u64() == 0 {
            reps.handle_timeout(now, Duration::from_micros(100));
        }
        let entropy = reps.next(now, &mut sampler);
        reps.handle_ack(entropy, entropy.is_multiple_of(3));
        entropy
    });
    let share = |weight| Share { weight, is_usable: true, flows: 0 };
    let mut weighted = Weighted::new(&[share(20), share(50), share(5)]);
    none("weighted", |_, _| weighted.next());
}
