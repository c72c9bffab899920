mod threads;

use super::*;
use proptest::prelude::*;
use weirgate_units::Duration;

const MTU: Bytes = Bytes::new(1_500);
const BURST: Bytes = Bytes::new(3_000);

/// What became of a packet that came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict<T> {
    Pass(T),
    Wait,
    Drop(T, Reason),
}

impl<T> Limits<T> {
    /// Takes a packet in, as the bridge does.
    fn handle_packet(&mut self, now: Instant, arrival: &Arrival, item: T) -> Verdict<T> {
        match self.admit(now, arrival.class, arrival.source, arrival.size) {
            Admission::Pass => Verdict::Pass(item),
            Admission::Refused => Verdict::Drop(item, Reason::Rate),
            Admission::Wait => match self.queue(now, arrival, item) {
                Ok(()) => Verdict::Wait,
                Err(item) => Verdict::Drop(item, Reason::Room),
            },
        }
    }
}

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

const fn mbit(n: u64) -> BitRate {
    BitRate::from_bits_per_sec(n * 1_000_000)
}

fn limits() -> Limits<u64> {
    Limits::new(at(0), mbit(1), mbit(1_000), Bytes::new(10_000_000))
}

fn limit(limits: &mut Limits<u64>, rate: BitRate, mode: Mode) -> LimitId {
    limits.add_limit(at(0), LimitSettings { rate, burst: BURST, mode })
}

fn arrival(class: ClassId, source: Option<SourceId>) -> Arrival {
    Arrival { class, source, flow: 1.into(), size: MTU, memory: MTU, signal: Signal::Loss }
}

/// Offers packets of an MTU every `gap` for `time` from the beginning, and gives the bytes that leave.
fn offer(limits: &mut Limits<u64>, class: ClassId, gap: Duration, time: Duration) -> u64 {
    offer_from(limits, at(0), class, gap, time)
}

/// The same from `now` on.
fn offer_from(limits: &mut Limits<u64>, mut now: Instant, class: ClassId, gap: Duration, time: Duration) -> u64 {
    let (end, mut left) = (now + time, 0);
    while now < end {
        if let Verdict::Pass(_) = limits.handle_packet(now, &arrival(class, None), 0) {
            left += 1;
        }
        now += gap;
        while let Some(out) = limits.poll(now) {
            left += u64::from(!matches!(out.fate, ReleaseFate::Drop(_)));
        }
        assert!(limits.is_valid());
    }
    left * MTU.as_u64()
}

#[test]
fn who_fills_the_memory_leaves_room_for_others() {
    let mut limits = Limits::new(at(0), mbit(1), mbit(1_000), Bytes::new(1_000_000));
    let queue = ClassSettings { codel: None, queue_max: Bytes::new(u64::MAX), ..ClassSettings::default() };
    let classes = [0, 1, 2, 3].map(|_| {
        let id = limit(&mut limits, BitRate::ZERO, Mode::Pace);
        limits.add_class(queue, &[id])
    });
    let waiting = classes.map(|class| {
        let waits = |flow: &u32| {
            let arrival = Arrival { flow: (flow * 977).into(), ..arrival(class, None) };
            matches!(limits.handle_packet(at(0), &arrival, 0), Verdict::Wait)
        };
        (0..1_000_u32).filter(waits).count() as u64 * MTU.as_u64()
    });
    // A quarter of all each, while so much is free; the last one has half of what is.
    for (waiting, share) in waiting.iter().zip([250_000_u64, 250_000, 250_000, 125_000]) {
        assert!(waiting.abs_diff(share) <= 2 * MTU.as_u64(), "{waiting} of {share}");
    }
    assert!(limits.is_valid());
}

/// Packets of 46 bytes, each in a buffer of 2,048: two classes that offer far more than there is memory for, the first by 1 flow that fills
/// its room and then by 20, the second by another 20.
#[test]
fn small_packets_have_the_room_that_their_memory_takes() {
    const BUFFER: u64 = 2_048;
    let memory_max = 4_000 * BUFFER;
    let mut limits = Limits::new(at(0), mbit(1), mbit(1_000), Bytes::new(memory_max));
    let queue = ClassSettings { codel: None, queue_max: Bytes::new(u64::MAX), ..ClassSettings::default() };
    let classes = [0, 1].map(|_| {
        let stopped = limit(&mut limits, BitRate::ZERO, Mode::Pace);
        limits.add_class(queue, &[stopped])
    });
    let mut offer = |class, flow: u32, packets: u64| {
        let (size, memory) = (Bytes::new(46), Bytes::new(BUFFER));
        let waits = |_: &u64| {
            let arrival = Arrival { flow: (flow * 977).into(), size, memory, ..arrival(class, None) };
            matches!(limits.handle_packet(at(0), &arrival, 0), Verdict::Wait)
        };
        (0..packets).filter(waits).count() as u64
    };
    // A class has a quarter, 1,000 packets; one of its flows half of that, and one packet that waits for the limit already.
    assert_eq!(offer(classes[0], 0, 3_000), 501);
    // Whoever else comes finds room, and has what the others have.
    let mut waiting = [[0; 20]; 2];
    for round in 0..200 {
        for (class, waiting) in classes.iter().zip(&mut waiting) {
            for (flow, waiting) in waiting.iter_mut().enumerate() {
                *waiting += offer(*class, flow as u32 + 1, 1 + round % 2);
            }
        }
    }
    let within = |waiting: &[u64; 20], least, most| waiting.iter().all(|n| (least..=most).contains(n));
    // A flow has as much as is left free: of 499 and of 1,000 packets the 21st part.
    assert!(within(&waiting[0], 22, 24) && within(&waiting[1], 46, 49), "{waiting:?}");
    assert_eq!(limits.memory().as_u64() / BUFFER, 501 + waiting.iter().flatten().sum::<u64>());
    assert!(limits.is_valid());
}

#[test]
fn a_gates_turns_are_of_the_rate_that_it_has_now() {
    let mut limits = limits();
    let gate = limit(&mut limits, mbit(1_000), Mode::Gate);
    let sources = [0, 1].map(|_| limits.add_source(Some(gate), None));
    limits.set_rate(at(0), gate, mbit(1));
    limits.set_burst(at(0), gate, BURST);
    sources.iter().for_each(|source| limits.handle_ready(*source));
    let mut now = at(0);
    let mut read = [Bytes::ZERO; 2];
    for _ in 0..100_000 {
        for (source, read) in sources.iter().zip(&mut read) {
            if limits.may_read(now, *source).is_some() {
                limits.handle_read(now, *source, MTU, true);
                *read += MTU;
            }
        }
        now += Duration::from_micros(20);
        let [one, other] = read.map(Bytes::as_u64);
        assert!(one.abs_diff(other) <= 2 * MTU.as_u64(), "{one} and {other}");
    }
    assert!(read[0] > Bytes::new(100_000));
}

#[test]
fn a_rate_of_zero_lets_nothing_pass_whatever_was_saved_up() {
    for mode in [Mode::Pace, Mode::Gate, Mode::Borrow, Mode::Drop] {
        for members in [1, 2] {
            let mut limits = limits();
            let settings = LimitSettings { rate: mbit(10), burst: BURST, mode };
            let id = match members {
                1 => limits.add_limit(at(0), settings),
                _ => limits.add_shared_limit(at(0), &Arc::new(SharedLimit::new(at(0), settings, members)), 0),
            };
            let class = limits.add_class(ClassSettings { codel: None, ..ClassSettings::default() }, &[id]);
            // Of what is leased for this one, something is left.
            _ = limits.handle_packet(at(0), &arrival(class, None), 0);
            limits.set_rate(at(0), id, BitRate::ZERO);
            limits.balance(at(0));
            assert_eq!(
                offer(&mut limits, class, Duration::from_millis(1), Duration::from_millis(100)),
                0,
                "{mode:?} of {members}"
            );
        }
    }
}

#[test]
fn the_wheel_is_for_the_rates_that_there_are() {
    let mut limits: Limits<u64> = Limits::new(at(0), mbit(1), mbit(1), Bytes::new(u64::MAX));
    let ids = [mbit(1), BitRate::ZERO].map(|rate| limit(&mut limits, rate, Mode::Pace));
    assert!(limits.tick() > Duration::from_micros(50), "{:?}", limits.tick());
    limits.set_rate(at(0), ids[1], mbit(10_000));
    // A packet of 1,514 B takes 1.2 us.
    assert!(limits.tick() <= Duration::from_nanos(1_211), "{:?}", limits.tick());
    limits.set_rate(at(0), ids[1], BitRate::ZERO);
    assert!(limits.tick() > Duration::from_micros(50), "{:?}", limits.tick());
}

#[test]
fn each_mode_meets_its_rate() {
    for mode in [Mode::Pace, Mode::Gate, Mode::Borrow, Mode::Drop] {
        let mut limits = limits();
        let id = limit(&mut limits, mbit(10), mode);
        let class = limits.add_class(ClassSettings { codel: None, ..ClassSettings::default() }, &[id]);
        // 20 Mbit/s offered.
        let left = offer(&mut limits, class, Duration::from_micros(600), Duration::from_secs(2));
        let allowed = 2_500_000.0;
        assert!((left as f64 / allowed - 1.0).abs() < 0.003, "{mode:?}: {left}");
        let counters = limits.counters(id, at(2_000_000_000));
        assert_eq!(counters.passed_bytes, left);
        assert_eq!(counters.dropped_rate > 0, mode != Mode::Pace, "{mode:?}");
        assert_eq!(counters.waiting > 2, mode == Mode::Pace, "{mode:?}");
    }
}

#[test]
fn only_limits_that_let_wait_have_waits() {
    let mut limits = limits();
    let drops = limit(&mut limits, mbit(50), Mode::Drop);
    let paces = limit(&mut limits, mbit(10), Mode::Pace);
    let settings = ClassSettings { codel: None, queue_max: Bytes::new(1 << 20), ..ClassSettings::default() };
    let class = limits.add_class(settings, &[drops, paces]);
    // Some need not wait, and some do.
    let left = offer(&mut limits, class, Duration::from_micros(1_000), Duration::from_secs(1));
    let [drops, paces] = [drops, paces].map(|id| limits.counters(id, at(1_000_000_000)));
    assert_eq!((drops.passed_bytes, paces.passed_bytes), (left, left));
    assert!(paces.delays.quantile(0.99) > Some(Duration::from_millis(1)), "{paces:?}");
    assert_eq!((drops.delays, drops.delayed), (Delays::default(), 0));
    let packets = left / MTU.as_u64();
    assert!(paces.delayed > 800 && paces.delayed < packets, "the burst did not wait: {} of {packets}", paces.delayed);
}

#[test]
fn traffic_below_its_rate_neither_waits_nor_is_throttled() {
    for mode in [Mode::Pace, Mode::Gate] {
        let mut limits = limits();
        let id = limit(&mut limits, mbit(12), mode);
        let class = limits.add_class(ClassSettings::default(), &[id]);
        // 6 Mbit/s, at odds with the wheel's ticks.
        for n in 0..1_000 {
            assert_eq!(limits.handle_packet(at(n * 2_000_123), &arrival(class, None), n), Verdict::Pass(n), "{mode:?}");
        }
        let counters = limits.counters(id, at(2_000_000_000));
        assert_eq!((counters.passed_packets, counters.delayed, counters.waiting), (1_000, 0, 0));
        assert_eq!(counters.throttled, Duration::ZERO);
        assert_eq!(counters.delays.quantile(1.0), Some(Duration::from_micros(1)));
        assert_eq!((limits.poll_at(), limits.memory()), (None, Bytes::ZERO));
    }
}

/// Three limits above one class: what waits, is marked or is dropped is the narrow one's, what passes is everybody's.
#[test]
fn of_a_chain_the_limit_that_holds_up_counts_what_it_does() {
    for narrow in 0..3 {
        let mut limits = limits();
        let rate = |at: usize| if at == narrow { mbit(10) } else { mbit(100) };
        let ids: Vec<LimitId> = (0..3).map(|at| limit(&mut limits, rate(at), Mode::Pace)).collect();
        let settings = ClassSettings { mark_above: Some(Duration::from_millis(5)), ..ClassSettings::default() };
        let queue_max = Bytes::new(60_000);
        let class = limits.add_class(ClassSettings { queue_max, ..settings }, &ids);
        let (mut now, end, mut passed, mut marked, mut codel, mut room) = (at(0), at(2_000_000_000), 0, 0, 0, 0);
        while now < end {
            // 20 Mbit/s offered, by two flows.
            let arrival = Arrival { flow: ((now.as_nanos() / 600_000 % 2) as u32).into(), ..arrival(class, None) };
            match limits.handle_packet(now, &arrival, 0) {
                Verdict::Pass(_) => passed += 1,
                Verdict::Wait => {}
                Verdict::Drop(..) => room += 1,
            }
            now += Duration::from_micros(600);
            while let Some(out) = limits.poll(now) {
                assert_eq!(out.by, ids[narrow]);
                passed += u64::from(!matches!(out.fate, ReleaseFate::Drop(_)));
                codel += u64::from(matches!(out.fate, ReleaseFate::Drop(_)));
                if out.fate == ReleaseFate::Mark {
                    limits.handle_marked(out.by);
                    marked += 1;
                }
            }
        }
        assert!(codel > 5 && room > 5 && marked > 1_000, "{codel} {room} {marked}");
        for (at, id) in ids.iter().enumerate() {
            let c = limits.counters(*id, now);
            assert_eq!((c.passed_packets, c.dropped_rate), (passed, 0));
            let waits = c.delays.quantile(0.5).expect("they passed");
            if at == narrow {
                assert_eq!((c.dropped_codel, c.dropped_room, c.marked), (codel, room, marked));
                assert!(c.waiting > 10 && waits > Duration::from_millis(5), "{c:?}");
                assert!(c.delayed > passed - 5 && c.delayed < passed, "all but the burst: {c:?}");
                assert!(c.throttled > Duration::from_millis(1_990), "{}", c.throttled);
            } else {
                assert_eq!((c.dropped_codel, c.dropped_room, c.marked, c.waiting, c.delayed), (0, 0, 0, 0, 0));
                assert_eq!(c.delays.quantile(1.0), Some(Duration::from_micros(1)), "none waited for it");
                assert!(c.throttled < Duration::from_millis(20), "{}", c.throttled);
            }
        }
    }
}

/// CoDel is at work below a limit that then stands still, or becomes a two-hundredth, or far more, and is set again later: all that waited
/// leaves, and what comes later is CoDel's again.
#[test]
fn a_new_rate_loses_nothing_that_waits() {
    let slow = BitRate::from_bits_per_sec(100_000);
    for (first, seconds, then) in [(BitRate::ZERO, 3, mbit(20)), (BitRate::ZERO, 1, mbit(10_000)), (slow, 1, slow)] {
        let mut limits = limits();
        let id = limit(&mut limits, mbit(20), Mode::Pace);
        let class = limits.add_class(ClassSettings::default(), &[id]);
        // 25 Mbit/s.
        let (gap, time) = (Duration::from_micros(480), Duration::from_millis(2_400));
        let settle = |limits: &mut Limits<u64>, mut now: Instant, end: Instant| {
            while now < end {
                while limits.poll(now).is_some() {}
                now += Duration::from_millis(1);
            }
        };
        offer(&mut limits, class, gap, time);
        let set = at(0) + time;
        let before = limits.counters(id, set);
        assert!(before.dropped_codel > 20 && before.waiting > 50, "{before:?}");
        limits.set_rate(set, id, first);
        let set_again = set + Duration::from_secs(seconds);
        settle(&mut limits, set, set_again);
        limits.set_rate(set_again, id, then);
        let later = set_again + Duration::from_secs(200);
        settle(&mut limits, set_again, later);
        let after = limits.counters(id, later);
        assert_eq!((after.dropped_codel, after.waiting), (before.dropped_codel, 0), "{first:?}, {then:?}");
        limits.set_rate(later, id, mbit(20));
        offer_from(&mut limits, later, class, gap, time);
        assert!(limits.counters(id, later + time).dropped_codel > before.dropped_codel + 20);
    }
}

/// Offers a flow of 20 Mbit/s to 10 for five seconds, read while less than 60,000 B of it wait: packets that were marked and that
/// CoDel dropped, as they came out and as the limit counted them.
fn told(signal: Signal) -> ([u64; 2], [u64; 2]) {
    let mut limits = limits();
    let id = limit(&mut limits, mbit(10), Mode::Pace);
    let source = limits.add_source(None, Some(Bytes::new(60_000)));
    let class = limits.add_class(ClassSettings::default(), &[id]);
    let (mut now, end, mut fates) = (at(0), at(5_000_000_000), [0; 2]);
    while now < end {
        if limits.may_read(now, source).is_some() {
            let arrival = Arrival { signal, ..arrival(class, Some(source)) };
            assert!(!matches!(limits.handle_packet(now, &arrival, 0), Verdict::Drop(..)), "there is room");
        }
        now += Duration::from_micros(600);
        while let Some(out) = limits.poll(now) {
            match out.fate {
                ReleaseFate::Send => {}
                ReleaseFate::Mark => {
                    assert_eq!(out.by, id);
                    limits.handle_marked(out.by);
                    fates[0] += 1;
                }
                ReleaseFate::Drop(reason) => {
                    assert_eq!(reason, Reason::Codel);
                    fates[1] += 1;
                }
                ReleaseFate::DropPart => unreachable!("none is of parts"),
            }
        }
        assert!(limits.is_valid() && limits.backlog(source) <= Bytes::new(60_000));
    }
    assert!(limits.backlog(source) > Bytes::new(55_000), "45 ms in the queue, all the time");
    let counters = limits.counters(id, now);
    (fates, [counters.marked, counters.dropped_codel])
}

#[test]
fn a_sender_is_told_of_its_queue_as_it_listens() {
    let (fates, counted) = told(Signal::Loss);
    assert!(fates[0] == 0 && fates[1] > 100 && counted == fates, "{fates:?}, counted {counted:?}");
    let (fates, counted) = told(Signal::Mark);
    assert!(fates[0] > 100 && fates[1] == 0 && counted == fates, "{fates:?}, counted {counted:?}");
    assert_eq!(told(Signal::Backpressure), ([0; 2], [0; 2]), "it feels it by itself");
}

#[test]
fn what_one_limit_refuses_is_not_charged_to_the_others() {
    let mut limits = limits();
    let near = limit(&mut limits, mbit(10), Mode::Drop);
    let gate = limit(&mut limits, mbit(10), Mode::Gate);
    let far = limit(&mut limits, mbit(9), Mode::Drop);
    let class = limits.add_class(ClassSettings::default(), &[near, gate, far]);
    let other = limits.add_class(ClassSettings::default(), &[near]);
    let (mut left, mut beside) = (0_u64, 0_u64);
    for step in 0..20_000 {
        let now = at(step * 100_000);
        let refused = matches!(limits.handle_packet(now, &arrival(class, None), 0), Verdict::Drop(..));
        left += u64::from(!refused);
        // What the first leaves over is there for who needs only it.
        beside += u64::from(matches!(limits.handle_packet(now, &arrival(other, None), 0), Verdict::Pass(_)));
    }
    let all = (left + beside) * 1_500 * 8 / 2;
    assert!((9_950_000..=10_100_000).contains(&all), "{all}");
}

#[test]
fn a_full_queue_gives_back_what_was_taken() {
    let mut limits = limits();
    let first = limit(&mut limits, mbit(100), Mode::Drop);
    let second = limit(&mut limits, BitRate::ZERO, Mode::Pace);
    let room = ClassSettings { queue_max: Bytes::new(6_000), ..ClassSettings::default() };
    let class = limits.add_class(room, &[first, second]);
    let beside = limits.add_class(ClassSettings::default(), &[first]);
    let mut fates = [0; 3];
    for step in 0..20 {
        match limits.handle_packet(at(step * 120_000), &arrival(class, None), step) {
            Verdict::Pass(_) => fates[0] += 1,
            Verdict::Wait => fates[1] += 1,
            Verdict::Drop(item, Reason::Room) => {
                assert_eq!(item, step);
                fates[2] += 1;
            }
            Verdict::Drop(_, other) => panic!("{other:?}"),
        }
    }
    // One has an instant already; of the room, a flow has half of what the others leave free.
    assert_eq!(fates, [0, 3, 17]);
    assert_eq!(limits.counters(second, at(0)).dropped_room, 17);
    let passes =
        (0..2).all(|_| matches!(limits.handle_packet(at(2_400_000), &arrival(beside, None), 0), Verdict::Pass(_)));
    assert!(passes, "the burst is there");
    assert_eq!(limits.memory(), Bytes::new(4_500));
}

#[test]
fn all_queues_together_are_bounded() {
    let mut limits: Limits<u64> = Limits::new(at(0), mbit(1), mbit(10), Bytes::new(24_000));
    let stopped = limit(&mut limits, BitRate::ZERO, Mode::Pace);
    let classes = [(); 17].map(|()| limits.add_class(ClassSettings::default(), &[stopped]));
    let waits =
        |limits: &mut Limits<u64>, class| limits.handle_packet(at(1), &arrival(class, None), 0) == Verdict::Wait;
    assert_eq!(classes.map(|class| waits(&mut limits, class)), std::array::from_fn(|at| at < 16));
    limits.set_rate(at(2), stopped, mbit(10));
    let mut left = 0;
    while let Some(due) = limits.poll_at() {
        while limits.poll(due.max(at(2))).is_some() {
            left += 1;
        }
        assert!(limits.is_valid());
    }
    assert_eq!((left, limits.memory()), (16, Bytes::ZERO));
}

#[test]
fn a_gated_source_is_read_at_its_rate_and_charged_once() {
    for mode in [Mode::Gate, Mode::Borrow] {
        let mut limits = limits();
        let gate = limit(&mut limits, mbit(12), mode);
        let source = limits.add_source(Some(gate), None);
        let class = limits.add_class(ClassSettings::default(), &[gate]);
        limits.handle_ready(source);
        let (mut now, mut read) = (at(0), 0);
        while now < at(1_000_000_000) {
            let Some(allowed) = limits.may_read(now, source) else {
                let next = limits.source_at(source).into_iter().chain(limits.poll_at()).min();
                now = next.expect("it opens").max(now + Duration::from_nanos(1));
                while limits.poll(now).is_some() {}
                continue;
            };
            let mut taken = Bytes::ZERO;
            while taken < allowed.min(Bytes::new(6_000)) {
                taken += MTU;
                let passed = limits.handle_packet(now, &arrival(class, Some(source)), 0);
                let paced = mode == Mode::Gate;
                assert!(passed == Verdict::Pass(0) || paced && passed == Verdict::Wait, "it is not charged again");
            }
            read += taken.as_u64();
            limits.handle_read(now, source, taken, true);
        }
        assert!((1_495_000..=1_512_000).contains(&read), "{mode:?}: {read}");
        while let Some(due) = limits.poll_at() {
            now = now.max(due);
            while limits.poll(now).is_some() {}
        }
        let counters = limits.counters(gate, now);
        assert_eq!((counters.passed_bytes, counters.dropped_rate), (read, 0));
        assert!(counters.throttled > Duration::from_millis(900), "{:?}", counters.throttled);
    }
}

/// A queue of super-packets of 43 pieces each, read only when the gate says so.
#[test]
fn what_a_gate_lets_in_leaves_evenly() {
    let mut limits = limits();
    let gate = limit(&mut limits, mbit(5), Mode::Gate);
    let source = limits.add_source(Some(gate), None);
    let class = limits.add_class(ClassSettings::default(), &[gate]);
    limits.handle_ready(source);
    let (mut now, mut left) = (at(0), Vec::new());
    while now < at(5_000_000_000) {
        if limits.may_read(now, source).is_some() {
            for _ in 0..43 {
                match limits.handle_packet(now, &arrival(class, Some(source)), 0) {
                    Verdict::Pass(_) => left.push(now),
                    verdict => assert_eq!(verdict, Verdict::Wait),
                }
            }
            limits.handle_read(now, source, Bytes::new(43 * 1_500), true);
        }
        let next = limits.source_at(source).into_iter().chain(limits.poll_at()).min().expect("it goes on");
        assert!(next > now || limits.poll_at() <= Some(now), "nobody is asked in vain");
        now = now.max(next);
        while limits.poll(now).is_some() {
            left.push(now);
        }
        assert!(
            limits.memory() <= Bytes::new(43 * 1_500 + 3_000),
            "a super-packet, and no more than a burst before it"
        );
    }
    let sum = left.len() as u64 * 1_500;
    // The burst, and one that leaves past the end.
    assert!((3_110_000..=3_125_000 + 3_000 + 1_500).contains(&sum), "{sum} of 3,125,000 B");
    for (n, from) in left.iter().enumerate() {
        let window = left[n..].iter().take_while(|t| t.saturating_since(*from) < Duration::from_millis(10)).count();
        assert!(window * 1_500 <= 6_250 + 3_000, "{window} packets in 10 ms");
    }
}

#[test]
fn what_a_gate_has_let_in_is_not_dropped_for_a_smaller_queue() {
    let mut limits = limits();
    let gate = limit(&mut limits, mbit(5), Mode::Gate);
    let source = limits.add_source(Some(gate), None);
    let class = limits.add_class(ClassSettings::default(), &[gate]);
    limits.set_queue_max(class, queue_max(mbit(1)));
    limits.handle_ready(source);
    assert!(limits.may_read(at(0), source).is_some());
    // A super-packet, which is more than half of that.
    let verdicts = (0..60).map(|n| limits.handle_packet(at(0), &arrival(class, Some(source)), n));
    assert!(verdicts.into_iter().all(|verdict| !matches!(verdict, Verdict::Drop(..))));
}

#[test]
fn the_backlog_of_a_source_is_what_waits_of_it() {
    let mut limits = limits();
    let paced = limit(&mut limits, mbit(12), Mode::Pace);
    let (a, b) = (limits.add_source(None, Some(Bytes::new(12_000))), limits.add_source(None, None));
    let class = limits.add_class(ClassSettings::default(), &[paced]);
    for _ in 0..10 {
        limits.handle_packet(at(0), &arrival(class, Some(a)), 0);
    }
    assert_eq!((limits.backlog(a), limits.backlog(b)), (Bytes::new(12_000), Bytes::ZERO), "a burst passed");
    assert_eq!((limits.may_read(at(0), a), limits.may_read(at(0), b)), (None, Some(ALL)), "a's backlog is full");
    limits.handle_ready(a);
    assert_eq!((limits.source_at(a), limits.source_at(b)), (None, None), "b has nothing");
    for ms in 0..=5 {
        while limits.poll(at(ms * 1_000_000)).is_some() {}
    }
    // A packet each millisecond, the last one after a tick of the wheel.
    assert_eq!(limits.backlog(a), Bytes::new(12_000 - 1_500 * 4));
    assert_eq!(limits.source_at(a), Some(at(0)), "it need not wait for anything else");
    assert_eq!(limits.may_read(at(5_000_000), a), Some(ALL));
    let counters = limits.counters(paced, at(5_000_000));
    assert_eq!((counters.passed_packets, counters.delayed, counters.waiting), (6, 4, 4));
    assert!(counters.delays.quantile(0.99).expect("some waited") >= Duration::from_millis(4));
}

#[test]
fn a_source_whose_backlog_is_full_keeps_no_other_from_its_turn() {
    let mut limits = limits();
    let gate = limit(&mut limits, mbit(100), Mode::Gate);
    let stopped = limit(&mut limits, BitRate::ZERO, Mode::Pace);
    let [full, other] = [(); 2].map(|()| limits.add_source(Some(gate), Some(MTU)));
    let class = limits.add_class(ClassSettings::default(), &[gate, stopped]);
    limits.handle_ready(full);
    limits.handle_ready(other);
    // A packet, which is less than a turn, and waits.
    assert!(limits.may_read(at(0), full).is_some_and(|allowed| allowed > MTU));
    assert_eq!(limits.handle_packet(at(0), &arrival(class, Some(full)), 0), Verdict::Wait);
    limits.handle_read(at(0), full, MTU, true);
    assert_eq!(limits.may_read(at(0), full), None);
    assert!(limits.may_read(at(0), other).is_some());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes, and however the rates change: what went in is passed, waits or was dropped, and nothing is both.
    #[test]
    fn nothing_is_lost_uncounted(
        steps in prop::collection::vec((0_u8..5, 0_usize..3, 0_u64..2_000_000, 1_u64..1_500), 1..300),
        rates in prop::collection::vec(0_u64..50, 4),
    ) {
        let mut limits: Limits<u64> = Limits::new(at(0), mbit(1), mbit(100), Bytes::new(40_000));
        let modes = [Mode::Pace, Mode::Drop, Mode::Gate, Mode::Pace];
        let ids: Vec<_> = rates.iter().zip(modes).map(|(rate, mode)| limit(&mut limits, mbit(*rate), mode)).collect();
        let chains = [vec![ids[0], ids[3]], vec![ids[1], ids[0]], vec![ids[2], ids[1]]];
        let classes: Vec<_> = chains.iter().map(|c| limits.add_class(ClassSettings::default(), c)).collect();
        let (mut now, mut into, mut out, mut dropped) = (at(0), 0_u64, 0_u64, 0_u64);
        for (what, which, wait, size) in steps {
            now += Duration::from_nanos(wait);
            match what {
                0 => limits.set_rate(now, ids[which], mbit(size % 20)),
                1 => while let Some(release) = limits.poll(now) {
                    prop_assert!(release.at <= now);
                    if let ReleaseFate::Drop(_) = release.fate { dropped += 1 } else { out += 1 }
                },
                _ => {
                    into += 1;
                    let (class, size) = (classes[which], Bytes::new(size));
                    let signal = [Signal::Loss, Signal::Mark, Signal::Backpressure][usize::from(what) % 3];
                    let arrival = Arrival { class, source: None, flow: (size.as_u64() as u32).into(), size, memory: size, signal };
                    match limits.handle_packet(now, &arrival, 7) {
                        Verdict::Pass(_) => out += 1,
                        Verdict::Wait => {}
                        Verdict::Drop(item, _) => {
                            prop_assert_eq!(item, 7);
                            dropped += 1;
                        }
                    }
                }
            }
            prop_assert!(limits.is_valid());
        }
        for id in &ids {
            limits.set_rate(now, *id, mbit(100));
        }
        while let Some(due) = limits.poll_at() {
            now = now.max(due);
            while let Some(release) = limits.poll(now) {
                if let ReleaseFate::Drop(_) = release.fate { dropped += 1 } else { out += 1 }
            }
        }
        prop_assert_eq!((into, limits.memory()), (out + dropped, Bytes::ZERO));
    }
}
