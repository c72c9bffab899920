//! The vhost-user device against a front end of the test's own, whose driver can lie.
#![allow(clippy::disallowed_methods, reason = "a real socket and a real clock")]

mod driver;
mod lies;
mod peers;
mod rings;
mod switched;

use std::path::{Path, PathBuf};

use tempfile::TempDir;
use weirgate_linux::vhost::{Events, Offloads, Role, VhostOptions, VhostUser};
use weirgate_linux::wait::Waiter;
use weirgate_port::Offload;
use weirgate_units::Duration;

use driver::Driver;

/// A device and where it listens.
struct Device {
    device: VhostUser,
    folder: TempDir,
}

impl Device {
    fn start(queues: u16) -> Self {
        let folder = TempDir::new().expect("a folder");
        let device = VhostUser::start(&options(&socket(folder.path()), queues)).expect("the device starts");
        Self { device, folder }
    }

    fn socket(&self) -> PathBuf {
        socket(self.folder.path())
    }

    /// A driver that uses all queues with rings of 256, and agrees to all but `without`.
    fn connect(&self, without: u64) -> Driver {
        Driver::connect(&self.socket(), self.device.queues(), 256, without)
    }

    /// What is told of queue 0, nothing after a second.
    fn wait(&self) -> Events {
        let mut waiter = Waiter::new().expect("epoll works");
        waiter.add(self.device.queue_fd(0), 1).expect("can be waited for");
        if waiter.wait(Some(Duration::from_secs(1))).expect("waits").count() == 0 {
            return Events::default();
        }
        self.device.events(0)
    }

    /// Waits for something to become true.
    fn until(&self, mut what: impl FnMut(&VhostUser) -> bool) {
        let start = weirgate_linux::clock::monotonic();
        while !what(&self.device) {
            let waited = weirgate_linux::clock::monotonic().saturating_since(start);
            assert!(waited < Duration::from_secs(60), "it never came: {:?}", self.device);
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
    }

    /// All frames that are there, as headers and bytes.
    fn receive_all(&self, queue: u16) -> Vec<(Offload, Vec<u8>)> {
        let mut frames = Vec::new();
        while self.device.receive(queue, 16, &mut |f| frames.push((f.offload, f.bytes.to_vec()))).more {}
        frames
    }
}

fn socket(folder: &Path) -> PathBuf {
    folder.join("vm.sock")
}

fn options(socket: &Path, queues: u16) -> VhostOptions {
    VhostOptions { socket: socket.to_owned(), role: Role::Listen, queues, offloads: Offloads::ALL }
}

/// A frame of `len` bytes, told from others by `seed`.
fn frame(seed: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| (i as u8).wrapping_mul(31).wrapping_add(seed)).collect()
}
