use std::net::IpAddr;

use proptest::prelude::*;
use weirgate_sockets::sample::mapped;
use weirgate_tune::Refusal;
use weirgate_tune::decision::{Decision, Effects, Round, Stats, What, Why};
use weirgate_units::{BitRate, Bytes};

use super::*;
use crate::view;
use crate::view::Order;

fn at(seconds: u64) -> UnixTime {
    UnixTime::from_nanos(1_700_000_000_000_000_000 + seconds * 1_000_000_000)
}

fn sample(client: &str, acked: u64) -> Sample {
    let client: IpAddr = client.parse().unwrap();
    let mut sample = Sample {
        state: state::ESTABLISHED,
        remote: mapped(client),
        cc: CcName::new("cubic").unwrap(),
        bytes_acked: acked,
        bytes_sent: acked + acked / 10,
        bytes_retrans: acked / 10,
        rtt_us: 20_000,
        min_rtt_us: 10_000,
        ..Sample::default()
    };
    sample.set_given(Field::TcpInfo);
    sample.set_given(Field::MinRttUs);
    sample
}

fn closed(client: &str, acked: u64) -> Sample {
    Sample { kind: Kind::Close as u8, ..sample(client, acked) }
}

fn handle(collector: &mut Collector, samples: &[Sample]) {
    for sample in samples {
        collector.handle_record(&Record {
            sample,
            time: at(0),
            sequence: 0,
            direction: Direction::Accepted,
            listener_port: 443,
            delivery_rate_max: 0,
            network: Prefix::client_network(sample.remote().ip()),
            asn: 0,
            country: [0; 2],
        });
    }
}

fn poll(collector: &mut Collector, second: u64, samples: &[Sample]) {
    handle(collector, samples);
    collector.handle_poll_end(end(second, true));
}

fn end(second: u64, complete: bool) -> PollEnd {
    PollEnd { now: at(second), took: Duration::from_millis(3), bytes: 99, complete }
}

fn round(number: u32, decisions: Vec<Decision>) -> Round {
    Round {
        number,
        time: at(300 * u64::from(number)),
        policy: None,
        refusal: None,
        quiet: None,
        halted: None,
        decisions,
        stats: Stats::default(),
        effects: Effects::default(),
    }
}

fn goodput(shared: &Shared, network: &str) -> Option<u64> {
    let networks = shared.networks(at(0), Order::Name, 100).networks;
    networks.into_iter().find(|row| row.name == network).expect("the network is shown").goodput_bits_per_s
}

#[test]
fn goodput_is_what_open_and_closed_connections_delivered_between_two_polls() {
    let (mut collector, shared) = view::new(api::Facts::default());
    poll(&mut collector, 0, &[sample("192.0.2.1", 1_000_000), sample("192.0.2.2", 500), sample("2001:db8::1", 7)]);
    assert_eq!(goodput(&shared, "192.0.2.0/24"), None, "nothing to compare the first poll with");
    assert_eq!(shared.status(at(0)).totals.goodput_bits_per_s, None);

    // One goes on, one closes after 1,500 bytes more, a new one delivers 2,000 and closes between the polls.
    handle(&mut collector, &[closed("192.0.2.2", 2_000), closed("192.0.2.3", 2_000)]);
    poll(&mut collector, 2, &[sample("192.0.2.1", 1_010_000), sample("2001:db8::1", 7)]);
    assert_eq!(goodput(&shared, "192.0.2.0/24"), Some((10_000 + 1_500 + 2_000) * 8 / 2));
    assert_eq!(goodput(&shared, "2001:db8::/56"), Some(0));
    let status = shared.status(at(2));
    assert_eq!(status.totals.goodput_bits_per_s, Some(54_000));
    assert_eq!(status.totals.acked_bytes, 13_500);
    assert_eq!((status.totals.connections, status.totals.networks, status.totals.close_records), (2, 2, 2));
}

#[test]
fn a_close_read_after_the_poll_is_made_up_for_in_the_next() {
    let (mut collector, shared) = view::new(api::Facts::default());
    poll(&mut collector, 0, &[sample("192.0.2.1", 1_000), sample("192.0.2.2", 100)]);
    // .1 is gone, its close is not read yet: the sum falls short by 1,000.
    poll(&mut collector, 1, &[sample("192.0.2.2", 100)]);
    assert_eq!(goodput(&shared, "192.0.2.0/24"), Some(0));
    handle(&mut collector, &[closed("192.0.2.1", 1_200)]);
    poll(&mut collector, 2, &[sample("192.0.2.2", 100)]);
    assert_eq!(goodput(&shared, "192.0.2.0/24"), Some(200 * 8));
}

#[test]
fn a_vanished_connection_hides_others_for_two_polls_at_most() {
    let (mut collector, shared) = view::new(api::Facts::default());
    poll(&mut collector, 0, &[sample("192.0.2.1", 1_000_000), sample("192.0.2.2", 0)]);
    for second in 1..4 {
        poll(&mut collector, second, &[sample("192.0.2.2", second * 1_000)]);
    }
    assert_eq!(goodput(&shared, "192.0.2.0/24"), Some(8_000));
}

#[test]
fn an_incomplete_poll_is_dropped_and_its_closes_are_kept() {
    let (mut collector, shared) = view::new(api::Facts::default());
    poll(&mut collector, 0, &[sample("192.0.2.1", 1_000), sample("192.0.2.2", 1_000)]);
    handle(&mut collector, &[sample("192.0.2.1", 1_500), closed("192.0.2.2", 1_300)]);
    collector.handle_poll_end(end(1, false));
    assert_eq!(shared.status(at(1)).totals.connections, 2, "the last complete poll stays");
    poll(&mut collector, 2, &[sample("192.0.2.1", 2_000)]);
    assert_eq!(goodput(&shared, "192.0.2.0/24"), Some((1_000 + 300) * 8 / 2));
}

#[test]
fn listeners_handshakes_and_time_wait_are_not_connections() {
    let (mut collector, shared) = view::new(api::Facts::default());
    let other = |state| Sample { state, given: 0, ..sample("192.0.2.1", 0) };
    let states = [state::LISTEN, state::SYN_RECV, state::SYN_SENT, state::TIME_WAIT, state::TIME_WAIT];
    poll(&mut collector, 0, &states.map(other));
    let totals = shared.status(at(0)).totals;
    assert_eq!((totals.connections, totals.networks, totals.poll_records), (0, 0, 5));
}

#[test]
fn rates_are_of_connections_that_send_and_are_not_app_limited() {
    let (mut collector, shared) = view::new(api::Facts::default());
    let sending = Sample { unacked: 5, delivery_rate: 1_000_000, ..sample("192.0.2.1", 1) };
    let idle = Sample { unacked: 0, delivery_rate: 7, ..sending };
    let limited = Sample { flags: flag::APP_LIMITED, delivery_rate: 7, ..sending };
    let samples = [sending, idle, limited];
    poll(&mut collector, 0, &samples);
    poll(&mut collector, 11, &samples);
    let row = shared.networks(at(11), Order::Goodput, 1).networks.remove(0);
    assert_eq!(row.delivery_rate_bits_per_s, Some(8_000_000));
    assert_eq!((row.connections, row.sending, row.rtt_us, row.min_rtt_us), (3, 2, Some(20_000), Some(10_000)));
    let point = shared.history(at(11), false).points.pop().unwrap();
    let rates = point.delivery_rate_bits_per_s.unwrap();
    assert_eq!(rates.count, 2);
    assert!(rates.p50.abs_diff(8_000_000) * 64 <= 8_000_000);
    assert_eq!(point.connections, 3);
}

#[test]
fn the_table_is_bounded_and_the_rest_is_other() {
    let (mut collector, shared) = view::new(api::Facts::default());
    let client = |n: usize| format!("10.{}.{}.1", n >> 8, n & 255);
    let many = |acked| (0..NETWORKS_MAX + 50).map(|n| sample(&client(n), acked)).collect::<Vec<_>>();
    poll(&mut collector, 0, &many(0));
    poll(&mut collector, 1, &many(1_000));
    let networks = shared.networks(at(1), Order::Goodput, usize::MAX);
    assert_eq!(networks.networks.len(), NETWORKS_MAX);
    let other = networks.other.unwrap();
    assert_eq!((other.connections, other.goodput_bits_per_s), (50, Some(50 * 8_000)));
    let totals = shared.status(at(1)).totals;
    assert_eq!(totals.goodput_bits_per_s, Some((NETWORKS_MAX as u64 + 50) * 8_000));

    // Quiet networks make room; what moves out of `other` has no goodput once, and no false one.
    let rest: Vec<_> = (10..NETWORKS_MAX + 50).map(|n| sample(&client(n), 2_000)).collect();
    let mut promoted = Vec::new();
    for second in 2..20 {
        poll(&mut collector, second, &rest);
        let now = shared.networks(at(second), Order::Goodput, usize::MAX);
        promoted.extend(now.networks.iter().filter(|row| row.goodput_bits_per_s.is_none()).map(|row| row.name.clone()));
        let most = if second == 2 { 8_000 } else { 0 };
        assert!(now.networks.iter().all(|row| row.goodput_bits_per_s.unwrap_or(0) <= most));
    }
    assert_eq!(promoted.len(), 10);
}

#[test]
fn congestion_controls_are_counted_and_bounded() {
    let (mut collector, shared) = view::new(api::Facts::default());
    let names = ["bbr", "bbr", "cubic", "a", "b", "c", "d", "e", "f", "g"];
    let samples = names.map(|name| Sample { cc: CcName::new(name).unwrap(), ..sample("192.0.2.1", 0) });
    poll(&mut collector, 0, &samples);
    let row = shared.networks(at(0), Order::Goodput, 1).networks.remove(0);
    let first = &row.congestion_controls[0];
    assert_eq!(row.congestion_controls.iter().map(|share| share.connections).sum::<u64>(), 10);
    assert!(row.congestion_controls.iter().any(|share| (share.name.as_str(), share.connections) == ("bbr", 2)));
    assert!(first.connections == 2 && row.congestion_controls.iter().any(|share| share.name == "other"));
}

#[test]
fn a_round_shows_one_vote_per_connection_and_decisions_newest_first() {
    let (mut collector, shared) = view::new(api::Facts { rules: vec!["worst".to_owned()], ..api::Facts::default() });
    let vote = |acked| Progress {
        client: "192.0.2.1".parse().unwrap(),
        local_port: 443,
        direction: Direction::Accepted,
        cc: CcName::new("cubic").unwrap(),
        arm: Arm::None,
        acked: Bytes::new(acked),
        sent: Bytes::new(acked),
        retransmitted: Bytes::new(acked / 100),
        busy: Duration::from_secs(1),
        rwnd_limited: Duration::ZERO,
        sndbuf_limited: Duration::ZERO,
        delivery_rate: Some(BitRate::ZERO),
        min_rtt: Duration::from_millis(30),
        closed: false,
    };
    [9_999, 1_000_000, 1_000_000].iter().for_each(|acked| collector.handle_progress(&vote(*acked)));
    collector.handle_progress(&Progress { direction: Direction::Connected, ..vote(1_000_000) });
    collector.handle_round_end(at(300));
    let votes = shared.history(at(300), true).rounds.pop().unwrap();
    let goodput = votes.goodput_bits_per_s.unwrap();
    assert_eq!(goodput.count, 2);
    assert!(goodput.p10.abs_diff(8_000_000) * 64 <= 8_000_000);
    assert!(votes.retransmit_ppm.unwrap().p50.abs_diff(10_000) * 64 <= 10_000);

    let decision = |network: &str| Decision {
        network: network.parse().unwrap(),
        what: What::Select(CcName::new("bbr").unwrap()),
        why: Why::Consistent { rule: 0, duty: 0.9, flaps: 0.0, known: 12 },
    };
    for number in 1..=600 {
        let decisions = vec![decision("192.0.2.0/24"), decision("198.51.100.0/24")];
        shared.handle_round(&round(number, decisions));
    }
    let decisions = shared.decisions(at(300), usize::MAX);
    assert_eq!((decisions.total, decisions.decisions.len()), (1_200, 1_000));
    let first = &decisions.decisions[0];
    assert_eq!(first.network.as_deref(), Some("192.0.2.0/24"));
    assert!(first.why.contains("of rule `worst` in 90 % of 12 known rounds"), "{}", first.why);
    assert!(first.round == 600 && decisions.decisions[999].round == 101);
    poll(&mut collector, 301, &[sample("192.0.2.1", 0)]);
    let row = shared.networks(at(301), Order::Goodput, 1).networks.remove(0);
    assert_eq!(row.decision.as_deref(), Some("select bbr"));
}

#[test]
fn a_round_without_clients_is_said_to_be_and_is_not_refused() {
    let (_, shared) = view::new(api::Facts::default());
    shared.handle_round(&Round { quiet: Some(Refusal::NothingSeen), ..round(1, Vec::new()) });
    let shown = shared.status(at(300)).round.unwrap();
    assert_eq!(shown.refusal, None);
    assert!(shown.quiet.unwrap().starts_with("nothing was seen in this round"));
    assert!(crate::metrics::text(&shared, at(300)).contains("weirgate_last_round_refused 0"));
}

proptest! {
    /// Whatever order connections open, deliver and close in, the sum over networks is the host's, and the host's total is
    /// what was delivered after the first poll.
    #[test]
    fn nothing_delivered_is_shown_twice_or_not_at_all(
        steps in prop::collection::vec(prop::collection::vec((0u8..12, 0u64..50_000, prop::bool::weighted(0.2)), 0..20), 2..12)
    ) {
        let (mut collector, shared) = view::new(api::Facts::default());
        let mut open = [None::<u64>; 12];
        let mut delivered = 0;
        for (second, step) in steps.iter().enumerate() {
            let mut this_step = 0;
            for (connection, bytes, close) in step {
                let client = format!("192.0.{}.1", connection / 2);
                let total = open[*connection as usize].unwrap_or(0) + bytes;
                this_step += bytes;
                open[*connection as usize] = Some(total);
                if *close {
                    handle(&mut collector, &[closed(&client, total)]);
                    open[*connection as usize] = None;
                }
            }
            let samples: Vec<_> = open.iter().enumerate()
                .filter_map(|(n, acked)| Some(sample(&format!("192.0.{}.1", n / 2), (*acked)?)))
                .collect();
            poll(&mut collector, second as u64, &samples);
            if second > 0 {
                delivered += this_step;
                let networks = shared.networks(at(0), Order::Goodput, 100).networks;
                let sum: u64 = networks.iter().map(|row| row.goodput_bits_per_s.unwrap_or(0)).sum();
                prop_assert_eq!(sum, this_step * 8);
            }
            prop_assert_eq!(shared.status(at(0)).totals.acked_bytes, delivered);
        }
    }
}
