//! The emulated link against its own settings, strictly, in virtual time. (`lab::net::check` does the same through the
//! kernel.)

use proptest::prelude::*;

use super::*;

const MBIT: u64 = 1_000_000;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

fn link(settings: Settings) -> Impair {
    Impair::new(Instant::ZERO, settings, 7, Wire::new())
}

fn packet(size: usize, name: u8) -> Packet {
    let mut packet = Packet::copy_of(&vec![0; size]);
    packet.buffer_mut()[0] = name;
    packet
}

/// What came through by `until`, asked only when the link wants to be: (instant, name, size).
fn drain(link: &mut Impair, until: Instant) -> Vec<(u64, u8, u64)> {
    let mut through = vec![];
    while let Some(due) = link.poll_at().filter(|t| *t <= until) {
        while let Some(p) = link.poll_packet(due) {
            through.push((p.at().as_nanos(), p.bytes().first().copied().unwrap_or(0), p.size().as_u64()));
        }
        // It walks all that is held.
        assert!(link.held() > 500 || link.is_valid());
        assert!(link.poll_at().is_none_or(|t| t > due), "what was due by {due:?} is out");
    }
    through
}

#[test]
fn a_perfect_link_passes_at_once() {
    let mut link = link(Settings::default());
    link.handle_packet(at(5), packet(100, 1));
    assert_eq!(link.poll_at(), Some(at(5)));
    assert_eq!(drain(&mut link, at(5)), [(5, 1, 100)]);
}

#[test]
fn rate_is_exact_to_the_nanosecond_over_ten_seconds() {
    // 29.97 Mbit/s: 1,500 B last 400,400.4004... ns.
    let rate = BitRate::from_bits_per_sec(29_970_000);
    let mut link = link(Settings { rate: Some(rate), ..Settings::default() });
    for _ in 0..25_000 {
        link.handle_packet(at(0), packet(1_500, 0));
    }
    let through = drain(&mut link, at(u64::MAX));
    for (n, (instant, ..)) in through.iter().enumerate() {
        assert_eq!(*instant, rate.time_for(Bytes::new(1_500 * (n as u64 + 1))).as_nanos(), "packet {n}");
    }
    assert_eq!(through.len(), 25_000);
}

#[test]
fn delay_is_sending_plus_propagation_exactly() {
    let rate = Some(BitRate::from_bits_per_sec(12 * MBIT));
    let mut link = link(Settings { rate, delay: Duration::from_millis(20), ..Settings::default() });
    link.handle_packet(at(1_000_000), packet(1_500, 1));
    link.handle_packet(at(1_000_000), packet(1_500, 2));
    link.handle_packet(at(9_000_000), packet(750, 3));
    assert_eq!(
        drain(&mut link, at(u64::MAX)),
        [(22_000_000, 1, 1_500), (23_000_000, 2, 1_500), (29_500_000, 3, 750)],
        "idle time is not saved up"
    );
}

#[test]
fn loss_lies_in_the_binomial_interval_and_uses_the_line() {
    for (seed, ppm) in [(1, 5_000), (2, 10_000), (3, 20_000), (4, 500_000)] {
        let rate = BitRate::from_bits_per_sec(100 * MBIT);
        let settings = Settings { rate: Some(rate), loss: Chance::from_ppm(ppm), ..Settings::default() };
        let mut link = Impair::new(Instant::ZERO, settings, seed, Wire::new());
        let n = 100_000;
        for _ in 0..n {
            link.handle_packet(at(0), packet(100, 0));
        }
        let through = drain(&mut link, at(u64::MAX));
        let (mean, p) = (f64::from(n) * f64::from(ppm) / 1e6, f64::from(ppm) / 1e6);
        // 99 % of a binomial this large lie within 2.576 standard deviations.
        let bound = 2.576 * (mean * (1.0 - p)).sqrt();
        let lost = link.counters().dropped_loss as f64;
        assert!((lost - mean).abs() <= bound, "seed {seed}: {lost} lost, {mean} +- {bound} expected");
        assert_eq!(through.len() as u64 + link.counters().dropped_loss, n as u64);
        let end = rate.time_for(Bytes::new(100 * n as u64)).as_nanos();
        assert!(
            through.last().expect("some came through").0 > end - 1_000_000,
            "lost packets take their time on the line"
        );
    }
}

#[test]
fn chances_of_nothing_and_all() {
    for (ppm, through) in [(0, 1_000), (1_000_000, 0), (u32::MAX, 0)] {
        let mut link = link(Settings { loss: Chance::from_ppm(ppm), ..Settings::default() });
        for _ in 0..1_000 {
            link.handle_packet(at(0), packet(10, 0));
        }
        assert_eq!(drain(&mut link, at(0)).len(), through);
    }
    assert_eq!(Chance::from_ppm(5_000).to_string(), "0.5 %");
}

#[test]
fn a_full_queue_drops_the_arriving_packet_and_counts_it() {
    let rate = Some(BitRate::from_bits_per_sec(12 * MBIT));
    let mut link = link(Settings { rate, queue: Bytes::new(3_000), ..Settings::default() });
    for name in 0..5 {
        link.handle_packet(at(0), packet(1_500, name));
    }
    // One on the line, two wait, two find the queue full; a small one does not fit either.
    link.handle_packet(at(0), packet(1, 9));
    assert_eq!((link.counters().dropped_full, link.counters().queue_max), (3, Bytes::new(3_000)));
    link.handle_packet(at(1_000_000), packet(1_500, 5));
    let names: Vec<_> = drain(&mut link, at(u64::MAX)).iter().map(|p| p.1).collect();
    assert_eq!(names, [0, 1, 2, 5]);
}

#[test]
fn a_queue_of_nothing_still_sends_one_packet_at_a_time() {
    let rate = Some(BitRate::from_bits_per_sec(12 * MBIT));
    let mut link = link(Settings { rate, queue: Bytes::ZERO, ..Settings::default() });
    for (instant, name) in [(0, 0), (0, 1), (999_999, 2), (1_000_000, 3)] {
        link.handle_packet(at(instant), packet(1_500, name));
    }
    let names: Vec<_> = drain(&mut link, at(u64::MAX)).iter().map(|p| p.1).collect();
    assert_eq!(names, [0, 3]);
}

#[test]
fn jitter_keeps_the_order_unless_told_otherwise() {
    let settings =
        Settings { delay: Duration::from_millis(10), jitter: Duration::from_millis(5), ..Settings::default() };
    let run = |reorder| {
        let mut link = link(Settings { reorder, ..settings });
        for name in 0..200 {
            link.handle_packet(at(u64::from(name) * 100_000), packet(100, name));
        }
        let through = drain(&mut link, at(u64::MAX));
        for (instant, name, _) in &through {
            let delay = instant - u64::from(*name) * 100_000;
            assert!((10_000_000..=15_000_000).contains(&delay), "{delay} ns");
        }
        through.iter().map(|p| p.1).collect::<Vec<_>>()
    };
    assert!(run(false).is_sorted());
    let reordered = run(true);
    assert!(!reordered.is_sorted());
    assert_eq!(reordered.len(), 200);
}

#[test]
fn an_outage_drops_what_meets_it_and_not_what_propagates() {
    let settings = Settings {
        rate: Some(BitRate::from_bits_per_sec(12 * MBIT)),
        delay: Duration::from_millis(10),
        ..Settings::default()
    };
    let mut link = link(settings);
    for name in 0..3 {
        link.handle_packet(at(0), packet(1_500, name));
    }
    link.set(at(1_500_000), Settings { outage: true, ..settings });
    link.handle_packet(at(2_000_000), packet(1_500, 3));
    link.set(at(2_500_000), settings);
    link.handle_packet(at(5_000_000), packet(1_500, 4));
    let names: Vec<_> = drain(&mut link, at(u64::MAX)).iter().map(|p| p.1).collect();
    assert_eq!(names, [0, 2, 4], "1 left the queue and 3 arrived while the link was down");
    assert_eq!(link.counters().dropped_outage, 2);
}

#[test]
fn a_new_rate_holds_for_the_rest_of_the_packet_on_the_line() {
    let with = |mbit| Settings { rate: Some(BitRate::from_bits_per_sec(mbit * MBIT)), ..Settings::default() };
    let mut link = link(with(12));
    for name in 0..3 {
        link.handle_packet(at(0), packet(1_500, name));
    }
    link.set(at(500_000), with(24));
    link.set(at(1_000_000), with(0));
    link.set(at(9_000_000), with(12));
    assert_eq!(drain(&mut link, at(9_500_000)), [(750_000, 0, 1_500), (9_500_000, 1, 1_500)]);
    link.set(at(9_600_000), Settings::default());
    assert_eq!(drain(&mut link, at(9_600_000)), [(9_600_000, 2, 1_500)], "no rate, no queue");
    link.set(at(9_600_000), with(12));
    link.handle_packet(at(9_600_000), packet(1_500, 3));
    assert_eq!(drain(&mut link, at(u64::MAX)), [(10_600_000, 3, 1_500)]);
}

#[test]
fn a_shorter_delay_overtakes_nothing() {
    let with = |ms| Settings { delay: Duration::from_millis(ms), ..Settings::default() };
    let mut link = link(with(50));
    link.handle_packet(at(0), packet(10, 0));
    link.set(at(1_000_000), with(5));
    link.handle_packet(at(1_000_000), packet(10, 1));
    assert_eq!(drain(&mut link, at(u64::MAX)), [(50_000_000, 0, 10), (50_000_000, 1, 10)]);
}

#[test]
fn links_in_a_row_add_up_exactly() {
    let hop = |ms| Settings {
        rate: Some(BitRate::from_bits_per_sec(12 * MBIT)),
        delay: Duration::from_millis(ms),
        ..Settings::default()
    };
    let second = Impair::new(Instant::ZERO, hop(3), 1, Wire::new());
    let mut path = Impair::new(Instant::ZERO, hop(2), 2, second);
    path.handle_packet(at(0), packet(1_500, 0));
    let through = path.poll_packet(at(u64::MAX)).expect("it is long through, and looked at once");
    assert_eq!(through.at(), at(7_000_000));
}

#[derive(Clone, Debug)]
enum Op {
    Packet(usize),
    Wait(u64),
    Set(Settings),
}

fn settings() -> impl Strategy<Value = Settings> {
    (
        prop::option::of(0_u64..200 * MBIT),
        prop_oneof![0_u64..10_000, Just(u64::MAX)],
        prop_oneof![Just(0), 0_u32..1_000_000],
        0_u64..5_000_000,
        prop_oneof![Just(0), 0_u64..2_000_000],
        any::<bool>(),
        prop::bool::weighted(0.1),
    )
        .prop_map(|(rate, queue, loss, delay, jitter, reorder, outage)| Settings {
            rate: rate.map(BitRate::from_bits_per_sec),
            queue: Bytes::new(queue),
            loss: Chance::from_ppm(loss),
            delay: Duration::from_nanos(delay),
            jitter: Duration::from_nanos(jitter),
            reorder,
            outage,
        })
}

fn ops() -> impl Strategy<Value = Vec<Op>> {
    let op = prop_oneof![
        6 => (0_usize..2_000).prop_map(Op::Packet),
        3 => (0_u64..2_000_000).prop_map(Op::Wait),
        1 => settings().prop_map(Op::Set),
    ];
    prop::collection::vec(op, 0..200)
}

proptest! {
    /// Looked at whenever something is due, or only in the end: the same packets, at the same instants.
    #[test]
    fn the_pattern_of_polls_changes_nothing(first in settings(), ops in ops(), seed in any::<u64>()) {
        let mut often = Impair::new(Instant::ZERO, first, seed, Wire::new());
        let mut once = Impair::new(Instant::ZERO, first, seed, Wire::new());
        let (mut now, mut through) = (0, vec![]);
        for op in ops {
            match op {
                Op::Packet(size) => {
                    often.handle_packet(at(now), packet(size, 0));
                    once.handle_packet(at(now), packet(size, 0));
                }
                Op::Wait(wait) => {
                    now += wait;
                    through.extend(drain(&mut often, at(now)));
                }
                Op::Set(settings) => {
                    often.set(at(now), settings);
                    once.set(at(now), settings);
                }
            }
            prop_assert!(often.is_valid() && once.is_valid());
        }
        now += 1_000_000_000_000;
        through.extend(drain(&mut often, at(now)));
        let mut late = vec![];
        while let Some(p) = once.poll_packet(at(now)) {
            late.push((p.at().as_nanos(), p.bytes().first().copied().unwrap_or(0), p.size().as_u64()));
        }
        prop_assert_eq!(through, late);
        prop_assert_eq!(often.counters(), once.counters());
    }

    /// The line in any window: no more than its rate, and the packet that was on it.
    #[test]
    fn no_window_exceeds_the_rate(
        rate in 100_000..10_000 * MBIT, packets in prop::collection::vec((0_u64..300_000, 40_usize..1_500), 1..150),
    ) {
        let mut link = link(Settings { rate: Some(BitRate::from_bits_per_sec(rate)), ..Settings::default() });
        let mut now = 0;
        for (wait, size) in packets {
            now += wait;
            link.handle_packet(at(now), packet(size, 0));
        }
        let through = drain(&mut link, at(u64::MAX));
        for from in 0..through.len() {
            // From the moment when packet `from` has left: everything after it was sent since. Instants are rounded up
            // to a nanosecond, so the window may have been up to one longer.
            let mut sum = 0_u128;
            for (instant, _, size) in &through[from + 1..] {
                sum += u128::from(*size) * 8_000_000_000;
                prop_assert!(sum <= u128::from(rate) * u128::from(instant - through[from].0 + 1));
            }
        }
    }
}
