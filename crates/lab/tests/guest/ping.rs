//! A ping through the device, and through each of the two ends' restarts.

use weirgate_lab::guest::{Guest, HOST};

use super::host::Host;
use super::{device, guest, place};

fn ping(guest: &mut Guest) {
    guest.link_up().expect("it comes up");
    let pinged = guest.expect(&format!("ping -c 3 -i 0.2 -W 5 {HOST}")).expect("it answers");
    assert!(pinged.contains("3 packets received"), "{pinged}");
}

#[test]
fn a_guest_pings_through_restarts_of_both_ends() {
    let Some(folder) = place() else { return };
    let host = Host::default();
    let first = device(folder.path(), 1);
    let mut vm = host.answer(&first, || {
        let mut vm = guest(folder.path(), 1);
        ping(&mut vm);
        vm.kill();
        // Another QEMU, the same device.
        let mut vm = guest(folder.path(), 1);
        ping(&mut vm);
        vm
    });
    let counters = first.counters();
    assert_eq!((counters.connections, counters.vanished), (2, 1), "{counters:?}");
    assert_eq!((counters.bad_chains, counters.bad_headers, counters.broken_rings), (0, 0, 0), "{counters:?}");
    drop(first);
    // Another device, the same guest: QEMU connects again within a second.
    let second = device(folder.path(), 1);
    host.answer(&second, || {
        // Its link goes down and up meanwhile, and what it sends is lost.
        let again = format!("for i in $(seq 20); do ping -c 1 -W 1 {HOST} && exit; done; exit 1");
        vm.expect(&again).unwrap_or_else(|e| panic!("{e}: {second:?}"));
        ping(&mut vm);
        vm.run("ip link set eth0 down && ip link set eth0 up").expect("it answers");
        ping(&mut vm);
    });
    let counters = second.counters();
    assert_eq!((counters.connections, counters.protocol_errors), (1, 0), "{counters:?}");
}

#[test]
fn a_guest_uses_several_queues() {
    let Some(folder) = place() else { return };
    let (host, device) = (Host::default(), device(folder.path(), 2));
    host.answer(&device, || {
        let mut vm = guest(folder.path(), 2);
        ping(&mut vm);
        assert!(device.is_up(0) && device.is_up(1));
        let queues = vm.run("ls -d /sys/class/net/eth0/queues/tx-*").expect("it answers");
        assert_eq!(queues.text.lines().count(), 2, "{}", queues.text);
    });
    assert_eq!(device.counters().protocol_errors, 0);
}
