//! How fast a switched response starts: no faster than what its network is known to carry.

use super::ground::{EVERYBODY, Ground, policy};

/// Enough for the rate to settle on a link of 50 Mbit/s, and for BBR's start to be over.
const LONG: usize = 6_000_000;

#[test]
fn a_second_response_starts_at_what_the_first_one_carried() {
    let Some(mut ground) = Ground::new(50) else { return };
    let mut steering = ground.attach();
    steering.apply(&policy(1, EVERYBODY), &[]).unwrap();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(LONG);
    assert_eq!(steering.counters().unwrap().capped, 0, "nothing is known of the network yet");
    // Another connection: what is known is the network's.
    let mut client = ground.connect("10.99.0.1");
    client.send(&format!("send {LONG}"));
    client.read(400_000);
    assert_eq!(steering.counters().unwrap().capped, 1);
    let capped = ground.pacing_maxima();
    // 50 Mbit/s are 6.25 MB/s, and a little less of data; acknowledgements come in bunches.
    assert!(capped.len() == 1 && (4_000_000..12_000_000).contains(&capped[0]), "{capped:?}");
    client.read(LONG - 400_000);
    assert_eq!(client.pacing_max(), u64::MAX, "the cap is gone with the response");
    let counters = steering.counters().unwrap();
    assert_eq!((counters.switched, counters.capped, counters.failed), (2, 1, 0), "{counters:?}");
}

#[test]
fn an_applications_own_limit_stands() {
    let Some(mut ground) = Ground::new(50) else { return };
    let mut steering = ground.attach();
    steering.apply(&policy(1, EVERYBODY), &[]).unwrap();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(LONG);
    // Below what the network carries: left alone. Above it: back afterwards.
    for (own, size, capped) in [(1_000_000, 1_000_000, 0), (1_000_000_000, LONG, 1)] {
        client.send(&format!("setmax {own}; send {size}"));
        client.read(size);
        assert_eq!(client.pacing_max(), own);
        let counters = steering.counters().unwrap();
        assert_eq!(counters.capped, capped, "{counters:?}");
    }
    // Set while it was capped: the application's word is the last.
    client.send(&format!("send 1000000; setmax 3000000; send {LONG}"));
    client.read(1_000_000 + LONG);
    assert_eq!(client.pacing_max(), 3_000_000);
}

#[test]
fn undoing_lifts_a_cap_in_the_middle_of_a_response() {
    let Some(mut ground) = Ground::new(5) else { return };
    let mut steering = ground.attach();
    steering.apply(&policy(1, EVERYBODY), &[]).unwrap();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(2_000_000);
    client.send("send 2000000");
    client.read(200_000);
    assert_eq!(ground.pacing_maxima().len(), 1, "capped");
    steering.detach(&[ground.server_again()]).unwrap();
    assert_eq!(ground.pacing_maxima(), [0; 0]);
    client.read(1_800_000);
}

#[test]
fn without_the_setting_nothing_is_capped() {
    let Some(mut ground) = Ground::new(50) else { return };
    let mut steering = ground.attach();
    let mut uncapped = policy(1, EVERYBODY);
    uncapped.cap_start = false;
    steering.apply(&uncapped, &[]).unwrap();
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(LONG);
    client.fetch(LONG);
    assert_eq!(steering.counters().unwrap().capped, 0);
}
