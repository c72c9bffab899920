//! Everything about a single frame: what it is, what it counts for, how it is cut into smaller ones.
//!
//! - [`Frame`] says where a frame's headers are and what they say, from Ethernet or from the IP header on.
//! - [`Accounting`] gives the bytes that a limit counts it for: what it, or the packets that it is to be cut into, take on the
//!   wire.
//! - [`Segments`] cuts a super-packet, one output at a time, as the kernel's software segmentation does.
//! - [`checksum`] has the arithmetic, and finishes what was left to the device; [`Frame::mark_ce`] signals congestion.
//!
//! Bytes from outside are read by length-checked looks only; what is wrong with them is a value that can be counted. Work is
//! bounded by the number of headers, at most [`EXTENSIONS_MAX`] IPv6 extension headers, and, where a checksum is asked for,
//! by the frame's length.

pub mod checksum;
mod ecn;
mod flow;
mod ip;
mod link;
mod parse;
mod segment;
mod size;
#[cfg(test)]
pub(crate) mod testing;

pub use ecn::NotEct;
pub use flow::FlowKey;
pub(crate) use flow::Seeded;
pub use ip::{Ecn, Fragment, Ip, TcpFlags, Transport};
pub use link::{Link, Mac, ParseMacError};
pub use parse::{EXTENSIONS_MAX, Frame, FrameError};
pub use segment::{HEADERS_MAX, Segment, SegmentError, Segments, Sums};
pub use size::{Accounting, Layer, WireSize};
