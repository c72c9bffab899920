//! What several threads keep together.

use super::*;

/// The limits of two threads that keep one together, and its number in each.
fn pair(settings: LimitSettings) -> ([Limits<u64>; 2], [LimitId; 2]) {
    let shared = Arc::new(SharedLimit::new(at(0), settings, 2));
    let mut pair = [limits(), limits()];
    let ids = [0, 1].map(|member| pair[member].add_shared_limit(at(0), &shared, member));
    (pair, ids)
}

/// Two threads below one limit: the first always has more than the rate, the second between a second and two; what left
/// each in each tenth of a second, in bytes.
fn two_threads(mode: Mode) -> [Vec<u64>; 2] {
    let settings = LimitSettings { rate: mbit(10), burst: Bytes::new(6_000), mode };
    let shared = Arc::new(SharedLimit::new(at(0), settings, 2));
    let mut threads = [0, 1].map(|member| {
        let mut limits = limits();
        let id = limits.add_shared_limit(at(0), &shared, member);
        let class = limits.add_class(ClassSettings { codel: None, ..ClassSettings::default() }, &[id]);
        (limits, class)
    });
    let mut left = [vec![0; 30], vec![0; 30]];
    for step in 0..30_000_u64 {
        let now = at(step * 100_000);
        for (member, (limits, class)) in threads.iter_mut().enumerate() {
            limits.balance(now);
            let busy = member == 0 || (10_000..20_000).contains(&step);
            // An MTU every 600 us: 20 Mbit/s.
            let sends = busy && step.is_multiple_of(6);
            let passed = sends && matches!(limits.handle_packet(now, &arrival(*class, None), 0), Verdict::Pass(_));
            let mut count = u64::from(passed);
            while limits.poll(now).is_some() {
                count += 1;
            }
            left[member][step as usize / 1_000] += count * MTU.as_u64();
            assert!(limits.is_valid());
        }
    }
    left
}

#[test]
fn threads_keep_one_rate_together_and_share_it() {
    for mode in [Mode::Pace, Mode::Gate, Mode::Drop] {
        let [first, second] = two_threads(mode);
        let sum = |part: &[u64]| part.iter().sum::<u64>() as f64;
        // 10 Mbit/s are 125,000 bytes in a tenth of a second; 6,000 of burst, and a lease or a head each.
        for (tenth, (a, b)) in first.iter().zip(&second).enumerate() {
            let both = a + b;
            assert!((112_000..=138_000).contains(&both), "{mode:?}: {both} bytes in tenth {tenth}");
        }
        let all = sum(&first) + sum(&second);
        assert!((all / 3_750_000.0 - 1.0).abs() < 0.01, "{mode:?}: {all}");
        assert!(sum(&first[..10]) > 0.99 * 1_250_000.0, "{mode:?}: alone it has all: {first:?}");
        if mode == Mode::Pace {
            let ratio = sum(&first[11..20]) / sum(&second[11..20]);
            assert!((0.95..1.05).contains(&ratio), "halves: {ratio}");
        }
    }
}

#[test]
fn a_shared_rate_changes_for_all_at_once() {
    let settings = LimitSettings { rate: mbit(10), burst: BURST, mode: Mode::Pace };
    let ([mut one, mut other], ids) = pair(settings);
    one.set_rate(at(1_000), ids[0], mbit(40));
    other.balance(at(2_000));
    assert_eq!((one.rate(ids[0]), other.rate(ids[1])), (mbit(40), mbit(40)));
    let parts = one.share(ids[0]).as_bits_per_sec() + other.share(ids[1]).as_bits_per_sec();
    assert_eq!(parts, 40_000_000);
}

#[test]
fn parts_of_a_burst_are_as_the_rate_s() {
    let of = |share| part(Bytes::new(60_000), mbit(share), mbit(100)).as_u64();
    assert_eq!([0, 1, 25, 75, 100].map(of), [3_028, 3_028, 15_000, 45_000, 60_000]);
    assert_eq!(part(Bytes::new(2_000), mbit(1), mbit(100)), Bytes::new(2_000));
    assert_eq!(part(Bytes::new(2_000), BitRate::ZERO, BitRate::ZERO), Bytes::new(2_000));
}

#[test]
fn a_shared_burst_changes_with_the_limit() {
    let settings = LimitSettings { rate: mbit(1), burst: Bytes::new(3_000), mode: Mode::Drop };
    let shared = Arc::new(SharedLimit::new(at(0), settings, 2));
    let mut limits = limits();
    let id = limits.add_shared_limit(at(0), &shared, 0);
    let class = limits.add_class(ClassSettings::default(), &[id]);
    let passed = |limits: &mut Limits<u64>, now| {
        (0..20).filter(|n| limits.handle_packet(now, &arrival(class, None), *n) == Verdict::Pass(*n)).count()
    };
    assert_eq!(passed(&mut limits, at(0)), 2);
    limits.set_rate(at(0), id, mbit(1_000));
    limits.set_burst(at(0), id, Bytes::new(15_000));
    assert_eq!(passed(&mut limits, at(1_000_000_000)), 10, "of 1,500 B each");
}

#[test]
fn who_has_nothing_to_do_keeps_no_credit_from_the_others() {
    let settings = LimitSettings { rate: mbit(1_000), burst: Bytes::new(15_000), mode: Mode::Drop };
    let ([mut one, mut other], ids) = pair(settings);
    let class = one.add_class(ClassSettings::default(), &ids[..1]);
    // A lease is 50 us, 6,250 B.
    assert_eq!(one.handle_packet(at(0), &arrival(class, None), 0), Verdict::Pass(0));
    let class = other.add_class(ClassSettings::default(), &ids[1..]);
    let mut passed =
        || (0..9).filter(|n| other.handle_packet(at(0), &arrival(class, None), *n) == Verdict::Pass(*n)).count();
    assert_eq!(passed(), 5, "8,750 B");
    one.handle_idle();
    assert_eq!(passed(), 4, "what is left of both");
}

#[test]
fn who_has_no_share_and_needs_one_does_not_wait_for_the_next_division() {
    let settings = LimitSettings { rate: mbit(10), burst: BURST, mode: Mode::Pace };
    let ([mut busy, mut idle], ids) = pair(settings);
    let class = busy.add_class(ClassSettings::default(), &[ids[0]]);
    for _ in 0..30 {
        busy.handle_packet(at(0), &arrival(class, None), 0);
    }
    for ms in 0..=10 {
        let now = at(ms * 1_000_000);
        busy.balance(now);
        idle.balance(now);
        while busy.poll(now).is_some() {}
    }
    assert_eq!((busy.share(ids[0]), idle.share(ids[1])), (mbit(10), BitRate::ZERO));
    assert_eq!(idle.balance_at(at(11_000_000)), None, "it needs none");
    let class = idle.add_class(ClassSettings::default(), &[ids[1]]);
    idle.handle_packet(at(11_000_000), &arrival(class, None), 0);
    assert_eq!(idle.balance_at(at(11_000_000)), Some(at(11_000_000)));
    idle.balance(at(11_000_000));
    assert_eq!(idle.share(ids[1]), mbit(5));
    // Nobody is asked again and again for a part of nothing.
    busy.set_rate(at(12_000_000), ids[0], BitRate::ZERO);
    idle.balance(at(12_000_000));
    idle.handle_packet(at(12_000_000), &arrival(class, None), 0);
    assert!(idle.balance_at(at(12_000_000)) > Some(at(12_000_000)));
}

/// As the switch's threads: each turns only when something comes, is due, or is to be balanced.
#[test]
fn what_a_sleeping_thread_does_not_need_is_for_the_others() {
    let settings = LimitSettings { rate: mbit(100), burst: Bytes::new(62_500), mode: Mode::Pace };
    let shared = Arc::new(SharedLimit::new(at(0), settings, 2));
    let mut threads = [0, 1].map(|member| {
        let mut limits = limits();
        let id = limits.add_shared_limit(at(0), &shared, member);
        let class = limits.add_class(ClassSettings { codel: None, ..ClassSettings::default() }, &[id]);
        (limits, class, 0_u64)
    });
    for step in 0..20_000_u64 {
        let now = at(step * 100_000);
        for (member, (limits, class, passed)) in threads.iter_mut().enumerate() {
            // The first always has more than the rate; the second three packets in 50 ms.
            let packets = [2, u64::from(step % 500 < 3)][member];
            let due = limits.poll_at().into_iter().chain(limits.balance_at(now)).min();
            if packets == 0 && due.is_none_or(|due| due > now) {
                continue;
            }
            limits.balance(now);
            for _ in 0..packets {
                *passed += u64::from(matches!(limits.handle_packet(now, &arrival(*class, None), 0), Verdict::Pass(_)));
            }
            while limits.poll(now).is_some() {
                *passed += 1;
            }
        }
    }
    let [busy, sparse] = threads.map(|(_, _, passed)| passed);
    assert_eq!(sparse, 3 * 40, "each of them");
    // Two seconds at 100 Mbit/s.
    let share = (busy + sparse) as f64 * MTU.as_u64() as f64 / 25e6;
    assert!((0.98..1.005).contains(&share), "{share} of the rate");
}

/// Where a network card's or a TAP's queues have put them.
#[test]
fn flows_of_a_shared_limit_are_equal_on_whatever_threads() {
    let settings = LimitSettings { rate: mbit(100), burst: Bytes::new(62_500), mode: Mode::Pace };
    let shared = Arc::new(SharedLimit::new(at(0), settings, 2));
    let mut threads = [9, 1].map(|flows| {
        let mut limits = limits();
        let id = limits.add_shared_limit(at(0), &shared, usize::from(flows == 1));
        let class = limits.add_class(ClassSettings { codel: None, ..ClassSettings::default() }, &[id]);
        (limits, class, vec![0_u64; flows])
    });
    let mut number = 0;
    for step in 0..20_000_u64 {
        let now = at(step * 100_000);
        for (limits, class, passed) in &mut threads {
            limits.balance(now);
            // Each flow offers 20 Mbit/s; a packet says whose it is.
            for (flow, passed) in passed.iter_mut().enumerate() {
                if (step + flow as u64).is_multiple_of(6) {
                    number += 1;
                    let arrival = Arrival { flow: (flow as u32 * 977).into(), ..arrival(*class, None) };
                    if let Verdict::Pass(_) = limits.handle_packet(now, &arrival, flow as u64) {
                        *passed += 1;
                    }
                }
            }
            while let Some(out) = limits.poll(now) {
                passed[out.item as usize] += 1;
            }
        }
    }
    assert!(number > 20_000, "{number} packets offered");
    let each: Vec<f64> = threads
        .iter()
        .flat_map(|(_, _, passed)| passed)
        .map(|packets| (packets * MTU.as_u64()) as f64 / 25e6)
        .collect();
    // Two seconds at 100 Mbit/s, in ten parts.
    assert!(each.iter().all(|share| (0.097..0.103).contains(share)), "{each:?}");
    let all: f64 = each.iter().sum();
    assert!((0.99..=1.0 + 62_500.0 / 25e6).contains(&all), "{all} of the rate");
}
