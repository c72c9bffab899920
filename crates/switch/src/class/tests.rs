use super::*;
use crate::frame::testing::Build;
use crate::frame::{Fragment, Ip, Transport};
use proptest::prelude::*;
use std::net::IpAddr;
use weirgate_units::Prefix;

fn classifier(rules: &[Rule<u32>]) -> Classifier<u32> {
    Classifier::new(rules.to_vec(), 2, 7).expect("rules that can be")
}

fn frame(build: &Build) -> Frame {
    build.parse(&build.bytes())
}

fn arp() -> Frame {
    Frame::ethernet(&[[2; 12].as_slice(), &[0x08, 0x06, 0, 1]].concat()).expect("ARP")
}

#[test]
fn the_lowest_priority_number_wins_and_then_the_first() {
    let https = Rule { destination_ports: Some(Ports::one(443)), ..Rule::any(20, 2) };
    let rules = [Rule::any(30, 3), https, Rule { class: 4, ..https }, Rule { vlan: Some(9), ..Rule::any(10, 1) }];
    let classifier = classifier(&rules);
    let tagged = Build { tags: Some(vec![(0x8100, 9)]), ..Build::default() };
    assert_eq!(classifier.classify(0, &frame(&tagged)), Some(1));
    assert_eq!(classifier.classify(0, &frame(&Build::default())), Some(2));
    assert_eq!(classifier.classify(0, &frame(&Build { ports: (443, 80), ..Build::default() })), Some(3));
}

#[test]
fn what_a_frame_does_not_have_is_not_asked_for() {
    let rules = [
        Rule { source: Some("0.0.0.0/0".parse().expect("all of IPv4")), ..Rule::any(1, 4) },
        Rule { source: Some("::/0".parse().expect("all of IPv6")), ..Rule::any(1, 6) },
        Rule { vlan: Some(0), port: Some(3), ..Rule::any(2, 0) },
    ];
    let classifier = classifier(&rules);
    assert_eq!(classifier.classify(3, &frame(&Build::default())), Some(4));
    assert_eq!(classifier.classify(3, &frame(&Build { v6: true, ..Build::default() })), Some(6));
    assert_eq!((classifier.classify(3, &arp()), classifier.classify(4, &arp())), (Some(0), None));
    let all_ports = Rule { source_ports: Some(Ports { first: 0, last: u16::MAX }), ..Rule::any(1, 1) };
    let ports = super::Classifier::new(vec![all_ports], 0, 0).expect("a rule");
    assert_eq!((ports.classify(0, &frame(&Build::default())), ports.classify(0, &arp())), (Some(1), None));
    assert_eq!(super::Classifier::<u8>::new(vec![], 0, 0).expect("no rules").classify(0, &arp()), None);
}

#[test]
fn a_flow_has_a_priority_as_rules_have() {
    let mut classifier = classifier(&[Rule { vlan: Some(9), ..Rule::any(10, 1) }, Rule::any(30, 3)]);
    let frame = frame(&Build::default());
    let flow = frame.flow().expect("TCP");
    assert_eq!(classifier.insert_flow(flow, 30, 77), Ok(None));
    assert_eq!(classifier.classify(0, &frame), Some(77), "a flow, where both have 30");
    assert_eq!(classifier.insert_flow(flow, 31, 78), Ok(Some(77)));
    assert_eq!(classifier.classify(0, &frame), Some(3));
    let other = |n| FlowKey { source_port: n, ..flow };
    assert_eq!(classifier.insert_flow(other(1), 0, 1), Ok(None));
    assert_eq!(classifier.insert_flow(other(2), 0, 1), Err(FlowsFull(2)));
    assert_eq!(classifier.insert_flow(flow, 0, 79), Ok(Some(78)), "it is there already");
    assert_eq!((classifier.remove_flow(&other(1)), classifier.flows(), classifier.rules()), (Some(1), 1, 2));
    assert_eq!(classifier.classify(0, &frame), Some(79));
}

#[test]
fn rules_that_cannot_be_are_named() {
    let refused =
        |rule| Classifier::new(vec![Rule::any(0, 0), rule], 0, 0).map(drop).expect_err("it cannot").to_string();
    assert_eq!(refused(Rule { vlan: Some(4_096), ..Rule::any(0, 0) }), "rule 1: VLAN 4096 is past 4095");
    let says = "rule 1: DSCP 64 is past 63: it is the upper six bits of the traffic class";
    assert_eq!(refused(Rule { dscp: Some(64), ..Rule::any(0, 0) }), says);
    let backwards = Some(Ports { first: 9, last: 8 });
    let says = "rule 1: ports 9 to 8 are none: write the lower one first";
    assert_eq!(refused(Rule { destination_ports: backwards, ..Rule::any(0, 0) }), says);
    let many = Classifier::new(vec![Rule::any(0, 0); RULES_MAX + 1], 0, 0).map(drop);
    assert_eq!(many, Err(RuleError { at: RULES_MAX, problem: RuleProblem::TooMany }));
    assert!(Classifier::new(vec![Rule::any(0, 0); RULES_MAX], 0, 0).is_ok());
}

#[test]
fn as_many_rules_as_there_may_be_all_different() {
    let rule = |n: u16| Rule {
        source: Some(Prefix::of(IpAddr::from([10, (n >> 8) as u8, n as u8, 0]), 24)),
        source_ports: Some(Ports { first: n, last: n + 1_000 }),
        port: Some(n * 15),
        ..Rule::any(n.into(), u32::from(n))
    };
    let classifier = classifier(&(0..RULES_MAX as u16).rev().map(rule).collect::<Vec<_>>());
    let mut frame = frame(&Build { ports: (1_500, 80), ..Build::default() });
    for n in [0_u16, 499, 500, 1_500, 1_501, 4_095] {
        let ip = frame.ip.as_mut().expect("IP");
        ip.source = [10, (n >> 8) as u8, n as u8, 200].into();
        let expected = (500..=1_500).contains(&n).then_some(u32::from(n));
        assert_eq!(classifier.classify(n * 15, &frame), expected, "{n}");
        assert_eq!(classifier.classify(n * 15 + 1, &frame), None);
    }
}

#[test]
fn a_change_is_seen_through_the_memory() {
    let frame = frame(&Build::default());
    let mut cached = Cached::new(classifier(&[Rule::any(5, 1)]), 1, 7);
    assert_eq!((cached.classify(0, &frame), cached.classify(0, &frame)), (Some(1), Some(1)));
    let flow = frame.flow().expect("TCP");
    assert_eq!(cached.with_classifier(|classifier| classifier.insert_flow(flow, 5, 2)), Ok(None));
    assert_eq!((cached.classify(0, &frame), cached.classifier().flows()), (Some(2), 1));
}

/// Small values of everything, so that rules and frames meet.
fn any_rule() -> impl Strategy<Value = Rule<u32>> {
    let v4 = (0_u32..16, 0_u8..=32).prop_map(|(bits, len)| Prefix::of(IpAddr::V4((bits << 28 | bits).into()), len));
    let v6 = (0_u128..16, 0_u8..=128).prop_map(|(bits, len)| Prefix::of(IpAddr::V6((bits << 124 | bits).into()), len));
    let network = || prop::option::of(prop_oneof![v4.clone(), v6.clone()]);
    let ports =
        || prop::option::of((0_u16..12, 0_u16..12).prop_map(|(a, b)| Ports { first: a.min(b), last: a.max(b) }));
    let small = (0_u32..5, prop::option::of(0_u16..3), prop::option::of(0_u16..3));
    let ip = (prop::option::of(0_u8..3), prop::option::of(prop_oneof![Just(6_u8), Just(17)]));
    (small, network(), network(), ip, ports(), ports()).prop_map(
        |((priority, port, vlan), source, destination, (dscp, protocol), source_ports, destination_ports)| Rule {
            priority,
            class: 0,
            port,
            vlan,
            source,
            destination,
            dscp,
            protocol,
            source_ports,
            destination_ports,
        },
    )
}

fn any_frame() -> impl Strategy<Value = Frame> {
    let place = (prop::option::of(0_u16..3), any::<bool>(), any::<bool>(), 0_u8..12);
    (place, (0_u16..13, 0_u16..13), (0_u8..16, 0_u8..16), 0_u8..10).prop_map(
        |((tag, v6, udp, traffic_class), ports, (from, to), kind)| {
            if kind == 0 {
                return arp();
            }
            let tags = Some(tag.map(|tag| (0x8100, tag)).into_iter().collect());
            let mut frame = frame(&Build { tags, v6, udp, traffic_class, ports, ..Build::default() });
            let address = |bits: u8| match v6 {
                true => IpAddr::V6((u128::from(bits) << 124 | u128::from(bits)).into()),
                false => IpAddr::V4((u32::from(bits) << 28 | u32::from(bits)).into()),
            };
            let ip = frame.ip.expect("IP");
            let (fragment, transport) = match kind {
                1 => (Fragment::Later, Transport::Other),
                2 => (Fragment::First, ip.transport),
                _ => (Fragment::Whole, ip.transport),
            };
            frame.ip = Some(Ip { source: address(from), destination: address(to), fragment, transport, ..ip });
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// The answer is that of going through all rules one by one.
    #[test]
    fn agrees_with_looking_at_every_rule(
        mut rules in prop::collection::vec(any_rule(), 0..150), frames in prop::collection::vec((0_u16..4, any_frame()), 20),
    ) {
        for (class, rule) in rules.iter_mut().enumerate() {
            rule.class = class as u32;
        }
        let classifier = classifier(&rules);
        let mut remembers = [Cached::new(classifier.clone(), 4, 7), Cached::where_it_pays(classifier.clone(), 7)];
        for (port, frame) in frames {
            let first = rules.iter().filter(|rule| rule.matches(port, &frame)).min_by_key(|rule| rule.priority);
            prop_assert_eq!(classifier.classify(port, &frame), first.map(|rule| rule.class));
            for cached in remembers.iter_mut().flat_map(|cached| [cached.classify(port, &frame), cached.classify(port, &frame)]) {
                prop_assert_eq!(cached, first.map(|rule| rule.class));
            }
        }
    }
}
