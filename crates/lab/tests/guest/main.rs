//! The vhost-user device with a real guest: Debian's kernel under QEMU, its own virtio-net driver.
#![allow(clippy::disallowed_methods, reason = "a real guest on a real clock")]

mod cable;
mod gate;
mod host;
mod ping;

use std::path::Path;

use tempfile::TempDir;
use weirgate_lab::guest::{self, Guest};
use weirgate_linux::vhost::{Offloads, Role, VhostOptions, VhostUser};

/// Says why and gives `None` where no guest can be booted here.
fn place() -> Option<TempDir> {
    match guest::image() {
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

/// A guest at `device`'s socket, with its address.
fn guest(folder: &Path, queues: u16) -> Guest {
    Guest::with_card(&folder.join("vm.sock"), queues).expect("it boots")
}
