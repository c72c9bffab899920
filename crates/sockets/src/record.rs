//! What is kept of an observation: the sample, and what this host knows about it.

use weirgate_units::{Prefix, UnixTime};

use crate::sample::Sample;

/// What every record of one daemon shares; stored once, not per record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    /// The host's name.
    pub host: String,
    /// The point of presence this host serves in; empty where it was not configured.
    pub pop: String,
    /// `/proc/sys/kernel/random/boot_id`: cookies and namespace inodes are unique within one boot only.
    pub boot_id: String,
}

/// Which end opened the connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Direction {
    /// Neither the kernel programs nor a listener on the local port says.
    #[default]
    Unknown = 0,
    /// The remote end opened it: a client of this host.
    Accepted = 1,
    /// This host opened it: a back end.
    Connected = 2,
}

/// One row of the table `sockets`. Borrows its sample: nothing is allocated or copied per record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// What was seen.
    pub sample: &'a Sample,
    /// When, in civil time.
    pub time: UnixTime,
    /// Counts the records of one connection, from 0: a gap is a record that was lost.
    pub sequence: u32,
    /// Which end opened the connection.
    pub direction: Direction,
    /// The listener's port for accepted connections, else 0.
    pub listener_port: u16,
    /// The remote end's network, /24 or /56 by default.
    pub network: Prefix,
    /// Autonomous system of the remote end, 0 where no database knows it.
    pub asn: u32,
    /// The highest delivery rate that this connection was seen at and that its application did not limit, bytes/s; 0 where none
    /// was.
    pub delivery_rate_max: u64,
    /// ISO 3166-1 alpha-2 country of the remote end, zeros where no database knows it.
    pub country: [u8; 2],
}
