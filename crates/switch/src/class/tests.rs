use super::*;
use crate::frame::testing::Build;
use crate::frame::{FlowKey, Fragment, Ip, Transport};
use proptest::prelude::*;
use std::net::IpAddr;
use weirgate_units::Prefix;

fn classifier(rules: &[Rule<u32>]) -> Classifier<u32> {
    Classifier::new(rules.to_vec(), 7).expect("rules that can be")
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
    let ports = super::Classifier::new(vec![all_ports], 0).expect("a rule");
    assert_eq!((ports.classify(0, &frame(&Build::default())), ports.classify(0, &arp())), (Some(1), None));
    assert_eq!(super::Classifier::<u8>::new(vec![], 0).expect("no rules").classify(0, &arp()), None);
}

/// A rule for the frame's flow.
fn for_flow(frame: &Frame, priority: u32, class: u32) -> Rule<u32> {
    let FlowKey { source, destination, protocol, source_port, destination_port } = frame.flow().expect("IP");
    Rule {
        source: Some(Prefix::of(source, u8::MAX)),
        destination: Some(Prefix::of(destination, u8::MAX)),
        protocol: Some(protocol),
        source_ports: Some(Ports::one(source_port)),
        destination_ports: Some(Ports::one(destination_port)),
        ..Rule::any(priority, class)
    }
}

#[test]
fn a_rule_for_one_flow_is_first_where_its_priority_is() {
    let frame = frame(&Build::default());
    let wide = [Rule { vlan: Some(9), ..Rule::any(10, 1) }, Rule::any(30, 3)];
    let class = |rules: &[Rule<u32>]| classifier(&[&wide, rules].concat()).classify(4, &frame);
    assert_eq!(class(&[for_flow(&frame, 29, 77)]), Some(77));
    assert_eq!(class(&[for_flow(&frame, 31, 77)]), Some(3));
    assert_eq!(class(&[for_flow(&frame, 30, 77)]), Some(77), "of one priority, what lies within the other");
    assert_eq!(class(&[for_flow(&frame, 5, 77), for_flow(&frame, 5, 78)]), Some(77), "so it is of two for one flow");
    assert_eq!(class(&[for_flow(&frame, 5, 77), for_flow(&frame, 4, 78)]), Some(78));
    let at = |port, priority| Rule { port: Some(port), ..for_flow(&frame, priority, 79) };
    assert_eq!(class(&[for_flow(&frame, 5, 77), at(4, 4)]), Some(79));
    assert_eq!(class(&[for_flow(&frame, 5, 77), at(4, 6)]), Some(77));
    assert_eq!(class(&[for_flow(&frame, 5, 77), at(3, 4)]), Some(77), "another port");
    let other = Rule { destination_ports: Some(Ports::one(9)), ..for_flow(&frame, 5, 77) };
    assert_eq!(class(&[other]), Some(3));
}

#[test]
fn only_a_rule_for_one_flow_is_one() {
    let rule = for_flow(&frame(&Build::default()), 0, 0);
    assert!(rule.flow().is_some() && Rule { port: Some(1), ..rule }.flow().is_some());
    let wider = [
        Rule { source: rule.source.map(|host| Prefix::of(host.address(), 31)), ..rule },
        Rule { destination: None, ..rule },
        Rule { protocol: None, ..rule },
        Rule { source_ports: Some(Ports { first: 80, last: 81 }), ..rule },
        Rule { destination_ports: None, ..rule },
        Rule { vlan: Some(0), ..rule },
        Rule { dscp: Some(0), ..rule },
    ];
    assert!(wider.iter().all(|rule| rule.flow().is_none()));
}

/// What is of a flow by [`Frame::flow`] is not what a rule asks for.
#[test]
fn fragments_and_mapped_addresses_are_of_the_flow_that_rules_mean() {
    for v6 in [false, true] {
        let whole = frame(&Build { v6, ..Build::default() });
        let ip = whole.ip.expect("IP");
        let first = Frame { ip: Some(Ip { fragment: Fragment::First, ..ip }), ..whole };
        let later = Frame { ip: Some(Ip { fragment: Fragment::Later, transport: Transport::Other, ..ip }), ..whole };
        let rules = [for_flow(&later, 0, 1), for_flow(&whole, 0, 2)];
        let of = |frame| (classifier(&rules).classify(0, frame), rules.iter().find(|rule| rule.matches(0, frame)));
        for (frame, class) in [(&whole, Some(2)), (&first, Some(2)), (&later, None)] {
            assert_eq!((of(frame).0, of(frame).1.map(|rule| rule.class)), (class, class), "{frame:?}");
        }
    }
    let v4 = frame(&Build::default());
    let ip = v4.ip.expect("IP");
    let IpAddr::V4(source) = ip.source else { panic!("IPv4") };
    let mapped = Frame { ip: Some(Ip { source: source.to_ipv6_mapped().into(), ..ip }), ..v4 };
    for rule in [for_flow(&v4, 0, 1), for_flow(&mapped, 0, 1)] {
        let classes = [&v4, &mapped].map(|frame| classifier(&[rule]).classify(0, frame));
        assert_eq!(classes, [Some(1), Some(1)]);
    }
}

#[test]
fn rules_for_single_flows_are_beside_the_others() {
    let frame = frame(&Build::default());
    let flow = |n: u32| Rule {
        source: Some(Prefix::of(IpAddr::V4((n << 3).into()), 32)),
        port: (!n.is_multiple_of(3)).then_some(4),
        ..for_flow(&frame, n, n)
    };
    let mut rules: Vec<Rule<u32>> = (0..40_000).map(flow).collect();
    rules.extend(vec![Rule { vlan: Some(1), ..Rule::any(20_000, 7) }; RULES_MAX]);
    let classifier = classifier(&rules);
    for n in (0..40_001).step_by(1_117).chain([39_999, 40_000]) {
        let ip = Ip { source: IpAddr::V4((n << 3).into()), ..frame.ip.expect("IP") };
        let mut frame = Frame { ip: Some(ip), ..frame };
        assert_eq!(classifier.classify(4, &frame), (n < 40_000).then_some(n));
        assert_eq!(classifier.classify(5, &frame), (n < 40_000 && n.is_multiple_of(3)).then_some(n));
        frame.link.as_mut().expect("Ethernet").vlan = Some(1);
        assert_eq!(classifier.classify(4, &frame), Some(if n < 20_000 { n } else { 7 }));
    }
}

#[test]
fn rules_that_cannot_be_are_named() {
    let refused = |rule| Classifier::new(vec![Rule::any(0, 0), rule], 0).map(drop).expect_err("it cannot").to_string();
    assert_eq!(refused(Rule { vlan: Some(4_096), ..Rule::any(0, 0) }), "rule 1: VLAN 4096 is past 4095");
    let says = "rule 1: DSCP 64 is past 63: it is the upper six bits of the traffic class";
    assert_eq!(refused(Rule { dscp: Some(64), ..Rule::any(0, 0) }), says);
    let backwards = Some(Ports { first: 9, last: 8 });
    let says = "rule 1: ports 9 to 8 are none: write the lower one first";
    assert_eq!(refused(Rule { destination_ports: backwards, ..Rule::any(0, 0) }), says);
    let many = Classifier::new(vec![Rule::any(0, 0); RULES_MAX + 1], 0).map(drop);
    assert_eq!(many, Err(RuleError { at: RULES_MAX, problem: RuleProblem::TooMany }));
    assert!(Classifier::new(vec![Rule::any(0, 0); RULES_MAX], 0).is_ok());
    let flow = for_flow(&frame(&Build::default()), 0, 0);
    let many = |flows| [vec![flow; flows], vec![Rule::any(0, 0); RULES_MAX + 1]].concat();
    let error = RuleError { at: FLOW_RULES_MAX, problem: RuleProblem::TooManyFlows };
    assert_eq!(Classifier::new(many(FLOW_RULES_MAX + 1), 0).map(drop), Err(error));
    let error = RuleError { at: FLOW_RULES_MAX + RULES_MAX, problem: RuleProblem::TooMany };
    assert_eq!(Classifier::new(many(FLOW_RULES_MAX), 0).map(drop), Err(error));
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
fn of_one_priority_the_longest_prefix_wins_wherever_it_stands() {
    let source = |network: &str, class| Rule { source: Some(network.parse().expect("one")), ..Rule::any(0, class) };
    let networks = [source("10.0.0.0/8", 8), source("10.1.2.0/24", 24), source("10.1.0.0/16", 16)];
    let udp = Rule { protocol: Some(17), ..Rule::any(0, 17) };
    let of = |rules: &[Rule<u32>], from: [u8; 4]| {
        let frame = frame(&Build::default());
        let ip = Ip { source: from.into(), protocol: 17, ..frame.ip.expect("IP") };
        classifier(rules).classify(0, &Frame { ip: Some(ip), ..frame })
    };
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let rules = [&[Rule::any(0, 0)], order.map(|at| networks[at]).as_slice()].concat();
        let found = [[10, 1, 2, 3], [10, 1, 9, 9], [10, 9, 9, 9], [9; 4]].map(|from| of(&rules, from));
        assert_eq!(found, [Some(24), Some(16), Some(8), Some(0)]);
    }
    // All of IPv4 by its source holds what goes to a network of IPv4, and all source ports hold one destination port.
    let to = Rule { destination: Some("192.0.2.0/24".parse().expect("one")), ..Rule::any(0, 2) };
    assert!(to.lies_within(&source("0.0.0.0/0", 0)) && !to.lies_within(&source("::/0", 0)));
    let all_ports = Rule { source_ports: Some(Ports { first: 0, last: u16::MAX }), ..Rule::any(0, 0) };
    let https = Rule { destination_ports: Some(Ports::one(443)), ..Rule::any(0, 1) };
    assert!(https.lies_within(&all_ports) && !all_ports.lies_within(&https));
    // Of two that only meet, the first in the list: nothing is taken from it by what lies within the second.
    let rules = [udp, networks[0], networks[1]];
    assert_eq!([of(&rules, [10, 1, 2, 3]), of(&rules[1..], [10, 1, 2, 3])], [Some(17), Some(24)]);
    assert_eq!(of(&[networks[0], udp, networks[1]], [10, 1, 2, 3]), Some(24));
}

/// Small values of everything, so that rules and frames meet.
fn any_rule() -> impl Strategy<Value = Rule<u32>> {
    prop_oneof![any_wide_rule(), any_flow_rule()]
}

/// For one flow each, of few: many are for the same.
fn any_flow_rule() -> impl Strategy<Value = Rule<u32>> {
    let who = (0_u32..5, prop::option::of(0_u16..3), prop_oneof![Just(6_u8), Just(17)]);
    (who, any::<bool>(), (0_u8..2, 0_u8..2), (0_u16..2, 0_u16..2)).prop_map(
        |((priority, port, protocol), v6, (from, to), ports)| Rule {
            port,
            source: Some(Prefix::of(address(from, v6), u8::MAX)),
            destination: Some(Prefix::of(address(to, v6), u8::MAX)),
            protocol: Some(protocol),
            source_ports: Some(Ports::one(ports.0)),
            destination_ports: Some(Ports::one(ports.1)),
            ..Rule::any(priority, 0)
        },
    )
}

fn address(bits: u8, v6: bool) -> IpAddr {
    match v6 {
        true => IpAddr::V6((u128::from(bits) << 124 | u128::from(bits)).into()),
        false => IpAddr::V4((u32::from(bits) << 28 | u32::from(bits)).into()),
    }
}

fn any_wide_rule() -> impl Strategy<Value = Rule<u32>> {
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
    prop_oneof![frame_below(16, 13), frame_below(2, 2)]
}

/// What the order of rules is said to be, step by step.
fn narrowest<'a>(rules: &'a [Rule<u32>], port: u16, frame: &Frame) -> Option<&'a Rule<u32>> {
    let mut found = rules.iter().filter(|rule| rule.matches(port, frame)).min_by_key(|rule| rule.priority)?;
    loop {
        let within =
            |rule: &&Rule<u32>| rule.priority == found.priority && rule.lies_within(found) && rule.matches(port, frame);
        let Some(next) = rules.iter().find(within) else { return Some(found) };
        found = next;
    }
}

/// The rule, asking about one field alone; or about none, where it does not ask about that one.
fn only(field: Field, rule: &Rule<u32>) -> Rule<u32> {
    let any = Rule::any(rule.priority, rule.class);
    match field {
        Field::Port => Rule { port: rule.port, ..any },
        Field::Vlan => Rule { vlan: rule.vlan, ..any },
        Field::Dscp => Rule { dscp: rule.dscp, ..any },
        Field::Protocol => Rule { protocol: rule.protocol, ..any },
        Field::SourcePort => Rule { source_ports: rule.source_ports, ..any },
        Field::DestinationPort => Rule { destination_ports: rule.destination_ports, ..any },
    }
}

/// Of so many addresses and ports.
fn frame_below(addresses: u8, ports: u16) -> impl Strategy<Value = Frame> {
    let place = (prop::option::of(0_u16..3), any::<bool>(), any::<bool>(), 0_u8..12);
    (place, (0..ports, 0..ports), (0..addresses, 0..addresses), 0_u8..10).prop_map(
        |((tag, v6, udp, traffic_class), ports, (from, to), kind)| {
            if kind == 0 {
                return arp();
            }
            let tags = Some(tag.map(|tag| (0x8100, tag)).into_iter().collect());
            let mut frame = frame(&Build { tags, v6, udp, traffic_class, ports, ..Build::default() });
            let ip = frame.ip.expect("IP");
            let (fragment, transport) = match kind {
                1 => (Fragment::Later, Transport::Other),
                2 => (Fragment::First, ip.transport),
                _ => (Fragment::Whole, ip.transport),
            };
            frame.ip = Some(Ip { source: address(from, v6), destination: address(to, v6), fragment, transport, ..ip });
            frame
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What is covered fits nothing that the other does not fit.
    #[test]
    fn a_rule_that_is_covered_fits_nothing_else(a in any_rule(), b in any_rule(), port in 0_u16..4, frame in any_frame()) {
        prop_assert!(a.is_covered_by(&a) && !a.lies_within(&a));
        prop_assert!(!a.is_covered_by(&b) || !a.matches(port, &frame) || b.matches(port, &frame));
    }

    /// The answer is that of going through all rules one by one.
    #[test]
    fn agrees_with_looking_at_every_rule(
        mut rules in prop::collection::vec(any_rule(), 0..150), frames in prop::collection::vec((0_u16..4, any_frame()), 20),
        field in prop::option::of(0..Field::ALL.len()),
    ) {
        for (class, rule) in rules.iter_mut().enumerate() {
            rule.class = class as u32;
            if let Some(field) = field {
                *rule = only(Field::ALL[field], rule);
            }
        }
        let classifier = classifier(&rules);
        let mut remembers = [Cached::new(classifier.clone(), 4, 7), Cached::where_it_pays(classifier.clone(), 7)];
        for (port, frame) in frames {
            let first = narrowest(&rules, port, &frame);
            prop_assert_eq!(classifier.classify(port, &frame), first.map(|rule| rule.class));
            for cached in remembers.iter_mut().flat_map(|cached| [cached.classify(port, &frame), cached.classify(port, &frame)]) {
                prop_assert_eq!(cached, first.map(|rule| rule.class));
            }
        }
    }
}
