//! How fast a switched response starts: no faster than what its network is known to carry.

use weirgate_linux::bpf::Steering;

use super::ground::{Client, EVERYBODY, Ground, OWN, policy};

/// Enough for the rate to settle on a link of 50 Mbit/s, and for BBR's start to be over.
const LONG: usize = 6_000_000;

/// Fetches large responses until one is capped: on a machine under load a rate may take more than one to settle.
fn learn(client: &mut Client, steering: &Steering) {
    let capped = || steering.counters().unwrap().capped;
    let before = capped();
    let learnt = (0..10).any(|_| {
        client.fetch(LONG);
        capped() > before
    });
    assert!(learnt, "{:?}", steering.counters());
}

#[test]
fn a_response_starts_at_what_earlier_ones_carried() {
    let Some(mut ground) = Ground::new(50) else { return };
    let steering = ground.steer();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(LONG);
    assert_eq!(steering.counters().unwrap().capped, 0, "nothing is known of the network yet");
    learn(&mut client, &steering);
    assert_eq!(client.pacing_max(), u64::MAX, "a cap goes with its response");
    // Another connection: what is known is the network's.
    let before = steering.counters().unwrap().capped;
    let mut client = ground.connect("10.99.0.1");
    client.send(&format!("send {LONG}"));
    client.read(400_000);
    let counters = steering.counters().unwrap();
    assert_eq!((counters.capped, counters.failed), (before + 1, 0), "{counters:?}");
    client.read(LONG - 400_000);
    assert_eq!(client.pacing_max(), u64::MAX);
}

#[test]
fn an_applications_own_limit_stands() {
    let Some(mut ground) = Ground::new(50) else { return };
    let steering = ground.steer();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    learn(&mut client, &steering);
    let before = steering.counters().unwrap().capped;
    // Below what the network carries: left alone. Above it: back afterwards.
    for (own, size, capped) in [(1_000_000, 1_000_000, 0), (1_000_000_000, LONG, 1)] {
        client.send(&format!("setmax {own}; send {size}"));
        client.read(size);
        assert_eq!(client.pacing_max(), own);
        let counters = steering.counters().unwrap();
        assert_eq!(counters.capped, before + capped, "{counters:?}");
    }
    // Set while it was capped: the application's word is the last.
    client.send(&format!("send 1000000; setmax 3000000; send {LONG}"));
    client.read(1_000_000 + LONG);
    assert_eq!(client.pacing_max(), 3_000_000);
}

#[test]
fn an_application_that_chooses_in_the_middle_of_a_response_loses_no_cap() {
    let Some(mut ground) = Ground::new(5) else { return };
    let steering = ground.steer();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(2_000_000);
    // Two megabytes wait in the send queue when it chooses.
    client.send("send 2000000; setcc cubic; pause 3000");
    client.read(200_000);
    // Whoever notices first, the walk or the connection's own callback, leaves it alone and takes the cap away.
    let _unwalked = steering.settle(&[ground.server_again()]);
    client.read(1_800_000);
    assert_eq!(client.pacing_max(), u64::MAX);
    assert_eq!(steering.counters().unwrap().exempt, 1);
}

#[test]
fn undoing_lifts_a_cap_in_the_middle_of_a_response() {
    let Some(mut ground) = Ground::new(5) else { return };
    let steering = ground.steer();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(2_000_000);
    client.send("send 2000000");
    client.read(200_000);
    let capped = ground.pacing_maxima();
    // 5 Mbit/s are 625,000 B/s, and acknowledgements come in bunches.
    assert!(capped.len() == 1 && (400_000..1_500_000).contains(&capped[0]), "{capped:?}");
    steering.detach(&[ground.server_again()]).unwrap();
    assert_eq!(ground.pacing_maxima(), [0; 0]);
    client.read(1_800_000);
}

#[test]
fn pacing_ends_with_the_algorithm_that_paced() {
    let Some(mut ground) = Ground::new(50) else { return };
    let steering = ground.steer();
    assert!(steering.paces_on().is_none(), "{:?}", steering.paces_on());
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(1_000_000);
    assert_eq!(client.cc(), OWN);
    let counters = steering.counters().unwrap();
    assert_eq!((counters.switched, counters.unpaced, counters.failed), (1, 1, 0), "{counters:?}");
    // A limit of its own is an application's wish to be paced.
    client.send("setmax 1000000000; send 1000000");
    client.read(1_000_000);
    assert_eq!(client.cc(), OWN);
    let counters = steering.counters().unwrap();
    assert_eq!((counters.switched, counters.unpaced), (2, 1), "{counters:?}");
    assert_eq!(client.pacing_max(), 1_000_000_000);
}

#[test]
fn without_the_setting_nothing_is_capped() {
    let Some(mut ground) = Ground::new(50) else { return };
    let mut steering = ground.attach();
    let mut uncapped = policy(1, EVERYBODY);
    uncapped.cap_start = false;
    steering.apply(&uncapped, &[ground.server_again()]).unwrap();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(LONG);
    client.fetch(LONG);
    assert_eq!(steering.counters().unwrap().capped, 0);
}
