//! Paths: that they are filled, and what becomes of a transfer when they come, go, die, or are another's.

use weirgate_units::{BitRate, Instant};

use super::net::{Link, Net, PAYLOAD, article, at, client_address, ms, server_address};
use crate::connection::{Closed, Event, Settings};
use crate::control::Algorithm;
use crate::wire::{PathId, Status};

/// Endless transfers fill these sets of paths: by the model all of them, by CUBIC those without losses.
fn steady() -> Vec<(&'static str, Vec<Link>, bool)> {
    let [five, wire, four] = article()[..] else { panic!("three paths") };
    let lte = Link { queue: BitRate::from_bits_per_sec(30_000_000).bytes_in(ms(300)).as_u64(), ..Link::of(30, 60) };
    let jitter = |link: Link| Link { jitter: ms(20), ..link };
    vec![
        ("the article's", article(), true),
        ("one", vec![wire], true),
        ("with losses", vec![five.with_loss(5), wire, four.with_loss(10)], false),
        ("fiber and LTE", vec![Link::of(300, 16), Link::of(30, 80).with_loss(5)], false),
        ("equal", vec![wire, wire], true),
        ("4:1", vec![Link::of(40, 20), Link::of(10, 40)], true),
        ("10:1", vec![Link::of(100, 10), Link::of(10, 60)], true),
        ("jitter", vec![jitter(five), jitter(wire)], true),
        ("a long queue", vec![lte, wire], true),
    ]
}

/// Goodput of an endless transfer over these, from 5 s on, as a share of what they carry.
fn share(algorithm: Algorithm, links: &[Link], seed: u64) -> f64 {
    let settings = Settings { algorithm, ..Settings::default() };
    let mut net = Net::new(settings, links, seed);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(20_000));
    // Of 1,500 bytes 28 are of IP and UDP, and those of this protocol are its own.
    let sum: f64 = links.iter().map(|link| link.rate.as_bits_per_sec() as f64 / 1e6).sum();
    net.goodput(at(5_000), at(20_000)) / sum
}

#[test]
fn all_paths_are_filled_however_unlike_they_are() {
    for (name, links, is_clean) in steady() {
        for algorithm in [Algorithm::Bbr, Algorithm::Cubic] {
            let share = share(algorithm, &links, 1) / PAYLOAD;
            let least = if algorithm == Algorithm::Bbr || is_clean { 0.98 } else { 0.8 };
            assert!(share > least, "{name} by {algorithm:?}: {share:.3} of what they carry");
        }
    }
}

#[test]
fn what_was_under_way_on_a_dead_path_goes_by_the_others_at_once() {
    let mut links = article();
    links[1].outage = Some((at(5_000), at(9_000)));
    let mut net = Net::new(Settings::default(), &links, 3);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(12_000));
    let left = PAYLOAD * 25.0;
    for from in (5_100..9_000).step_by(100) {
        let goodput = net.goodput(at(from), at(from + 100));
        assert!(goodput > 0.9 * left, "{goodput:.1} Mbit/s at {from} ms of {left:.1}");
    }
    let path = PathId(1);
    let its = |event: &&(Instant, Event)| matches!(event.1, Event::PathUp(up) | Event::PathDown(up) if up == path);
    let said: Vec<Event> = net.sides[0].events.iter().filter(its).map(|(_, event)| event.clone()).collect();
    assert_eq!(said, [Event::PathUp(path), Event::PathDown(path), Event::PathUp(path)]);
    let down = net.has(0, &Event::PathDown(path)).expect("it is noticed");
    assert!(down < at(5_200), "{down:?}");
    // Everything that came in order at 5 s was there 200 ms later.
    let goodput = net.goodput(at(10_000), at(12_000));
    assert!(goodput > 0.9 * PAYLOAD * 75.0, "{goodput:.1} Mbit/s once it is back");
}

#[test]
fn what_the_last_questions_took_along_is_not_lost_with_a_path_that_stays_dead() {
    for (len, back) in (0..8).map(|n| (20_000_000 + n * 1_000_000, 1_150 + n * 70)) {
        let mut links = vec![Link::of(50, 20); 2];
        links[0].outage = Some((at(1_000), at(1 << 30)));
        links[1].outage = Some((at(1_000), at(back)));
        let mut net = Net::new(Settings::default(), &links, 3);
        assert!(net.transfer(len, at(20_000)).is_some_and(|done| done < at(6_500)), "back at {back} ms");
    }
}

#[test]
fn an_end_is_heard_by_whatever_path_works() {
    let mut links = article();
    links[0].outage = Some((at(1_000), at(1 << 30)));
    let mut net = Net::new(Settings::default(), &links, 3);
    net.run(at(1_010));
    net.sides[0].connection.close(at(1_010), 0, "done");
    net.run(at(1_100));
    assert!(net.has(1, &Event::Closed(Closed::ByPeer { code: 0, reason: "done".into() })).is_some());
    assert!(net.sides[0].connection.is_closed());
}

#[test]
fn an_end_that_is_heard_by_two_paths_at_once_is_answered() {
    let mut net = Net::new(Settings::default(), &[Link::of(50, 20); 2], 3);
    net.run(at(1_000));
    net.sides[0].connection.close(at(1_000), 0, "done");
    net.run(at(1_050));
    assert!(net.sides.iter().all(|side| side.connection.is_closed()), "in a round trip, and no half a second");
}

#[test]
fn a_path_that_becomes_faster_is_filled() {
    let mut net = Net::new(Settings::default(), &[Link { queue: 15_000, ..Link::of(5, 20) }], 3);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(5_000));
    net.links[0] = [Link::of(50, 20); 2];
    net.run(at(12_000));
    let goodput = net.goodput(at(9_000), at(12_000));
    assert!(goodput > 0.9 * PAYLOAD * 50.0, "{goodput:.1} Mbit/s");
}

#[test]
fn a_path_that_is_only_slow_or_uneven_is_never_down() {
    for (name, links, _) in steady() {
        let mut net = Net::new(Settings::default(), &links, 5);
        let object = net.sides[0].connection.open();
        net.sides[0].connection.provide(object, 1 << 40, false);
        net.run(at(10_000));
        for side in &net.sides {
            let downs = side.events.iter().filter(|(_, event)| matches!(event, Event::PathDown(_))).count();
            assert_eq!(downs, 0, "{name}: {:?}", side.events);
        }
    }
}

#[test]
fn a_side_that_did_not_look_for_a_while_takes_no_path_for_dead() {
    let long = Link { queue: BitRate::from_bits_per_sec(30_000_000).bytes_in(ms(300)).as_u64(), ..Link::of(30, 60) };
    for algorithm in [Algorithm::Bbr, Algorithm::Cubic] {
        let mut net = Net::new(Settings { algorithm, ..Settings::default() }, &[long, Link::of(50, 20)], 5);
        let object = net.sides[0].connection.open();
        net.sides[0].connection.provide(object, 1 << 40, false);
        for pause in 1..20 {
            net.run(at(2_000 + pause * 500));
            // What came meanwhile is there, and the time is looked at first.
            net.now += ms(pause * 10);
            let now = net.now;
            net.sides[0].connection.handle_timeout(now);
        }
        net.run(at(13_000));
        assert!(net.sides[0].connection.paths().any(|path| path.counts.silences > 0), "something is to be seen");
        let said = |event: &&(Instant, Event)| matches!(event.1, Event::PathUp(_) | Event::PathDown(_));
        let said: Vec<_> = net.sides[0].events.iter().filter(said).map(|(_, event)| event).collect();
        assert_eq!(said, [&Event::PathUp(PathId(1)), &Event::PathUp(PathId(0))], "{algorithm:?}: each once");
    }
}

#[test]
fn large_datagrams_are_sent_where_they_pass_and_no_more_when_they_do_not() {
    let mut net = Net::new(Settings::default(), &article()[..2], 4);
    net.links[0][0].mtu = 1_300;
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(8_000));
    let mtus = |net: &Net| net.sides[0].connection.paths().map(|path| path.mtu).collect::<Vec<u16>>();
    assert!((1_288..=1_300).contains(&mtus(&net)[0]) && mtus(&net)[1] == 1_472, "{:?}", mtus(&net));
    // A tunnel begins in the middle.
    net.links[1][0].mtu = 1_400;
    net.run(at(16_000));
    assert!((1_288..=1_300).contains(&mtus(&net)[0]) && (1_388..=1_400).contains(&mtus(&net)[1]), "{:?}", mtus(&net));
    let goodput = net.goodput(at(10_000), at(12_000));
    assert!(goodput > 0.9 * PAYLOAD * 70.0, "{goodput:.1} Mbit/s");
}

#[test]
fn paths_come_and_go_during_a_transfer() {
    let mut net = Net::new(Settings::default(), &article(), 6);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(2_000));
    net.sides[0].connection.set_status(at(2_000), PathId(1), Status::Gone);
    net.run(at(4_000));
    let goodput = net.goodput(at(3_000), at(4_000));
    assert!((0.9..1.02).contains(&(goodput / PAYLOAD / 25.0)), "{goodput:.1} Mbit/s on two");
    net.links.push([Link::of(50, 20); 2]);
    net.busy.push([at(4_000); 2]);
    net.ports.push(1_000);
    let added = net.sides[0].connection.add_path(at(4_000), client_address(3, 1_000), server_address(3));
    assert_eq!(added, Some(PathId(3)));
    net.run(at(6_000));
    let goodput = net.goodput(at(5_000), at(6_000));
    assert!(goodput > 0.95 * PAYLOAD * 75.0, "{goodput:.1} Mbit/s on three again");
}

#[test]
fn paths_may_come_and_go_for_ever() {
    let mut net = Net::new(Settings::default(), &[Link::of(20, 20); 2], 6);
    net.links.resize(256, [Link::of(20, 20); 2]);
    net.busy.resize(256, [Instant::ZERO; 2]);
    net.ports.resize(256, 1_000);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(500));
    let (staying, mut latest) = (PathId(0), PathId(1));
    for step in 1..700_u16 {
        let now = at(500 + 50 * u64::from(step));
        net.sides[0].connection.set_status(now, latest, Status::Gone);
        let next = usize::from(latest.0) % 255 + 1;
        net.ports[next] = 1_000 + step;
        let ends = (client_address(next, net.ports[next]), server_address(next));
        let added = net.sides[0].connection.add_path(now, ends.0, ends.1);
        assert_eq!(added, Some(PathId(next as u8)), "step {step}");
        latest = PathId(next as u8);
        net.run(at(550 + 50 * u64::from(step)));
    }
    let now = net.now;
    net.run(now + ms(2_000));
    let goodput = net.goodput(now + ms(1_000), now + ms(2_000));
    assert!(goodput > 0.9 * PAYLOAD * 40.0, "{goodput:.1} Mbit/s on two");
    for side in &net.sides {
        let up: Vec<PathId> = side.connection.paths().filter(|report| report.is_up).map(|report| report.path).collect();
        assert_eq!(up, [staying, latest]);
    }
}

#[test]
fn a_client_that_comes_from_another_address_goes_on() {
    let mut net = Net::new(Settings::default(), &article()[..2], 7);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(2_000));
    net.ports[1] = 2_000;
    net.run(at(4_000));
    let goodput = net.goodput(at(2_500), at(4_000));
    assert!(goodput > 0.9 * PAYLOAD * 70.0, "{goodput:.1} Mbit/s");
    let remote = net.sides[1].connection.paths().find(|path| path.path.0 == 1).map(|path| path.remote);
    assert_eq!(remote, Some(client_address(1, 2_000)));
}

#[test]
fn a_connection_whose_paths_are_all_dead_ends_after_a_while() {
    let links = article().into_iter().map(|link| Link { outage: Some((at(1_000), at(1 << 30))), ..link });
    let mut net = Net::new(Settings::default(), &links.collect::<Vec<_>>(), 11);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(40_000));
    for side in 0..2 {
        let ended = net.has(side, &Event::Closed(Closed::Idle)).expect("it ends");
        assert!((at(31_000)..at(31_500)).contains(&ended), "{ended:?}");
    }
}

#[test]
fn a_call_that_nobody_answers_ends_sooner_and_says_what_may_be_wrong() {
    let links = article().into_iter().map(|link| Link { outage: Some((Instant::ZERO, at(1 << 30))), ..link });
    let mut net = Net::new(Settings::default(), &links.collect::<Vec<_>>(), 11);
    net.run(at(20_000));
    let ended = net.has(0, &Event::Closed(Closed::Unanswered)).expect("it ends");
    assert_eq!(ended, at(10_000));
    assert_eq!(net.calls, 3 * 6 * 1_200, "six calls on each of three paths");
    // Who has answered and is not heard any more is another matter.
    let mut net = Net::new(Settings::default(), &article(), 11);
    net.run(at(9_000));
    net.links.iter_mut().flatten().for_each(|link| link.outage = Some((at(9_000), at(1 << 30))));
    net.run(at(30_000));
    assert!(net.sides.iter().all(|side| !side.connection.is_closed()));
}
