//! The vhost-user device with a real guest: Debian's kernel under QEMU, its own virtio-net driver.
#![allow(clippy::disallowed_methods, reason = "a real guest on a real clock")]

mod gate;
mod host;
mod limited;
mod ping;
mod throughput;
mod vm;

use std::path::Path;

use tempfile::TempDir;
use weirgate_linux::vhost::{Offloads, Role, VhostOptions, VhostUser};

use vm::{Card, Guest, GuestOptions};

/// The guest's address and the one that the test answers for.
const GUEST: &str = "10.77.0.2";
const HOST: &str = "10.77.0.1";

/// Says why and gives `None` where no guest can be booted here.
fn place() -> Option<TempDir> {
    match vm::image() {
        Ok(_) => Some(TempDir::new().expect("a folder")),
        Err(e) => {
            println!("SKIPPED: {e}");
            None
        }
    }
}

fn device(folder: &Path, queues: u16) -> VhostUser {
    let socket = folder.join("vm.sock");
    VhostUser::start(&VhostOptions { socket, role: Role::Listen, queues, offloads: Offloads::ALL }).expect("it starts")
}

/// A guest with one card, which has its address.
fn guest(folder: &Path, queues: u16) -> Guest {
    let card = Card { socket: folder.join("vm.sock"), mac: "52:54:00:00:00:02".to_owned(), queues };
    let options = GuestOptions { memory_mib: 256, cpus: queues.into(), cards: vec![card] };
    let mut guest = Guest::boot(&options).expect("it boots");
    let up = guest.run(&format!("ip addr add {GUEST}/24 dev eth0 && ip link set eth0 up")).expect("it answers");
    assert_eq!(up.status, 0, "{}", up.text);
    link_up(&mut guest);
    guest
}

/// Waits until the guest's kernel uses its card: a second after the device has come.
fn link_up(guest: &mut Guest) {
    let wait = "for i in $(seq 100); do grep -q up /sys/class/net/eth0/operstate && exit; sleep 0.1; done; exit 1";
    assert_eq!(guest.run(wait).expect("it answers").status, 0, "its link is down");
}
