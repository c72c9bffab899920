//! What the ledger counts: nothing is lost in silence.

/// Totals since the ledger was made. Only ever grow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections that a poll showed for the first time.
    pub opened: u64,
    /// Close records kept, each the last of its connection.
    pub closes: u64,
    /// Of `closes`: connections that no poll had shown, mostly shorter than the interval.
    pub closes_unpolled: u64,
    /// **Lost**: connections that a poll showed and the next two did not, without a close record. What they did after
    /// the last poll that showed them is unknown.
    pub vanished: u64,
    /// Of `vanished`: found after all, by a late close record or a later poll. `vanished - recovered` is what is lost.
    pub recovered: u64,
    /// Connections that one poll left out and a later one showed again (the kernel's walk is not atomic).
    pub skipped: u64,
    /// Close records of a connection whose close was reported before, by this source or the other. Dropped.
    pub closes_repeated: u64,
    /// Second samples of a connection in one poll. Dropped.
    pub polls_repeated: u64,
    /// Poll samples that were read before a close and came after it. Dropped: the close tells more.
    pub polls_after_close: u64,
    /// Sockets that are no connections: TIME-WAIT, SYN-RECV, never connected. Dropped.
    pub pseudo: u64,
    /// Samples of connections for which there was no room; see [`Options::connections_max`](super::Options).
    pub untracked: u64,
    /// Samples without a cookie. Dropped: they belong to no account.
    pub without_identity: u64,
}

impl Counts {
    /// Connections whose last moments are unknown.
    pub const fn lost(&self) -> u64 {
        self.vanished - self.recovered
    }
}
