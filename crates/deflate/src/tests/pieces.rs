//! What comes in pieces: how long it is collected, and what of it is counted.

use std::cell::Cell;

use super::{Caller, SETUP, body, inflate};
use crate::count::{Maker, Reason};
use crate::zlib::{FINISH, NO_FLUSH, OK, STREAM_END, SYNC_FLUSH};

// Each test has a thread of its own.
thread_local!(static NOW: Cell<u64> = const { Cell::new(0) });

#[test]
fn a_slow_page_is_not_held_back() {
    let page = body(0, 3, 20_000);
    let mut caller = Caller::ours(SETUP);
    caller.now = 7_000_000_000;
    assert_eq!(caller.call(&page[..5_000], NO_FLUSH, 4_096), (OK, 0));
    caller.now += 5_000_000;
    assert_eq!(caller.call(&page[5_000..6_000], NO_FLUSH, 4_096), (OK, 0));
    assert!(caller.out.is_empty());
    caller.now += 1;
    assert_eq!(caller.call(&page[6_000..7_000], NO_FLUSH, 4_096), (OK, 0));
    assert!(caller.out.len() > 500);
    caller.all(&page[7_000..], FINISH, 4_096);
    assert_eq!(inflate(31, &[], &caller.out), page);
}

/// A worker that was at other streams meanwhile has not waited for the page.
#[test]
fn a_page_that_waits_for_a_busy_thread_is_collected() {
    let page = body(0, 3, 20_000);
    for (busy, is_slow) in [((|| 0) as fn() -> u64, true), (|| NOW.get(), false)] {
        let mut caller = Caller::ours(SETUP);
        caller.busy = busy;
        // The first one says how busy the thread was.
        for n in 0..2_u64 {
            for (at, piece) in page.chunks(5_000).enumerate() {
                caller.now = 7_000_000_000 + n * 1_000_000_000 + at as u64 * 20_000_000;
                NOW.set(caller.now);
                let flush = if at == 3 { FINISH } else { NO_FLUSH };
                caller.call(piece, flush, 32_768);
            }
            assert_eq!(inflate(31, &[], &caller.out), page);
            assert_eq!(caller.reasons(Reason::Slow), if is_slow { n + 1 } else { 1 });
            caller.reset();
        }
    }
}

#[test]
fn each_byte_is_counted_however_few_come_at_a_time() {
    for first in [NO_FLUSH, SYNC_FLUSH] {
        let page = body(0, 14, 20_000);
        let mut caller = Caller::ours(SETUP);
        caller.clock = || {
            NOW.set(NOW.get() + 500);
            NOW.get()
        };
        assert_eq!(caller.call(&page[..1], first, 1 << 16), (OK, 0));
        page[1..].iter().for_each(|byte| assert_eq!(caller.call(&[*byte], NO_FLUSH, 1 << 16), (OK, 0)));
        assert_eq!(caller.call(&[], FINISH, 1 << 16), (STREAM_END, 0));
        assert_eq!(inflate(31, &[], &caller.out), page);
        let made = caller.counters.totals().made;
        assert_eq!(
            made.iter().map(|made| (made.bodies, made.bytes_in)).fold((0, 0), |a, b| (a.0 + b.0, a.1 + b.1)),
            (1, 20_000)
        );
        let stream = &made[Maker::Stream as usize];
        if first == SYNC_FLUSH {
            assert_eq!(stream.bytes_out, caller.out.len() as u64);
            // As long as if each had been timed, but for the last few.
            assert!((19_980..=20_001).contains(&(stream.nanos / 500)), "{stream:?}");
        } else {
            assert_eq!(stream.bodies, 0);
        }
    }
}
