//! What an application sees: objects that come, what it grants, what is there from before, and the end.

use super::net::{Link, Net, article, at, ms};
use crate::connection::{Closed, Event, Settings};

#[test]
fn a_small_object_arrives_over_one_path() {
    let mut net = Net::new(Settings::default(), &[Link::of(10, 20)], 1);
    let done = net.transfer(100_000, at(5_000)).expect("it arrives");
    assert!(done < at(400), "{done:?}");
    assert!(net.has(0, &Event::Connected).is_some() && net.has(1, &Event::Connected).is_some());
    assert!(net.has(1, &Event::Opened(0)).is_some());
}

#[test]
fn a_few_bytes_after_a_silence_wait_for_no_other_path() {
    for links in [vec![Link::of(10_000, 0); 3], vec![Link::of(20, 30), Link::of(20, 30)], article()] {
        let mut net = Net::new(Settings::default(), &links, 2);
        for turn in 1..20 {
            net.run(at(turn * 700));
            let done = net.transfer(4, at(turn * 700 + 500)).expect("it arrives");
            assert!(done < at(turn * 700 + 60), "{done:?} in turn {turn}");
        }
    }
}

#[test]
fn ten_megabytes_leave_a_slow_path_in_time() {
    let mut net = Net::new(Settings::default(), &article(), 3);
    net.run(at(200));
    let done = net.transfer(10_000_000, at(5_000)).expect("it arrives");
    let took = done.saturating_since(at(200));
    assert!(took < ms(1_250), "{took:?}, where 1,120 ms are the least there can be");
    let mut cold = Net::new(Settings::default(), &article(), 3);
    let done = cold.transfer(10_000_000, at(5_000)).expect("it arrives");
    assert!(done < at(1_300), "{done:?}");
}

#[test]
fn no_more_is_sent_than_was_granted() {
    let settings = Settings { credit: 100_000, ..Settings::default() };
    let mut net = Net::new(settings, &article(), 8);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1_000_000, true);
    net.run(at(1_000));
    assert_eq!(net.sides[1].store.received[&object].count(), 100_000);
    net.sides[1].connection.grant(object, 1_000_000);
    net.run(at(2_000));
    assert!(net.has(1, &Event::Complete(object)).is_some() && net.has(0, &Event::Delivered(object)).is_some());
}

#[test]
fn what_is_granted_before_the_first_bytes_counts() {
    let settings = Settings { credit: 100_000, ..Settings::default() };
    let mut net = Net::new(settings, &article(), 8);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.grant(object, 10_000_000);
    net.run(at(500));
    assert!(net.has(1, &Event::Opened(object)).is_some());
    net.sides[1].connection.provide(object, 1_000_000, true);
    net.run(at(2_000));
    assert!(net.has(0, &Event::Complete(object)).is_some());
    let other = net.sides[0].connection.open();
    net.sides[0].connection.reset(other, 3);
    net.run(at(2_500));
    assert!(net.has(1, &Event::Reset { object: other, code: 3 }).is_some());
}

#[test]
fn what_both_sides_have_from_before_is_not_sent() {
    let mut net = Net::new(Settings::default(), &article(), 9);
    net.run(at(200));
    // The number of an object is known beforehand.
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1, false);
    net.run(at(300));
    for have in [100_000..400_000, 500_000..900_000] {
        net.sides[0].connection.skip(object, have.clone());
        net.sides[1].connection.resume(object, have);
    }
    net.sides[0].connection.provide(object, 1_000_000, true);
    net.run(at(1_000));
    assert!(net.has(1, &Event::Complete(object)).is_some());
    assert_eq!(net.sides[1].store.received[&object].count(), 300_000);
}

#[test]
fn both_sides_send_and_either_side_ends_it() {
    let mut net = Net::new(Settings::default(), &article(), 10);
    let there = net.sides[0].connection.open();
    net.sides[0].connection.provide(there, 3_000_000, true);
    net.run(at(100));
    let back = net.sides[1].connection.open();
    net.sides[1].connection.provide(back, 3_000_000, true);
    net.sides[1].connection.provide(there, 1_000_000, true);
    net.run(at(3_000));
    for (side, object) in [(0, there), (1, there), (0, back)] {
        assert!(net.has(side, &Event::Complete(object)).is_some(), "side {side}, object {object}");
    }
    let reset = net.sides[0].connection.open();
    net.sides[0].connection.provide(reset, 1 << 40, false);
    net.run(at(3_200));
    net.sides[1].connection.reset(reset, 42);
    net.run(at(3_400));
    assert!(net.has(0, &Event::Reset { object: reset, code: 42 }).is_some());
    let now = net.now;
    net.sides[0].connection.close(now, 7, "that is all");
    net.run(at(5_000));
    let closed = Closed::ByPeer { code: 7, reason: "that is all".into() };
    assert!(net.has(1, &Event::Closed(closed)).is_some());
    assert!(net.sides.iter().all(|side| side.connection.is_closed()));
}
