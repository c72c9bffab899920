use super::*;
use proptest::prelude::*;

const MTU: u64 = 1_500;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn mbit(n: u64) -> BitRate {
    BitRate::from_bits_per_sec(n * 1_000_000)
}

fn bytes(n: u64) -> Bytes {
    Bytes::new(n)
}

/// Without CoDel, and with room for everything.
fn plain() -> ClassSettings {
    ClassSettings { codel: None, queue_max: bytes(u64::MAX), ..ClassSettings::default() }
}

fn pacer() -> Pacer<u32> {
    Pacer::new(at(0), Duration::from_micros(10), 4_096)
}

/// Polls at every deadline up to `end`; what came out.
fn run(pacer: &mut Pacer<u32>, end: u64) -> Vec<Out<u32>> {
    let mut out = Vec::new();
    let mut now = at(0);
    while let Some(next) = pacer.poll_at().filter(|next| *next <= at(end)) {
        now = now.max(next);
        while let Some(packet) = pacer.poll(now) {
            out.push(packet);
        }
        assert!(pacer.is_valid());
    }
    out
}

#[test]
fn packets_leave_at_the_rate_to_the_nanosecond() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12), bytes(2 * MTU));
    let class = pacer.add_class(plain(), &[limit]);
    for n in 0..1_000 {
        pacer.handle_packet(at(0), class, 0, bytes(MTU), Signal::Loss, n).unwrap();
    }
    let out = run(&mut pacer, 2_000_000_000);
    // After the burst: 1,500 B at 12 Mbit/s are 1 ms, however coarse the wheel.
    let ms = Duration::from_millis(1);
    let uneven = out[2..].windows(2).find(|pair| pair[1].at != pair[0].at + ms);
    assert!(out.len() == 1_000 && uneven.is_none(), "{uneven:?}");
    assert!(out.iter().map(|o| o.item).eq(0..1_000), "in order");
    assert_eq!((pacer.waiting(class), pacer.poll_at()), (Bytes::ZERO, None));
}

#[test]
fn two_classes_share_what_is_above_them() {
    let mut pacer = pacer();
    let tenant = pacer.add_limit(at(0), mbit(150), bytes(3_000));
    let classes: Vec<ClassId> = (0..2)
        .map(|_| {
            let own = pacer.add_limit(at(0), mbit(100), bytes(3_000));
            pacer.add_class(plain(), &[own, tenant])
        })
        .collect();
    for n in 0..10_000 {
        for class in &classes {
            pacer.handle_packet(at(0), *class, n % 7, bytes(MTU), Signal::Loss, n).unwrap();
        }
    }
    let out = run(&mut pacer, 1_000_000_000);
    for class in classes {
        let sum: u64 = out.iter().filter(|o| o.class == class).map(|o| o.size.as_u64()).sum();
        assert!((sum as f64 / 9_375_000.0 - 1.0).abs() < 0.002, "{sum} of 75 Mbit");
    }
}

/// What classes of packets of these sizes get of 6 Gbit/s in 50 ms, below `own` limits of their own each that are wider, polled
/// every `gap`.
fn by_size(sizes: &[u64], own: usize, gap: u64) -> Vec<u64> {
    let mut pacer = pacer();
    let tenant = pacer.add_limit(at(0), mbit(6_000), bytes(150_000));
    let classes: Vec<ClassId> = sizes
        .iter()
        .map(|_| {
            let mut chain: Vec<_> = (0..own).map(|_| pacer.add_limit(at(0), mbit(9_000), bytes(150_000))).collect();
            chain.push(tenant);
            pacer.add_class(plain(), &chain)
        })
        .collect();
    for (size, class) in sizes.iter().zip(&classes) {
        (0..40_000_000 / size)
            .for_each(|_| pacer.handle_packet(at(0), *class, 0, bytes(*size), Signal::Loss, 0).unwrap());
    }
    let mut sums = vec![0; sizes.len()];
    for now in (0..50_000_000).step_by(gap as usize) {
        while let Some(out) = pacer.poll(at(now)) {
            sums[out.class.index()] += out.size.as_u64();
        }
    }
    assert!(pacer.is_valid());
    sums
}

#[test]
fn classes_share_a_limit_by_bytes_whatever_their_packets() {
    for (own, gap) in [(0, 1_000), (1, 1_000), (0, 100_000), (1, 100_000), (2, 100_000)] {
        for sizes in [&[1_250, 62_500][..], &[100, 1_514, 9_000, 64_000]] {
            let sums = by_size(sizes, own, gap);
            let (least, most) = (sums.iter().min().unwrap(), sums.iter().max().unwrap());
            // 37.5 MB in all; a packet of each may be ahead.
            assert!(most - least < 2 * 65_000, "{sums:?} for {sizes:?} below {own} own limits, polled every {gap} ns");
        }
    }
}

#[test]
fn who_comes_back_has_saved_up_nothing() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12), bytes(2 * MTU));
    let [one, other] = [0; 2].map(|_| pacer.add_class(plain(), &[limit]));
    (0..1_000).for_each(|_| pacer.handle_packet(at(0), one, 0, bytes(MTU), Signal::Loss, 1).unwrap());
    assert_eq!(run(&mut pacer, 500_000_000).len(), 501, "alone for half a second");
    (0..1_000).for_each(|_| pacer.handle_packet(at(500_000_000), other, 0, bytes(MTU), Signal::Loss, 2).unwrap());
    let out = run(&mut pacer, 520_000_000);
    let of = |item| out.iter().filter(|o| o.item == item).count();
    assert_eq!((of(1), of(2)), (10, 10), "from then on each has half");
}

#[test]
fn a_new_rate_holds_at_once_for_what_waits() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), BitRate::from_bits_per_sec(1_200), bytes(MTU));
    let class = pacer.add_class(plain(), &[limit]);
    for n in 0..100 {
        pacer.handle_packet(at(0), class, 0, bytes(MTU), Signal::Loss, n).unwrap();
    }
    assert_eq!(run(&mut pacer, 1_000_000_000).len(), 1, "the next one would leave after 10 s");
    pacer.set_rate(at(1_000_000_000), limit, mbit(12));
    let out = run(&mut pacer, 1_200_000_000);
    assert_eq!(out.len(), 99);
    // What the second packet lacks, nine tenths of it, is earned at the new rate.
    assert_eq!(out[0].at, at(1_000_900_000));
    pacer.handle_packet(at(1_200_000_000), class, 0, bytes(MTU), Signal::Loss, 100).unwrap();
    pacer.handle_packet(at(1_200_000_000), class, 0, bytes(MTU), Signal::Loss, 101).unwrap();
    pacer.set_rate(at(1_200_000_000), limit, BitRate::ZERO);
    let before = run(&mut pacer, 9_000_000_000).len();
    assert_eq!(before, 0, "stopped");
    pacer.set_rate(at(9_000_000_000), limit, mbit(12));
    assert_eq!(run(&mut pacer, 10_000_000_000).len(), 2);
}

#[test]
fn what_waits_keeps_its_instants_in_a_finer_wheel() {
    let mut pacer = Pacer::new(at(0), Duration::from_millis(1), 512);
    let limits = [1, 2, 4].map(|rate| pacer.add_limit(at(0), mbit(rate), bytes(2 * MTU)));
    for limit in limits {
        let class = pacer.add_class(plain(), &[limit]);
        for n in 0..4 {
            pacer.handle_packet(at(0), class, 0, bytes(MTU), Signal::Loss, n).unwrap();
        }
    }
    assert_eq!(run(&mut pacer, 0).len(), 6);
    // None of them is within what this one reaches, so it comes round for nothing first.
    pacer.set_granularity(at(1_000), Duration::from_micros(1), 512);
    let mut left = Vec::new();
    while let Some(now) = pacer.poll_at() {
        while let Some(out) = pacer.poll(now) {
            assert!(now.saturating_since(out.at) <= Duration::from_micros(1), "{now:?}: {out:?}");
            left.push(out.at);
        }
        assert!(pacer.is_valid());
    }
    assert_eq!(left, [3, 6, 6, 12, 12, 24].map(|ms| at(ms * 1_000_000)));
}

/// How many packets of each flow are among the first 80 that leave, where all wait at once with 40 of each.
fn shares(flows: &[u32]) -> Vec<usize> {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12), Bytes::ZERO);
    let class = pacer.add_class(ClassSettings { flows: 64, ..plain() }, &[limit]);
    for _ in 0..40 {
        for flow in flows {
            pacer.handle_packet(at(0), class, *flow, bytes(MTU), Signal::Loss, *flow).unwrap();
        }
    }
    let out = run(&mut pacer, 10_000_000_000);
    assert_eq!((out.len(), pacer.waiting(class)), (40 * flows.len(), Bytes::ZERO));
    flows.iter().map(|flow| out[..80].iter().filter(|o| o.item == *flow).count()).collect()
}

#[test]
fn flows_whose_numbers_meet_have_queues_of_their_own() {
    // All eight lead to queue 5 of 64.
    let flows: Vec<u32> = (0..8).map(|n| 5 + 64 * n).collect();
    let counts = shares(&flows);
    assert!(counts.iter().all(|count| (9..=11).contains(count)), "{counts:?}");
    // A ninth has to share one; nothing is lost.
    let counts = shares(&[flows, vec![5 + 64 * 8]].concat());
    assert!(counts.iter().filter(|count| (7..=10).contains(*count)).count() >= 7, "{counts:?}");
}

#[test]
fn a_queue_that_emptied_is_the_next_flow_s() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12_000), bytes(10 * MTU));
    let class = pacer.add_class(ClassSettings { flows: 8, ..plain() }, &[limit]);
    for flow in 0..10_000 {
        let now = u64::from(flow) * 100_000;
        pacer.handle_packet(at(now), class, flow, bytes(MTU), Signal::Loss, flow).unwrap();
        assert_eq!(pacer.poll(at(now + 50_000)).map(|out| out.item), Some(flow));
        assert!(pacer.poll(at(now + 50_000)).is_none() && pacer.is_valid());
    }
}

#[test]
fn a_full_class_hands_the_packet_back() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), BitRate::ZERO, Bytes::ZERO);
    let class = pacer.add_class(ClassSettings { queue_max: bytes(6 * MTU), ..plain() }, &[limit]);
    let mut fits = |flow: u32| {
        (0..9).take_while(|n| pacer.handle_packet(at(0), class, flow, bytes(MTU), Signal::Loss, *n).is_ok()).count()
    };
    // One is on its way out and belongs to no flow any more; a flow gets half of the room for the others, the next of what is left.
    assert_eq!([fits(1), fits(2), fits(3), fits(4)], [4, 1, 1, 0]);
    let mut put = |signal, size| pacer.handle_packet(at(0), class, 9, bytes(size), signal, 9);
    assert_eq!([put(Signal::Loss, 1), put(Signal::Mark, 1), put(Signal::Loss, MTU)], [Err(9); 3]);
    // Who reads no more is its bound; and it takes nothing from the others, who have their half a packet when one has left.
    assert_eq!([put(Signal::Backpressure, 99 * MTU), put(Signal::Loss, 1)], [Ok(()), Err(9)]);
    pacer.set_queue_max(class, bytes(7 * MTU));
    assert_eq!(pacer.handle_packet(at(0), class, 9, bytes(MTU), Signal::Loss, 9), Ok(()));
    assert!(pacer.is_valid());
}

#[test]
fn what_backpressure_holds_back_is_within_the_class_s_memory() {
    let mut pacer = pacer().within(bytes(1 << 20));
    let limit = pacer.add_limit(at(0), BitRate::ZERO, Bytes::ZERO);
    let class = pacer.add_class(ClassSettings { memory_max: bytes(3 * 2_048), ..plain() }, &[limit]);
    let load = Load { size: bytes(60), memory: bytes(2_048) };
    let fits = |n: &u32| pacer.handle_packet(at(0), class, 1, load, Signal::Backpressure, *n).is_ok();
    assert_eq!((0..60).take_while(fits).count(), 3);
}

/// Senders that offer `rates` (Mbit/s) for `seconds` into a class of 100 Mbit/s, a packet at a time; what each got through,
/// in Mbit/s, and the longest that a packet of each waited.
fn offer(settings: ClassSettings, rates: &[u64], seconds: u64) -> Vec<(f64, Duration)> {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(100), bytes(2 * MTU));
    let class = pacer.add_class(settings, &[limit]);
    let mut next: Vec<u64> = (0..rates.len() as u64).collect();
    let mut got = vec![(0_u64, Duration::ZERO); rates.len()];
    let (mut now, end) = (0, seconds * 1_000_000_000);
    while now < end {
        for (sender, rate) in rates.iter().enumerate() {
            while next[sender] <= now {
                let _full = pacer.handle_packet(at(now), class, sender as u32, bytes(MTU), Signal::Loss, sender as u32);
                next[sender] += mbit(*rate).time_for(bytes(MTU)).as_nanos();
            }
        }
        while let Some(out) = pacer.poll(at(now)) {
            if out.fate != Fate::Drop {
                let sum = &mut got[out.item as usize];
                sum.0 += out.size.as_u64();
                sum.1 = sum.1.max(out.waited);
            }
        }
        let deadline = pacer.poll_at().map_or(u64::MAX, Instant::as_nanos).max(now + 1);
        now = next.iter().copied().min().unwrap_or(u64::MAX).min(deadline);
    }
    got.into_iter().map(|(sum, waited)| (sum as f64 * 8.0 / 1e6 / seconds as f64, waited)).collect()
}

#[test]
fn a_sender_that_does_not_slow_down_gets_its_rate() {
    let [(rate, _)] = offer(ClassSettings::default(), &[200], 5)[..] else { panic!("one sender") };
    assert!(rate > 99.5 && rate < 100.1, "{rate} of 100 Mbit/s");
}

/// What becomes of the packets, numbered by their place in `signals`, of senders that keep 30 each in one flow queue of 12 Mbit/s
/// for five seconds: how many are sent, marked and dropped of each, and how many lose a part.
fn standing(signals: &[Signal]) -> Vec<[usize; 4]> {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12), bytes(2 * MTU));
    let class = pacer.add_class(ClassSettings { queue_max: bytes(u64::MAX), ..ClassSettings::default() }, &[limit]);
    let put = |pacer: &mut Pacer<u32>, now, sender: u32| {
        pacer.handle_packet(now, class, 0, bytes(MTU), signals[sender as usize], sender).unwrap();
    };
    (0..30).for_each(|_| (0..signals.len() as u32).for_each(|sender| put(&mut pacer, at(0), sender)));
    let mut fates = vec![[0; 4]; signals.len()];
    while let Some(now) = pacer.poll_at().filter(|due| *due <= at(5_000_000_000)) {
        while let Some(out) = pacer.poll(now) {
            fates[out.item as usize][out.fate as usize] += 1;
            put(&mut pacer, now, out.item);
        }
        assert!(pacer.is_valid());
    }
    assert_eq!(pacer.waiting(class), bytes(30 * signals.len() as u64 * MTU));
    fates
}

#[test]
fn who_feels_a_queue_by_itself_is_neither_told_of_it_nor_judged_by_it() {
    // 30 ms in the queue for five seconds.
    let alone = standing(&[Signal::Backpressure]);
    assert!(alone[0][0] > 4_990 && alone[0][1..] == [0; 3], "{alone:?}");
    let [[sent, marked, lost, _]] = standing(&[Signal::Loss])[..] else { panic!("one sender") };
    assert!(sent > 4_990 && marked == 0 && lost > 100, "{sent} {marked} {lost}");
    // Who shares its queue with such a sender has twice the wait, and is told as often as if it waited that long alone.
    let mixed = standing(&[Signal::Backpressure, Signal::Loss]);
    assert!(mixed[0][1..] == [0; 3] && mixed[1][2].abs_diff(lost) < 5, "{mixed:?}, {lost} alone");
}

#[test]
fn what_backpressure_holds_behind_a_packet_is_nothing_to_lose_it_for() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12), bytes(2 * MTU));
    let class = pacer.add_class(ClassSettings { queue_max: bytes(u64::MAX), ..ClassSettings::default() }, &[limit]);
    let put = |pacer: &mut Pacer<u32>, now, signal, item| {
        pacer.handle_packet(now, class, 0, bytes(MTU), signal, item).unwrap();
    };
    // One of the other kind for fifty of these, all in one flow queue: each is the last of its kind when it leaves.
    (0..50).for_each(|_| put(&mut pacer, at(0), Signal::Backpressure, 0));
    put(&mut pacer, at(0), Signal::Loss, 1);
    let (mut others, end) = (0, at(5_000_000_000));
    while let Some(now) = pacer.poll_at().filter(|due| *due <= end) {
        while let Some(out) = pacer.poll(now) {
            assert!(out.fate == Fate::Send, "{out:?}");
            others += out.item;
            put(&mut pacer, now, [Signal::Backpressure, Signal::Loss][out.item as usize], out.item);
        }
        assert!(pacer.is_valid());
    }
    assert!(others > 90, "{others}");
}

#[test]
fn who_can_be_marked_is_marked_as_often_as_others_lose() {
    let [[_, _, lost, 0]] = standing(&[Signal::Loss])[..] else { panic!("one sender") };
    let [[_, marked, 0, 0]] = standing(&[Signal::Mark])[..] else { panic!("one sender") };
    assert!(marked.abs_diff(lost) <= 1, "{marked} marked, {lost} lost");
    // A super-packet loses a part as often as others are lost whole.
    let [[_, 0, 0, parts]] = standing(&[Signal::PartLoss])[..] else { panic!("one sender") };
    assert!(parts.abs_diff(lost) <= 1, "{parts} parts, {lost} lost");
    // Both in one queue: whoever is next when CoDel says so.
    let both = standing(&[Signal::Mark, Signal::Loss]);
    let [[_, marked, none, _], [_, unmarked, lost, _]] = both[..] else { panic!("two senders") };
    assert!((none, unmarked) == (0, 0) && marked.abs_diff(lost) < (marked + lost) / 4, "{both:?}");
}

#[test]
fn equal_senders_get_equal_rates_and_a_mouse_waits_for_nobody() {
    let mut rates = vec![400];
    rates.extend([20; 9]);
    rates.push(1);
    let got = offer(ClassSettings::default(), &rates, 5);
    // 99 Mbit/s for ten.
    for (sender, (rate, _)) in got[..10].iter().enumerate() {
        assert!((rate / 9.9 - 1.0).abs() < 0.02, "sender {sender}: {rate} Mbit/s");
    }
    let (mouse, waited) = got[10];
    assert!((mouse - 1.0).abs() < 0.01, "{mouse}");
    // A packet of each of the others, and one on its way: 11 of 120 us.
    assert!(waited < Duration::from_micros(2_000), "{waited:?}");
}

#[test]
fn long_waits_are_marked_where_that_is_asked_for() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12), bytes(2 * MTU));
    let class = pacer.add_class(ClassSettings { mark_above: Some(Duration::from_millis(5)), ..plain() }, &[limit]);
    for n in 0..10 {
        pacer.handle_packet(at(0), class, 0, bytes(MTU), Signal::Loss, n).unwrap();
    }
    let marked: Vec<u32> =
        run(&mut pacer, 1_000_000_000).iter().filter(|o| o.fate == Fate::Mark).map(|o| o.item).collect();
    assert_eq!(marked, [7, 8, 9]);
}

#[test]
fn the_wheel_suits_the_rates() {
    let (tick, slots) = granularity(mbit(5), mbit(10_000), bytes(1_514));
    assert_eq!((tick, slots), (Duration::from_nanos(1_212), 4_096));
    assert!(tick.as_nanos() * slots as u64 >= 2 * mbit(5).time_for(bytes(1_514)).as_nanos());
    let (tick, slots) = granularity(BitRate::from_bits_per_sec(1_000), mbit(1), bytes(1_514));
    assert_eq!((tick, slots), (Duration::from_micros(100), 1 << 18));
}

#[test]
fn a_late_poll_lets_a_burst_leave_and_no_more() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12), bytes(2 * MTU));
    for class in 0..10 {
        let class = (class, pacer.add_class(plain(), &[limit]));
        (0..5).for_each(|_| pacer.handle_packet(at(0), class.1, 0, bytes(MTU), Signal::Loss, class.0).unwrap());
    }
    let mut left =
        |ms: u64| std::iter::from_fn(|| pacer.poll(at(ms * 1_000_000))).map(|o| o.item).collect::<Vec<u32>>();
    assert_eq!(left(50), [0, 1], "50 packets could have left by now, and the room was for two");
    // A packet each millisecond from here on, one of each class before one's next.
    let rest: Vec<u32> = (51..59).flat_map(&mut left).collect();
    let mut sorted = rest.clone();
    sorted.sort_unstable();
    assert_eq!(sorted, [2, 3, 4, 5, 6, 7, 8, 9], "{rest:?}");
    assert_eq!(pacer.missed(limit), bytes(50 * MTU));
}

#[test]
fn what_may_leave_at_once_waits_for_no_tick() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12), bytes(2 * MTU));
    let class = pacer.add_class(plain(), &[limit]);
    let now = at(123);
    (0..3).for_each(|n| pacer.handle_packet(now, class, 0, bytes(MTU), Signal::Loss, n).unwrap());
    let left: Vec<_> = std::iter::from_fn(|| pacer.poll(now)).map(|out| (out.item, out.waited)).collect();
    assert_eq!(left, [(0, Duration::ZERO), (1, Duration::ZERO)], "the burst");
    assert!(!pacer.take(now, class, bytes(1)), "another one waits");
    assert!(pacer.poll_at() >= Some(at(1_000_123)));
}

#[test]
fn who_need_not_wait_keeps_nobody_waiting_who_had_to() {
    let mut pacer = pacer();
    let [slow, fast] = [2 * MTU, 100 * MTU].map(|burst| pacer.add_limit(at(0), mbit(12), bytes(burst)));
    let [slow, fast] = [slow, fast].map(|limit| pacer.add_class(plain(), &[limit]));
    (0..3).for_each(|n| pacer.handle_packet(at(0), slow, 0, bytes(MTU), Signal::Loss, n).unwrap());
    assert_eq!(std::iter::from_fn(|| pacer.poll(at(0))).count(), 2);
    (0..50).for_each(|_| pacer.handle_packet(at(2_000_000), fast, 0, bytes(MTU), Signal::Loss, 9).unwrap());
    let left: Vec<u32> = std::iter::from_fn(|| pacer.poll(at(2_000_000))).map(|out| out.item).collect();
    assert_eq!((left.len(), &left[..3]), (51, &[9, 2, 9][..]));
}

#[test]
fn a_packet_is_taken_past_all_limits_or_charged_to_none() {
    let mut pacer = pacer();
    let [wide, narrow] = [9, 1].map(|packets| pacer.add_limit(at(0), mbit(12), bytes(packets * MTU)));
    let class = pacer.add_class(plain(), &[wide, narrow]);
    let beside = pacer.add_class(plain(), &[wide]);
    let taken = [class, class, beside].map(|class| pacer.take(at(0), class, bytes(MTU)));
    assert_eq!(taken, [true, false, true]);
    assert_eq!([wide, narrow].map(|limit| pacer.demand(at(0), limit).0), [bytes(2 * MTU), bytes(MTU)]);
    // One waits for the narrow limit, and has passed the wide one.
    pacer.handle_packet(at(0), class, 0, bytes(MTU), Signal::Loss, 0).unwrap();
    assert!(pacer.poll(at(0)).is_none() && pacer.take(at(0), beside, bytes(MTU)));
    pacer.set_rate(at(0), wide, BitRate::ZERO);
    assert!(!pacer.take(at(0), beside, bytes(MTU)), "nothing passes, whatever was saved up");
}

#[test]
fn who_idles_misses_nothing() {
    let mut pacer = pacer();
    let limit = pacer.add_limit(at(0), mbit(12), bytes(2 * MTU));
    let class = pacer.add_class(plain(), &[limit]);
    for second in 1..10 {
        pacer.handle_packet(at(second * 1_000_000_000), class, 0, bytes(MTU), Signal::Loss, 0).unwrap();
        assert!(pacer.poll(at(second * 1_000_000_000)).is_some());
    }
    pacer.set_rate(at(20_000_000_000), limit, mbit(1));
    assert_eq!(pacer.missed(limit), Bytes::ZERO);
}

#[test]
fn what_waits_waits_for_the_limit_that_holds_it_up() {
    let mut pacer = pacer();
    let limit = |(rate, burst)| pacer.add_limit(at(0), mbit(rate), bytes(burst));
    let [wide, narrow, last] = [(1_000, 100_000), (100, 50_000), (900, 100_000)].map(limit);
    let class = pacer.add_class(plain(), &[wide, narrow, last]);
    for n in 0..1_000 {
        pacer.handle_packet(at(0), class, 1, bytes(1_500), Signal::Loss, n).unwrap();
    }
    // The poll is later than a packet takes at any of them, as where a switch rests between its turns.
    let (mut now, mut left) = (0, 0);
    while let Some(next) = pacer.poll_at() {
        now = now.max(next.as_nanos()) + 400_000;
        while let Some(out) = pacer.poll(at(now)) {
            left += 1;
            // The first one, and a burst 400 us later.
            assert!(left <= 34 || out.by == narrow, "packet {left} by {:?}", out.by);
        }
        assert!(pacer.is_valid());
        assert!(left == 1_000 || pacer.held_by(class) == narrow && pacer.waiting_for(narrow).eq([class]));
    }
    assert!(!pacer.is_waited_for(narrow));
    let [wide, narrow, last] = [wide, narrow, last].map(|limit| pacer.throttled(at(now), limit));
    // 1.5 MB less the burst take 116 ms.
    assert!((Duration::from_millis(115)..Duration::from_millis(117)).contains(&narrow), "{narrow}");
    assert!(wide < Duration::from_millis(1) && last < Duration::from_millis(1), "{wide} {last}");
}

proptest! {
    /// More flows than there are queues: each one's packets leave in the order in which they came.
    #[test]
    fn no_packet_overtakes_another_of_its_flow(
        flows in 1_u32..16, steps in prop::collection::vec((0_u32..24, 0_u64..4, 64_u64..1_515), 1..300),
    ) {
        let mut pacer = pacer();
        let limit = pacer.add_limit(at(0), mbit(12), bytes(MTU));
        let class = pacer.add_class(ClassSettings { flows, ..plain() }, &[limit]);
        let (mut last, mut flow_of) = ([0; 24], Vec::new());
        let mut check = |pacer: &mut Pacer<u32>, now: u64, flow_of: &[u32]| {
            while let Some(out) = pacer.poll(at(now)) {
                let flow = flow_of[out.item as usize] as usize;
                prop_assert!(out.item >= last[flow], "flow {flow}: {} after {}", out.item, last[flow]);
                last[flow] = out.item;
            }
            Ok(())
        };
        let mut now = 0;
        for (flow, wait, size) in steps {
            // As much as leaves, about: they pile up, and queues empty all the same.
            now += wait * 300_000;
            flow_of.push(flow);
            let signal = [Signal::Loss, Signal::Mark, Signal::Backpressure, Signal::PartLoss][size as usize % 4];
            pacer.handle_packet(at(now), class, flow, bytes(size), signal, flow_of.len() as u32 - 1).unwrap();
            prop_assert!(pacer.is_valid());
            check(&mut pacer, now, &flow_of)?;
        }
        while let Some(next) = pacer.poll_at() {
            now = now.max(next.as_nanos());
            check(&mut pacer, now, &flow_of)?;
        }
        prop_assert_eq!(pacer.waiting(class), Bytes::ZERO);
    }

    /// Whatever comes when, and however late the polls come: every window of what leaves, every packet exactly once, never before
    /// its instant.
    #[test]
    fn no_limit_is_passed_and_nothing_is_lost(
        tenant in 1_u64..200, own in prop::collection::vec(1_u64..200, 1..4), burst in 0_u64..10_000,
        steps in prop::collection::vec((0_u64..2_000_000, 0_usize..4, 0_u32..9, 64_u64..1_515), 1..200),
        lateness in prop::collection::vec(prop_oneof![3 => Just(0_u64), 1 => 0_u64..3_000_000], 1..20),
    ) {
        let mut pacer = pacer();
        let above = pacer.add_limit(at(0), mbit(tenant), bytes(burst));
        let classes: Vec<ClassId> = own
            .iter()
            .map(|rate| {
                let own = pacer.add_limit(at(0), mbit(*rate), bytes(burst));
                pacer.add_class(plain(), &[own, above])
            })
            .collect();
        let (mut now, mut sent, mut out) = (0, 0, Vec::new());
        let mut late = lateness.into_iter().cycle();
        let mut late = || late.next().unwrap_or(0);
        for (n, (wait, class, flow, size)) in steps.into_iter().enumerate() {
            let until = now + wait;
            while let Some(next) = pacer.poll_at().filter(|t| *t <= at(until)) {
                now = now.max(next.as_nanos()) + late();
                while let Some(packet) = pacer.poll(at(now)) {
                    prop_assert!(packet.at <= at(now));
                    out.push((now, packet));
                }
                prop_assert!(pacer.is_valid());
            }
            now = until.max(now);
            let (class, size, item) = (classes[class % classes.len()], bytes(size), n as u32);
            if n % 2 == 0 && pacer.take(at(now), class, size) {
                let by = pacer.held_by(class);
                out.push((now, Out { item, class, size, at: at(now), waited: Duration::ZERO, by, fate: Fate::Send }));
            } else {
                pacer.handle_packet(at(now), class, flow, size, Signal::Loss, item).unwrap();
            }
            sent += 1;
            if n % 16 == 15 {
                let (tick, slots) = [(100_000, 64), (1_000, 512), (10_000, 4_096)][n / 16 % 3];
                pacer.set_granularity(at(now), Duration::from_nanos(tick), slots);
            }
            prop_assert!(pacer.is_valid());
        }
        while let Some(next) = pacer.poll_at() {
            now = now.max(next.as_nanos()) + late();
            while let Some(packet) = pacer.poll(at(now)) {
                out.push((now, packet));
            }
        }
        let mut items: Vec<u32> = out.iter().map(|(_, o)| o.item).collect();
        items.sort_unstable();
        prop_assert!(items.into_iter().eq(0..sent));
        // A limit below another one: what has passed it and was held up is a packet at most.
        let check = |rate: u64, packets: u64, of: &dyn Fn(&Out<u32>) -> bool| {
            let passed: Vec<(u64, u64)> =
                out.iter().filter(|(_, o)| of(o)).map(|(now, o)| (*now, o.size.as_u64())).collect();
            for from in 0..passed.len() {
                let mut sum = 0_u128;
                for (t, size) in &passed[from..] {
                    sum += u128::from(*size) * 8_000_000_000;
                    let bound = u128::from(rate) * 1_000_000 * u128::from(t - passed[from].0);
                    // What is larger than the burst is paid for afterwards.
                    let most = burst.max(1_514) + packets * 1_514;
                    prop_assert!(sum <= bound + u128::from(most) * 8_000_000_000);
                }
            }
            Ok(())
        };
        check(tenant, 0, &|_| true)?;
        for (class, rate) in classes.iter().zip(&own) {
            check(*rate, 1, &|o| o.class == *class)?;
        }
    }
}
