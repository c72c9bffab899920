//! What one connection did in one round: the vote it casts.

use core::net::IpAddr;

use weirgate_units::{BitRate, Bytes, Duration};

use crate::record::Direction;
use crate::sample::{Arm, CcName};

/// The change of one connection's totals since they were last taken. Made by the [ledger](crate::ledger), counted by `tune`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The remote end, IPv4 where the connection is.
    pub client: IpAddr,
    /// The local port, by which server ports are told from others.
    pub local_port: u16,
    /// Which end opened the connection.
    pub direction: Direction,
    /// The congestion control in use when it was last seen.
    pub cc: CcName,
    /// What the kernel program had in mind for it when it was last seen.
    pub arm: Arm,
    /// Delivered: acknowledged for the first time.
    pub acked: Bytes,
    /// Sent, retransmissions included.
    pub sent: Bytes,
    /// Sent again.
    pub retransmitted: Bytes,
    /// Time with data outstanding.
    pub busy: Duration,
    /// Part of `busy` in which the receiver's window was the limit.
    pub rwnd_limited: Duration,
    /// Part of `busy` in which the send buffer was the limit.
    pub sndbuf_limited: Duration,
    /// The last delivery-rate sample that the application did not limit, if there was one.
    pub delivery_rate: Option<BitRate>,
    /// Smallest round-trip time seen; zero where none was.
    pub min_rtt: Duration,
    /// Whether these are its last numbers.
    pub closed: bool,
}
