//! What is a response, and under what it is sent.

use super::ground::{EVERYBODY, Ground, OWN, SWITCH_AFTER, policy};
use super::witness::Witness;

#[test]
fn only_large_responses_are_switched_and_all_go_back() {
    let Some(mut ground) = Ground::new(50) else { return };
    let mut steering = ground.attach();
    steering.apply(&policy(1, EVERYBODY), &[]).unwrap();
    let witness = Witness::attach(&ground);
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    let port = client.port();
    client.fetch(20_000);
    client.fetch(90_000);
    assert_eq!(witness.span(port), None);
    client.fetch(2_000_000);
    let (start, end) = witness.span(port).expect("the large response was switched");
    // Sent when the threshold was acknowledged, so at least that far into the response.
    assert!(start >= 110_000 + SWITCH_AFTER, "{start}");
    assert!(end <= 2_110_000);
    println!("{:?}", steering.counters().unwrap());
    assert_eq!(client.cc(), OWN);
    client.fetch(20_000);
    client.fetch(95_000);
    assert_eq!(witness.span(port), None);
    let counters = steering.counters().unwrap();
    println!("{counters:?}");
    assert_eq!((counters.switched, counters.returned, counters.violations, counters.failed), (1, 1, 0, 0));
}
