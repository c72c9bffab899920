//! Every way in which two threads can interleave on one aggregate. `make test-loom`; without `--cfg loom` this is empty.
#![cfg(loom)]

use std::sync::Arc;

use loom::thread;
use weirgate_shape::{Aggregate, Member};
use weirgate_units::{BitRate, Bytes, Instant};

const PACKET: Bytes = Bytes::new(100);

fn at(nanos: u64) -> Instant {
    Instant::from_nanos(nanos)
}

/// Takes packets until it is refused; how many passed.
fn drain(aggregate: Arc<Aggregate>, now: Instant, most: usize) -> u64 {
    let mut member = Member::new(aggregate);
    (0..most).take_while(|_| member.take(now, PACKET).is_ok()).count() as u64
}

#[test]
fn two_threads_pass_no_more_than_there_is_and_leave_nothing() {
    loom::model(|| {
        let shared = Arc::new(Aggregate::new(at(0), BitRate::ZERO, Bytes::new(300), PACKET));
        let other = {
            let shared = shared.clone();
            thread::spawn(move || drain(shared, at(1), 2))
        };
        let here = drain(shared.clone(), at(1), 2);
        let there = other.join().unwrap();
        let rest = drain(shared, at(1), 9);
        assert_eq!(here + there + rest, 3, "{here} + {there} + {rest}");
    });
}

#[test]
fn what_a_lease_gives_back_is_there_for_who_was_refused() {
    loom::model(|| {
        // A lease is 100 bytes, and there is one: of 40 each two pass, by whichever thread, and a third never does.
        let rate = BitRate::from_bytes_per_sec(1);
        let shared = Arc::new(Aggregate::new(at(0), rate, Bytes::new(100), PACKET));
        let one = |shared| {
            let mut member = Member::new(shared);
            u64::from(member.take(at(1), Bytes::new(40)).is_ok())
        };
        let other = {
            let shared = shared.clone();
            thread::spawn(move || one(shared))
        };
        let mut member = Member::new(shared.clone());
        let mut here = u64::from(member.take(at(1), Bytes::new(40)).is_ok());
        let there = other.join().unwrap();
        // The other one has given back what it held: a refusal from before does not hold any more.
        while here + there < 2 {
            assert!(member.take(at(1), Bytes::new(40)).is_ok(), "{here} + {there}");
            here += 1;
        }
        member.release();
        let mut last = Member::new(shared);
        assert!(last.take(at(1), Bytes::new(21)).is_err() && last.take(at(1), Bytes::new(20)).is_ok());
    });
}

#[test]
fn a_rate_that_changes_is_never_seen_in_half() {
    loom::model(|| {
        // 100 bytes a second, and none from the 5th second on: by the 10th 1,000 B were earned, or 500.
        let rate = BitRate::from_bytes_per_sec(100);
        let shared = Arc::new(Aggregate::new(at(0), rate, Bytes::new(1_000), PACKET));
        Member::new(shared.clone()).take(at(0), Bytes::new(1_000)).unwrap();
        let other = {
            let shared = shared.clone();
            thread::spawn(move || shared.set_rate(at(5_000_000_000), BitRate::ZERO))
        };
        let mut member = Member::new(shared);
        let passed = [1_000, 500].into_iter().find(|n| member.take(at(10_000_000_000), Bytes::new(*n)).is_ok());
        other.join().unwrap();
        assert!(passed.is_some());
        assert!(member.take(at(10_000_000_000), Bytes::new(501)).is_err(), "never more than was earned");
    });
}
