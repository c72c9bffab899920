//! Which of the guest's chains the device has, in a file beside its socket: where the device is killed, its successor gives them back.
//!
//! The used ring alone does not say. Chains go back in any order, QEMU has a successor begin at the used index, so it would take
//! some that had gone back already, and a guest that gets one back twice stops the queue. QEMU (7.2) offers the protocol's own
//! buffer for this to disks only (docs/interop/vhost-user.rst, "Inflight I/O tracking", whose order of steps is followed here).
//!
//! Ground rules: a chain is noted before it is looked at. One that goes back is noted together with the used index that it leads to, then goes
//! back, then is noted no more: wherever the process ends in between, the used index in the guest's memory says which.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::{fs, io};

use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use vm_memory::{AtomicInteger, FileOffset, MmapRegion, VolatileMemory as _};

use super::RING_MAX;

/// Changes with what the file's bytes mean.
const MAGIC: u64 = u64::from_le_bytes(*b"wg-held1");

/// A ring's bytes: its index, and one for each head.
const RING_LEN: usize = 4 + RING_MAX as usize;

/// In the place of a head: none is on its way back.
const NONE: u16 = u16::MAX;

/// The file, of this process alone. It goes when this is dropped with nothing noted.
pub(super) struct Inflight {
    region: Arc<MmapRegion>,
    queues: u16,
    path: PathBuf,
    /// Its lock.
    _file: File,
}

/// One ring's part of it.
pub(super) struct Notes {
    region: Arc<MmapRegion>,
    at: usize,
}

impl Inflight {
    /// Opens what a killed device left behind, or makes a new one. `WouldBlock`: another process has it.
    pub(super) fn open(socket: &Path, queues: u16) -> io::Result<Self> {
        let mut path = socket.as_os_str().to_owned();
        path.push(".inflight");
        let path = PathBuf::from(path);
        let len = 8 + RING_LEN * usize::from(queues);
        let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(&path)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        // Room that is there cannot be missing later, when the file is written as memory.
        fallocate(&file, FallocateFlags::empty(), 0, len as u64)?;
        let region = MmapRegion::from_file(FileOffset::new(file.try_clone()?, 0), len).map_err(io::Error::other)?;
        let inflight = Self { region: Arc::new(region), queues, path, _file: file };
        let magic: &AtomicU64 = atomic(&inflight.region, 0);
        if magic.load(Ordering::Relaxed) != MAGIC {
            (0..queues).for_each(|queue| inflight.notes(queue).begin(0));
            magic.store(MAGIC, Ordering::Release);
        }
        Ok(inflight)
    }

    /// Those of the queue's transmit ring.
    pub(super) fn notes(&self, queue: u16) -> Notes {
        Notes { region: Arc::clone(&self.region), at: 8 + RING_LEN * usize::from(queue) }
    }
}

impl Drop for Inflight {
    fn drop(&mut self) {
        // What a killed device had is for whoever meets its guest again.
        if (0..self.queues).all(|queue| self.notes(queue).is_empty()) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

impl Notes {
    /// Whether the device has this chain.
    pub(super) fn has(&self, head: u16) -> bool {
        head < RING_MAX && self.head(head).load(Ordering::Relaxed) != 0
    }

    /// The device takes a chain.
    pub(super) fn take(&self, head: u16) {
        self.head(head).store(1, Ordering::Release);
    }

    /// A chain is about to go back, by which the used index becomes `used`.
    pub(super) fn giving(&self, head: u16, used: u16) {
        self.index().store(u32::from(used) | u32::from(head) << 16, Ordering::Release);
    }

    /// It has.
    pub(super) fn given(&self, head: u16, used: u16) {
        self.head(head).store(0, Ordering::Release);
        self.settle(used);
    }

    /// The device has nothing, and the used index is this.
    pub(super) fn begin(&self, used: u16) {
        (0..RING_MAX).for_each(|head| self.head(head).store(0, Ordering::Release));
        self.settle(used);
    }

    fn is_empty(&self) -> bool {
        !(0..RING_MAX).any(|head| self.has(head))
    }

    /// What a killed device had when the used index was this; nothing where the notes are of another time.
    pub(super) fn left(&self, used: u16) -> Vec<u16> {
        let index = self.index().load(Ordering::Acquire);
        let (noted, giving) = (index as u16, (index >> 16) as u16);
        let gone = if noted == used {
            giving
        } else if giving != NONE && noted == used.wrapping_add(1) {
            // It did not come to that.
            NONE
        } else {
            return Vec::new();
        };
        (0..RING_MAX).filter(|head| *head != gone && self.has(*head)).collect()
    }

    fn settle(&self, used: u16) {
        self.giving(NONE, used);
    }

    fn index(&self) -> &AtomicU32 {
        atomic(&self.region, self.at)
    }

    fn head(&self, head: u16) -> &AtomicU8 {
        atomic(&self.region, self.at + 4 + usize::from(head))
    }
}

fn atomic<T: AtomicInteger>(region: &MmapRegion, at: usize) -> &T {
    region.get_atomic_ref(at).expect("inside the file")
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a real file")]
mod tests {
    use super::*;
    use tempfile::TempDir;

    /// The process ends after each of the steps, and the used index moved or did not.
    #[test]
    fn what_is_left_is_known_wherever_the_process_ends() {
        let folder = TempDir::new().expect("a folder");
        let socket = folder.path().join("vm.sock");
        let inflight = Inflight::open(&socket, 2).expect("opens");
        let notes = inflight.notes(1);
        notes.begin(u16::MAX);
        [3, 5, 1_023].into_iter().for_each(|head| notes.take(head));
        assert_eq!(notes.left(u16::MAX), [3, 5, 1_023]);
        assert!(notes.left(0).is_empty() && notes.left(7).is_empty(), "another time's");
        notes.giving(5, 0);
        assert_eq!(notes.left(u16::MAX), [3, 5, 1_023], "it had not gone");
        assert_eq!(notes.left(0), [3, 1_023], "it had");
        assert!(notes.left(1).is_empty());
        notes.given(5, 0);
        assert_eq!(notes.left(0), [3, 1_023]);
        assert!(notes.left(u16::MAX).is_empty());
        notes.take(5);
        assert_eq!(notes.left(0), [3, 5, 1_023], "taken again");
        assert!(inflight.notes(0).left(0).is_empty());
    }

    #[test]
    fn the_file_is_one_process_s_and_goes_with_it() {
        let folder = TempDir::new().expect("a folder");
        let socket = folder.path().join("vm.sock");
        let path = folder.path().join("vm.sock.inflight");
        fs::write(&path, b"of an older version, and short").expect("writes");
        let inflight = Inflight::open(&socket, 1).expect("opens");
        assert!(inflight.notes(0).left(0).is_empty());
        let other = Inflight::open(&socket, 1).map(drop).map_err(|e| e.kind());
        assert_eq!(other, Err(io::ErrorKind::WouldBlock));
        drop(inflight);
        assert!(!path.exists());
        let inflight = Inflight::open(&socket, 1).expect("opens");
        inflight.notes(0).take(9);
        drop(inflight);
        let again = Inflight::open(&socket, 1).expect("opens");
        assert_eq!(again.notes(0).left(0), [9], "what was not given back is still known");
    }
}
