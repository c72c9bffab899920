//! A driver that lies: nothing it writes may stop the device, or be believed.

use weirgate_linux::dataplane::{Device as Port, Received};
use weirgate_linux::vhost::TransmitError;
use weirgate_port::{Offload, Packet};

use super::driver::{EVENT_IDX, INDIRECT, NEXT, Ring, WRITE};
use super::{Device, frame};

/// What is not true, and what writes it.
type Lie = (&'static str, fn(&Ring));

/// Each makes a chain at head 0 that cannot be true. (A header of zeroes is at its buffers.)
const LIES: &[Lie] = &[
    ("outside memory", |r| r.set(0, (0x100, 100, 0, 0))),
    ("runs out of memory", |r| r.set(0, (u64::MAX - 50, 100, 0, 0))),
    ("no bytes", |r| r.set(0, (r.buffer(0), 0, 0, 0))),
    ("to be written", |r| r.set(0, (r.buffer(0), 100, WRITE, 0))),
    ("shorter than a header", |r| r.set(0, (r.buffer(0), 11, 0, 0))),
    ("no Ethernet header", |r| r.set(0, (r.buffer(0), 12 + 13, 0, 0))),
    ("longer than any frame", |r| r.set(0, (r.buffer(0), 12 + 65_594, 0, 0))),
    ("four gigabytes", |r| {
        r.set(0, (r.buffer(0), 100, NEXT, 1));
        r.set(1, (r.buffer(0), u32::MAX, 0, 0));
    }),
    ("a loop", |r| r.set(0, (r.buffer(0), 100, NEXT, 0))),
    ("a next one that is none", |r| r.set(0, (r.buffer(0), 100, NEXT, 9_999))),
    ("an empty indirect table", |r| r.set(0, (r.buffer(1), 0, INDIRECT, 0))),
    ("half an indirect descriptor", |r| r.set(0, (r.buffer(1), 24, INDIRECT, 0))),
    ("an indirect table outside", |r| r.set(0, (0x100, 32, INDIRECT, 0))),
    ("an indirect table in another", |r| {
        r.set(0, (r.buffer(1), 16, INDIRECT, 0));
        r.describe(r.buffer(1), 0, (r.buffer(1), 16, INDIRECT, 0));
    }),
];

#[test]
fn chains_that_cannot_be_true_are_counted_and_given_back() {
    let d = Device::start(1);
    let mut driver = d.connect(0);
    for (n, (lie, make)) in LIES.iter().enumerate() {
        let ring = &mut driver.rings[1];
        make(ring);
        ring.offer(0);
        ring.send(5, &frame(n as u8, 70));
        assert_eq!(d.receive_all(0), [(Offload::default(), frame(n as u8, 70))], "{lie}");
        assert_eq!(d.device.counters().bad_chains, n as u64 + 1, "{lie}");
        assert_eq!(driver.rings[1].take_used(), [(0, 0), (5, 0)], "{lie}");
    }
    // A head that is none is no chain, so there is nothing to give back.
    driver.rings[1].offer(256);
    driver.rings[1].send(5, &frame(1, 70));
    assert_eq!(d.receive_all(0).len(), 1);
    assert_eq!(driver.rings[1].take_used(), [(5, 0)]);
    assert_eq!(d.device.counters().bad_chains, LIES.len() as u64 + 1);
}

#[test]
fn headers_that_cannot_be_true_are_counted() {
    let d = Device::start(1);
    let mut driver = d.connect(0);
    // A checksum at 60 + 16, outside of 70 bytes; and a segmentation that nobody knows.
    driver.rings[1].send_with(0, [1, 0, 0, 0, 0, 0, 60, 0, 16, 0, 0, 0], &frame(1, 70));
    driver.rings[1].send_with(1, [0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &frame(1, 70));
    driver.rings[1].send(2, &frame(2, 70));
    assert_eq!(d.receive_all(0), [(Offload::default(), frame(2, 70))]);
    assert_eq!(d.device.counters().bad_headers, 2);
    assert_eq!(driver.rings[1].take_used(), [(0, 0), (1, 0), (2, 0)]);
}

#[test]
fn a_port_counts_what_cannot_be_true_and_reads_on() {
    let Device { mut device, folder } = Device::start(1);
    let mut driver = super::Driver::connect(&super::socket(folder.path()), 1, 256, 0);
    let ring = &mut driver.rings[1];
    for slot in 0..2 {
        ring.send_with(slot, [0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &frame(1, 70));
    }
    ring.set(2, (0x100, 100, 0, 0));
    ring.offer(2);
    ring.send(3, &frame(2, 70));
    let mut packet = Packet::with_capacity(66_560);
    let mut receive = || Port::receive(&mut device, 0, &mut packet).expect("it is there");
    let received = std::array::from_fn(|_| receive());
    let bad = Received::Malformed;
    assert_eq!(received, [bad, bad, bad, Received::Frame, Received::Empty]);
    assert!(driver.rings[1].send_with(4, [0, 77, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], &frame(1, 70)), "a kick is asked for");
    assert_eq!([receive(), receive()], [bad, Received::Empty], "the last one, too");
    assert!(driver.rings[1].send(5, &frame(2, 70)), "and again");
}

#[test]
fn receive_buffers_that_cannot_be_true_are_passed_over() {
    let d = Device::start(1);
    let mut driver = d.connect(0);
    d.until(|d| d.is_up(0));
    let ring = &mut driver.rings[0];
    ring.set(0, (0x100, 1_526, WRITE, 0));
    ring.set(1, (ring.buffer(1), 1_526, 0, 0));
    ring.set(2, (ring.buffer(2), 4, WRITE, 0));
    ring.set(3, (ring.buffer(3), 1_526, WRITE | NEXT, 3));
    (0..4).for_each(|head| ring.offer(head));
    ring.offer(777);
    assert_eq!(d.device.transmit(0, Offload::default(), &frame(1, 60)), Err(TransmitError::Full));
    assert_eq!(driver.rings[0].take_used(), [(0, 0), (1, 0), (2, 0), (3, 0)]);
    assert_eq!(d.device.counters().bad_chains, 5);
    assert!(driver.rings[0].give_room(4, 1, 1_526), "a kick is asked for all the same");
    d.device.transmit(0, Offload::default(), &frame(1, 60)).expect("there is room");
    assert_eq!(driver.rings[0].take_used(), [(4, 72)]);
}

#[test]
fn a_ring_whose_index_cannot_be_true_stands_until_it_is_set_up_anew() {
    for without in [0, EVENT_IDX] {
        let d = Device::start(1);
        let mut driver = d.connect(without);
        driver.rings[1].move_available(300);
        driver.rings[0].move_available(300);
        assert!(d.receive_all(0).is_empty());
        assert!(d.device.transmit(0, Offload::default(), &frame(1, 60)).is_err());
        assert_eq!(d.device.counters().broken_rings, 2);
        assert!(!d.device.is_up(0));
        assert!(d.receive_all(0).is_empty());
        assert_eq!(d.device.transmit(0, Offload::default(), &frame(1, 60)), Err(TransmitError::Down));
        vhost::VhostBackend::get_vring_base(&driver.front_end, 1).expect("stops");
        driver.rings[1].move_available(0_u16.wrapping_sub(300));
        driver.start_ring(1, 0).expect("starts again");
        driver.rings[1].send(0, &frame(3, 70));
        assert_eq!(d.receive_all(0), [(Offload::default(), frame(3, 70))]);
        assert_eq!(d.device.counters().broken_rings, 2);
    }
}
