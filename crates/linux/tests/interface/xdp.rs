//! The same by AF_XDP.

use std::net::UdpSocket;
use std::time::{Duration, Instant};

use weirgate_linux::dataplane::{Device, Received, Sent};
use weirgate_linux::interface::{InterfaceError, PacketPort, XdpPort};
use weirgate_linux::netns::Netns;
use weirgate_port::{Checksum, Packet};

use crate::between::{snmp, transfer, vanishes};
use crate::frames::{know_each_other, next, set_udp_segment, to_port};
use crate::ground::{Ground, run};

fn by_xdp(ns: &Netns, name: &str) -> Result<Box<dyn Device>, InterfaceError> {
    XdpPort::open(ns, name).map(|port| Box::new(port) as Box<dyn Device>)
}

#[test]
fn tcp_passes_with_its_checksums_right() {
    let Some(ground) = Ground::new() else { return };
    let switch = ground.switch(by_xdp);
    transfer(&ground, 16 << 20);
    for side in [0, 1] {
        assert_eq!(snmp(&ground, side, "InCsumErrors"), 0);
        let (counters, failed) = switch.port(side);
        assert_eq!((failed, counters.malformed, counters.refused), (None, 0, 0), "{counters:?}");
    }
}

#[test]
fn an_interface_that_vanishes_is_let_go_and_said() {
    vanishes(by_xdp);
}

#[test]
fn the_program_goes_with_the_port_and_another_is_left_alone() {
    let Some(ground) = Ground::new() else { return };
    let shown = || run(&format!("ip -n {}s link show va", ground.name));
    let port = XdpPort::open(&ground.middle, "va").unwrap();
    assert!(port.is_native() && shown().contains("prog/xdp"), "{}", shown());
    assert!(matches!(XdpPort::open(&ground.middle, "va"), Err(InterfaceError::Program(_))), "there is one");
    drop(port);
    assert!(!shown().contains("prog/xdp"), "{}", shown());
    // As a daemon does that is started again: the kernel lets a queue go some time after its socket was closed.
    for _ in 0..20 {
        assert_eq!(XdpPort::open(&ground.middle, "va").unwrap().queues(), 1);
    }
}

#[test]
fn an_mtu_that_no_chunk_holds_is_refused() {
    let Some(ground) = Ground::new() else { return };
    run(&format!("ip -n {}s link set va mtu 9000", ground.name));
    let error = XdpPort::open(&ground.middle, "va").unwrap_err();
    assert!(matches!(error, InterfaceError::Mtu { mtu: 9_000, longest: 3_818, .. }), "{error}");
}

#[test]
fn checksums_are_found_unfinished_and_chunks_come_back() {
    let Some(ground) = Ground::new() else { return };
    know_each_other(&ground);
    let [mut a, mut b] = ["va", "vb"].map(|name| by_xdp(&ground.middle, name).unwrap());
    let sender = ground.hosts[0].within(|| UdpSocket::bind(Ground::address(0, 0)).unwrap()).unwrap();
    let receiver = ground.hosts[1].within(|| UdpSocket::bind(Ground::address(1, 7_004)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    // More than there are chunks, so that they have to come back. Of 65,536 one is right as it is, since its data sum up so.
    let mut partial = 0;
    for n in 0..5_000_u32 {
        sender.send_to(&n.to_ne_bytes(), Ground::address(1, 7_004)).unwrap();
        let mut packet = next(&mut *a, to_port(7_004)).expect("it comes");
        partial += u32::from(packet.offload().checksum == Checksum::Partial { start: 34, offset: 6 });
        assert_eq!(b.send(&mut packet).unwrap(), Sent::Yes);
        b.flush().unwrap();
        let mut got = [0; 100];
        assert_eq!((receiver.recv(&mut got).unwrap(), &got[..4]), (4, &n.to_ne_bytes()[..]));
    }
    assert!(partial >= 4_990, "{partial} of 5,000");
    assert_eq!((a.lost(), b.lost()), (0, 0));
    let mut packet = Packet::with_capacity(66_560);
    assert_eq!(b.receive(0, &mut packet).unwrap(), Received::Empty, "nothing that was sent comes back");
}

#[test]
fn a_super_packet_is_cut_before_it_is_sent() {
    let Some(ground) = Ground::new() else { return };
    know_each_other(&ground);
    let mut a = PacketPort::open(&ground.middle, "va", 1).unwrap();
    let mut b = by_xdp(&ground.middle, "vb").unwrap();
    let sender = ground.hosts[0].within(|| UdpSocket::bind(Ground::address(0, 0)).unwrap()).unwrap();
    let receiver = ground.hosts[1].within(|| UdpSocket::bind(Ground::address(1, 7_005)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    set_udp_segment(&sender, 1_000);
    sender.send_to(&[9; 10_500], Ground::address(1, 7_005)).unwrap();
    let mut packet = next(&mut a, to_port(7_005)).expect("it comes");
    assert!(packet.offload().gso.is_some());
    assert_eq!(b.send(&mut packet).unwrap(), Sent::Yes);
    b.flush().unwrap();
    for expected in [1_000; 10].into_iter().chain([500]) {
        let mut got = [0; 2_000];
        assert_eq!(receiver.recv(&mut got).unwrap(), expected);
        assert!(got[..expected].iter().all(|byte| *byte == 9));
    }
}

#[test]
fn where_the_driver_cannot_the_kernel_does() {
    let Some(ground) = Ground::new() else { return };
    let name = &ground.name;
    run(&format!(
        "ip -n {name}s link add br0 type bridge; ip -n {name}s link set br0 addrgenmode none up
         ip -n {name}s link set va master br0"
    ));
    let mut port = XdpPort::open(&ground.middle, "br0").unwrap();
    assert!(!port.is_native());
    let sender = ground.hosts[0].within(|| UdpSocket::bind(Ground::address(0, 0)).unwrap()).unwrap();
    sender.set_broadcast(true).unwrap();
    // A bridge's port takes nobody's frames before it has looked around.
    let until = Instant::now() + Duration::from_secs(5);
    let mut packet = loop {
        assert!(Instant::now() < until, "nothing comes");
        sender.send_to(b"to all", "10.97.0.255:7006").unwrap();
        if let Some(packet) = next(&mut port, to_port(7_006)) {
            break packet;
        }
    };
    assert!(matches!(packet.offload().checksum, Checksum::Partial { .. }));
    let mut host = PacketPort::open(&ground.hosts[0], "eth0", 1).unwrap();
    assert_eq!(Device::send(&mut port, &mut packet).unwrap(), Sent::Yes);
    Device::flush(&mut port).unwrap();
    assert_eq!(next(&mut host, to_port(7_006)).expect("it goes back").bytes(), packet.bytes());
}

#[test]
fn what_there_is_no_room_for_waits() {
    let Some(ground) = Ground::new() else { return };
    let mut port = by_xdp(&ground.middle, "va").unwrap();
    let beacon = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &[7; 46]].concat();
    let put = |port: &mut dyn Device| {
        let mut sent = 0;
        while port.send(&mut Packet::copy_of(&beacon)).unwrap() == Sent::Yes {
            sent += 1;
        }
        sent
    };
    assert_eq!(put(&mut *port), 2_048);
    port.flush().unwrap();
    let arrived = || -> u64 { ground.on(0, "cat /sys/class/net/eth0/statistics/rx_packets").trim().parse().unwrap() };
    assert!(arrived() >= 2_048, "{}", arrived());
    assert_eq!(put(&mut *port), 2_048, "the chunks are back");
    assert!(port.send(&mut Packet::copy_of(&[7; 3_841])).is_err());
}

#[test]
fn what_is_sent_where_nobody_listens_is_counted_as_lost() {
    let Some(ground) = Ground::new() else { return };
    let mut port = XdpPort::open(&ground.middle, "va").unwrap();
    let beacon = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &[7; 46]].concat();
    let count = |side: &str| -> u64 {
        ground.on(0, &format!("cat /sys/class/net/eth0/statistics/{side}")).trim().parse().unwrap()
    };
    let before = count("rx_packets");
    ground.on(0, "ip link set eth0 down");
    let until = Instant::now() + Duration::from_secs(5);
    // The loss of the carrier is told a little later.
    while run(&format!("ip -n {}s link show va", ground.name)).contains("LOWER_UP") {
        assert!(Instant::now() < until, "it has a carrier");
    }
    for _ in 0..100 {
        assert!(port.send(&beacon).unwrap());
    }
    while Device::flush(&mut port).is_ok() && port.lost() < 100 {
        assert!(Instant::now() < until, "{} of 100 frames are lost", port.lost());
    }
    ground.on(0, "ip link set eth0 up");
    assert_eq!(port.lost(), 100);
    let until = Instant::now() + Duration::from_secs(5);
    while count("rx_packets") == before {
        assert!(Instant::now() < until, "nothing comes");
        assert!(port.send(&beacon).unwrap());
        Device::flush(&mut port).unwrap();
    }
}
