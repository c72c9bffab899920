//! The packet pipeline: where does this packet go?
//!
//! A [`Switch`] owns output ports and tables of routes. A packet comes in with the table of the device that read it; its
//! destination (IPv4 or IPv6, nothing else) is looked up, longest prefix first, and the port found takes it. A wheel of
//! deadlines says which ports have something to give, so that a hundred idle ones cost nothing. Layer 3 only: the lab's
//! devices are TUN, and no Ethernet, ARP or neighbour discovery is needed. TTL is not counted down and no header is
//! touched: to the hosts at its ends the switch is a wire.
//!
//! Beside it stands a layer 2 switch that limits, the [`bridge`], and its parts: [`frame`] reads a frame, says what it counts for
//! and cuts super-packets, [`class`] says which class it is of, [`limits`] when it may leave, [`Macs`] which port leads to its
//! receiver.
#![forbid(unsafe_code)]

pub mod bridge;
pub mod class;
pub mod frame;
mod header;
pub mod limits;
mod macs;
mod switch;
mod table;

pub use header::{HeaderError, destination};
pub use macs::{AGE_MAX, Decision, Learnt, Macs, MacsFull};
pub use switch::{Counters, PortId, Switch, TableId};
pub use table::Table;
