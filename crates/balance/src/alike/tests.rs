use proptest::prelude::*;

use super::*;

fn at(secs: u64) -> Instant {
    Instant::from_nanos(secs * 1_000_000_000)
}

fn measure(mbit: u64, rtt_us: u64) -> Measure {
    Measure { rate: Some(BitRate::from_bits_per_sec(mbit * 1_000_000)), min_rtt: Some(Duration::from_micros(rtt_us)) }
}

/// Uplinks of no medium of which this is measured from the beginning.
fn measured(measures: &[Measure]) -> Alike {
    let mut alike = Alike::new(&vec![None; measures.len()]);
    for (place, measure) in measures.iter().enumerate() {
        alike.handle_measure(at(0), place, *measure);
    }
    alike
}

fn changes(alike: &mut Alike) -> Vec<Change> {
    std::iter::from_fn(|| alike.poll_change()).collect()
}

#[test]
fn two_become_alike_after_a_minute_and_say_why() {
    let mut alike = measured(&[measure(50, 20_000), measure(42, 21_500)]);
    assert_eq!(alike.poll_at(), Some(at(60)));
    alike.handle_time(at(59));
    assert_eq!(alike.classes(), [0, 1]);
    assert_eq!(changes(&mut alike), []);
    alike.handle_time(at(60));
    assert_eq!(alike.classes(), [0, 0]);
    let [change] = changes(&mut alike)[..] else { panic!("one change") };
    assert_eq!((change.pair, change.is_alike), ([0, 1], true));
    let why = change.why.to_string();
    assert_eq!(
        why,
        "for a minute their rates were like 50 Mbit/s and 42 Mbit/s, their round-trip times like 20 ms and 21.5 ms"
    );
    assert_eq!(alike.poll_at(), None);
}

#[test]
fn a_moment_outside_begins_the_minute_anew() {
    let mut alike = measured(&[measure(50, 20_000), measure(50, 20_000)]);
    alike.handle_measure(at(40), 1, measure(30, 20_000));
    alike.handle_measure(at(41), 1, measure(50, 20_000));
    alike.handle_time(at(100));
    assert_eq!(alike.classes(), [0, 1]);
    alike.handle_time(at(101));
    assert_eq!(alike.classes(), [0, 0]);
}

#[test]
fn they_part_only_when_they_are_far_for_a_minute() {
    let mut alike = measured(&[measure(50, 20_000), measure(50, 20_000)]);
    alike.handle_time(at(60));
    // 25 % off: no longer near, not far either.
    alike.handle_measure(at(61), 1, measure(38, 20_000));
    alike.handle_time(at(600));
    assert_eq!(alike.classes(), [0, 0]);
    for (far, since) in [(measure(34, 20_000), 600), (measure(50, 24_000), 800)] {
        alike.handle_measure(at(since), 1, far);
        alike.handle_time(at(since + 59));
        assert_eq!(alike.classes(), [0, 0]);
        alike.handle_time(at(since + 60));
        assert_eq!(alike.classes(), [0, 1]);
        alike.handle_measure(at(since + 61), 1, measure(50, 20_000));
        alike.handle_time(at(since + 121));
        assert_eq!(alike.classes(), [0, 0]);
    }
    assert_eq!(
        changes(&mut alike).iter().map(|one| one.is_alike).collect::<Vec<_>>(),
        [true, false, true, false, true]
    );
}

#[test]
fn short_round_trips_are_two_milliseconds_apart_at_most() {
    for (rtt_us, is_alike) in [(2_500, true), (3_000, true), (3_100, false)] {
        let mut alike = measured(&[measure(50, 1_000), measure(50, rtt_us)]);
        alike.handle_time(at(60));
        assert_eq!(alike.classes()[1] == 0, is_alike, "{rtt_us}");
    }
}

#[test]
fn what_is_not_known_says_nothing() {
    let unknown = Measure { rate: None, ..measure(50, 20_000) };
    let mut alike = measured(&[measure(50, 20_000), unknown]);
    alike.handle_time(at(1_000));
    assert_eq!((alike.classes(), alike.poll_at()), (&[0, 1][..], None));
    let mut alike = measured(&[measure(50, 20_000), measure(50, 20_000)]);
    alike.handle_time(at(60));
    alike.handle_measure(at(61), 1, unknown);
    alike.handle_time(at(1_000));
    assert_eq!(alike.classes(), [0, 0]);
}

#[test]
fn a_medium_is_enough_and_its_tag_is_said() {
    let mut alike = Alike::new(&[Some(1), None, Some(1), Some(2), None]);
    assert_eq!(alike.classes(), [0, 1, 0, 2, 3]);
    assert_eq!(changes(&mut alike), [Change { pair: [0, 2], is_alike: true, why: Why::Medium }]);
    alike.handle_measure(at(0), 0, measure(100, 5_000));
    alike.handle_measure(at(0), 2, measure(1, 500_000));
    alike.handle_time(at(1_000));
    assert_eq!(alike.classes(), [0, 1, 0, 2, 3], "a person knows better");
}

/// A is like B and B like C, A and C are not: a class holds two of them.
#[test]
fn a_class_is_no_chain() {
    let mut alike = measured(&[measure(100, 20_000), measure(85, 20_000), measure(70, 20_000)]);
    alike.handle_time(at(60));
    assert_eq!(changes(&mut alike).iter().map(|one| one.pair).collect::<Vec<_>>(), [[0, 1], [1, 2]]);
    assert_eq!(alike.classes(), [0, 0, 1]);
}

#[test]
fn classes_are_the_components_of_their_network() {
    let alike = Alike::new(&[Some(1), None, Some(1), Some(2), Some(2), Some(1)]);
    assert_eq!(alike.components(), [vec![0, 2, 5], vec![3, 4], vec![1]]);
    assert_eq!(Alike::new(&[None]).components(), [[0]]);
    assert_eq!(Alike::new(&[]).components(), Vec::<Vec<usize>>::new());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_measured_it_is_valid_and_changes_alternate(
        steps in proptest::collection::vec((0_usize..4, 1_u64..6, 1_u64..6, 0_u64..90, any::<bool>()), 1..120)
    ) {
        let mut alike = Alike::new(&[None, None, Some(3), Some(3)]);
        let mut now = 0;
        let mut last = std::collections::BTreeMap::new();
        for (place, rate, rtt, secs, is_known) in steps {
            now += secs;
            let known = measure(rate * 10, rtt * 2_000);
            alike.handle_measure(at(now), place, if is_known { known } else { Measure::default() });
            prop_assert!(alike.is_valid());
            prop_assert!(alike.poll_at().is_none_or(|due| due > at(now) && due <= at(now) + DWELL));
            for change in changes(&mut alike) {
                prop_assert!(last.insert(change.pair, change.is_alike) != Some(change.is_alike));
            }
        }
        let components = alike.components();
        for (class, place) in alike.classes().iter().zip(0..) {
            let home = components.iter().position(|one| one.contains(&place)).unwrap();
            let all = components[home].iter().all(|other| alike.classes()[*other] == *class);
            prop_assert!(all, "{components:?} {:?}", alike.classes());
        }
    }
}
