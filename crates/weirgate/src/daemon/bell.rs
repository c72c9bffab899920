//! How other threads reach a loop that sleeps.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::event::{EventfdFlags, eventfd};

/// What another thread needs to reach the loop.
#[derive(Clone)]
pub(crate) struct Bell {
    wake: Arc<OwnedFd>,
    stop: Arc<AtomicBool>,
}

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { wake: Arc::new(wake), stop: Arc::new(AtomicBool::new(false)) })
    }

    /// Makes the loop look at its calls.
    pub(crate) fn ring(&self) {
        // A full counter is a bell that rings already.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }

    /// Makes the loop end.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.ring();
    }

    /// Whether the loop is to end.
    pub(crate) fn is_stopped(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Readable once it was rung, until [`Self::clear`].
    pub(crate) fn as_fd(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Forgets that it was rung.
    pub(crate) fn clear(&self) {
        let _ = rustix::io::read(&self.wake, &mut [0u8; 8]);
    }
}
