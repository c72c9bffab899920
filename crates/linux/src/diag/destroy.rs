//! Closes without BPF: the kernel's announcements of destroyed TCP sockets. Read first: `sock_diag_broadcast_destroy` in
//! `net/core/sock_diag.c`.
//!
//! **Uncounted**: the kernel drops an announcement when the reader is slow or memory is short, and tells how many it
//! dropped to nobody. One ENOBUFS says that at least one is missing. The sockops program is the counted source; this is
//! what remains where there is no BPF. An announcement has addresses, cookie and the full final `tcp_info`; it has no
//! congestion control's name, no BBR numbers, mark, cgroup or memory, and the state is always CLOSE. An end that
//! sends a reset by SO_LINGER has forgotten its peer and its counters by then (`tcp_disconnect`): its remote port is 0,
//! and only the cookie tells the ledger what it was. A socket is announced when it enters TIME-WAIT, not when it leaves.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::RecvFlags;
use rustix::net::sockopt::{set_socket_recv_buffer_size, set_socket_recv_buffer_size_force};
use weirgate_sockets::sample::{Kind, Sample};
use weirgate_sockets::wire::diag::Context;
use weirgate_sockets::wire::frame::{Messages, Reply};

use super::{BUFFER_LEN, Received, open, receive, sample};
use crate::clock;
use crate::netns::Netns;

/// `SKNLGRP_INET_TCP_DESTROY` (1) and `SKNLGRP_INET6_TCP_DESTROY` (3): group n is bit n - 1.
const GROUPS: u32 = 0b101;

/// An announcement takes 1,280 bytes of a socket's budget (measured on Linux 6.18): room for 6,500 closes while the daemon
/// does something else.
const SOCKET_BUFFER_LEN: usize = 8 << 20;

/// Datagrams read in one call of [`DestroyListener::drain`], so that closes never starve the rest of the daemon.
const DATAGRAMS_MAX: usize = 16_384;

/// Hears of the closes of one namespace.
#[derive(Debug)]
pub struct DestroyListener {
    socket: OwnedFd,
    netns: u32,
    buffer: Vec<u8>,
    stats: DestroyStats,
}

/// What came since the listener was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DestroyStats {
    /// Samples handed over.
    pub closes: u64,
    /// Times that the kernel said ENOBUFS: after each, **at least one** close is missing, and nobody knows how many.
    pub overruns: u64,
    /// Announcements that could not be parsed.
    pub malformed: u64,
}

/// Why closes cannot be heard.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The namespace could not be entered.
    #[error("cannot enter the network namespace `{name}`: {source}; it takes CAP_SYS_ADMIN")]
    Namespace {
        /// Its name.
        name: String,
        /// What setns(2) said.
        source: io::Error,
    },
    /// No socket, or not in the groups.
    #[error("cannot hear of destroyed sockets: {0}; the kernel announces them since 4.3, with CONFIG_INET_DIAG")]
    Open(#[source] io::Error),
    /// Reading failed; what came before is good.
    #[error("netlink broke off: {0}; open the listener again")]
    Receive(#[source] io::Error),
}

impl DestroyListener {
    /// Begins to hear of the closes in `ns`, and keeps the namespace alive.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn open(ns: &Netns) -> Result<Self, ListenError> {
        Self::with_buffer(ns, SOCKET_BUFFER_LEN)
    }

    /// The same with room for `buffer_len` bytes of announcements, as the kernel counts them.
    ///
    /// # Errors
    /// [`ListenError`].
    pub fn with_buffer(ns: &Netns, buffer_len: usize) -> Result<Self, ListenError> {
        let socket = ns
            .within(|| open(GROUPS))
            .map_err(|source| ListenError::Namespace { name: ns.name().to_owned(), source })?
            .map_err(|e| ListenError::Open(e.into()))?;
        // Past the system's limit where privileges allow, up to it elsewhere. The kernel doubles what it is told.
        set_socket_recv_buffer_size_force(&socket, buffer_len / 2)
            .or_else(|_| set_socket_recv_buffer_size(&socket, buffer_len / 2))
            .map_err(|e| ListenError::Open(e.into()))?;
        Ok(Self { socket, netns: ns.inode(), buffer: vec![0; BUFFER_LEN], stats: DestroyStats::default() })
    }

    /// Hands the closes that wait to `each`, at most 16,384, and returns their number; never blocks. Their time is the
    /// time of this call, so call it when [`Self::as_fd`] is readable.
    ///
    /// # Errors
    /// [`ListenError::Receive`].
    pub fn drain(&mut self, each: &mut dyn FnMut(&Sample)) -> Result<usize, ListenError> {
        let context = Context { kind: Kind::Close, time_ns: clock::boottime().as_nanos(), netns: self.netns };
        let before = self.stats.closes;
        for _ in 0..DATAGRAMS_MAX {
            let len = match receive(&self.socket, &mut self.buffer, RecvFlags::DONTWAIT) {
                Ok(Received::Whole(len) | Received::Cut(len)) => len,
                Err(Errno::AGAIN) => break,
                Err(Errno::NOBUFS) => {
                    self.stats.overruns += 1;
                    continue;
                }
                Err(e) => return Err(ListenError::Receive(e.into())),
            };
            for message in Messages::new(&self.buffer[..len]) {
                let socket = message.and_then(|m| m.reply());
                match socket {
                    Ok(Reply::Socket(payload)) => match sample(payload, context) {
                        Some(sample) => {
                            self.stats.closes += 1;
                            each(&sample);
                        }
                        None => self.stats.malformed += 1,
                    },
                    Ok(_) => {}
                    Err(_) => self.stats.malformed += 1,
                }
            }
        }
        Ok((self.stats.closes - before) as usize)
    }

    /// What came since the listener was opened.
    pub const fn stats(&self) -> DestroyStats {
        self.stats
    }
}

impl AsFd for DestroyListener {
    /// Readable when closes wait.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
