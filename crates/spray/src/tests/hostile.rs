//! Packets that come twice, whoever sends without keys or for another, and a side that has the connection's keys and says whatever it likes.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weirgate_units::Instant;

use super::net::{Link, Net, article, at, client_address, ms, server_address};
use crate::connection::{Closed, Event, Settings};
use crate::control::Algorithm;
use crate::object::Sink;
use crate::path::Path;
use crate::ranges::Ranges;
use crate::wire::{Frame, PathId, Status, VARINT_MAX, put_ack, put_data, put_holes};

fn path() -> Path {
    let ends = (client_address(0, 1), server_address(0));
    Path::new(Instant::ZERO, PathId(0), ends, Algorithm::Bbr, 1_472)
}

#[test]
fn a_packet_that_is_not_remembered_any_more_counts_as_received_whatever_comes_after() {
    let mut path = path();
    let take = |path: &mut Path, number: u64| {
        assert!(!path.received.has(number), "{number}");
        path.handle_packet(Instant::ZERO, number, 1_200, true);
    };
    // A range each: with the last one the first is forgotten.
    (0..=128).for_each(|n| take(&mut path, 2 * n));
    assert!(path.received.has(0) && path.received.has(1) && !path.received.has(3));
    // One that was overtaken joins two: there is room for one more, and the first is forgotten still.
    take(&mut path, 3);
    assert!((0..=4).all(|number| path.received.has(number)) && !path.received.has(5));
}

proptest! {
    /// Whatever overtakes what.
    #[test]
    fn no_number_is_taken_twice(numbers in prop::collection::vec(0_u64..1_000, 0..1_500), far in 0_u64..2_000) {
        let (mut path, mut taken) = (path(), BTreeSet::new());
        for (step, number) in numbers.into_iter().enumerate() {
            // They move on, as numbers do.
            let number = number + step as u64 * far / 1_000;
            if !path.received.has(number) {
                prop_assert!(taken.insert(number), "{number} is taken twice");
                path.handle_packet(Instant::ZERO, number, 1_200, true);
                prop_assert!(path.received.has(number) && path.is_valid());
            }
        }
    }
}

/// Takes whatever comes, each byte once, and none that was not granted.
#[derive(Default)]
struct Once(BTreeMap<u64, Ranges>);

const CREDIT: u64 = 100_000;

impl Sink for Once {
    fn write(&mut self, object: u64, offset: u64, bytes: &[u8]) {
        let end = offset + bytes.len() as u64;
        assert!(end <= CREDIT, "{end} of object {object}");
        assert_eq!(self.0.entry(object).or_default().insert(offset..end), bytes.len() as u64, "they came before");
    }
}

/// Of a frame: its kind, three numbers, ranges, and bytes.
type Said = (u8, [u64; 3], Vec<(u64, u64)>, Vec<u8>);

fn number() -> impl Strategy<Value = u64> {
    prop_oneof![0_u64..8, 0_u64..200_000, VARINT_MAX - 8..=VARINT_MAX, 0..=VARINT_MAX]
}

fn said() -> impl Strategy<Value = Said> {
    let ranges = prop::collection::vec((prop_oneof![0_u64..40, number()], 1_u64..50), 1..5);
    (0_u8..12, prop::array::uniform3(number()), ranges, prop::collection::vec(any::<u8>(), 0..60))
}

fn put(out: &mut Vec<u8>, (kind, [one, two, three], spans, bytes): &Said) {
    let mut ranges = Ranges::new();
    for (start, len) in spans {
        ranges.insert((*start).min(VARINT_MAX - len)..(*start).min(VARINT_MAX - len) + len);
    }
    let id = PathId((*one % 5) as u8);
    match kind {
        0 => Frame::Ping.put(out),
        1 => put_ack(out, id, *two, ranges.iter().rev(), 500),
        2 => put_holes(out, *one, ranges.iter().rev(), 500),
        3 | 4 => {
            put_data(out, *one, (*two).min(VARINT_MAX - 60), three.is_multiple_of(3), Some(bytes.len()));
            out.extend(bytes);
        }
        5 => Frame::Credit { object: *one, limit: *two }.put(out),
        6 => Frame::Reset { object: *one, code: *two }.put(out),
        7 => Frame::Challenge(*one).put(out),
        8 => Frame::Response(*one).put(out),
        9 => {
            let status = [Status::Available, Status::Backup, Status::Gone][(*two % 3) as usize];
            Frame::Status { path: id, status }.put(out);
        }
        10 => Frame::Datagram(bytes).put(out),
        _ => Frame::Close { code: *one, reason: bytes }.put(out),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    /// Frames in any order with any numbers, and what is left of them when bytes are changed, cut or made up.
    #[test]
    fn whoever_has_the_keys_and_lies_is_refused_or_heard_and_breaks_nothing(
        victim in 0_usize..2,
        packets in prop::collection::vec(
            (prop::collection::vec(said(), 0..5), prop::collection::vec((any::<u16>(), any::<u8>()), 0..3), any::<bool>(), 0_u8..4),
            1..12,
        ),
        seed in any::<u64>(),
    ) {
        let settings = Settings { credit: CREDIT, ..Settings::default() };
        let mut net = Net::new(settings, &[Link::of(20, 30), Link::of(5, 10)], seed);
        // By these it may say that there are more paths.
        for _ in 0..2 {
            net.links.push([Link::of(20, 30); 2]);
            net.busy.push([net.now; 2]);
            net.ports.push(1_000);
        }
        for side in 0..2 {
            if side == 1 {
                net.run(net.now + ms(200));
            }
            let object = net.sides[side].connection.open();
            net.sides[side].connection.provide(object, 1_000_000, true);
        }
        net.run(net.now + ms(300));
        let mut sink = Once(net.sides[victim].store.received.clone());
        for (at, (frames, changes, is_cut, path)) in packets.into_iter().enumerate() {
            let mut bytes = Vec::new();
            frames.iter().for_each(|frame| put(&mut bytes, frame));
            for (at, to) in &changes {
                if !bytes.is_empty() {
                    let at = usize::from(*at) % bytes.len();
                    bytes[at] = *to;
                }
            }
            if is_cut {
                bytes.truncate(bytes.len() / 2);
            }
            let makes_sense = Frame::all(&bytes).all(|frame| frame.is_ok());
            // A number that was not used yet, and will be: what is sent with it later is lost.
            let used = net.sides[1 - victim].connection.paths().map(|path| path.counts.packets_out).max().unwrap_or(0);
            let number = used + 50 + at as u64;
            let Some(mut datagram) = net.sides[1 - victim].connection.forge(PathId(path), number, &bytes) else { break };
            let ends = (client_address(usize::from(path), 1_000), server_address(usize::from(path)));
            let ends = if victim == 0 { ends } else { (ends.1, ends.0) };
            let now = net.now;
            let side = &mut net.sides[victim];
            let was_open = !side.events.iter().any(|(_, event)| matches!(event, Event::Closed(_)));
            let has_path = side.connection.paths().any(|one| one.path == PathId(path)) || victim == 1;
            side.connection.handle_datagram(now, ends, &mut datagram, &mut sink);
            prop_assert!(side.connection.is_valid());
            while let Some(event) = side.connection.poll_event() {
                side.events.push((now, event));
            }
            let why = side.events.iter().find_map(|(_, event)| match event {
                Event::Closed(why) => Some(why.clone()),
                _ => None,
            });
            if was_open && has_path && !makes_sense {
                let is_refused = matches!(why, Some(Closed::Protocol(_) | Closed::ByPeer { .. }));
                prop_assert!(is_refused, "{bytes:?} was taken: {why:?}");
            }
            if why.is_some() {
                break;
            }
        }
        // Whatever it believes now, it goes on, or ends.
        for side in &mut net.sides {
            side.store.received = sink.0.clone();
        }
        net.run(net.now + ms(1_000));
        prop_assert!(net.sides[victim].connection.is_valid());
    }
}

#[test]
fn a_server_answers_no_more_than_three_times_what_comes() {
    let mut net = Net::new(Settings::default(), &article()[..1], 12);
    // The client's address is forged: nothing reaches it.
    net.links[0][1].outage = Some((Instant::ZERO, at(1 << 30)));
    net.run(at(20_000));
    let sent: Vec<_> = net.sides[0].connection.paths().map(|path| path.counts).collect();
    assert_eq!(sent[0].packets_in, 0);
    let counts = net.sides[1].connection.paths().next().map(|path| path.counts).unwrap();
    assert_eq!((counts.packets_out, counts.packets_in), (0, 0), "nothing but answers to the first message");
    assert!(net.answers <= 3 * net.calls, "{} bytes for {}", net.answers, net.calls);
}

#[test]
fn an_address_that_a_client_comes_from_is_sent_no_more_than_three_times_what_came_until_it_answers() {
    let mut net = Net::new(Settings::default(), &article()[..1], 15);
    net.run(at(100));
    let object = net.sides[1].connection.open();
    net.sides[1].connection.provide(object, 1 << 40, false);
    net.run(at(2_000));
    // Somebody on the way has put another address, whose host does not answer, into what the client sends.
    net.ports[0] = 2_000;
    net.links[0][1].outage = Some((at(2_000), at(1 << 30)));
    net.run(at(12_000));
    let [came, sent] = net.passed.each_ref().map(|of| of.get(&client_address(0, 2_000)).copied().unwrap_or(0));
    assert!(came > 0 && sent > 0 && sent <= 3 * came, "{sent} bytes for {came}");
    let before = net.passed[1][&client_address(0, 1_000)];
    assert!(before > 3_000_000, "it was sending: {before} bytes");
}

#[test]
fn datagrams_of_strangers_change_nothing() {
    let mut net = Net::new(Settings::default(), &article(), 13);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 2_000_000, true);
    net.listens = true;
    net.run(at(200));
    let heard = std::mem::take(&mut net.heard);
    net.listens = false;
    assert!(heard.len() > 300);
    for (to, path, datagram) in heard {
        // As it was; cut; with a bit changed; from another path; with a phase that was not begun.
        let mut changed = vec![datagram.clone(), datagram[..datagram.len() / 2].to_vec()];
        for at in [0, 1, 9, 12, 20] {
            let mut other = datagram.clone();
            let len = other.len();
            other[at % len] ^= 1;
            changed.push(other);
        }
        for datagram in changed {
            net.deliver(to, path, datagram);
        }
    }
    net.run(at(3_000));
    assert!(net.has(1, &Event::Complete(object)).is_some() && net.has(0, &Event::Delivered(object)).is_some());
    assert!(net.sides.iter().all(|side| !side.events.iter().any(|(_, event)| matches!(event, Event::Closed(_)))));
}
