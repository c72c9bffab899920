use super::*;
use crate::frame::Layer;
use crate::frame::testing::{Build, checksums_verify};
use crate::limits::Mode;
use proptest::prelude::*;

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

const fn mbit(n: u64) -> BitRate {
    BitRate::from_bits_per_sec(n * 1_000_000)
}

fn bridge(ports: u16) -> (Bridge, Vec<BridgePort>) {
    let mut bridge = Bridge::new(at(0), mbit(1), mbit(1_000), Bytes::new(64 << 20), 7);
    let ports = (0..ports).map(|_| bridge.add_port()).collect();
    (bridge, ports)
}

/// A limit of `rate`, with a class of its own for all that goes by `port` in `direction`.
fn limit(bridge: &mut Bridge, rate: BitRate, mode: Mode, port: BridgePort, direction: Direction) -> LimitId {
    let id = bridge.add_limit(at(0), LimitSettings { rate, burst: Bytes::new(3_000), mode });
    let queue = ClassSettings { codel: None, ..ClassSettings::default() };
    let class = bridge.add_class(&BridgeClass { limits: vec![id], accounting: Accounting::default(), queue });
    let rules = vec![Rule { port: Some(port.0), ..Rule::any(0, class) }];
    let (from, to) = if direction == Direction::From { (rules, vec![]) } else { (vec![], rules) };
    bridge.set_rules(from, to).expect("sound rules");
    id
}

/// A frame of `payload` bytes from MAC number `source` to number `destination`.
fn frame(source: u8, destination: u8, payload: usize) -> Packet {
    let mut bytes = Build { payload: vec![1; payload], ..Build::default() }.bytes();
    bytes[..12].copy_from_slice(&[2, 0, 0, 0, 0, destination, 2, 0, 0, 0, 0, source]);
    Packet::copy_of(&bytes)
}

fn super_packet(payload: usize) -> Packet {
    let (bytes, offload) = Build { payload: vec![1; payload], ..Build::default() }.super_packet(1_448);
    let mut packet = Packet::copy_of(&bytes);
    packet.set_offload(offload);
    packet
}

/// What leaves by `until`, with when and where.
fn run(bridge: &mut Bridge, until: Instant) -> Vec<(Instant, BridgePort, Packet)> {
    let mut left = Vec::new();
    while let Some(due) = bridge.poll_at().filter(|due| *due <= until) {
        while let Some((port, packet)) = bridge.poll_frame(due) {
            left.push((due, port, packet));
        }
        assert!(bridge.is_valid());
    }
    left
}

#[test]
fn an_address_is_flooded_for_until_it_is_learnt() {
    let (mut bridge, ports) = bridge(3);
    let mut send = |from: usize, source, destination| {
        bridge.handle_frame(at(1), ports[from], None, frame(source, destination, 10));
        let mut to: Vec<usize> = run(&mut bridge, at(1)).iter().map(|(_, port, _)| port.index()).collect();
        to.sort_unstable();
        to
    };
    assert_eq!(send(0, 1, 2), [1, 2]);
    assert_eq!(send(1, 2, 1), [0]);
    assert_eq!(send(0, 1, 2), [1]);
    assert_eq!(send(0, 3, 1), [0_usize; 0], "both are there");
    let counters = *bridge.counters();
    assert_eq!((counters.received, counters.added, counters.sent), (4, 1, 4));
    let dropped = ports.iter().map(|port| bridge.dropped(*port).filtered);
    assert_eq!(dropped.collect::<Vec<_>>(), [1, 0, 0], "by where it came from");
}

#[test]
fn a_flooded_frame_counts_once_where_it_comes_from() {
    let (mut bridge, ports) = bridge(5);
    let id = limit(&mut bridge, mbit(8), Mode::Pace, ports[0], Direction::From);
    // A megabyte each second; to nobody that is known.
    for _ in 0..20 {
        bridge.handle_frame(at(0), ports[0], None, frame(1, 99, 972));
    }
    let left = run(&mut bridge, at(30_000_000));
    assert_eq!(left.len(), 20 * 4, "to every other port");
    assert_eq!(bridge.limit_counters(id, at(30_000_000)).passed_packets, 20);
    let last = left.last().expect("some").0;
    assert!(last > at(16_000_000) && last < at(18_000_000), "{last:?}");
    let BridgeCounters { received, added, sent, .. } = *bridge.counters();
    assert_eq!((received, added, sent), (20, 60, 80));
}

#[test]
fn what_is_behind_an_ip_packet_s_end_is_not_sent() {
    for (payload, sent) in [(972, 14 + 20 + 20 + 972), (0, 60)] {
        let (mut bridge, ports) = bridge(2);
        let id = limit(&mut bridge, mbit(8), Mode::Pace, ports[0], Direction::From);
        let packet = frame(1, 99, payload);
        let length = packet.bytes().len();
        let stuffed = Packet::copy_of(&[packet.bytes(), &[7; 5_000]].concat());
        bridge.handle_frame(at(0), ports[0], None, stuffed);
        let left = run(&mut bridge, at(30_000_000));
        let bytes = left[0].2.bytes();
        assert_eq!((left.len(), bytes.len()), (1, sent));
        assert_eq!(&bytes[..length], packet.bytes());
        assert_eq!(
            bridge.limit_counters(id, at(30_000_000)).passed_bytes,
            length as u64 - 14,
            "all that was sent, by layer 3"
        );
    }
    // Of other protocols there is no knowing where they end, and all counts.
    let (mut bridge, ports) = bridge(2);
    let arp = [[2, 0, 0, 0, 0, 9, 2, 0, 0, 0, 0, 1].as_slice(), &[0x08, 0x06], &[7; 900]].concat();
    bridge.handle_frame(at(0), ports[0], None, Packet::copy_of(&arp));
    assert_eq!(run(&mut bridge, at(1))[0].2.bytes(), arp);
}

#[test]
fn a_super_packet_of_tiny_segments_is_refused() {
    let cut = |segment: u16| {
        let (mut bridge, ports) = bridge(2);
        let id = limit(&mut bridge, mbit(8), Mode::Pace, ports[0], Direction::From);
        let (bytes, offload) = Build { payload: vec![1; 60_000], ..Build::default() }.super_packet(segment);
        let mut packet = Packet::copy_of(&bytes);
        packet.set_offload(offload);
        bridge.handle_frame(at(0), ports[0], None, packet);
        (bridge.dropped(ports[0]).malformed, bridge.limit_counters(id, at(0)).waiting)
    };
    assert_eq!(cut(1), (1, 0));
    assert_eq!(cut(43), (1, 0));
    let (malformed, waiting) = cut(48);
    assert!(malformed == 0 && waiting > 200, "pieces of five segments each: {waiting}");
}

#[test]
fn what_leaves_to_all_takes_memory_until_it_is_handed_out() {
    let (mut bridge, ports) = bridge(5);
    bridge.handle_frame(at(0), ports[0], None, frame(1, 99, 10));
    assert_eq!(bridge.leaving(), Bytes::new(4 * 2_048));
    assert_eq!(run(&mut bridge, at(0)).len(), 4);
    assert_eq!(bridge.leaving(), Bytes::ZERO);
}

#[test]
fn only_what_could_be_marked_counts_as_marked() {
    for ecn in [0, 2] {
        let (mut bridge, ports) = bridge(2);
        bridge.join(ports[0], ports[1]);
        let id = bridge.add_limit(at(0), LimitSettings { rate: mbit(8), burst: Bytes::new(3_000), mode: Mode::Pace });
        let queue =
            ClassSettings { codel: None, mark_above: Some(Duration::from_millis(2)), ..ClassSettings::default() };
        let class = bridge.add_class(&BridgeClass { limits: vec![id], accounting: Accounting::default(), queue });
        bridge.set_rules(vec![Rule { port: Some(ports[0].0), ..Rule::any(0, class) }], vec![]).expect("sound rules");
        for _ in 0..20 {
            let bytes = Build { payload: vec![1; 972], traffic_class: ecn, ..Build::default() }.bytes();
            bridge.handle_frame(at(0), ports[0], None, Packet::copy_of(&bytes));
        }
        let left = run(&mut bridge, at(30_000_000));
        let marked = left.iter().filter(|(.., packet)| packet.bytes()[15] & 3 == 3).count() as u64;
        assert_eq!(marked > 10, ecn == 2, "{marked}");
        assert_eq!(bridge.limit_counters(id, at(30_000_000)).marked, marked);
        assert_eq!(bridge.counters().marked, marked);
    }
}

/// What leaves of 2,000 frames a millisecond apart, each of which takes two, by their sender's ECN field, and as the limit counts
/// what it marked and what CoDel dropped.
fn queued(ecn: u8, is_held: bool) -> (Vec<Packet>, LimitCounters) {
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    let id = bridge.add_limit(at(0), LimitSettings { rate: mbit(4), burst: Bytes::new(3_000), mode: Mode::Pace });
    let queue = ClassSettings { queue_max: Bytes::new(u64::MAX), ..ClassSettings::default() };
    let class = bridge.add_class(&BridgeClass { limits: vec![id], accounting: Accounting::default(), queue });
    bridge.set_rules(vec![Rule { port: Some(ports[0].0), ..Rule::any(0, class) }], vec![]).expect("sound rules");
    let bytes = Build { payload: vec![1; 960], traffic_class: ecn, ..Build::default() }.bytes();
    let mut left = Vec::new();
    for ms in 0..2_000 {
        let mut packet = Packet::copy_of(&bytes);
        packet.set_hold(is_held.then(|| -> weirgate_port::Hold { Arc::new(()) }));
        bridge.handle_frame(at(ms * 1_000_000), ports[0], None, packet);
        left.extend(run(&mut bridge, at(ms * 1_000_000)).into_iter().map(|(.., packet)| packet));
    }
    (left, bridge.limit_counters(id, at(2_000_000_000)))
}

#[test]
fn a_frame_is_marked_dropped_or_left_alone_as_its_sender_listens() {
    for (ecn, is_held) in [(0, false), (1, false), (2, false), (3, false), (0, true), (2, true)] {
        let (left, counters) = queued(ecn, is_held);
        let marked = left.iter().filter(|packet| packet.bytes()[15] & 3 == 3).count() as u64;
        assert_eq!(counters.dropped_codel > 30, ecn == 0 && !is_held, "{ecn}, {is_held}: {counters:?}");
        assert_eq!(counters.dropped_codel == 0, ecn > 0 || is_held, "{ecn}, {is_held}: {counters:?}");
        assert_eq!(counters.marked > 30, ecn > 0 && !is_held, "{ecn}, {is_held}: {counters:?}");
        // What was marked before stays so and is sent like everything else.
        assert_eq!(marked, if ecn == 3 { left.len() as u64 } else { counters.marked }, "{ecn}, {is_held}");
        assert!(left.iter().all(|packet| checksums_verify(packet.bytes(), &Build::default().parse(packet.bytes()))));
        assert!(left.len() >= 1_000, "{ecn}, {is_held}: {}", left.len());
    }
}

/// What CoDel drops of a connection in the second after its handshake, of a round trip of so many milliseconds: frames come twice as
/// fast as they leave, in the direction that the connection was opened in or in the other.
fn dropped_of(rtt: u64, opened: bool, by_flow_rtt: bool) -> u64 {
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    let id = bridge.add_limit(at(0), LimitSettings { rate: mbit(4), burst: Bytes::new(3_000), mode: Mode::Pace });
    let queue = ClassSettings { queue_max: Bytes::new(u64::MAX), by_flow_rtt, ..ClassSettings::default() };
    let class = bridge.add_class(&BridgeClass { limits: vec![id], accounting: Accounting::default(), queue });
    bridge.set_rules(vec![Rule { port: Some(ports[0].0), ..Rule::any(0, class) }], vec![]).expect("sound rules");
    let (client, server) = if opened { (0, 1) } else { (1, 0) };
    let mut send = |ms: u64, from: usize, flags: u8, payload: usize| {
        // The two hosts stand on either side.
        let build = Build { flags, payload: vec![1; payload], ..Build::default() };
        let bytes = if from == client { build.bytes() } else { build.answered() };
        bridge.handle_frame(at(ms * 1_000_000), ports[from], None, Packet::copy_of(&bytes));
        run(&mut bridge, at(ms * 1_000_000));
    };
    send(0, client, 0x02, 0);
    send(rtt / 2, server, 0x12, 0);
    send(rtt, client, 0x10, 0);
    for ms in rtt..rtt + 1_000 {
        send(ms, 0, 0x10, 960);
    }
    bridge.limit_counters(id, at((rtt + 1_000) * 1_000_000)).dropped_codel
}

#[test]
fn codel_gives_a_connection_four_of_its_own_round_trips() {
    for opened in [true, false] {
        let usual = dropped_of(1, opened, true);
        assert!(usual > 10, "{usual} with 100 ms");
        assert_eq!(dropped_of(25, opened, true), usual, "as without");
        let patient = dropped_of(200, opened, true);
        assert!((1..usual / 2).contains(&patient), "{patient} with 800 ms, {usual} with 100 ms");
        assert_eq!(dropped_of(250, opened, true), 0, "a second");
        assert_eq!(dropped_of(250, opened, false), usual, "where another interval is said");
    }
}

#[test]
fn joined_ports_are_a_wire_for_whatever_is_a_frame() {
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    bridge.handle_frame(at(0), ports[0], None, frame(1, 1, 10));
    bridge.handle_frame(at(0), ports[1], None, Packet::copy_of(&[0xff; 60]));
    bridge.handle_frame(at(0), ports[1], None, Packet::copy_of(&[1, 2, 3]));
    let left = run(&mut bridge, at(0));
    assert_eq!(left.iter().map(|(_, port, _)| port.index()).collect::<Vec<_>>(), [1, 0]);
    let malformed = |port: BridgePort| bridge.dropped(port).malformed;
    assert_eq!((malformed(ports[0]), malformed(ports[1])), (0, 1));
}

#[test]
fn both_directions_have_limits_of_their_own() {
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    let out = bridge.add_limit(at(0), LimitSettings { rate: mbit(8), burst: Bytes::new(1_500), mode: Mode::Pace });
    let into = bridge.add_limit(at(0), LimitSettings { rate: mbit(4), burst: Bytes::new(1_500), mode: Mode::Pace });
    let mut class = |limit| {
        let queue = ClassSettings { codel: None, ..ClassSettings::default() };
        bridge.add_class(&BridgeClass { limits: vec![limit], accounting: Accounting::default(), queue })
    };
    let (out_class, in_class) = (class(out), class(into));
    let rule = |class| vec![Rule { port: Some(ports[0].0), ..Rule::any(0, class) }];
    bridge.set_rules(rule(out_class), rule(in_class)).expect("sound rules");
    // 1,000 bytes of IP each: a millisecond at 8 Mbit/s, two at 4.
    for _ in 0..200 {
        bridge.handle_frame(at(0), ports[0], None, frame(1, 2, 960));
        bridge.handle_frame(at(0), ports[1], None, frame(2, 1, 960));
    }
    let left = run(&mut bridge, at(100_000_000));
    let by = |port: usize| left.iter().filter(|(_, p, _)| p.index() == port).count();
    assert!((100..=103).contains(&by(1)) && (50..=53).contains(&by(0)), "{} {}", by(1), by(0));
    // What waits leaves at the new rate; nothing is lost.
    bridge.set_rate(at(100_000_000), out, mbit(800));
    bridge.set_rate(at(100_000_000), into, mbit(800));
    let rest = run(&mut bridge, at(110_000_000));
    assert_eq!(left.len() + rest.len(), 400);
    assert_eq!(bridge.memory(), Bytes::ZERO);
}

#[test]
fn a_super_packet_is_cut_where_it_would_take_long() {
    // At 10 Mbit/s half a millisecond is 625 bytes: single packets. At 100 Mbit/s four of them.
    for (rate, pieces) in [(10, 40), (100, 10), (1_000, 1)] {
        let (mut bridge, ports) = bridge(2);
        bridge.join(ports[0], ports[1]);
        let id = limit(&mut bridge, mbit(rate), Mode::Pace, ports[0], Direction::From);
        let counted = bridge.handle_frame(at(0), ports[0], None, super_packet(40 * 1_448));
        assert_eq!(counted, Bytes::new(40 * 1_488));
        let left = run(&mut bridge, at(1_000_000_000));
        assert_eq!(left.len(), pieces, "{rate} Mbit/s");
        assert_eq!(bridge.limit_counters(id, at(1_000_000_000)).passed_bytes, 40 * 1_488);
        let payload: usize = left
            .iter()
            .map(|(_, _, p)| Build::default().parse(p.bytes()))
            .map(|f| f.ip.expect("IP").payload_len() as usize)
            .sum();
        assert_eq!(payload, 40 * 1_448);
        // Nothing is sent faster than the limit, but for its burst and a packet.
        let last = left.last().expect("some").0;
        let total = 40 * 1_488_u64;
        let earliest = total.saturating_sub(3_000 + 2 * total / pieces as u64) * 8_000 / rate;
        assert!(last >= at(earliest), "{rate} Mbit/s: {last:?}");
    }
}

#[test]
fn a_super_packet_is_cut_where_it_would_never_pass_whole() {
    for (mode, queue_max) in [(Mode::Drop, 8 << 20), (Mode::Pace, 40_000)] {
        let (mut bridge, ports) = bridge(2);
        bridge.join(ports[0], ports[1]);
        // 62 KB take half a millisecond.
        let id = bridge.add_limit(at(0), LimitSettings { rate: mbit(1_000), burst: Bytes::new(20_000), mode });
        let queue = ClassSettings { codel: None, queue_max: Bytes::new(queue_max), ..ClassSettings::default() };
        let class = bridge.add_class(&BridgeClass { limits: vec![id], accounting: Accounting::default(), queue });
        bridge.set_rules(vec![Rule { port: Some(ports[0].0), ..Rule::any(0, class) }], vec![]).expect("sound rules");
        bridge.handle_frame(at(0), ports[0], None, super_packet(44_000));
        let left: usize = run(&mut bridge, at(1_000_000)).iter().map(|(.., packet)| packet.bytes().len()).sum();
        assert!(bridge.counters().cut == 1 && left > 15_000, "{mode:?}: {left} bytes, {:?}", bridge.counters());
    }
}

#[test]
fn what_a_later_limit_drops_is_not_charged_to_the_first() {
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    let rate = BitRate::from_bits_per_sec(1);
    let burst = |bytes| LimitSettings { rate, burst: Bytes::new(bytes), mode: Mode::Drop };
    let ids = [10_000, 3_000].map(|bytes| bridge.add_limit(at(0), burst(bytes)));
    let classes = ids.map(|id| {
        let (accounting, queue) = (Accounting::default(), ClassSettings::default());
        bridge.add_class(&BridgeClass { limits: vec![id], accounting, queue })
    });
    let rule = |port: BridgePort, class| vec![Rule { port: Some(port.0), ..Rule::any(0, class) }];
    bridge.set_rules(rule(ports[0], classes[0]), rule(ports[1], classes[1])).expect("sound rules");
    // IP packets of 1,000 bytes.
    let passed = |bridge: &mut Bridge| {
        (0..20).for_each(|_| _ = bridge.handle_frame(at(0), ports[0], None, frame(1, 2, 960)));
        run(bridge, at(1)).len()
    };
    assert_eq!(passed(&mut bridge), 3);
    bridge.set_rules(rule(ports[0], classes[0]), vec![]).expect("sound rules");
    assert_eq!(passed(&mut bridge), 7, "the first has the rest of its burst");
}

#[test]
fn an_address_set_by_hand_is_nobody_else_s() {
    let (mut bridge, ports) = bridge(3);
    let gateway = Mac([2, 0, 0, 0, 0, 9]);
    bridge.set_address(gateway, ports[2]).expect("there is room");
    let mut send = |from: usize, source, destination| {
        bridge.handle_frame(at(1), ports[from], None, frame(source, destination, 10));
        run(&mut bridge, at(1)).iter().map(|(_, port, _)| port.index()).collect::<Vec<_>>()
    };
    assert_eq!(send(0, 9, 1), [0_usize; 0], "not from there");
    assert_eq!(send(0, 1, 9), [2]);
    assert_eq!(send(2, 9, 1), [0]);
    bridge.handle_gone(ports[0]);
    bridge.handle_frame(at(1), ports[2], None, frame(9, 1, 10));
    assert_eq!(run(&mut bridge, at(1)).len(), 2, "who was there is looked for");
}

#[test]
fn what_is_read_counts_as_the_class_counts_it_that_limits_it() {
    for (side, direction) in [(0, Direction::From), (1, Direction::To)] {
        for learnt in [true, false] {
            let (mut bridge, ports) = bridge(2);
            limit(&mut bridge, mbit(1_000), Mode::Gate, ports[side], direction);
            if learnt {
                bridge.join(ports[0], ports[1]);
            }
            // With the headers of every segment and without Ethernet's, whichever way the class looks at the frame.
            let counted = bridge.handle_frame(at(0), ports[0], None, super_packet(40 * 1_448));
            assert_eq!(counted, Bytes::new(40 * 1_488), "{direction:?}, learnt {learnt}");
        }
    }
}

#[test]
fn a_gate_is_told_what_its_own_class_counts() {
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    let mut limit = |mode, layer| {
        let id = bridge.add_limit(at(0), LimitSettings { rate: mbit(1_000), burst: Bytes::new(3_000), mode });
        let queue = ClassSettings::default();
        let class = BridgeClass { limits: vec![id], accounting: Accounting { layer, overhead: 0 }, queue };
        (id, bridge.add_class(&class))
    };
    let ((_, from), (gate, to)) = (limit(Mode::Pace, Layer::L1), limit(Mode::Gate, Layer::L3));
    let rule = |port: BridgePort, class| vec![Rule { port: Some(port.0), ..Rule::any(0, class) }];
    bridge.set_rules(rule(ports[0], from), rule(ports[1], to)).expect("sound rules");
    let source = bridge.add_source(Some(gate), None);
    let packet = || frame(1, 2, 1_000 - 40);
    assert_eq!(bridge.handle_frame(at(0), ports[0], Some(source), packet()), Bytes::new(1_000));
    assert_eq!(bridge.handle_frame(at(0), ports[0], None, packet()), Bytes::new(1_038));
}

#[test]
fn pieces_verify_once_their_sums_are_done() {
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    limit(&mut bridge, mbit(1), Mode::Pace, ports[1], Direction::To);
    bridge.handle_frame(at(0), ports[0], None, super_packet(10_000));
    for (_, _, mut packet) in run(&mut bridge, at(1_000_000_000)) {
        let mut offload = *packet.offload();
        assert!(crate::frame::checksum::finish(packet.bytes_mut(), &mut offload));
        assert!(checksums_verify(packet.bytes(), &Build::default().parse(packet.bytes())));
    }
}

/// Rates (none at all among them), bursts, room and rules, a thousand times while frames come at 100 Mbit/s: some from a queue that is
/// gated, some from nowhere that could be; for a third of them somebody waits until the last piece of them is gone.
#[test]
fn a_policy_that_changes_a_thousand_times_under_load_loses_nothing_uncounted() {
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    let ids = [Mode::Pace, Mode::Drop, Mode::Pace, Mode::Gate]
        .map(|mode| bridge.add_limit(at(0), LimitSettings { rate: mbit(50), burst: Bytes::new(3_000), mode }));
    let class = |limits: &[LimitId]| BridgeClass {
        limits: limits.to_vec(),
        accounting: Accounting::default(),
        queue: ClassSettings { queue_max: Bytes::new(60_000), ..ClassSettings::default() },
    };
    let classes = [&ids[..1], &ids[1..3], &ids[..3], &ids[3..]].map(|chain| bridge.add_class(&class(chain)));
    let source = bridge.add_source(Some(ids[3]), Some(Bytes::new(100_000)));
    bridge.handle_ready(source);
    let (mut handed, mut left, mut most, mut holds, mut gated) = (0, 0, Bytes::ZERO, Vec::new(), [0; 2]);
    for change in 0..1_000_u64 {
        let now = at(change * 1_000_000);
        let at_random = |n: u64| ((change * 2_654_435_761) >> 7) % n;
        let id = ids[at_random(4) as usize];
        bridge.set_rate(now, id, mbit([0, 1, 20, 90, 400][at_random(5) as usize]));
        bridge.set_burst(now, id, Bytes::new(1_514 + at_random(100_000)));
        bridge.set_queue_max(classes[at_random(4) as usize], Bytes::new(at_random(200_000)));
        let rule = Rule { port: Some(ports[0].0), ..Rule::any(0, classes[at_random(4) as usize]) };
        bridge.set_rules(vec![rule], vec![]).expect("sound rules");
        for n in 0..10_u8 {
            let now = now + Duration::from_micros(u64::from(n) * 100);
            let source = (n % 2 == 0).then_some(source);
            let may = source.is_none_or(|source| bridge.may_read(now, source).is_some());
            gated[usize::from(may)] += u64::from(source.is_some());
            if may {
                let mut packet = frame(n % 4, 9, 1_200);
                if n % 3 == 0 {
                    let hold: Arc<()> = Arc::new(());
                    holds.push(Arc::downgrade(&hold));
                    packet.set_hold(Some(hold));
                }
                let read = bridge.handle_frame(now, ports[0], source, packet);
                handed += 1;
                if let Some(source) = source {
                    bridge.handle_read(now, source, read, true);
                }
            }
            left += run(&mut bridge, now).len() as u64;
            most = most.max(bridge.memory());
        }
    }
    let end = at(1_000_000_000);
    ids.iter().for_each(|id| bridge.set_rate(end, *id, mbit(100)));
    left += run(&mut bridge, at(u64::MAX)).len() as u64;
    let c = *bridge.counters();
    assert_eq!((bridge.memory(), c.sent, c.received), (Bytes::ZERO, left, handed));
    assert_eq!(c.received, c.sent + c.limited, "{c:?}");
    assert!(c.sent > 1_000 && c.limited > 100 && most > Bytes::new(60_000), "{c:?}, at most {most}");
    assert!(gated.iter().all(|n| *n > 500), "the gate was open and closed: {gated:?}");
    let dropped = |id| {
        let counted = bridge.limit_counters(id, end);
        counted.dropped_rate + counted.dropped_room + counted.dropped_codel
    };
    assert!(ids.into_iter().map(dropped).sum::<u64>() >= c.limited, "each says why");
    assert!(ids.into_iter().all(|id| bridge.limit_counters(id, end).waiting == 0));
    let kept = holds.iter().filter(|hold| hold.upgrade().is_some()).count();
    assert!(holds.len() > 2_000 && kept == 0, "{kept} of {} senders wait still", holds.len());
}

/// A sender that keeps super-packets waiting for two seconds learns of it by single packets: of 40 the first.
#[test]
fn codel_drops_one_packet_of_a_super_packet() {
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    let id = bridge.add_limit(at(0), LimitSettings { rate: mbit(1_000), burst: Bytes::new(100_000), mode: Mode::Pace });
    let queue = ClassSettings::default();
    let class = bridge.add_class(&BridgeClass { limits: vec![id], accounting: Accounting::default(), queue });
    bridge.set_rules(vec![Rule { port: Some(ports[0].0), ..Rule::any(0, class) }], vec![]).expect("sound rules");
    let (mut whole, mut less) = (0, 0);
    for _ in 0..40 {
        bridge.handle_frame(at(0), ports[0], None, super_packet(40 * 1_448));
    }
    while let Some(due) = bridge.poll_at().filter(|due| *due <= at(2_000_000_000)) {
        while let Some((_, packet)) = bridge.poll_frame(due) {
            let frame = Frame::ethernet(packet.bytes()).expect("a packet");
            match frame.ip.expect("IP").payload_len() {
                len if len == 40 * 1_448 => whole += 1,
                len => {
                    assert_eq!(len, 39 * 1_448);
                    less += 1;
                }
            }
            bridge.handle_frame(due, ports[0], None, super_packet(40 * 1_448));
        }
    }
    let c = *bridge.counters();
    assert!(whole > 3_000 && (50..500).contains(&less), "{whole} {less}");
    assert_eq!((c.limited, c.added), (less, less));
    let counted = bridge.limit_counters(id, at(2_000_000_000));
    assert_eq!((counted.dropped_codel, counted.passed_bytes), (less, (40 * whole + 39 * less) * 1_488));
}

/// A limit that drops, of which more is asked than it has, and behind it a slower one that paces: what CoDel takes there the first one has
/// back, and lets as much more pass.
#[test]
fn what_codel_takes_of_a_super_packet_the_limit_before_has_back() {
    const SUPER: u64 = 40 * 1_488;
    let (mut bridge, ports) = bridge(2);
    bridge.join(ports[0], ports[1]);
    let mut add = |mode, rate| {
        let burst = Bytes::new(40 * SUPER);
        let id = bridge.add_limit(at(0), LimitSettings { rate, burst, mode });
        let queue = ClassSettings { queue_max: Bytes::new(u64::MAX), ..ClassSettings::default() };
        (id, bridge.add_class(&BridgeClass { limits: vec![id], accounting: Accounting::default(), queue }))
    };
    let (before, from) = add(Mode::Drop, mbit(1_000));
    let (after, to) = add(Mode::Pace, mbit(990));
    let of = |port: usize, class| vec![Rule { port: Some(ports[port].0), ..Rule::any(0, class) }];
    bridge.set_rules(of(0, from), of(1, to)).expect("sound rules");
    let whole = super_packet(40 * 1_448);
    for due in (0..4_000_000_000).step_by(400_000) {
        let mut packet = Packet::copy_of(whole.bytes());
        packet.set_offload(*whole.offload());
        bridge.handle_frame(at(due), ports[0], None, packet);
        while bridge.poll_frame(at(due)).is_some() {}
    }
    let [before, after] = [before, after].map(|id| bridge.limit_counters(id, at(4_000_000_000)));
    assert!(after.dropped_codel > 100 && after.dropped_room == 0 && before.dropped_rate > 100, "{after:?} {before:?}");
    let most = 500_000_000 + 40 * SUPER + after.dropped_codel * 1_488;
    assert!((most - 2 * SUPER..=most).contains(&before.passed_bytes), "{most} {before:?}");
}

/// A tenant has two ports and one limit: what comes by both is held to it, and each has half, by bytes and not by packets.
#[test]
fn one_limit_over_two_ports_holds_their_sum_and_gives_each_half() {
    for direction in [Direction::From, Direction::To] {
        let (mut bridge, ports) = bridge(3);
        let settings = LimitSettings { rate: mbit(8), burst: Bytes::new(3_000), mode: Mode::Pace };
        let id = bridge.add_limit(at(0), settings);
        let rules = [0, 1].map(|port: usize| {
            let queue = ClassSettings { queue_max: Bytes::new(20_000), codel: None, ..ClassSettings::default() };
            let class = BridgeClass { limits: vec![id], accounting: Accounting::default(), queue };
            Rule { port: Some(ports[port].0), ..Rule::any(0, bridge.add_class(&class)) }
        });
        let (from, to) = if direction == Direction::From { (rules.to_vec(), vec![]) } else { (vec![], rules.to_vec()) };
        bridge.set_rules(from, to).expect("sound rules");
        for mac in 0..3 {
            bridge.set_address(Mac([2, 0, 0, 0, 0, mac]), ports[usize::from(mac)]).expect("there is room");
        }
        // Each offers 12 Mbit/s for two seconds: 1,500 bytes a millisecond, and six times 250.
        let mut passed = [0_u64; 2];
        for step in 0..12_000_u64 {
            let now = at(step * 166_667);
            let mut offer = |tenant: u8, payload| {
                let (source, destination) = if direction == Direction::From { (tenant, 2) } else { (2, tenant) };
                bridge.handle_frame(now, ports[usize::from(source)], None, frame(source, destination, payload));
            };
            offer(1, 210);
            if step % 6 == 0 {
                offer(0, 1_460);
            }
            for (_, _, packet) in run(&mut bridge, now) {
                let tenant = packet.bytes()[if direction == Direction::From { 11 } else { 5 }];
                passed[usize::from(tenant)] += packet.size().as_u64() - 14;
            }
        }
        let [one, other] = passed;
        assert!((one + other).abs_diff(2_000_000) <= 3_000 + 1_500, "{direction:?}: {one} + {other}");
        assert!(one.abs_diff(other) <= 2 * 1_500 + 3_000, "{direction:?}: {one} and {other}");
        assert_eq!(bridge.limit_counters(id, at(2_000_000_000)).passed_bytes, one + other);
    }
}

/// The article's limiter on what goes to a port, from wherever: one instant decides, and until what passed is repaid nobody passes.
#[test]
fn the_article_s_inbound_limiter_passes_all_or_drops_all() {
    let (mut bridge, ports) = bridge(3);
    bridge.set_address(Mac([2, 0, 0, 0, 0, 9]), ports[2]).expect("there is room");
    let id = limit(&mut bridge, mbit(8), Mode::Borrow, ports[2], Direction::To);
    // Of 1,000 bytes each, a millisecond's worth, from two ports in turn, four in a millisecond.
    let mut passed = Vec::new();
    for step in 0..40_u64 {
        let now = at(step * 250_000);
        bridge.handle_frame(now, ports[step as usize % 2], None, frame(1 + (step % 2) as u8, 9, 960));
        passed.extend(run(&mut bridge, now).iter().map(|_| step));
    }
    assert_eq!(passed, (0..40).step_by(4).collect::<Vec<u64>>());
    let counters = bridge.limit_counters(id, at(10_000_000));
    assert_eq!((counters.passed_packets, counters.dropped_rate, counters.waiting), (10, 30, 0));
    // Idle time earns nothing.
    let later = at(50_000_000);
    (0..5).for_each(|_| _ = bridge.handle_frame(later, ports[0], None, frame(1, 9, 960)));
    assert_eq!(run(&mut bridge, later).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever comes in is sent, counted as dropped, or waits.
    #[test]
    fn every_frame_is_accounted_for(
        frames in prop::collection::vec((0_usize..3, 0_u8..4, 0_u8..4, 0_usize..1_400, 0_u64..300_000, 0_u8..8), 1..200),
        modes in prop::collection::vec(0_usize..4, 3),
    ) {
        let (mut bridge, ports) = bridge(3);
        let modes = modes.iter().map(|mode| [Mode::Pace, Mode::Drop, Mode::Gate, Mode::Borrow][*mode]);
        let ids: Vec<_> = modes.map(|mode| bridge.add_limit(at(0), LimitSettings { rate: mbit(5), burst: Bytes::new(3_000), mode })).collect();
        let queue = ClassSettings { queue_max: Bytes::new(20_000), ..ClassSettings::default() };
        let class = |limits: Vec<LimitId>| BridgeClass { limits, accounting: Accounting::default(), queue };
        let first = bridge.add_class(&class(vec![ids[0], ids[1]]));
        let second = bridge.add_class(&class(vec![ids[2], ids[0]]));
        let rules = |port: BridgePort, class| vec![Rule { port: Some(port.0), ..Rule::any(0, class) }];
        bridge.set_rules(rules(ports[0], first), rules(ports[1], second)).expect("sound rules");
        let mut now = at(0);
        let mut left = 0;
        let mut malformed = [0; 3];
        for (from, source, destination, payload, wait, what) in frames {
            now += Duration::from_nanos(wait);
            let packet = match what {
                0 => Packet::copy_of(&[0; 5]),
                1 => super_packet(payload * 20 + 1),
                _ => frame(source, destination, payload),
            };
            malformed[from] += u64::from(what == 0);
            bridge.handle_frame(now, ports[from], None, packet);
            left += run(&mut bridge, now).len() as u64;
        }
        left += run(&mut bridge, at(u64::MAX)).len() as u64;
        let c = *bridge.counters();
        prop_assert_eq!((bridge.memory(), c.sent), (Bytes::ZERO, left));
        let dropped: Vec<Dropped> = ports.iter().map(|port| bridge.dropped(*port)).collect();
        let sum: u64 = dropped.iter().map(|dropped| dropped.malformed + dropped.filtered).sum();
        prop_assert_eq!(c.received + c.added, c.sent + c.limited + sum, "{:?} {:?}", c, dropped);
        prop_assert_eq!(dropped.iter().map(|dropped| dropped.malformed).collect::<Vec<_>>(), malformed);
    }
}
