//! Data through the rings: both ways, merged buffers, gates, held frames.

use weirgate_linux::vhost::{Events, HeaderError, Offloads, Received, TransmitError};
use weirgate_port::{Checksum, Gso, GsoKind, Offload};
use weirgate_units::Duration;

use super::driver::{EVENT_IDX, INDIRECT, MRG_RXBUF, NEXT, WRITE};
use super::{Device, frame};

/// A TCP super-packet's header, for IPv4 without options.
fn tso() -> Offload {
    Offload {
        checksum: Checksum::Partial { start: 34, offset: 16 },
        gso: Some(Gso { kind: GsoKind::TcpV4, size: 1_448.try_into().expect("not 0"), ecn: false }),
        header_len: 54,
    }
}

#[test]
fn what_the_guest_sends_is_received() {
    let d = Device::start(1);
    assert_eq!(d.device.receive(0, 16, &mut |_| panic!("nobody is there")), Received::default());
    let mut driver = d.connect(0);
    d.until(|d| d.is_up(0));
    d.device.events(0);

    // One descriptor.
    assert!(driver.rings[1].send(0, &frame(1, 60)), "the device wants to be kicked");
    assert_eq!(d.wait(), Events { sent: true, ..Events::default() });
    assert_eq!(d.receive_all(0), [(Offload::default(), frame(1, 60))]);
    assert_eq!(driver.rings[1].take_used(), [(0, 0)]);
    assert!(driver.rings[1].signalled());

    // The header in a descriptor of its own, a super-packet in five more; then the same in an indirect table.
    let (ring, payload) = (&mut driver.rings[1], frame(2, 5 * 2_000));
    let header = ring.buffer(100);
    ring.write_bytes(header, &tso().to_bytes(0));
    let table = ring.buffer(110);
    for (table, first) in [(None, 7), (Some(table), 0)] {
        for part in 0..6_u16 {
            let address = if part == 0 { header } else { ring.buffer(100 + u64::from(part)) };
            let bytes = if part == 0 { &[][..] } else { &payload[2_000 * usize::from(part - 1)..][..2_000] };
            let len = if part == 0 { 12 } else { 2_000 };
            ring.write_bytes(address + 12 * u64::from(part == 0), bytes);
            let descriptor = (address, len, if part == 5 { 0 } else { NEXT }, first + part + 1);
            match table {
                None => ring.set(first + part, descriptor),
                Some(table) => ring.describe(table, part, descriptor),
            }
        }
    }
    ring.set(50, (table, 6 * 16, INDIRECT, 0));
    ring.offer(7);
    ring.offer(50);
    ring.kick(2);
    assert_eq!(d.receive_all(0), [(tso(), payload.clone()), (tso(), payload)]);
    assert_eq!(driver.rings[1].take_used(), [(7, 0), (50, 0)]);
    let counters = d.device.counters();
    assert_eq!((counters.received, counters.received_bytes), (3, 60 + 2 * 10_000));
    assert_eq!((counters.bad_chains, counters.bad_headers, counters.held), (0, 0, 0));
}

#[test]
fn a_budget_is_kept_and_what_is_left_is_told() {
    for without in [0, EVENT_IDX] {
        let d = Device::start(1);
        let mut driver = d.connect(without);
        for slot in 0..8 {
            driver.rings[1].send(slot, &frame(slot as u8, 100));
        }
        assert_eq!(d.device.receive(0, 5, &mut |_| ()), Received { frames: 5, more: true, ..Received::default() });
        assert_eq!(d.device.receive(0, 3, &mut |_| ()), Received { frames: 3, more: false, ..Received::default() });
        assert!(driver.rings[1].send(8, &frame(9, 100)), "the ring was emptied, so the next one is kicked for");
        assert_eq!(d.device.receive(0, 5, &mut |_| ()), Received { frames: 1, more: false, ..Received::default() });
    }
}

#[test]
fn a_ring_that_is_not_read_fills_and_wakes_nobody() {
    for without in [0, EVENT_IDX] {
        let d = Device::start(1);
        let mut driver = d.connect(without);
        d.until(|d| d.is_up(0));
        d.device.events(0);
        let mut kicks = 0;
        for slot in 0..256 {
            kicks += u32::from(driver.rings[1].send(slot, &frame(slot as u8, 100)));
            if slot == 0 {
                assert!(d.wait().sent);
                // Looked at, and left: the gate is closed.
                assert_eq!(
                    d.device.receive(0, 0, &mut |_| ()),
                    Received { frames: 0, more: true, ..Received::default() }
                );
            }
        }
        assert_eq!(kicks, 1, "a gated queue is kicked for once");
        assert_eq!(d.wait(), Events::default());
        assert!(driver.rings[1].take_used().is_empty(), "the guest has got nothing back: its queue stands");
        let received = d.receive_all(0);
        assert_eq!(received.len(), 256);
        assert!(received.iter().enumerate().all(|(i, (_, bytes))| *bytes == frame(i as u8, 100)));
        assert_eq!(driver.rings[1].take_used().len(), 256);
        assert!(driver.rings[1].send(0, &frame(1, 100)), "open again");
        assert!(d.wait().sent);
    }
}

#[test]
fn frames_go_into_the_guest_over_as_many_buffers_as_they_need() {
    let d = Device::start(1);
    assert_eq!(d.device.transmit(0, Offload::default(), &frame(1, 60)), Err(TransmitError::Down));
    let mut driver = d.connect(0);
    driver.rings[0].give_room(0, 40, 1_526);
    d.until(|d| d.is_up(0));
    d.device.transmit(0, Offload::default(), &frame(1, 60)).expect("there is room");
    assert_eq!(driver.rings[0].take_used(), [(0, 72)]);
    let seen = driver.rings[0].bytes(0, 72);
    assert_eq!(seen[..12], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0], "in one buffer");
    assert_eq!(seen[12..], frame(1, 60));
    assert!(driver.rings[0].signalled());

    let packet = frame(3, 20_000);
    d.device.transmit(0, tso(), &packet).expect("there is room");
    let used = driver.rings[0].take_used();
    assert_eq!(used.len(), 14, "20,012 bytes in buffers of 1,526");
    let mut whole = Vec::new();
    for (head, len) in used {
        whole.extend(driver.rings[0].bytes(head.into(), len as usize));
    }
    assert_eq!((whole[0], whole[10], whole.len()), (1, 14, 20_012));
    assert_eq!(whole[12..], packet);

    // 25 buffers are left: no room for 40,000 bytes, and nothing taken for the half of it.
    let packet = frame(4, 40_000);
    d.device.events(0);
    assert_eq!(d.device.transmit(0, tso(), &packet), Err(TransmitError::Full));
    assert!(driver.rings[0].take_used().is_empty());
    assert!(driver.rings[0].give_room(0, 1, 1_526), "a kick was asked for, though some room was left");
    assert!(d.wait().room);
    assert_eq!(d.device.transmit(0, tso(), &packet), Err(TransmitError::Full));
    assert!(driver.rings[0].give_room(1, 1, 1_526));
    assert!(d.wait().room);
    d.device.transmit(0, tso(), &packet).expect("27 buffers are enough");
    assert_eq!(driver.rings[0].take_used().len(), 27);
    let counters = d.device.counters();
    assert_eq!((counters.transmitted, counters.transmitted_bytes, counters.full), (3, 60_060, 2));
}

#[test]
fn a_driver_without_merged_buffers_or_interrupts_is_served_as_it_is() {
    let d = Device::start(1);
    let mut driver = d.connect(MRG_RXBUF | EVENT_IDX);
    d.until(|d| d.is_up(0));
    // Two chains of two descriptors: for the header, for the frame.
    for slot in [0, 2] {
        let (header, bytes) = (driver.rings[0].buffer(slot.into()), driver.rings[0].buffer(u64::from(slot) + 1));
        driver.rings[0].set(slot, (header, 12, WRITE | NEXT, slot + 1));
        driver.rings[0].set(slot + 1, (bytes, 2_000, WRITE, 0));
        driver.rings[0].offer(slot);
    }
    assert_eq!(d.device.transmit(0, Offload::default(), &frame(1, 2_001)), Err(TransmitError::TooLong));
    let no_interrupts = 1_u16;
    driver.rings[0].signalled();
    driver.rings[0].write(no_interrupts, driver.rings[0].buffer(0) - 0x1_0000 + 0x4000);
    d.device.transmit(0, Offload::default(), &frame(1, 2_000)).expect("there is room");
    assert_eq!(driver.rings[0].take_used(), [(0, 2_012)]);
    assert_eq!(driver.rings[0].bytes(1, 2_000), frame(1, 2_000));
    assert!(!driver.rings[0].signalled(), "it wants no interrupts");
    d.device.transmit(0, Offload::default(), &frame(1, 200)).expect("there is room");
    assert_eq!(d.device.transmit(0, Offload::default(), &frame(1, 200)), Err(TransmitError::Full));
}

#[test]
fn nothing_is_left_to_a_guest_that_did_not_agree_to_do_it() {
    let d = Device::start(1);
    // GUEST_TSO4 and GUEST_CSUM.
    let mut driver = d.connect(1 << 7 | 1 << 1);
    driver.rings[0].give_room(0, 64, 1_526);
    d.until(|d| d.is_up(0));
    let to_guest = d.device.offloads_to_guest();
    assert_eq!(to_guest, Offloads { csum: false, tso4: false, ..Offloads::ALL });
    let refused = Err(TransmitError::Header(HeaderError::NotNegotiated));
    assert_eq!(d.device.transmit(0, tso(), &frame(1, 9_000)), refused);
    let valid = Offload { checksum: Checksum::Valid, ..Offload::default() };
    d.device.transmit(0, valid, &frame(1, 60)).expect("a hint");
    assert_eq!(driver.rings[0].bytes(0, 1), [0], "which is not passed on");
    assert!(driver.rings[0].take_used().len() == 1);
}

#[test]
fn held_frames_go_back_in_any_order() {
    let d = Device::start(1);
    let mut driver = d.connect(0);
    for slot in 0..6 {
        driver.rings[1].send(slot, &frame(slot as u8, 100));
    }
    let (mut held, mut twice) = (Vec::new(), None);
    d.device.receive(0, 16, &mut |f| {
        if f.bytes[0] != 2 {
            held.push(f.hold());
        }
        if f.bytes[0] == 0 {
            twice = Some(f.hold());
        }
    });
    assert_eq!(driver.rings[1].take_used(), [(2, 0)], "what is not held goes back at once");
    assert_eq!(d.device.counters().held, 5);
    d.device.complete([held.swap_remove(4), held.swap_remove(1)]);
    assert_eq!(driver.rings[1].take_used(), [(5, 0), (1, 0)]);
    assert!(driver.rings[1].signalled());
    d.device.complete([held.swap_remove(0)]);
    d.device.complete(twice);
    assert_eq!(driver.rings[1].take_used(), [(0, 0)], "once is enough");
    assert_eq!((d.device.counters().held, d.device.counters().stale), (2, 1));

    // A head that is still held cannot be offered again; those that were given back can.
    for slot in [3, 5] {
        driver.rings[1].send(slot, &frame(slot as u8, 100));
    }
    assert_eq!(d.receive_all(0).len(), 1);
    assert_eq!(driver.rings[1].take_used(), [(5, 0)]);
    assert_eq!(d.device.counters().bad_chains, 1);

    // A ring that stops takes its held frames along, and later completions mean nothing.
    let base = vhost::VhostBackend::get_vring_base(&driver.front_end, 1).expect("stops");
    assert_eq!(base, 8);
    assert_eq!(driver.rings[1].take_used(), [(3, 0), (4, 0)]);
    d.device.complete(held);
    assert!(driver.rings[1].take_used().is_empty());
    assert_eq!(d.device.counters().held, 0);
    driver.start_ring(1, 8).expect("starts again");
    driver.rings[1].send(0, &frame(7, 100));
    assert_eq!(d.receive_all(0), [(Offload::default(), frame(7, 100))]);
}

#[test]
fn a_driver_that_waits_for_most_frames_is_told_of_few_while_others_are_held() {
    let d = Device::start(1);
    let mut driver = d.connect(0);
    for slot in 0..40 {
        driver.rings[1].send(slot, &frame(slot as u8, 100));
    }
    let mut held = Vec::new();
    d.device.receive(0, 30, &mut |f| held.push(f.hold()));
    // As Linux's driver does: an interrupt when three quarters of the forty are back.
    driver.rings[1].ask_for_interrupt_at(29);
    driver.rings[1].signalled();
    assert_eq!(d.receive_all(0).len(), 10);
    assert!(driver.rings[1].signalled(), "ten are back, and the rest may be away for long");
    d.receive_all(0);
    assert!(!driver.rings[1].signalled(), "nothing new");
    d.device.complete(held.drain(..10));
    assert!(driver.rings[1].signalled());
    assert_eq!(driver.rings[1].take_used().len(), 20);
    d.device.complete(held);
    assert!(driver.rings[1].signalled());
}

#[test]
fn queues_are_apart() {
    let d = Device::start(3);
    let mut driver = d.connect(0);
    d.until(|d| (0..3).all(|queue| d.is_up(queue)));
    for queue in 0..3 {
        d.device.events(queue);
    }
    driver.rings[5].send(0, &frame(1, 80));
    driver.rings[2].give_room(0, 1, 1_526);
    assert_eq!((d.device.events(0), d.device.events(2).sent), (Events::default(), true));
    assert!(d.receive_all(0).is_empty() && d.receive_all(1).is_empty());
    let mut held = None;
    d.device.receive(2, 1, &mut |f| held = Some(f.hold()));
    let held = held.expect("a frame");
    assert_eq!(held.queue(), 2);
    d.device.complete([held]);
    assert_eq!(driver.rings[5].take_used(), [(0, 0)]);
    assert_eq!(d.device.transmit(0, Offload::default(), &frame(1, 60)), Err(TransmitError::Full));
    d.device.transmit(1, Offload::default(), &frame(1, 60)).expect("there is room");
    vhost::vhost_user::VhostUserFrontend::set_vring_enable(&mut driver.front_end, 3, false).expect("disables");
    assert!(!d.device.is_up(1) && d.device.is_up(2));
}

#[test]
fn a_kick_is_never_lost() {
    let d = Device::start(1);
    let mut driver = d.connect(0);
    d.until(|d| d.is_up(0));
    const FRAMES: u32 = 20_000;
    // Ends the driver's thread where this one fails.
    let alive = std::sync::Arc::new(());
    let watch = std::sync::Arc::downgrade(&alive);
    std::thread::scope(|scope| {
        let _alive = alive;
        scope.spawn(|| {
            let ring = &mut driver.rings[1];
            let (mut sent, mut free) = (0, (0..256).collect::<Vec<u16>>());
            while sent < FRAMES && watch.strong_count() > 0 {
                if let Some(slot) = free.pop() {
                    ring.send(slot, &frame(slot as u8, 64));
                    sent += 1;
                } else {
                    free.extend(ring.take_used().iter().map(|(head, _)| *head as u16));
                }
            }
        });
        let mut waiter = weirgate_linux::wait::Waiter::new().expect("epoll works");
        waiter.add(d.device.queue_fd(0), 1).expect("can be waited for");
        let (mut received, mut more) = (0, true);
        while received < FRAMES {
            let timeout = if more { Duration::ZERO } else { Duration::from_secs(10) };
            let woken = waiter.wait(Some(timeout)).expect("waits").count();
            assert!(more || woken > 0, "asleep with {received} of {FRAMES} received");
            d.device.events(0);
            let got = d.device.receive(0, 7, &mut |f| assert_eq!(f.bytes.len(), 64));
            received += got.frames as u32;
            more = got.more;
        }
    });
}
