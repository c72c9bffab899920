//! Polling by the kernel's TCP iterator: every socket of a network namespace, filtered and filled in the kernel, a record
//! of 296 bytes each. Twin: `bpf/poll.bpf.c`. Read first: Documentation/bpf/bpf_iterators.rst.
//!
//! A socket costs 1.3 us until its record is in the store, about a third less than by netlink, and a third fewer bytes; nothing is
//! allocated per socket.

use std::io::{self, Read};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle};
use weirgate_sockets::decode::DecodeError;
use weirgate_sockets::sample::Sample;
use zerocopy::{FromBytes, FromZeros, IntoBytes};

use super::filter::{FilterTooLong, WireFilter};
use super::load::{LoadError, check_shared, explain, tick_us};
use crate::netns::Netns;
use crate::poll::{Filter, PollStats};

const PROGRAM: &str = "poll.bpf.c";
const NEEDS: &str = "it needs Linux 5.15 or later with CONFIG_BPF_SYSCALL, CONFIG_INET and CONFIG_DEBUG_INFO_BTF; \
                     poll by netlink instead";

/// The kernel hands over at most 32 KB a call (`PAGE_SIZE << 3` in kernel/bpf/bpf_iter.c), cut between records where this
/// much is asked for, and within them where less is.
const READ_BYTES: usize = 32 * 1024;

/// The iterator, loaded: one for the process, for any number of namespaces.
pub struct IterPoller {
    link: Link,
    filter_map: MapHandle,
    /// The filter that the kernel has.
    filter: Option<Filter>,
    wire: Box<WireFilter>,
    /// Eight-byte words, so that records can be read where they lie.
    buffer: Vec<u64>,
}

/// A poll that stopped.
#[derive(Debug, thiserror::Error)]
pub enum PollError {
    /// The filter holds more than the kernel program has room for.
    #[error(transparent)]
    Filter(#[from] FilterTooLong),
    /// The namespace cannot be entered.
    #[error("cannot enter the network namespace `{name}`: {source}; it needs CAP_SYS_ADMIN")]
    Namespace {
        /// As it was opened; empty is the current one.
        name: String,
        /// From setns(2).
        source: io::Error,
    },
    /// The iterator cannot be opened, or the filter not be set.
    #[error("cannot open the socket iterator: {0}; it needs CAP_BPF or root")]
    Open(libbpf_rs::Error),
    /// Reading stopped half-way.
    #[error("the socket iterator stopped: {0}")]
    Read(io::Error),
}

impl IterPoller {
    /// Loads the program. What other programs remember of the connections (which end opened them, what the policy had in
    /// mind) is then left out of the samples: looking it up costs half as much again as the whole poll (100 ms instead of
    /// 70 ms of kernel time per 100,000 sockets), and close records have it anyhow. See [`Self::load_sharing`].
    pub fn load() -> Result<Self, LoadError> {
        Self::load_with(None)
    }

    /// Loads the program with the map in which other programs remember what they know of each connection: that of
    /// [`Closes::conns`](super::Closes::conns), or the one that steering pinned.
    pub fn load_sharing(conns: BorrowedFd<'_>) -> Result<Self, LoadError> {
        Self::load_with(Some(conns))
    }

    fn load_with(conns: Option<BorrowedFd<'_>>) -> Result<Self, LoadError> {
        check_shared(PROGRAM, conns, size_of::<skel::types::wg_conn>())?;
        let mut object = MaybeUninit::uninit();
        explain(PROGRAM, NEEDS, || {
            let mut open = skel::PollSkelBuilder::default().open(&mut object)?;
            if let Some(data) = open.maps.rodata_data.as_deref_mut() {
                data.tick_us = tick_us();
                data.conns_wanted = conns.is_some();
            }
            if let Some(fd) = conns {
                open.maps.conns.reuse_fd(fd)?;
            }
            let skel = open.load()?;
            // The link holds the program and the handle the map: the rest of the object can go.
            Ok(Self {
                link: skel.progs.wg_poll.attach_iter_with_opts(libbpf_rs::IterOpts::None)?,
                filter_map: MapHandle::try_from(&skel.maps.data_filter)?,
                filter: None,
                wire: Box::new(WireFilter::new_zeroed()),
                buffer: vec![0; READ_BYTES / 8],
            })
        })
    }

    /// Hands every socket of `ns` that `filter` wants to `each`: listeners first, then the others, in no order.
    ///
    /// A socket that opens or closes meanwhile may be missed or, rarely, seen twice. Work: one kernel call per 110
    /// sockets, no allocation.
    pub fn poll(&mut self, ns: &Netns, filter: &Filter, each: &mut dyn FnMut(&Sample)) -> Result<PollStats, PollError> {
        self.apply(filter)?;
        // The iterator belongs to the namespace that it is opened in, wherever it is read.
        let mut iter = ns
            .within(|| Iter::new(&self.link))
            .map_err(|source| PollError::Namespace { name: ns.name().to_owned(), source })?
            .map_err(PollError::Open)?;
        let mut stats = PollStats::default();
        let buffer = self.buffer.as_mut_bytes();
        let mut filled = 0;
        loop {
            let got = read_on(&mut iter, &mut buffer[filled..]).map_err(PollError::Read)?;
            if got == 0 {
                break;
            }
            stats.bytes += got as u64;
            filled += got;
            let used = records(&buffer[..filled], &mut stats, each);
            // A record cut in two waits for its end at the buffer's beginning.
            buffer.copy_within(used..filled, 0);
            filled -= used;
        }
        // Bytes without a record to belong to: the writer and this reader disagree.
        stats.lost += u64::from(filled > 0);
        Ok(stats)
    }

    /// Tells the kernel what is wanted, if it does not know yet.
    fn apply(&mut self, filter: &Filter) -> Result<(), PollError> {
        if self.filter.as_ref() == Some(filter) {
            return Ok(());
        }
        self.wire.set(filter)?;
        self.filter_map.update(&0u32.to_ne_bytes(), self.wire.as_bytes(), MapFlags::ANY).map_err(PollError::Open)?;
        self.filter = Some(filter.clone());
        Ok(())
    }
}

/// Reads what comes next; 0 is the end. The kernel says EAGAIN after a million sockets that yielded nothing
/// (`MAX_ITER_OBJECTS` in kernel/bpf/bpf_iter.c), and goes on where it was.
pub(super) fn read_on(iter: &mut Iter, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match iter.read(buffer) {
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {}
            result => return result,
        }
    }
}

/// Hands over the whole records at the beginning of `bytes`; returns how many bytes they took.
fn records(bytes: &[u8], stats: &mut PollStats, each: &mut dyn FnMut(&Sample)) -> usize {
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        // Nearly all are whole, and are read where they lie.
        if let Some(record) = rest.get(..size_of::<Sample>())
            && let Ok(sample) = Sample::ref_from_bytes(record)
            && usize::from(sample.len) == size_of::<Sample>()
        {
            each(sample);
            at += size_of::<Sample>();
        } else {
            match Sample::from_bytes(rest) {
                Ok((sample, taken)) => {
                    each(&sample);
                    at += taken;
                }
                Err(DecodeError::Truncated { .. }) => break,
                Err(DecodeError::TooShort { .. }) => {
                    // Not a record of ours: nothing after it can be found, either.
                    stats.lost += 1;
                    return bytes.len();
                }
            }
        }
        stats.sockets += 1;
    }
    at
}

impl core::fmt::Debug for IterPoller {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("IterPoller").field("filter", &self.filter).finish_non_exhaustive()
    }
}

skeleton!("/poll.skel.rs");
