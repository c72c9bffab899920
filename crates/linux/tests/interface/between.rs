//! Whole hosts, through the switch.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::ground::{Ground, Open, by_packet, by_packet_queues, run};

/// Sends `len` bytes by TCP from a to b, which have to arrive as they are.
pub(crate) fn transfer(ground: &Ground, len: usize) {
    let listener = ground.hosts[1].within(|| TcpListener::bind(Ground::address(1, 5_000)).unwrap()).unwrap();
    let mut client = ground.hosts[0].within(|| TcpStream::connect(Ground::address(1, 5_000)).unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();
    let data: Vec<u8> = (0..len).map(|n| (n * 31 + n / 8_191) as u8).collect();
    let sent = data.clone();
    let sender = std::thread::spawn(move || client.write_all(&sent).unwrap());
    server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
    let mut got = Vec::new();
    server.read_to_end(&mut got).unwrap();
    sender.join().unwrap();
    assert!(got == data, "{} of {len} bytes, or others", got.len());
}

/// A counter of a host's kernel, by its name in /proc/net/snmp.
pub(crate) fn snmp(ground: &Ground, side: usize, name: &str) -> u64 {
    let table = ground.on(side, "cat /proc/thread-self/net/snmp");
    let lines: Vec<Vec<&str>> = table.lines().map(|line| line.split(' ').collect()).collect();
    let found = lines.chunks(2).find_map(|pair| {
        let at = pair[0].iter().position(|key| *key == name)?;
        (pair[0][0] == "Tcp:").then(|| pair[1][at].parse().unwrap())
    });
    found.unwrap()
}

fn tcp_passes_whole(open: Open) {
    let Some(ground) = Ground::new() else { return };
    let switch = ground.switch(open);
    let len = 64 << 20;
    transfer(&ground, len);
    for side in [0, 1] {
        assert_eq!(snmp(&ground, side, "InCsumErrors"), 0);
        assert_eq!(switch.port(side).1, None);
    }
    let (counters, _) = switch.port(0);
    assert_eq!((counters.malformed, counters.refused, counters.lost), (0, 0, 0), "{counters:?}");
    assert!(counters.received < len as u64 / 10_000, "super-packets come uncut: {counters:?}");
    let (counters, _) = switch.port(1);
    assert!(counters.sent < len as u64 / 10_000 && counters.refused == 0, "and go uncut: {counters:?}");
    // Uncut as well as the other host has them: its card counts what it was given.
    let frames: u64 = ground.on(1, "cat /sys/class/net/eth0/statistics/rx_packets").trim().parse().unwrap();
    assert!(frames < len as u64 / 10_000, "{frames} frames");
}

#[test]
fn tcp_passes_in_super_packets_with_its_checksums_right() {
    tcp_passes_whole(by_packet);
}

#[test]
fn flows_are_spread_over_queues() {
    tcp_passes_whole(by_packet_queues);
}

/// An interface that is removed is let go by the switch, which says so, whether anything is sent to it or not.
pub(crate) fn vanishes(open: Open) {
    let Some(ground) = Ground::new() else { return };
    let switch = ground.switch(open);
    transfer(&ground, 1 << 20);
    run(&format!("ip -n {}s link del vb", ground.name));
    let until = Instant::now() + Duration::from_secs(5);
    let why = loop {
        match switch.port(1).1 {
            Some(why) => break why,
            None => assert!(Instant::now() < until, "nobody noticed"),
        }
        sleep(Duration::from_millis(20));
    };
    assert!(why.contains("`vb` is gone"), "{why}");
    // The others go on; what would go there is counted.
    let socket = ground.hosts[0].within(|| UdpSocket::bind(Ground::address(0, 0)).unwrap()).unwrap();
    socket.set_broadcast(true).unwrap();
    let before = switch.port(1).0.refused;
    socket.send_to(b"hello", "10.97.0.255:9").unwrap();
    while switch.port(1).0.refused == before {
        assert!(Instant::now() < until, "the rest of the switch stands still");
    }
    assert_eq!(switch.port(0).1, None);
}

#[test]
fn an_interface_that_vanishes_is_let_go_and_said() {
    vanishes(by_packet);
}
