//! Back-pressure on a real driver: what is not read is not lost, and who is held back is only who is meant.

use std::sync::atomic::Ordering;
use std::time::Duration;

use super::host::Host;
use super::vm::Guest;
use super::{HOST, device, guest, place};

/// Datagrams that the guest's sockets have sent, and frames that its driver or its queue dropped.
fn sent_and_dropped(guest: &mut Guest) -> (u64, u64) {
    let sent = "awk '/^Udp:/ { n = $5 } END { print n }' /proc/net/snmp";
    let read = guest.run(&format!("{sent}; cat /sys/class/net/eth0/statistics/tx_dropped")).expect("it answers");
    let mut numbers = read.text.lines().map(|line| line.parse::<u64>().expect("a number"));
    (numbers.next().expect("a line"), numbers.next().expect("a line"))
}

/// A sender of UDP that never pauses but where its socket makes it wait.
fn flood(guest: &mut Guest, port: u16) {
    let send = format!("bash -c 'dd if=/dev/zero bs=1400 > /dev/udp/{HOST}/{port}' > /dev/null 2>&1 &");
    let started = guest.run(&send).expect("it answers");
    assert_eq!(started.status, 0, "{}", started.text);
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
        std::thread::sleep(Duration::from_secs(3));
        let (full, dropped) = sent_and_dropped(&mut vm);
        let waiting = full - before;
        assert!((1..=256).contains(&waiting), "{waiting} datagrams are in a ring of 256");
        std::thread::sleep(Duration::from_secs(1));
        assert_eq!(sent_and_dropped(&mut vm), (full, dropped), "it waits");
        assert_eq!(dropped, 0, "nothing is lost");
        assert_eq!(device.counters().received, counted.received, "nothing was read");
        host.gated.store(false, Ordering::Relaxed);
        std::thread::sleep(Duration::from_secs(2));
        let (after, dropped) = sent_and_dropped(&mut vm);
        assert!(after - full > 1_000 && dropped == 0, "it goes on: {} datagrams, {dropped} dropped", after - full);
        println!("{waiting} datagrams waited at the gate, {} went through it", after - full);
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
        std::thread::sleep(Duration::from_secs(2));
        let held = device.counters().held;
        assert!((1..256).contains(&held), "{held} frames are held");
        flood(&mut vm, 5_002);
        std::thread::sleep(Duration::from_secs(2));
        let udp = host.udp.lock().expect("no panic").clone();
        assert_eq!(device.counters().held, held, "its socket's buffer is full");
        assert!(udp[&5_002] > 10 * udp[&5_001], "the other flow goes on: {udp:?}");
        *host.hold.lock().expect("no panic") = None;
        for completion in host.held.lock().expect("no panic").drain(..) {
            device.complete(completion);
        }
        std::thread::sleep(Duration::from_secs(2));
        assert!(host.udp.lock().expect("no panic")[&5_001] > 4 * udp[&5_001], "released");
        println!("held {held} frames of one flow while another sent {}", udp[&5_002]);
    });
    assert_eq!(device.counters().bad_chains, 0);
}
