use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn mac(n: u8) -> Mac {
    Mac([2, 0, 0, 0, 0, n])
}

fn link(source: Mac, destination: Mac, vlan: Option<u16>) -> Link {
    Link { destination, source, vlan, tags: u8::from(vlan.is_some()) }
}

fn at(secs: u64) -> Instant {
    Instant::from_nanos(secs * 1_000_000_000)
}

fn table(capacity: u32) -> Macs<u8> {
    Macs::new(capacity, Duration::from_secs(300), 7)
}

#[test]
fn an_answer_goes_where_the_question_came_from() {
    let mut macs = table(8);
    let (question, answer) = (link(mac(1), Mac::BROADCAST, None), link(mac(2), mac(1), None));
    assert_eq!(macs.decide(at(0), 1, &question), Decision::Flood, "to everybody");
    assert_eq!(macs.decide(at(0), 1, &answer), Decision::Flood, "to nobody known");
    assert_eq!(macs.learn(at(0), 1, &question), Learnt::New);
    assert_eq!(macs.learn(at(1), 1, &question), Learnt::Known);
    assert_eq!(macs.decide(at(1), 2, &answer), Decision::To(1));
    assert_eq!(macs.decide(at(1), 1, &answer), Decision::Filter, "both are behind one port");
    assert_eq!(macs.decide(at(1), 2, &link(mac(2), mac(1), Some(5))), Decision::Flood, "another VLAN");
    assert_eq!(macs.decide(at(1), 2, &link(mac(2), mac(1), Some(0))), Decision::To(1), "a priority tag is no VLAN");
    assert_eq!(macs.learn(at(2), 3, &question), Learnt::Moved { from: 1 });
    assert_eq!(macs.decide(at(2), 2, &answer), Decision::To(3));
}

#[test]
fn nobody_sends_from_a_group() {
    let mut macs = table(8);
    for group in [Mac::BROADCAST, Mac([1, 0, 0x5e, 0, 0, 1]), Mac([0x33, 0x33, 0, 0, 0, 1])] {
        assert_eq!(macs.learn(at(0), 1, &link(group, mac(1), None)), Learnt::Refused);
        assert_eq!(macs.decide(at(0), 1, &link(mac(1), group, None)), Decision::Flood);
    }
    assert!(macs.is_empty());
}

#[test]
fn what_is_not_heard_of_is_forgotten() {
    let mut macs = table(8);
    macs.learn(at(0), 1, &link(mac(1), mac(2), None));
    assert_eq!(macs.lookup(at(300), 0, mac(1)), Some(1));
    assert_eq!(macs.lookup(at(301), 0, mac(1)), None);
    assert_eq!(macs.learn(at(301), 2, &link(mac(1), mac(2), None)), Learnt::New, "not moved: forgotten");
    assert_eq!(macs.lookup(at(601), 0, mac(1)), Some(2));
}

#[test]
fn a_flood_of_addresses_costs_the_oldest_only() {
    let mut macs = table(4);
    for n in 0..4 {
        macs.learn(at(n.into()), n, &link(mac(n), mac(9), None));
    }
    // The first is heard of again: the second is the oldest now.
    macs.learn(at(4), 0, &link(mac(0), mac(9), None));
    macs.learn(at(5), 5, &link(mac(5), mac(9), None));
    assert_eq!(
        (0..6).map(|n| macs.lookup(at(5), 0, mac(n))).collect::<Vec<_>>(),
        [Some(0), None, Some(2), Some(3), None, Some(5)]
    );
    for n in 0..200 {
        macs.learn(at(6), 7, &link(mac(n), mac(9), None));
        assert!(macs.len() <= 4 && macs.is_valid());
    }
}

#[test]
fn what_was_set_by_hand_stays() {
    let mut macs = table(2);
    macs.learn(at(0), 1, &link(mac(1), mac(9), None));
    assert_eq!(macs.set(mac(1), 2), Ok(()));
    assert_eq!((macs.lookup(at(9_999), 0, mac(1)), macs.lookup(at(9_999), 7, mac(1))), (Some(2), Some(2)));
    assert_eq!(macs.learn(at(1), 1, &link(mac(1), mac(9), None)), Learnt::Refused, "not from here");
    assert_eq!(macs.learn(at(1), 2, &link(mac(1), mac(9), None)), Learnt::Known);
    assert_eq!((macs.set(mac(2), 3), macs.set(mac(3), 3)), (Ok(()), Err(MacsFull(2))));
    assert_eq!(macs.set(mac(1), 4), Ok(()), "moved by hand");
    assert_eq!(macs.learn(at(2), 1, &link(mac(3), mac(9), None)), Learnt::New);
    macs.forget_port(1);
    macs.forget_port(4);
    assert_eq!((macs.lookup(at(2), 0, mac(1)), macs.lookup(at(2), 0, mac(3)), macs.len()), (Some(4), None, 0));
    assert!(macs.is_valid());
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// As a table of every address ever heard of, the newest `capacity` of which count.
    #[test]
    fn agrees_with_a_list_of_all_that_was_heard(
        heard in prop::collection::vec((0_u8..12, 0_u16..2, 0_u8..3, 0_u64..60, 0_u8..20), 1..200), capacity in 1_u32..9,
    ) {
        let mut macs = table(capacity);
        let mut all: BTreeMap<(u16, Mac), (u64, u64, u8)> = BTreeMap::new();
        let mut now = 0;
        for (turn, (address, vlan, port, wait, rare)) in heard.into_iter().enumerate() {
            now += wait;
            if rare == 0 {
                macs.forget_port(port);
                all.retain(|_, (_, _, at)| *at != port);
            }
            let before = macs.lookup(at(now), vlan, mac(address));
            let learnt = macs.learn(at(now), port, &link(mac(address), mac(99), Some(vlan)));
            let expected = match before {
                None => Learnt::New,
                Some(from) if from != port => Learnt::Moved { from },
                Some(_) => Learnt::Known,
            };
            prop_assert_eq!(learnt, expected);
            prop_assert!(macs.is_valid());
            all.insert((vlan, mac(address)), (turn as u64, now, port));
            if all.len() > capacity as usize {
                let oldest = *all.iter().min_by_key(|(_, (turn, _, _))| *turn).expect("some").0;
                all.remove(&oldest);
            }
            for n in 0..12 {
                let known = all.get(&(vlan, mac(n))).filter(|(_, heard, _)| now - heard <= 300).map(|(_, _, port)| *port);
                prop_assert_eq!(macs.lookup(at(now), vlan, mac(n)), known);
            }
        }
    }
}
