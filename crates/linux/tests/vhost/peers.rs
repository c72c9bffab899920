//! Front ends that come, go, come again and talk nonsense; a device that comes again.

use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;
use std::os::unix::net::{UnixListener, UnixStream};

use rustix::event::{PollFd, PollFlags, poll};
use tempfile::TempDir;
use vhost::VhostBackend as _;
use weirgate_linux::vhost::{Role, VhostError, VhostOptions, VhostUser};
use weirgate_port::Offload;

use super::driver::Driver;
use super::{Device, frame, options, socket};

#[test]
fn a_front_end_that_vanishes_is_counted_and_the_next_is_served() {
    let d = Device::start(1);
    for n in 1..=3 {
        let mut driver = d.connect(0);
        d.until(|d| d.is_up(0));
        driver.rings[1].send(0, &frame(n, 70));
        driver.rings[1].send(1, &frame(n, 80));
        let mut held = None;
        d.device.receive(0, 1, &mut |f| held = Some(f.hold()));
        d.device.events(0);
        driver.vanish();
        assert!(d.wait().state, "it is told");
        d.until(|d| d.counters().vanished == u64::from(n));
        assert!(!d.device.is_up(0) && d.receive_all(0).is_empty());
        d.device.complete(held);
    }
    let counters = d.device.counters();
    assert_eq!((counters.connections, counters.stale, counters.held), (3, 3, 0));
    // One that stops its rings before it goes has not vanished.
    let driver = d.connect(0);
    for ring in 0..2 {
        driver.front_end.get_vring_base(ring).expect("stops");
    }
    driver.vanish();
    d.until(|d| d.counters().connections == 4 && !d.is_up(0));
    assert_eq!(d.device.counters().vanished, 3);
}

#[test]
fn a_device_that_comes_again_goes_on_where_the_guest_stands() {
    let mut d = Device::start(1);
    let mut driver = d.connect(0);
    d.until(|d| d.is_up(0));
    driver.rings[0].give_room(0, 4, 1_526);
    d.device.transmit(0, Offload::default(), &frame(1, 60)).expect("there is room");
    for slot in 0..4 {
        driver.rings[1].send(slot, &frame(slot as u8, 70));
    }
    let mut held = Vec::new();
    d.device.receive(0, 3, &mut |f| held.push(f.hold()));
    d.device.complete([held.swap_remove(1)]);
    let path = d.socket();
    let again = |d: &mut Device| {
        let fresh = TempDir::new().expect("a folder");
        let other = VhostUser::start(&options(&socket(fresh.path()), 1)).expect("starts");
        drop(std::mem::replace(&mut d.device, other));
        assert!(!path.exists(), "its socket is gone");
        d.device = VhostUser::start(&options(&path, 1)).expect("starts again");
    };
    again(&mut d);
    let used: Vec<u32> = driver.rings[1].take_used().iter().map(|(head, _)| *head).collect();
    assert_eq!(used, [1, 0, 2], "the held ones went back when it stopped");
    // As QEMU does: the rings go on from their used index.
    let rings = driver.vanish();
    let mut driver = Driver::negotiate(&path, 1, 0);
    driver.rings = rings;
    driver.start();
    d.until(|d| d.is_up(0));
    assert_eq!(d.receive_all(0), [(Offload::default(), frame(3, 70))], "what was not received yet");
    d.device.transmit(0, Offload::default(), &frame(5, 60)).expect("there is room");
    assert_eq!(driver.rings[0].take_used(), [(0, 72), (1, 72)]);
}

#[test]
fn a_front_end_that_hears_of_the_end_finds_everything_given_back() {
    for _ in 0..20 {
        let d = Device::start(1);
        let mut driver = d.connect(0);
        d.until(|d| d.is_up(0));
        (0..64).for_each(|slot| assert!(driver.rings[1].send(slot, &frame(1, 70)) || slot > 0));
        let mut held = Vec::new();
        d.until(|d| {
            d.receive(0, 64, &mut |f| held.push(f.hold()));
            held.len() == 64
        });
        // In another order than they came: who goes on from the used index counts on all of them.
        d.device.complete(held.drain(32..));
        let used = std::thread::scope(|scope| {
            let witness = scope.spawn(|| {
                // As QEMU does, which waits for the end of the socket.
                let file = driver.front_end.as_raw_fd();
                // SAFETY: the front end lives longer.
                let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(file) };
                let mut files = [PollFd::new(&file, PollFlags::RDHUP)];
                poll(&mut files, None).expect("polls");
                driver.rings[1].used_index()
            });
            drop(d.device);
            witness.join().expect("ends")
        });
        assert_eq!(used, 64);
    }
}

#[test]
fn nonsense_is_disconnected_and_counted() {
    let d = Device::start(1);
    let mut stranger = UnixStream::connect(d.socket()).expect("it listens");
    stranger.write_all(&[0xff; 64]).expect("writes");
    d.until(|d| d.counters().protocol_errors == 1);
    let mut driver = d.connect(0);
    driver.rings[1].send(0, &frame(1, 70));
    d.until(|d| d.is_up(0));
    assert_eq!(d.receive_all(0).len(), 1);
    drop(driver);
    // One that stops in the middle of a message does not keep the device from stopping.
    let mut stranger = UnixStream::connect(d.socket()).expect("it listens");
    stranger.write_all(&[1, 0, 0]).expect("writes");
    d.until(|d| d.counters().connections == 3);
    drop(d);
}

#[test]
fn a_ring_may_be_enabled_before_features_are_set_as_qemu_does() {
    let d = Device::start(1);
    let qemu = UnixStream::connect(d.socket()).expect("it listens");
    let say = |mut to: &UnixStream, words: &[u32]| {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        to.write_all(&bytes).expect("writes");
    };
    // SET_PROTOCOL_FEATURES: REPLY_ACK. SET_VRING_ENABLE: ring 0, with a reply wanted. GET_FEATURES.
    say(&qemu, &[16, 1, 8, 1 << 3, 0]);
    say(&qemu, &[18, 1 | 1 << 3, 8, 0, 1]);
    say(&qemu, &[18, 1 | 1 << 3, 8, 1, 1]);
    say(&qemu, &[1, 1, 0]);
    let mut answer = [0; 60];
    (&qemu).read_exact(&mut answer).expect("three answers");
    let word = |at: usize| u32::from_ne_bytes(answer[4 * at..][..4].try_into().expect("four bytes"));
    assert_eq!([word(0), word(1), word(2), word(3)], [18, 5, 8, 0]);
    assert_eq!([word(5), word(8), word(10)], [18, 0, 1]);
    say(&qemu, &[18, 1, 8, 2, 1]);
    d.until(|d| d.counters().protocol_errors == 1);
}

#[test]
fn what_is_not_possible_is_refused() {
    let d = Device::start(2);
    let mut driver = d.connect(0);
    assert!(driver.start_ring(1, 0).is_err(), "a ring that is in use keeps its shape");
    drop(driver);
    let driver = Driver::negotiate(&d.socket(), 2, 0);
    assert!(driver.front_end.set_vring_num(0, 100).is_err(), "no power of two");
    let driver = Driver::negotiate(&d.socket(), 2, 0);
    assert!(driver.front_end.set_vring_num(0, 2_048).is_err(), "more than the device takes");
    drop(driver);
    let driver = Driver::negotiate(&d.socket(), 2, 0);
    let nowhere = vhost::VringConfigData { desc_table_addr: 0x1000, ..vhost::VringConfigData::default() };
    assert!(driver.front_end.set_vring_addr(0, &nowhere).is_err(), "rings outside memory");
    drop(driver);
    d.connect(0);
    d.until(|d| d.counters().protocol_errors == 4);
}

#[test]
fn a_socket_is_taken_over_only_from_the_dead() {
    let folder = TempDir::new().expect("a folder");
    let path = socket(folder.path());
    let living = UnixListener::bind(&path).expect("binds");
    assert!(matches!(VhostUser::start(&options(&path, 1)), Err(VhostError::InUse(_))));
    drop(living);
    assert!(path.exists(), "left behind");
    drop(VhostUser::start(&options(&path, 1)).expect("taken over"));
    assert!(matches!(VhostUser::start(&options(&path, 0)), Err(VhostError::Queues(0))));
    let nowhere = folder.path().join("none/vm.sock");
    assert!(matches!(VhostUser::start(&options(&nowhere, 1)), Err(VhostError::Listen { .. })));
}

#[test]
fn a_device_that_connects_waits_for_its_front_end_and_comes_back() {
    let folder = TempDir::new().expect("a folder");
    let path = socket(folder.path());
    let device =
        VhostUser::start(&VhostOptions { role: Role::Connect, ..options(&path, 1) }).expect("starts without one");
    let listener = UnixListener::bind(&path).expect("binds");
    for _ in 0..2 {
        let (stream, _) = listener.accept().expect("it connects");
        let front_end = vhost::vhost_user::Frontend::from_stream(stream, 2);
        front_end.set_owner().expect("it answers");
        assert!(front_end.get_features().expect("it answers") & 1 << 32 != 0, "VIRTIO_F_VERSION_1");
    }
    drop(device);
}
