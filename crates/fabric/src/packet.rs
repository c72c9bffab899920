//! What is under way: a packet that will arrive, or a timer that will run out.

/// A packet. With its time and its link in a list it fills a cache line, no more.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet {
    /// The line that it arrives by.
    pub(crate) line: u32,
    pub(crate) flow: u32,
    /// Of data, the segment; of an ACK, the segment that is expected next.
    pub(crate) seq: u32,
    /// What switches hash: the flow's, or a label's or an entropy's. With Presto, the number of its way above its leaf, of which each switch
    /// that has a choice takes a digit.
    pub(crate) hash: u32,
    /// The host that it goes to.
    pub(crate) host: u32,
    /// Of data, when it was sent, in nanoseconds modulo 2^32; of an ACK, that of the segment that it answers.
    pub(crate) sent: u32,
    /// The leaf that it goes to, and the one that it comes from, by their places among the leaves.
    pub(crate) leaf: u16,
    pub(crate) from_leaf: u16,
    /// Bytes on the wire.
    pub(crate) wire: u16,
    /// The place of the uplink that its sender chose (Presto); of an ACK, with REPS, the entropy of the segment before the last that it
    /// answers.
    pub(crate) tree: u16,
    /// How often its line had gone down when it was taken in.
    pub(crate) epoch: u16,
    pub(crate) kind: Kind,
    /// Congestion was experienced; of an ACK, it is echoed.
    pub(crate) ce: bool,
    /// CONGA's header, as `weirgate_balance::Header` has it.
    pub(crate) uplink: u8,
    pub(crate) congestion: u8,
    pub(crate) feedback: [u8; 2],
    /// Of an ACK, up to three blocks of segments that arrived out of order: how far beyond the expected one, and how many.
    pub(crate) sack: [(u16, u16); 3],
}

/// What a packet is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Data,
    Ack,
}

/// A feedback that tells nothing: CONGA's uplinks are at most 256, and so is a place.
pub(crate) const NO_FEEDBACK: [u8; 2] = [u8::MAX; 2];

/// What happens at some time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Event {
    /// A packet arrives at the end of a line.
    Packet(Packet),
    /// Timers of flows may have run out.
    Timers,
    /// A flow has waited for its host's queue to become shorter.
    Wake(u32),
    /// What the re-order shim has held of a flow may have waited for long enough.
    Shim(u32),
    /// The workload has something to start.
    Arrival,
    /// Queues are measured.
    Sample,
    /// The network changes: the so-many-th change of the scenario.
    Change(u32),
    /// Routing has learnt of it.
    Reroute(u32),
}

const _: () = assert!(size_of::<Event>() <= 52, "a node of the events is 64 bytes");
