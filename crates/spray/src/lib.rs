//! One transfer over all paths: a multipath transport as a state machine.
//!
//! Read first: RFC 9000 and 9002 (QUIC), whose words these are; Shalev et al., A Cloud-Optimized Transport Protocol for Elastic and Scalable
//! HPC, IEEE Micro 2020 (reliable, and out of order).
//!
//! Every datagram says where its bytes belong, and they are written there as they come, in any order. So no path waits for a slower one, and
//! what is lost on one path is sent again by whichever has room first.
//!
//! - [`Connection`] is one side of a transfer: objects, paths, timers. [`wire`] is what a datagram looks like, [`crypto`] who may read it, [`cookie`] who
//!   is where he says.
//! - [`control`] is how fast each path is sent on, [`rtt`] how long it takes, [`ranges`] what came of anything.
//!
//! A program that has an object to send, or receives some, runs a [`Connection`] by `weirgate_linux::transport`, or by a loop of its own:
//! datagrams go into [`Connection::handle_datagram`] and come out of [`Connection::poll_transmit`], and [`Connection::poll_at`] says when
//! time is to be looked at. `crates/linux/examples/object.rs` is a whole one.
//!
//! Nothing here reads a clock or opens a socket. Randomness comes from a seed, but for the keys of a handshake, which are the system's.
#![forbid(unsafe_code)]

pub mod connection;
pub mod control;
pub mod cookie;
pub mod crypto;
pub mod datagrams;
pub mod object;
pub mod ranges;
pub mod rtt;
pub mod wire;

mod path;
#[cfg(test)]
mod tests;

pub use connection::{Closed, Connection, Event, PathReport, Settings, Transmit};
pub use crypto::{Public, Secret};
pub use datagrams::{DatagramCounts, DatagramError};
pub use object::{Sink, Source};
pub use path::Counts;
