//! Datagrams beside objects.

use weirgate_units::Duration;

use super::net::{Link, Net, article, at, ms};
use crate::connection::Settings;
use crate::wire::PathId;

/// Sends datagrams of `len` bytes, one each `every_us`, for so many milliseconds; each begins with its number.
fn send_datagrams(net: &mut Net, path: Option<PathId>, len: usize, every_us: u64, lasts_ms: u64) -> u64 {
    let begun = net.now;
    let count = lasts_ms * 1_000 / every_us;
    for number in 0..count {
        net.run(begun + Duration::from_micros(number * every_us));
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.resize(len, 0xda);
        let now = net.now;
        net.sides[0].connection.send_datagram(now, path, &bytes).expect("a path works");
    }
    count
}

fn numbers(net: &Net) -> Vec<u64> {
    let came = net.sides[1].store.datagrams.iter();
    came.map(|(_, bytes)| u64::from_be_bytes(*bytes.first_chunk().unwrap())).collect()
}

#[test]
fn datagrams_of_a_path_keep_their_order_and_those_for_any_have_the_sum() {
    let mut net = Net::new(Settings::default(), &article(), 3);
    net.run(at(1_000));
    // 4 Mbit/s by the slowest path of 5.
    let count = send_datagrams(&mut net, Some(PathId(2)), 1_000, 2_000, 2_000);
    let until = net.now + ms(500);
    net.run(until);
    assert_eq!(numbers(&net), (0..count).collect::<Vec<_>>());
    assert!(net.sides[0].connection.paths().nth(2).unwrap().counts.packets_out > count);
    // 60 Mbit/s of 75 by all, once congestion control knows what they carry.
    net.sides[1].store.datagrams.clear();
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 20_000_000, true);
    let until = net.now + ms(5_000);
    net.run(until);
    let count = send_datagrams(&mut net, None, 1_250, 167, 3_000);
    let until = net.now + ms(500);
    net.run(until);
    let mut came = numbers(&net);
    assert!(came.windows(2).any(|two| two[0] > two[1]), "by several paths");
    came.sort_unstable();
    came.dedup();
    assert_eq!(came.len(), net.sides[1].store.datagrams.len(), "each once");
    assert!(
        came.len() as u64 > count * 95 / 100,
        "{} of {count}: {:?}",
        came.len(),
        net.sides[0].connection.datagrams()
    );
}

#[test]
fn datagrams_and_objects_take_turns() {
    let mut net = Net::new(Settings::default(), &[Link::of(10, 20)], 4);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 30, false);
    net.run(at(3_000));
    // As much as the path carries, once more.
    let before = net.now;
    let count = send_datagrams(&mut net, None, 1_250, 1_000, 4_000);
    let (share, now) = (net.goodput(before, net.now), net.now);
    let came = numbers(&net).len() as u64;
    assert!(share > 3.0 && came * 100 > count * 30, "object {share} Mbit/s, {came} of {count} datagrams");
    let counts = net.sides[0].connection.datagrams();
    assert!(counts.sent + counts.dropped <= count && counts.sent + counts.dropped + 150 > count, "{counts:?}");
    let waited = numbers(&net).last().map(|last| now.saturating_since(before + ms(*last)));
    assert!(waited.is_some_and(|waited| waited < ms(250)), "{waited:?}");
}

/// However paths take turns with each other, on each of them datagrams and objects do.
#[test]
fn datagrams_of_every_path_have_their_turn_beside_an_object() {
    let mut net = Net::new(Settings::default(), &[Link::of(10, 20), Link::of(10, 20)], 7);
    let object = net.sides[0].connection.open();
    net.sides[0].connection.provide(object, 1 << 40, false);
    net.run(at(3_000));
    let begun = net.now;
    for number in 0..2_000_u64 {
        net.run(begun + ms(number));
        let (now, path) = (net.now, PathId((number % 2) as u8));
        net.sides[0].connection.send_datagram(now, Some(path), &number.to_be_bytes()).unwrap();
    }
    let until = net.now + ms(300);
    net.run(until);
    let came = numbers(&net);
    let odd = came.iter().filter(|number| **number % 2 == 1).count();
    assert!(came.len() > 1_980 && odd > 980, "{} of 2,000, {odd} of them by the second path", came.len());
}

#[test]
fn a_datagram_that_is_lost_stays_lost_and_one_of_a_dead_path_goes_by_another() {
    let mut net = Net::new(Settings::default(), &[Link::of(20, 20).with_loss(50), Link::of(20, 30)], 5);
    net.run(at(500));
    let count = send_datagrams(&mut net, Some(PathId(0)), 500, 1_000, 2_000);
    let until = net.now + ms(500);
    net.run(until);
    let came = numbers(&net).len() as u64;
    assert!(came < count && came > count * 90 / 100, "{came} of {count}");
    net.sides[1].store.datagrams.clear();
    let now = net.now;
    net.links[0].iter_mut().for_each(|link| link.outage = Some((now, now + ms(60_000))));
    let count = send_datagrams(&mut net, Some(PathId(0)), 500, 1_000, 2_000);
    let until = net.now + ms(500);
    net.run(until);
    let came = numbers(&net);
    assert!(came.len() as u64 > count * 85 / 100 && came.last() == Some(&(count - 1)), "{} of {count}", came.len());
}

#[test]
fn a_datagram_that_fits_nowhere_is_refused() {
    let mut net = Net::new(Settings::default(), &[Link::of(20, 20), Link { mtu: 1_300, ..Link::of(20, 30) }], 6);
    net.run(at(8_000));
    let connection = &mut net.sides[0].connection;
    let [all, small] = [None, Some(PathId(1))].map(|path| connection.datagram_max(path));
    assert!(all > 1_400 && (1_220..1_260).contains(&small), "{all} {small}");
    let refused = connection.send_datagram(at(8_000), Some(PathId(1)), &[0; 1_400]);
    assert_eq!(refused.unwrap_err().to_string(), format!("a datagram may have {small} bytes here"));
    for _ in 0..20 {
        connection.send_datagram(at(8_000), None, &[0; 1_400]).unwrap();
    }
    net.run(at(9_000));
    assert_eq!(net.sides[1].store.datagrams.len(), 20);
}
