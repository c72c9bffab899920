//! A packet, the place it passes through, and the fault that is such a place around another.
//!
//! A [`Port`] has two verbs and a deadline: packets go in by [`handle_packet`](Port::handle_packet), come out by
//! [`poll_packet`](Port::poll_packet), and [`poll_at`](Port::poll_at) says when to ask again. [`Wire`] passes everything
//! at once. [`Impair`] puts rate, queue, loss, delay, jitter and outage before any `Port`. No clock, no I/O: tests, the
//! lab and the simulator drive the same code, the first and the last in virtual time.
#![forbid(unsafe_code)]

mod impair;
mod offload;
mod packet;
mod wire;

pub use impair::{Chance, Counters, Impair, Settings};
pub use offload::{Checksum, Gso, GsoKind, Offload, OffloadError};
pub use packet::{Hold, Packet, STANDARD_CAPACITY};
pub use wire::Wire;

use weirgate_units::Instant;

/// Where packets pass, in one direction, perhaps delayed, perhaps not at all.
///
/// Every `now` must be at or after the one before.
pub trait Port {
    /// Takes a packet in. Its fate is counted by whoever drops it.
    fn handle_packet(&mut self, now: Instant, packet: Packet);

    /// Gives the next packet that has come through by `now`, in order; [`Packet::at`] is the instant at which it came
    /// through, at or before `now` and exact whenever it is asked. Call until `None`.
    fn poll_packet(&mut self, now: Instant) -> Option<Packet>;

    /// When to call [`poll_packet`](Self::poll_packet) again, if nothing goes in before. `None`: nothing will come.
    fn poll_at(&self) -> Option<Instant>;
}
