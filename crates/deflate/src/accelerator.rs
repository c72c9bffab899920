//! A device that compresses for processes of this host, in memory that it shares with them.
//!
//! The memory is a file without a name that the device's process has made and sealed, so that nobody can cut it off below the others
//! (memfd_create(2), F_SEAL_SHRINK); it hands it to whoever connects. It has *instances*, as the cards of Intel's that the word comes from:
//! each takes one body at a time and answers with what it became. A thread that compresses takes an instance ([`Holder`]), keeps it from
//! one body to the next, and gives it back at its end; one that has not used it for [`LEASE`] loses it. The thread writes its body, and
//! waits, asleep after a while, until the answer is there. Where there is no instance, no answer in time, or a wrong one, it has the body
//! still, and compresses it itself: a [`Reason`](crate::count::Reason) each.
//!
//! Ground rules:
//!
//! - Either side may vanish at any time, or write anything. What comes from the other one is copied once, its lengths are held against the
//!   room there is, and a body is delivered only after it was decompressed and found to be what was sent.
//! - A call makes no call to the system but to sleep.
//! - The device finds whose process has gone by the time since an instance was used, so processes may be in other PID namespaces. All are
//!   on one host, whose monotonic clock they share.

mod batched;
mod client;
mod memory;
mod server;
mod simulated;
#[cfg(test)]
mod tests;
mod word;

// In the place of which tests/loom.rs has its own.
use std::sync::atomic;

pub use batched::{Batched, Pulse};
pub use client::{Client, Device, Holder, Patience};
pub use memory::{BODY_MAX, Memory};
pub use server::{Job, Server};
pub use simulated::{Faults, Simulated};

/// What a step of a device did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// There was nothing to do.
    Idle,
    /// It took a body, or answered one.
    Busy,
    /// The device has died.
    Crashed,
}

/// For how long an instance that is not used stays its holder's, in nanoseconds.
pub const LEASE: u64 = 10_000_000_000;

/// After how long without a sign of life a device counts as gone, in nanoseconds.
pub const ALIVE: u64 = 100_000_000;
