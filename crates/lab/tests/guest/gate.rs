//! Back-pressure on a real driver: what is not read is not lost, and who is held back is only who is meant.

use std::sync::atomic::Ordering;
use std::time::Duration;

use weirgate_lab::guest::{Guest, HOST};

use super::host::Host;
use super::{device, guest, place};

/// Datagrams that the guest's sockets have sent, and frames that its driver or its queue dropped.
fn sent_and_dropped(guest: &mut Guest) -> (u64, u64) {
    let sent = "awk '/^Udp:/ { n = $5 } END { print n }' /proc/net/snmp";
    let read = guest.expect(&format!("{sent}; cat /sys/class/net/eth0/statistics/tx_dropped")).expect("it answers");
    let mut numbers = read.lines().map(|line| line.parse::<u64>().expect("a number"));
    (numbers.next().expect("a line"), numbers.next().expect("a line"))
}

/// A sender of UDP that never pauses but where its socket makes it wait.
fn flood(guest: &mut Guest, port: u16) {
    let send = format!("bash -c 'dd if=/dev/zero bs=1400 > /dev/udp/{HOST}/{port}' > /dev/null 2>&1 &");
    guest.expect(&send).expect("it answers");
}

/// Waits until it is so, half a minute at most: a guest that is emulated beside others is slow.
fn until(mut what: impl FnMut() -> bool) {
    for _ in 0..300 {
        if what() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("it never came");
}

/// The number when it has not changed for a second.
fn settled(mut number: impl FnMut() -> u64) -> u64 {
    let mut last = number();
    until(|| {
        std::thread::sleep(Duration::from_secs(1));
        let now = number();
        std::mem::replace(&mut last, now) == now && now > 0
    });
    last
}

#[test]
fn a_gated_queue_stops_its_senders_and_drops_nothing() {
    let Some(folder) = place() else { return };
    let (host, device) = (Host::default(), device(folder.path(), 1));
    host.answer(&device, || {
        let mut vm = guest(folder.path(), 1);
        vm.run(&format!("ping -c 1 {HOST}")).expect("it answers");
        host.gated.store(true, Ordering::Relaxed);
        let (before, _) = sent_and_dropped(&mut vm);
        let counted = device.counters();
        flood(&mut vm, 5_001);
        let waiting = settled(|| sent_and_dropped(&mut vm).0 - before);
        assert!(waiting <= 256, "{waiting} datagrams are in a ring of 256");
        let full = before + waiting;
        assert_eq!(sent_and_dropped(&mut vm), (full, 0), "it waits, and nothing is lost");
        assert_eq!(device.counters().received, counted.received, "nothing was read");
        host.gated.store(false, Ordering::Relaxed);
        until(|| sent_and_dropped(&mut vm).0 - full > 1_000);
        assert_eq!(sent_and_dropped(&mut vm).1, 0, "nothing is lost");
        println!("{waiting} datagrams waited at the gate, and went on when it was opened");
    });
}

#[test]
fn a_flow_whose_frames_are_held_waits_and_others_do_not() {
    let Some(folder) = place() else { return };
    let (host, device) = (Host::default(), device(folder.path(), 1));
    *host.hold.lock().expect("no panic") = Some(5_001);
    host.answer(&device, || {
        let mut vm = guest(folder.path(), 1);
        vm.run(&format!("ping -c 1 {HOST}")).expect("it answers");
        // A socket buffer that holds about a hundred frames, fewer than the ring.
        flood(&mut vm, 5_001);
        let held = settled(|| device.counters().held);
        assert!(held < 256, "{held} frames are held");
        flood(&mut vm, 5_002);
        let through = |port| host.udp.lock().expect("no panic").get(&port).copied().unwrap_or(0);
        until(|| through(5_002) > 20 * held);
        assert_eq!((through(5_001), device.counters().held), (held, held), "its socket's buffer is full");
        println!("{held} frames of one flow were held while another sent {}", through(5_002));
        *host.hold.lock().expect("no panic") = None;
        device.complete(host.held.lock().expect("no panic").drain(..));
        until(|| through(5_001) > 20 * held);
    });
    assert_eq!(device.counters().bad_chains, 0);
}
