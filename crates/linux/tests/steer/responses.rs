//! What is a response, and under what it is sent.

use std::io::Read;

use weirgate_linux::bpf::Steering;
use weirgate_sockets::sample::CcName;

use super::ground::{CHOSEN, Client, EVERYBODY, Ground, OWN, SWITCH_AFTER, policy};
use super::witness::Witness;

/// Asserts that a response at `start..end` of the stream was switched, after the threshold and not past its end.
#[track_caller]
fn assert_switched(witness: &Witness, client: &Client, start: u64, end: u64) {
    let span = witness.span(client.port()).expect("the large response was switched");
    assert!(span.0 >= start + SWITCH_AFTER && span.1 <= end, "{span:?} of {start}..{end}");
}

#[track_caller]
fn assert_not_switched(witness: &Witness, client: &Client) {
    assert_eq!(witness.span(client.port()), None);
}

/// The scripted server behind a link of `mbit`, steered for everybody, with somebody who watches what leaves.
fn steered(mbit: u32) -> Option<(Ground, Steering, Witness)> {
    let mut ground = Ground::new(mbit)?;
    let steering = ground.steer();
    let witness = Witness::attach(&ground);
    ground.serve();
    Some((ground, steering, witness))
}

#[test]
fn only_large_responses_are_switched_and_all_go_back() {
    let Some((ground, steering, witness)) = steered(50) else { return };
    let mut client = ground.connect("10.99.0.1");
    let mut at = 0;
    for _round in 0..3 {
        for size in [20_000, 90_000, 99_999] {
            client.fetch(size);
            at += size as u64;
        }
        assert_not_switched(&witness, &client);
        client.fetch(1_000_000);
        assert_switched(&witness, &client, at, at + 1_000_000);
        at += 1_000_000;
    }
    assert_eq!(client.cc(), OWN);
    client.fetch(95_000);
    assert_not_switched(&witness, &client);
    let counters = steering.counters().unwrap();
    assert_eq!((counters.switched, counters.returned), (3, 3));
    assert_eq!((counters.violations, counters.failed, counters.exempt), (0, 0, 0));
}

#[test]
fn pipelined_requests_are_one_response_until_the_queue_is_empty() {
    let Some((ground, steering, witness)) = steered(50) else { return };
    let mut client = ground.connect("10.99.0.1");
    // Small ones first: together they stay below the threshold.
    client.send("send 20000\nsend 20000\nsend 20000");
    client.read(60_000);
    assert_not_switched(&witness, &client);
    // A small one behind a large one, in one train: what follows without a gap belongs to it.
    client.send("send 1000000\nsend 20000");
    client.read(1_020_000);
    assert_switched(&witness, &client, 60_000, 1_080_000);
    // The next request finds the connection on its own algorithm.
    client.fetch(90_000);
    assert_not_switched(&witness, &client);
    assert_eq!(steering.counters().unwrap().violations, 0);
}

#[test]
fn a_slow_producer_does_not_begin_a_response_by_pausing() {
    let Some((ground, steering, witness)) = steered(50) else { return };
    let mut client = ground.connect("10.99.0.1");
    client.fetch(50_000);
    // The queue is empty in each pause. The threshold is passed within the second part, and the third is sent switched.
    client.send("send 60000; pause 300; send 60000; pause 300; send 300000; pause 300; send 60000");
    client.read(480_000);
    let span = witness.span(client.port()).expect("a streamed response is as large as its parts together");
    assert!(span.0 >= 150_000 && span.1 <= 530_000, "{span:?}");
    client.fetch(90_000);
    assert_not_switched(&witness, &client);
    let counters = steering.counters().unwrap();
    assert_eq!((counters.boundaries, counters.violations), (2, 0), "{counters:?}");
}

#[test]
fn what_is_received_during_a_response_does_not_begin_one() {
    let Some((ground, steering, witness)) = steered(20) else { return };
    let mut client = ground.connect("10.99.0.1");
    // As a client that sends window updates: thirty little messages during one response of 600 KB, none 100 KB apart.
    client.send("send 600000");
    for _part in 0..30 {
        client.send("");
        client.read(20_000);
    }
    assert_switched(&witness, &client, 0, 600_000);
    // An upload of 1 MB during a response of 1 MB.
    client.send("send 1000000");
    let upload = client.stream.try_clone().unwrap();
    let sender = std::thread::spawn(move || Client { stream: upload }.send(&" ".repeat(1_000_000)));
    client.read(1_000_000);
    sender.join().unwrap();
    assert_switched(&witness, &client, 600_000, 1_600_000);
    assert_eq!(steering.counters().unwrap().violations, 0);
}

#[test]
fn window_updates_do_not_begin_responses_of_a_stream_that_pauses() {
    /// What the link carries as one: ten segments, 116 ms, so that a client that is late still answers before the next one has come.
    const CHUNK: usize = 10 * 1_448;
    let Some((ground, steering, witness)) = steered(1) else { return };
    ground.run('s', "ip link set veth0 gso_max_segs 10");
    let mut client = ground.connect("10.99.0.1");
    // A server that answers at once delays its acknowledgements: no packet leaves when the few bytes come.
    for _request in 0..8 {
        client.fetch(1_000);
    }
    // The queue is empty in each pause, and each part is answered by a few bytes when its last chunk was sent and has not come.
    let part = format!("send {}; pause 800", 4 * CHUNK);
    client.send(&format!("{part}; {part}; {part}; send 300000"));
    for _part in 0..3 {
        client.read(2 * CHUNK + 1);
        client.send("");
        client.read(2 * CHUNK - 1);
    }
    client.read(300_000);
    let (before, all) = (8_000, 8_000 + 12 * CHUNK as u64 + 300_000);
    let span = witness.span(client.port()).expect("together the parts are large");
    assert!(span.0 >= before + SWITCH_AFTER && span.1 <= all, "{span:?}");
    // The next request begins the next response.
    client.fetch(90_000);
    assert_not_switched(&witness, &client);
    let counters = steering.counters().unwrap();
    assert_eq!((counters.boundaries, counters.violations), (9, 0), "{counters:?}");
}

#[test]
fn an_upload_is_a_request() {
    let Some((ground, steering, witness)) = steered(50) else { return };
    let mut client = ground.connect("10.99.0.1");
    // 100-continue, 2 MB up, a small answer; twice, so that the answers together pass the threshold.
    for _post in 0..2 {
        client.send("send 25; read 2000000; send 80000");
        client.read(25);
        client.send(&" ".repeat(1_999_999));
        client.read(80_000);
    }
    assert_not_switched(&witness, &client);
    // The same with a large answer.
    client.send("send 25; read 2000000; send 800000");
    client.read(25);
    client.send(&" ".repeat(1_999_999));
    client.read(800_000);
    assert_switched(&witness, &client, 160_075, 960_075);
    assert_eq!(steering.counters().unwrap().violations, 0);
}

#[test]
fn staying_is_for_the_connections_life() {
    let Some(mut ground) = Ground::new(50) else { return };
    let mut steering = ground.attach();
    let mut policy = policy(1, EVERYBODY);
    policy.stay = true;
    steering.apply(&policy, &[ground.server_again()]).unwrap();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(20_000);
    assert_eq!(client.cc(), OWN);
    client.fetch(1_000_000);
    assert_eq!(client.cc(), CHOSEN);
    client.fetch(20_000);
    assert_eq!(client.cc(), CHOSEN);
    assert_eq!(ground.connect("10.99.0.1").cc(), OWN);
    let counters = steering.counters().unwrap();
    assert_eq!((counters.switched, counters.returned), (1, 0));
}

#[test]
fn losses_without_timestamps_leave_nothing_switched() {
    let Some(mut ground) = Ground::new(50) else { return };
    // No RTT sample is taken of what was sent twice (Karn), so the kernel's callback may stay out.
    ground.run('s', "sysctl -q -w net.ipv4.tcp_timestamps=0");
    ground.run('c', "sysctl -q -w net.ipv4.tcp_timestamps=0");
    // A queue of four packets drops the tail of nearly every train.
    ground.run('s', "tc qdisc replace dev veth0 root tbf rate 50mbit burst 3kb limit 9kb");
    let steering = ground.steer();
    let witness = Witness::attach(&ground);
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    let mut at = 0;
    let mut switched = 0;
    for _round in 0..15 {
        client.fetch(400_000);
        at += 400_000;
        if let Some(span) = witness.span(client.port()) {
            assert!(span.0 >= at - 300_000 && span.1 <= at, "{span:?} of ..{at}");
            switched += 1;
        }
        client.fetch(90_000);
        at += 90_000;
        assert_not_switched(&witness, &client);
    }
    let repeated = ground.run('s', "nstat -asz TcpRetransSegs");
    println!("{repeated} {switched} switched, {:?}", steering.counters().unwrap());
    assert!(switched > 5, "{switched}");
    assert_eq!(steering.counters().unwrap().violations, 0);
}

#[test]
fn an_applications_own_choice_stands() {
    let Some(mut ground) = Ground::new(50) else { return };
    let mut steering = ground.steer();
    ground.serve();
    // Before we changed anything.
    let mut before = ground.connect("10.99.0.1");
    before.send("setcc cubic; send 1000000; cc");
    before.read(1_000_001);
    assert_eq!(before.name(), "cubic");
    // After we changed it once: the name alone tells that it is no longer ours.
    let mut after = ground.connect("10.99.0.1");
    after.fetch(1_000_000);
    after.send("setcc cubic; send 1000000; cc");
    after.read(1_000_001);
    assert_eq!(after.name(), "cubic");
    let counters = steering.counters().unwrap();
    assert_eq!((counters.exempt, counters.switched), (2, 1), "{counters:?}");
    // A new policy, the end of all policies: still theirs.
    let here = [ground.server_again()];
    steering.apply(&policy(2, &[]), &here).unwrap();
    steering.detach(&here).unwrap();
    assert_eq!((before.cc(), after.cc()), ("cubic".to_owned(), "cubic".to_owned()));
}

#[test]
fn a_listeners_choice_is_its_connections() {
    let Some(mut ground) = Ground::new(50) else { return };
    let steering = ground.steer();
    ground.serve_on("cubic");
    let mut client = ground.connect("10.99.0.1");
    client.send("send 1000000; cc");
    client.read(1_000_001);
    assert_eq!(client.name(), "cubic");
    assert_eq!(steering.counters().unwrap().exempt, 1);
}

#[test]
fn connections_that_the_host_opens_are_never_touched() {
    let Some(mut ground) = Ground::new(50) else { return };
    let mut steering = ground.attach();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    // The back end listens on the same port, at the other end of the link.
    let back_end = ground.client.within(|| std::net::TcpListener::bind(("10.99.0.2", super::ground::PORT)).unwrap());
    let back_end = back_end.unwrap();
    let sink = std::thread::spawn(move || {
        let mut taken = 0;
        for stream in back_end.incoming().take(2) {
            taken += std::io::copy(&mut stream.unwrap().take(1 << 20), &mut std::io::sink()).unwrap();
        }
        taken
    });
    let here = [ground.server_again()];
    steering.apply(&policy(1, EVERYBODY), &here).unwrap();
    for _connection in 0..2 {
        client.send(&format!("connect 10.99.0.2:{}", super::ground::PORT));
        assert_eq!(client.name(), OWN);
    }
    assert_eq!(sink.join().unwrap(), 2 << 20);
    let counters = steering.counters().unwrap();
    assert_eq!((counters.matched, counters.switched), (1, 0), "{counters:?}");
}

#[test]
fn connections_that_the_host_opened_before_are_never_touched() {
    for bound in [false, true] {
        let Some(mut ground) = Ground::new(50) else { return };
        let mut opened = ground.opened(bound);
        let mut steering = ground.attach();
        let here = [ground.server_again()];
        let mut policy = policy(1, EVERYBODY);
        policy.default_cc = CcName::new("cubic");
        let applied = steering.apply(&policy, &here).unwrap();
        assert_eq!(applied.sockets_set, 0, "bound: {bound}");
        assert!(steering.settle(&here).is_empty());
        opened.fetch(1_000_000);
        assert_eq!(opened.cc(), OWN, "bound: {bound}");
        assert_eq!(steering.counters().unwrap().matched, 0);
    }
}
