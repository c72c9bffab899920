use std::path::Path;

use super::*;

/// Two leaves with two hosts each, one spine: 10 Gbit/s to hosts, 20 between switches, 500 ns on each link.
fn outcome(trace: &str, more: &str) -> (Outcome, String) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("trace.csv"), trace).unwrap();
    let text = format!(
        "[topology]\nspines = 1\nleaves = 2\nhosts = 2\nedge = \"10 Gbit/s\"\ncore = \"20 Gbit/s\"\n[balance]\nscheme = \"ecmp\"\n\
         [workload]\nkind = \"trace\"\nfile = \"trace.csv\"\n{more}"
    );
    let scenario = Scenario::parse(&text, folder.path()).unwrap();
    let mut simulation = scenario.simulation().unwrap();
    assert!(!simulation.run_until(scenario.end()), "it does not end");
    let wall = Wall { warm_up: Duration::from_secs(1), measured: Duration::from_secs(2) };
    let mut csv = Vec::new();
    write_flows(&simulation, &scenario, &mut csv).unwrap();
    (Outcome::of(&simulation, &scenario, Ended::Finished, wall), String::from_utf8(csv).unwrap())
}

/// Of 1,460 bytes: 1,538 on the wire, 1.2304 us at 10 Gbit/s and 0.6152 at 20.
const FULL_US: f64 = 2.0 * 1.2304 + 2.0 * 0.6152 + 4.0 * 0.5;

#[test]
fn a_flow_alone_is_as_fast_as_it_can_be() {
    let (outcome, csv) = outcome("5,0,2,1460\n", "");
    let only = |value: f64| Estimate { value, interval: None };
    assert_eq!(outcome.times.flows, 1);
    assert!((outcome.times.fct_us.mean.unwrap().value - FULL_US).abs() < 1e-9, "{outcome:?}");
    assert_eq!((outcome.times.slowdown.mean, outcome.times.slowdown.p99), (Some(only(1.0)), None));
    let picos = (FULL_US * 1e6).round();
    assert_eq!(csv.lines().nth(1).unwrap(), format!("5000000,0,2,0,1460,{picos},{picos},0,0,0,0,0,0,1"));
    // The segment, and its ACK of 84 bytes, 67.2 and 33.6 ns, which is all that happens.
    let names: Vec<&str> = outcome.hops.iter().map(|hop| hop.hop.as_str()).collect();
    assert_eq!(names, ["host", "up 0", "down 1", "edge"]);
    assert!(outcome.hops.iter().all(|hop| (hop.packets, hop.dropped, hop.lost, hop.wait_mean_us) == (2, 0, 0, 0.0)));
    assert_eq!((outcome.speed.packet_hops, outcome.speed.packet_hops_per_s, outcome.speed.wall_s), (8, 4.0, 3.0));
    let secs = (5.0 + FULL_US + 2.0 * 0.0672 + 2.0 * 0.0336 + 2.0) / 1e6;
    assert!((outcome.speed.simulated_s - secs).abs() < 1e-12, "{outcome:?}");
    assert!((outcome.goodput_bits_per_s - 1_460.0 * 8.0 / secs).abs() < 1e-3, "{outcome:?}");
    // One of two uplinks carries the segment, the other one the ACK.
    let Use { mean_share, min_share, max_share } = outcome.uplinks.unwrap();
    assert!(
        (max_share - 1_538.0 * 8.0 / 20e9 / secs).abs() < 1e-12 && (min_share - 84.0 * 8.0 / 20e9 / secs).abs() < 1e-12
    );
    assert!((mean_share - f64::midpoint(min_share, max_share)).abs() < 1e-12);
    assert_eq!((outcome.sent_again, outcome.timeouts, outcome.batches, outcome.batch_bytes_mean), (0, 0, 1, 1_460.0));
    assert_eq!((outcome.dup_acks_1, outcome.dup_acks_3), (DupAcks::default(), DupAcks::default()));
    assert!(outcome.classes.is_empty() && outcome.no_route == 0);
}

/// Two hosts of a leaf send to the same one at once: of equal packets, one waits for the other before the last link, 1.2304 us less
/// what the core has held it back already.
#[test]
fn what_waits_is_counted_where_it_waits() {
    let (outcome, _) = outcome("0,0,2,1460\n0,1,2,1460\n", "[switch]\nsample_every = \"1 us\"\n");
    let waits: Vec<f64> = outcome.hops.iter().map(|hop| hop.wait_mean_us * hop.packets as f64).collect();
    assert!((waits[1] - 0.6152).abs() < 1e-9 && (waits[3] - 0.6152).abs() < 1e-9, "{waits:?}");
    let mean = outcome.times.fct_us.mean.unwrap();
    assert!((mean.value - (FULL_US + 1.2304 / 2.0)).abs() < 1e-9, "{mean:?}");
    // Of two values, the deviation of the mean is half their difference; none is below 0.
    let [low, high] = mean.interval.unwrap();
    assert!(low == 0.0 && (high - mean.value - 12.706 * 1.2304 / 2.0).abs() < 1e-9, "{mean:?}");
    // One uplink for each leaf is neither even nor uneven.
    assert_eq!(outcome.queues_up.unwrap().deviation_bytes, None);
    let below = outcome.queues_up.unwrap().below_packet_share;
    assert!(0.9 < below && below < 1.0, "{below}");
}

/// Twenty segments at once, in turns, to a link that takes them half as fast and has room for six: what is left of each flow tells of it.
#[test]
fn a_loss_is_told_from_overtaking() {
    let starts: String = (0..2).map(|host| format!("0.{host},{host},2,43800\n")).collect();
    let (outcome, _) = outcome(&starts, "[switch]\nbuffer = \"10 KB\"\n[tcp]\nmin_rto = \"5 ms\"\n");
    let dropped: Vec<u64> = outcome.hops.iter().map(|hop| hop.dropped).collect();
    assert!(dropped[..3] == [0, 0, 0] && dropped[3] > 0 && outcome.sent_again >= dropped[3], "{outcome:?}");
    // The other flow lost all that came after its first segments: nobody told it.
    assert_eq!(outcome.dup_acks_1, DupAcks { flows: 1, lossy: 1, short_last: 0, reordered: 0 }, "{outcome:?}");
    assert_eq!(outcome.timeouts, 2);
}

#[test]
fn flows_are_told_apart_by_what_their_duplicate_acks_are_of() {
    let flow = |lost, dup_acks, dup_acks_of_short_last| Finished {
        bytes: 1,
        time: Span::ZERO,
        began: Time::ZERO,
        source: 0,
        destination: 1,
        class: 0,
        lost,
        dup_acks,
        dup_acks_of_short_last,
        dup_ack_row: dup_acks,
        sent_again: 0,
        timeouts: 0,
        batches: 1,
    };
    let flows = [flow(0, 0, 0), flow(1, 0, 0), flow(1, 4, 0), flow(0, 1, 1), flow(0, 2, 1), flow(0, 5, 0)];
    assert_eq!(dup_acks(&flows, 1), DupAcks { flows: 4, lossy: 1, short_last: 1, reordered: 2 });
    assert_eq!(dup_acks(&flows, 3), DupAcks { flows: 2, lossy: 1, short_last: 0, reordered: 1 });
}

#[test]
fn it_is_read_as_it_was_written() {
    let (outcome, _) = outcome("0,0,2,1460\n0,1,2,1460\n", "");
    let text = serde_json::to_string(&outcome).unwrap();
    assert_eq!(serde_json::from_str::<Outcome>(&text).unwrap(), outcome);
}

#[test]
fn an_incast_is_a_class_of_its_own() {
    let text = "[topology]\nspines = 2\nleaves = 2\nhosts = 4\ncore = \"20 Gbit/s\"\n[workload]\nsizes = \"10 KB\"\nload = 0.2\n\
                [incast]\nclients = 1\nservers = 3\n[run]\nwarm_up = \"0 s\"\nflows = 400\n";
    let scenario = Scenario::parse(text, Path::new("")).unwrap();
    let ran = crate::fabric::run::run(&scenario, &std::sync::atomic::AtomicBool::new(false), &mut |_| ()).unwrap();
    let outcome = ran.outcome(&scenario);
    let flows: Vec<(u8, u64)> = outcome.classes.iter().map(|(class, times)| (*class, times.flows)).collect();
    assert!(flows.len() == 2 && flows[0].1 + flows[1].1 == 400 && flows[1].1 > 10, "{flows:?}");
    assert!(outcome.times.fct_us.p50.is_some() && outcome.times.fct_us.p99.is_none(), "400 flows have four above p99");
    assert_eq!((outcome.flows.asked, outcome.flows.finished), (Some(400), 400));
}
