//! The device as a port of the switch: who sends too fast has its descriptors back when its frames have left, not before.

use std::io;
use std::num::NonZeroU16;
use std::os::fd::BorrowedFd;

use weirgate_linux::clock;
use weirgate_linux::dataplane::{Dataplane, Device as PortDevice, Received, Sent};
use weirgate_port::{Checksum, Gso, GsoKind, Offload, Packet};
use weirgate_switch::bridge::{Bridge, BridgeClass};
use weirgate_switch::class::Rule;
use weirgate_switch::frame::Accounting;
use weirgate_switch::limits::{ClassSettings, LimitSettings, Mode};
use weirgate_units::{BitRate, Bytes, Duration};

use super::Device;

/// A port that takes everything.
struct Sink;

impl PortDevice for Sink {
    fn queues(&self) -> usize {
        0
    }

    fn queue_fd(&self, _: usize) -> Option<BorrowedFd<'_>> {
        None
    }

    fn receive(&mut self, _: usize, _: &mut Packet) -> io::Result<Received> {
        Ok(Received::Empty)
    }

    fn send(&mut self, _: &mut Packet) -> io::Result<Sent> {
        Ok(Sent::Yes)
    }

    fn pushes_back(&self) -> bool {
        false
    }
}

/// An Ethernet frame with `payload` bytes of an unknown protocol.
fn frame(payload: usize) -> Vec<u8> {
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0x88, 0xb5];
    bytes.resize(14 + payload, 0);
    bytes
}

#[test]
fn frames_that_wait_for_a_limit_keep_their_descriptors() {
    let Device { device, folder } = Device::start(1);
    let mut driver = super::Driver::connect(&super::socket(folder.path()), 1, 256, 0);
    let (now, rate) = (clock::boottime(), BitRate::from_bits_per_sec(1_000_000));
    let mut bridge = Bridge::new(now, rate, rate, Bytes::new(1 << 20), 1);
    let limit = bridge.add_limit(now, LimitSettings { rate, burst: Bytes::new(3_000), mode: Mode::Pace });
    let queue = ClassSettings { codel: None, ..ClassSettings::default() };
    let class = BridgeClass { limits: vec![limit], accounting: Accounting::default(), queue };
    let class = bridge.add_class(&class);
    bridge.set_rules(vec![Rule { port: Some(0), ..Rule::any(0, class) }], vec![]).expect("sound rules");
    let mut dataplane = Dataplane::new(bridge).expect("a switch");
    let vm = dataplane.add_port(Box::new(device), None, Bytes::new(1 << 20)).expect("can be waited for");
    let sink = dataplane.add_port(Box::new(Sink), None, Bytes::new(1 << 20)).expect("has nothing to wait for");
    dataplane.bridge_mut().join(vm, sink);

    for slot in 0..20 {
        driver.rings[1].send(slot, &frame(1_000));
    }
    let mut back = Vec::new();
    while dataplane.port(vm).0.received < 20 {
        dataplane.turn(Duration::from_millis(10)).expect("turns");
        back.extend(driver.rings[1].take_used());
    }
    // Three thousand bytes of burst and the packet beyond; the rest takes 8 ms each.
    assert!((1..=6).contains(&back.len()), "{} of 20 are back", back.len());
    while dataplane.port(sink).0.sent < 20 {
        dataplane.turn(Duration::from_millis(10)).expect("turns");
        back.extend(driver.rings[1].take_used());
        let sent = dataplane.port(sink).0.sent as usize;
        assert_eq!(back.len(), sent, "as many as have left");
    }
    assert!(driver.rings[1].signalled());
    let took = clock::boottime().saturating_since(now);
    assert!(took >= Duration::from_millis(120), "20,000 bytes less the burst at 1 Mbit/s: {took}");
}

#[test]
fn a_guest_that_does_not_segment_is_sent_all_of_a_super_packet_or_none() {
    let Device { mut device, folder } = Device::start(1);
    // Without GUEST_TSO4.
    let mut driver = super::Driver::connect(&super::socket(folder.path()), 1, 256, 1 << 7);
    while !device.is_up(0) {
        std::thread::yield_now();
    }
    let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0];
    bytes.extend((40 + 20_000_u16).to_be_bytes());
    bytes.extend([0, 0, 0, 0, 64, 6, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2]);
    // TCP: ports, numbers, a header of 20 bytes, ACK.
    bytes.extend([0, 80, 0, 81, 0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x10, 1, 0, 0, 0, 0, 0]);
    bytes.resize(54 + 20_000, 7);
    let mut packet = Packet::copy_of(&bytes);
    let gso = Gso { kind: GsoKind::TcpV4, size: NonZeroU16::new(1_000).expect("not 0"), ecn: false };
    packet.set_offload(Offload {
        checksum: Checksum::Partial { start: 34, offset: 16 },
        gso: Some(gso),
        header_len: 54,
    });
    driver.rings[0].give_room(0, 19, 1_526);
    assert!(matches!(PortDevice::send(&mut device, &mut packet), Ok(Sent::Full)));
    assert_eq!((device.counters().transmitted, driver.rings[0].take_used().len()), (0, 0), "none of it");
    assert!(driver.rings[0].give_room(19, 2, 1_526), "a kick was asked for");
    assert!(matches!(PortDevice::send(&mut device, &mut packet), Ok(Sent::Yes)));
    assert_eq!((device.counters().transmitted, driver.rings[0].take_used().len()), (20, 20));
}

#[test]
fn a_guest_that_does_not_read_leaves_others_their_descriptors() {
    let guest = || {
        let Device { device, folder } = Device::start(1);
        let driver = super::Driver::connect(&super::socket(folder.path()), 1, 256, 0);
        (device, driver, folder)
    };
    let (near, mut sender, _near) = guest();
    let (far, mut stopped, _far) = guest();
    let rate = BitRate::from_bits_per_sec(1_000_000);
    let mut dataplane =
        Dataplane::new(Bridge::new(clock::boottime(), rate, rate, Bytes::new(1 << 20), 1)).expect("a switch");
    let near = dataplane.add_port(Box::new(near), None, Bytes::new(1 << 20)).expect("can be waited for");
    let far = dataplane.add_port(Box::new(far), None, Bytes::new(1 << 20)).expect("can be waited for");
    let sink = dataplane.add_port(Box::new(Sink), None, Bytes::new(1 << 20)).expect("has nothing to wait for");
    // Who is not known is sent to both, and what both are sent is held until both have it.
    stopped.rings[0].give_room(0, 10, 1_526);
    for slot in 0..256 {
        sender.rings[1].send(slot, &frame(1_000));
    }
    let began = clock::boottime();
    let turn = |dataplane: &mut Dataplane| {
        dataplane.turn(Duration::from_millis(10)).expect("turns");
        let took = clock::boottime().saturating_since(began);
        assert!(took < Duration::from_secs(30), "{:?} of {:?}", dataplane.port(far).0, dataplane.port(near).0);
    };
    let mut back = Vec::new();
    while back.len() < 256 {
        turn(&mut dataplane);
        back.extend(sender.rings[1].take_used());
    }
    assert!(sender.rings[1].signalled());
    sender.rings[1].send(0, &frame(1_000));
    while dataplane.port(sink).0.sent < 257 {
        turn(&mut dataplane);
    }
    // What was kept for it in vain is counted.
    while dataplane.port(far).0.unsent < 247 {
        turn(&mut dataplane);
    }
    assert_eq!(dataplane.port(far).0.sent, 10);
}
