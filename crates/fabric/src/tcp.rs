//! TCP in segments: a sender and a receiver for each flow, as RFC 5681, 6298, 6675, 8257 and 9438 have them.
//!
//! Numbers of segments stand for those of bytes: segment `n` is the `n`-th MSS of a flow, the last one may be shorter. The receiver always
//! sends selective acknowledgements, and each segment carries when it was sent (RFC 7323).

mod board;
mod control;
mod receiver;
mod sender;

pub use control::ControlKind;
pub(crate) use receiver::{Receiver, Reply, Segment};
pub(crate) use sender::{Ack, Sender};

use crate::Span;

/// What hosts' TCP is set to; the default is Linux's of these days, but for congestion control.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TcpSettings {
    /// Payload of a full segment, in bytes.
    pub mss: u16,
    /// What a segment has on the wire beside its payload: with 78 bytes, Ethernet with preamble and gap, IPv4 and TCP without options.
    pub overhead: u16,
    /// An ACK on the wire: 84 bytes are Ethernet's shortest frame, with preamble and gap.
    pub ack_wire: u16,
    /// Congestion control.
    pub control: ControlKind,
    /// Segments that may be sent at the start (RFC 6928).
    pub initial_window: u16,
    /// Segments that the receiver has room for.
    pub receive_window: u32,
    /// The retransmission timer is never shorter.
    pub min_rto: Span,
    /// Nor longer.
    pub max_rto: Span,
    /// A segment is lost when so many beyond it have arrived.
    pub dup_ack_threshold: u32,
    /// A sender that learns of re-ordering, as Linux's does: when a segment arrives though others beyond it came first, the threshold
    /// becomes what would have waited for it, up to this; and what a segment that was not lost did to the window is undone (RFC 3522,
    /// 4015). Where this is no more than `dup_ack_threshold`, senders do neither.
    pub reordering_max: u32,
    /// An ACK is sent for every so many segments; those out of order, and those that fill a hole, have one at once.
    pub ack_every: u16,
    /// One that was put off is sent after this.
    pub ack_delay: Span,
    /// So many segments are acknowledged at once at a flow's start, and again after a pause of `min_rto` (Linux: as half of its receive
    /// window has, at most 16; it does not wait for a second segment then, of which a sender has none whose timer has run out).
    pub quick_acks: u16,
    /// A flow's packets wait in the host's own queue for no longer than this; the others are not sent yet.
    pub host_queue: Span,
    /// What arrives out of order is held below TCP for so long (Presto's shim); nothing: it is not.
    pub shim: Option<Span>,
    /// Segments in order that arrive within this of the first one are one batch (GRO), up to 64 KB.
    pub batch_time: Span,
}

impl Default for TcpSettings {
    fn default() -> Self {
        Self {
            mss: 1_460,
            overhead: 78,
            ack_wire: 84,
            control: ControlKind::NewReno,
            initial_window: 10,
            receive_window: 2_800,
            min_rto: Span::from_micros(200_000),
            max_rto: Span::from_micros(120_000_000),
            dup_ack_threshold: 3,
            reordering_max: 0,
            ack_every: 2,
            ack_delay: Span::from_micros(40_000),
            quick_acks: 0,
            host_queue: Span::from_micros(100),
            shim: None,
            batch_time: Span::from_micros(20),
        }
    }
}

impl TcpSettings {
    /// The segments of a flow of so many bytes, at least 1, and the payload of the last one.
    pub(crate) fn segments(&self, bytes: u64) -> (u32, u16) {
        let mss = u64::from(self.mss);
        let count = bytes.div_ceil(mss).max(1);
        let last = bytes - (count - 1) * mss;
        (u32::try_from(count).unwrap_or(u32::MAX), last as u16)
    }

    /// Bytes on the wire, in packets that are not sent twice, of a flow of so many.
    pub fn wire_bytes(&self, bytes: u64) -> u64 {
        bytes + u64::from(self.segments(bytes).0) * u64::from(self.overhead)
    }
}
