//! The bytes of `NETLINK_SOCK_DIAG`: a lenient, length-checked view of each message, and a strict value, the
//! [`Sample`](crate::sample::Sample).
//!
//! Read first: sock_diag(7), netlink(7), `include/uapi/linux/inet_diag.h`, `net/ipv4/inet_diag.c`.
//!
//! - [`frame`]: netlink messages in a buffer, attributes in a message.
//! - [`request`]: what is asked for; [`bytecode`]: the filter that the kernel runs over each socket.
//! - [`diag`]: one socket's message to a `Sample`; [`tcp_info`]: its largest attribute, read by length.
//! - [`emit`]: the way back, for tests and fuzzing: a `Sample` as a kernel of a given age would send it.
//!
//! Bytes come from the kernel, of any version past and to come: what is unknown is skipped, what is missing is not
//! given, what is cut short or contradicts itself is an error. No input panics. Numbers are in the host's byte order but
//! for ports and addresses.

pub mod bytecode;
pub mod diag;
pub mod emit;
pub mod frame;
pub mod request;
pub mod tcp_info;

/// Address families as netlink writes them (`include/linux/socket.h`).
pub mod family {
    /// IPv4.
    pub const INET: u8 = 2;
    /// IPv6, which mapped IPv4 connections of dual-stack sockets come under too.
    pub const INET6: u8 = 10;
}
