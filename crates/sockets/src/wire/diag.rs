//! One socket's message: `struct inet_diag_msg` and its attributes. Read first: `include/uapi/linux/inet_diag.h`,
//! `inet_sk_diag_fill` and `inet_diag_msg_attrs_fill` in `net/ipv4/inet_diag.c`.

use super::family;
use super::frame::{AttributeError, Attributes, u32_at};
use super::tcp_info::{self, TcpInfoError};
use crate::sample::{CcName, Field, Kind, Sample};

/// Bytes of `struct inet_diag_msg`.
pub const MESSAGE_LEN: usize = 72;

/// Attribute types (`INET_DIAG_*`).
pub mod attribute {
    /// `struct tcp_info`, of the kernel's length.
    pub const INFO: u16 = 2;
    /// The congestion control's name, ended by a zero.
    pub const CONG: u16 = 4;
    /// Socket memory: an array of `u32`, `SK_MEMINFO_*`.
    pub const SKMEMINFO: u16 = 7;
    /// `SO_MARK`; only for readers with CAP_NET_ADMIN.
    pub const MARK: u16 = 15;
    /// `struct tcp_bbr_info`.
    pub const BBRINFO: u16 = 16;
    /// The cgroup v2 id, `u64`.
    pub const CGROUP_ID: u16 = 21;
}

/// A length-checked look at the message of one socket: everything of it can be read, nothing has been judged.
#[derive(Clone, Copy, Debug)]
pub struct View<'a> {
    message: &'a [u8; MESSAGE_LEN],
    attributes: &'a [u8],
}

/// Why a message is not a TCP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiagError {
    /// Shorter than the fixed part.
    #[error("a socket's message of {len} bytes is shorter than {MESSAGE_LEN}")]
    Truncated {
        /// Its length.
        len: usize,
    },
    /// Neither IPv4 nor IPv6.
    #[error("a socket of address family {0} is neither IPv4 (2) nor IPv6 (10)")]
    Family(u8),
    /// An attribute's length cannot be.
    #[error(transparent)]
    Attribute(#[from] AttributeError),
    /// `tcp_info` is too short.
    #[error(transparent)]
    TcpInfo(#[from] TcpInfoError),
    /// An attribute is shorter than its type is in any kernel.
    #[error("the attribute of type {kind} has {len} bytes: too short")]
    AttributeShort {
        /// Its type.
        kind: u16,
        /// Its length without header.
        len: usize,
    },
}

impl<'a> View<'a> {
    /// A view of a message's payload.
    ///
    /// # Errors
    /// [`DiagError::Truncated`].
    pub fn new(payload: &'a [u8]) -> Result<Self, DiagError> {
        let (message, attributes) = payload.split_first_chunk().ok_or(DiagError::Truncated { len: payload.len() })?;
        Ok(Self { message, attributes })
    }

    /// `idiag_family`: see [`family`].
    pub const fn family(&self) -> u8 {
        self.message[0]
    }

    /// `idiag_state`: see [`crate::sample::state`].
    pub const fn state(&self) -> u8 {
        self.message[1]
    }

    /// The local port.
    pub const fn local_port(&self) -> u16 {
        u16::from_be_bytes([self.message[4], self.message[5]])
    }

    /// The remote port.
    pub const fn remote_port(&self) -> u16 {
        u16::from_be_bytes([self.message[6], self.message[7]])
    }

    /// The local address; of an IPv4 socket its first four bytes.
    pub fn local(&self) -> [u8; 16] {
        self.array(8)
    }

    /// The remote address; of an IPv4 socket its first four bytes.
    pub fn remote(&self) -> [u8; 16] {
        self.array(24)
    }

    /// The socket's cookie: two words, the lower first (`sock_diag_save_cookie`).
    pub fn cookie(&self) -> u64 {
        u64::from(u32_at(self.message, 44)) | u64::from(u32_at(self.message, 48)) << 32
    }

    /// Type and value of each attribute.
    pub const fn attributes(&self) -> Attributes<'a> {
        Attributes::new(self.attributes)
    }

    fn array(&self, at: usize) -> [u8; 16] {
        self.message.get(at..).and_then(|b| b.first_chunk()).copied().unwrap_or_default()
    }
}

/// What a message cannot say of its socket: who asked, when, where.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Context {
    /// What the message is the answer to: a dump, or the announcement of a destroyed socket.
    pub kind: Kind,
    /// CLOCK_BOOTTIME in nanoseconds.
    pub time_ns: u64,
    /// Inode number of the network namespace asked.
    pub netns: u32,
}

impl Sample {
    /// The strict value of a socket's message. Attributes that are not known are skipped.
    ///
    /// # Errors
    /// [`DiagError`]: the first thing that cannot be. The caller counts it and goes on with the next message.
    pub fn from_diag(view: &View<'_>, context: Context) -> Result<Self, DiagError> {
        let mut sample = Self {
            len: size_of::<Self>() as u16,
            kind: context.kind as u8,
            state: view.state(),
            local_port: view.local_port(),
            remote_port: view.remote_port(),
            cookie: view.cookie(),
            time_ns: context.time_ns,
            netns: context.netns,
            given: 1 << Field::Netns as u8,
            ..Self::default()
        };
        (sample.local, sample.remote) = match view.family() {
            family::INET => (mapped_v4(view.local()), mapped_v4(view.remote())),
            family::INET6 => (view.local(), view.remote()),
            other => return Err(DiagError::Family(other)),
        };
        // A dual-stack socket names an IPv4 peer by its mapped address.
        let is_v4 = sample.remote[..12] == MAPPED && sample.local[..12] == MAPPED;
        sample.family = if is_v4 { 4 } else { 6 };
        for attribute in view.attributes() {
            let (kind, value) = attribute?;
            let short = || DiagError::AttributeShort { kind, len: value.len() };
            match kind {
                attribute::INFO => tcp_info::read(value, &mut sample)?,
                attribute::CONG => {
                    sample.cc = CcName::from_kernel(value);
                    sample.set_given(Field::Cc);
                }
                attribute::SKMEMINFO => read_memory(value, &mut sample).ok_or_else(short)?,
                attribute::MARK => {
                    sample.mark = u32::from_ne_bytes(*value.first_chunk().ok_or_else(short)?);
                    sample.set_given(Field::Mark);
                }
                attribute::BBRINFO => read_bbr(value, &mut sample).ok_or_else(short)?,
                attribute::CGROUP_ID => {
                    sample.cgroup_id = u64::from_ne_bytes(*value.first_chunk().ok_or_else(short)?);
                    sample.set_given(Field::CgroupId);
                }
                _ => {}
            }
        }
        Ok(sample)
    }
}

/// The first twelve bytes of `::ffff:a.b.c.d`.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

fn mapped_v4(address: [u8; 16]) -> [u8; 16] {
    let mut mapped = [0; 16];
    mapped[..12].copy_from_slice(&MAPPED);
    mapped[12..].copy_from_slice(&address[..4]);
    mapped
}

/// `SK_MEMINFO_*` of `include/uapi/linux/sock_diag.h`; the count of drops came with 4.7.
fn read_memory(value: &[u8], sample: &mut Sample) -> Option<()> {
    let word = |n: usize| value.get(n * 4..).and_then(|b| b.first_chunk()).map(|b| u32::from_ne_bytes(*b));
    sample.rmem_alloc = word(0)?;
    sample.rcvbuf = word(1)?;
    sample.sndbuf = word(3)?;
    sample.wmem_queued = word(5)?;
    sample.backlog_drops = word(8).unwrap_or(0);
    sample.set_given(Field::Memory);
    Some(())
}

/// `struct tcp_bbr_info`: the bandwidth's two halves, smallest round trip, and the gains, where 256 is 1.0.
fn read_bbr(value: &[u8], sample: &mut Sample) -> Option<()> {
    let value: &[u8; 20] = value.first_chunk()?;
    sample.bbr_bw = u64::from(u32_at(value, 0)) | u64::from(u32_at(value, 4)) << 32;
    sample.bbr_min_rtt_us = tcp_info::measured(u32_at(value, 8));
    sample.bbr_pacing_gain = u16::try_from(u32_at(value, 12)).unwrap_or(u16::MAX);
    sample.bbr_cwnd_gain = u16::try_from(u32_at(value, 16)).unwrap_or(u16::MAX);
    sample.set_given(Field::Bbr);
    Some(())
}

#[cfg(test)]
mod tests;
