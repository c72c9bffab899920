//! Frame by frame: what a port gives is what was sent.

use std::net::UdpSocket;
use std::thread::sleep;
use std::time::{Duration, Instant};

use weirgate_linux::dataplane::{Device, Received, Sent};
use weirgate_linux::interface::PacketPort;
use weirgate_port::{Checksum, GsoKind, Offload, Packet};
use weirgate_switch::frame::{Frame, checksum};

use crate::ground::{Ground, by_packet, run};

/// The next frame that `ours` knows, within two seconds.
pub(crate) fn next(port: &mut dyn Device, ours: impl Fn(&[u8]) -> bool) -> Option<Packet> {
    let mut packet = Packet::with_capacity(66_560);
    let until = Instant::now() + Duration::from_secs(2);
    while Instant::now() < until {
        for queue in 0..port.queues() {
            match port.receive(queue, &mut packet).unwrap() {
                Received::Frame if ours(packet.bytes()) => return Some(packet),
                Received::Frame => {}
                Received::Empty => sleep(Duration::from_micros(200)),
                Received::Malformed => panic!("the kernel's own frames make sense"),
            }
        }
    }
    None
}

/// UDP to this port.
pub(crate) fn to_port(port: u16) -> impl Fn(&[u8]) -> bool {
    move |bytes| {
        let frame = Frame::ethernet(bytes).ok().and_then(|frame| frame.ip);
        frame.is_some_and(|ip| ip.protocol == 17 && ip.transport.ports().is_some_and(|ports| ports.1 == port))
    }
}

/// Tells the hosts each other's address, so that they send without asking.
pub(crate) fn know_each_other(ground: &Ground) {
    for (side, other) in [(0, 1), (1, 0)] {
        let mac = ground.on(other, "cat /sys/class/net/eth0/address");
        let (mac, address) = (mac.trim(), Ground::address(other, 0).ip());
        ground.on(side, &format!("ip neigh replace {address} lladdr {mac} dev eth0"));
    }
}

fn checked(packet: &mut Packet) -> bool {
    let mut offload = *packet.offload();
    assert!(matches!(offload.checksum, Checksum::Partial { .. }), "veth leaves the sum to do: {offload:?}");
    if !checksum::finish(packet.bytes_mut(), &mut offload) {
        return false;
    }
    let ip = Frame::ethernet(packet.bytes()).unwrap().ip.unwrap();
    let (start, end) = (ip.transport_offset(), usize::from(ip.offset) + ip.total_len as usize);
    let segment = &packet.bytes()[start..end];
    let sum = checksum::Sum::default().pseudo_header(ip.source, ip.destination, ip.protocol, segment.len() as u32);
    sum.bytes(segment).checksum() == 0
}

#[test]
fn a_frame_comes_as_it_was_sent_and_goes_as_it_is_given() {
    let Some(ground) = Ground::new() else { return };
    know_each_other(&ground);
    let [mut a, mut b] = ["va", "vb"].map(|name| by_packet(&ground.middle, name).unwrap());
    let sender = ground.hosts[0].within(|| UdpSocket::bind(Ground::address(0, 0)).unwrap()).unwrap();
    let receiver = ground.hosts[1].within(|| UdpSocket::bind(Ground::address(1, 7_000)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    for len in [0, 1, 1_472] {
        let data: Vec<u8> = (0..len).map(|n| n as u8).collect();
        sender.send_to(&data, Ground::address(1, 7_000)).unwrap();
        let mut packet = next(&mut *a, to_port(7_000)).expect("it comes");
        assert_eq!(packet.bytes().len(), 14 + 28 + len);
        assert_eq!(b.send(&mut packet).unwrap(), Sent::Yes);
        b.flush().unwrap();
        // A socket takes no datagram whose checksum is wrong.
        let mut got = [0; 2_000];
        assert_eq!(receiver.recv(&mut got).unwrap(), len);
        assert_eq!(&got[..len], data);
        // What the switch sends by a port does not come back by it.
        assert!(checked(&mut packet));
    }
    let mut packet = Packet::with_capacity(66_560);
    while let Received::Frame = b.receive(0, &mut packet).unwrap() {
        assert!(!to_port(7_000)(packet.bytes()), "{:x?}", packet.bytes());
    }
}

#[test]
fn a_super_packet_of_udp_comes_whole() {
    let Some(ground) = Ground::new() else { return };
    know_each_other(&ground);
    let [mut a, b] = ["va", "vb"].map(|name| PacketPort::open(&ground.middle, name, 1).unwrap());
    let sender = ground.hosts[0].within(|| UdpSocket::bind(Ground::address(0, 0)).unwrap()).unwrap();
    let receiver = ground.hosts[1].within(|| UdpSocket::bind(Ground::address(1, 7_001)).unwrap()).unwrap();
    receiver.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    set_udp_segment(&sender, 1_000);
    let data: Vec<u8> = (0..10_500_u32).map(|n| (n / 7) as u8).collect();
    sender.send_to(&data, Ground::address(1, 7_001)).unwrap();
    let packet = next(&mut a, to_port(7_001)).expect("it comes");
    assert_eq!(packet.bytes().len(), 14 + 28 + data.len());
    let gso = packet.offload().gso.expect("uncut");
    assert_eq!((gso.kind, gso.size.get()), (GsoKind::Udp, 1_000));
    b.send(packet.offload(), packet.bytes()).unwrap();
    let (mut got, mut buffer) = (Vec::new(), [0; 2_000]);
    for expected in [1_000; 10].into_iter().chain([500]) {
        let len = receiver.recv(&mut buffer).unwrap();
        assert_eq!(len, expected);
        got.extend_from_slice(&buffer[..len]);
    }
    assert_eq!(got, data);
}

/// Has the kernel cut what the socket sends into datagrams of this size, as late as it can.
pub(crate) fn set_udp_segment(socket: &UdpSocket, size: libc::c_int) {
    use std::os::fd::AsRawFd;
    let (at, len) = ((&raw const size).cast(), size_of::<libc::c_int>() as libc::socklen_t);
    // SAFETY: setsockopt reads an int, which outlives the call.
    let set = unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, at, len) };
    assert_eq!(set, 0);
}

#[test]
fn a_vlan_tag_that_the_kernel_took_out_is_put_back() {
    let Some(ground) = Ground::new() else { return };
    // The hosts' own ends are ports too, so that frames can be made.
    let [mut host_a, mut host_b] = [0, 1].map(|side| by_packet(&ground.hosts[side], "eth0").unwrap());
    let [mut a, mut b] = ["va", "vb"].map(|name| by_packet(&ground.middle, name).unwrap());
    let untagged = datagram(7_002, b"some bytes");
    for tags in [&[0x81, 0, 0xe0, 7][..], &[0x88, 0xa8, 0, 9, 0x81, 0, 0x20, 7]] {
        let tagged = [&untagged[..12], tags, &untagged[12..]].concat();
        let at = 14 + tags.len() as u16 + 20;
        let mut sent = Packet::copy_of(&tagged);
        let offload = Offload { checksum: Checksum::Partial { start: at, offset: 6 }, ..Offload::default() };
        sent.set_offload(offload);
        assert_eq!(host_a.send(&mut sent).unwrap(), Sent::Yes);
        let mut packet = next(&mut *a, to_port(7_002)).expect("it comes");
        assert_eq!(packet.bytes(), tagged);
        assert_eq!(packet.offload().checksum, offload.checksum, "the sum's place has moved with the tag");
        assert_eq!(b.send(&mut packet).unwrap(), Sent::Yes);
        let mut packet = next(&mut *host_b, to_port(7_002)).expect("it comes");
        assert_eq!(packet.bytes(), tagged);
        assert!(checked(&mut packet));
    }
}

/// A frame with a datagram to this port, its checksum partial.
fn datagram(port: u16, data: &[u8]) -> Vec<u8> {
    let udp_len = 8 + data.len() as u16;
    let mut ip = [0x45, 0, 0, 0, 0, 0, 0x40, 0, 64, 17, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2];
    ip[2..4].copy_from_slice(&(20 + udp_len).to_be_bytes());
    let sum = checksum::Sum::default().bytes(&ip).checksum();
    ip[10..12].copy_from_slice(&sum.to_be_bytes());
    let pseudo =
        checksum::Sum::default().pseudo_header([192, 0, 2, 1].into(), [192, 0, 2, 2].into(), 17, udp_len.into());
    let macs = [2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 8, 0];
    let udp = [9_u16, port, udp_len, pseudo.fold()].map(u16::to_be_bytes).concat();
    [&macs[..], &ip, &udp, data].concat()
}

#[test]
fn what_the_ring_had_no_room_for_is_counted() {
    let Some(ground) = Ground::new() else { return };
    know_each_other(&ground);
    let mut port = PacketPort::open(&ground.middle, "va", 1).unwrap();
    let sender = ground.hosts[0].within(|| UdpSocket::bind(Ground::address(0, 0)).unwrap()).unwrap();
    let sent = 1_500;
    for _ in 0..sent {
        sender.send_to(b"?", Ground::address(1, 7_003)).unwrap();
        // A veth's other end takes 1,000 at once.
        sleep(Duration::from_micros(20));
    }
    let mut packet = Packet::with_capacity(66_560);
    let mut got = 0;
    while Device::receive(&mut port, 0, &mut packet).unwrap() == Received::Frame {
        got += u64::from(to_port(7_003)(packet.bytes()));
    }
    assert_eq!(got + port.lost(), sent, "{got} came");
    assert!(port.lost() >= sent - 480, "nothing is forgotten when it was told");
    sender.send_to(b"?", Ground::address(1, 7_003)).unwrap();
    assert!(next(&mut port, to_port(7_003)).is_some(), "it goes on");
}

#[test]
fn a_frame_that_no_interface_takes_is_refused_and_the_next_goes() {
    let Some(ground) = Ground::new() else { return };
    let [mut a, mut b] = ["va", "vb"].map(|name| by_packet(&ground.middle, name).unwrap());
    let beacon = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 1, 0x88, 0xb5], &[7; 46]].concat();
    // Longer than the MTU and not to be cut; shorter than an Ethernet header; a checksum outside.
    let mut long = beacon.clone();
    long.resize(9_000, 7);
    let outside = Offload { checksum: Checksum::Partial { start: 50, offset: 40 }, ..Offload::default() };
    for (bytes, offload) in
        [(&long[..], Offload::default()), (&beacon[..9], Offload::default()), (&beacon[..], outside)]
    {
        let mut packet = Packet::copy_of(bytes);
        packet.set_offload(offload);
        assert!(b.send(&mut packet).is_err(), "{} bytes", bytes.len());
    }
    assert_eq!(b.send(&mut Packet::copy_of(&beacon)).unwrap(), Sent::Yes);
    run(&format!("ip -n {}s link set vb down", ground.name));
    assert!(b.send(&mut Packet::copy_of(&beacon)).is_err());
    let mut packet = Packet::with_capacity(66_560);
    assert_eq!(b.receive(0, &mut packet).unwrap(), Received::Empty, "down is not gone");
    run(&format!("ip -n {}s link set vb up", ground.name));
    let until = Instant::now() + Duration::from_secs(2);
    while b.send(&mut Packet::copy_of(&beacon)).is_err() {
        assert!(Instant::now() < until, "up again");
    }
    assert!(a.receive(0, &mut packet).is_ok());
}
