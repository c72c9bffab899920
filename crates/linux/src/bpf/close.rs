//! The last numbers of every TCP connection, as it closes. Twin: `bpf/close.bpf.c`.
//!
//! A sockops program on a control group writes one record per close into a ring buffer. It is the counted source: what
//! the ring had no room for is known ([`CloseCounters`]), so nothing is lost silently. Nothing is pinned: the program goes
//! when [`Closes`] is dropped or its process dies.

use std::fs::File;
use std::io;
use std::mem::MaybeUninit;
use std::net::TcpListener;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Iter, Link, MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use rustix::net::sockopt;
use weirgate_sockets::sample::Sample;
use weirgate_units::Bytes;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes, KnownLayout};

use super::filter::{FilterTooLong, WireFilter};
use super::load::{LoadError, check_shared, explain, tick_us};
use super::poll::read_on;
use crate::netns::Netns;
use crate::poll::Filter;

const PROGRAM: &str = "close.bpf.c";
const NEEDS: &str = "it needs Linux 5.15 or later with CONFIG_CGROUP_BPF and CONFIG_DEBUG_INFO_BTF; \
                     use netlink's destroy multicast instead";

/// Room for the closes of a burst until the next drain. The fastest burst measured was 79,000 closes/s; at one drain per
/// 200 ms that is 15,800 records of 304 bytes, 4.8 MB; the next power of two holds 340 ms of it.
pub const RING_BYTES: Bytes = Bytes::new(8 << 20);

/// Samples taken from the ring between two hand-overs; bounds the memory of [`Closes::drain`] to 76 KB.
const BATCH: usize = 256;

/// The close programs, attached.
pub struct Closes {
    _link: Link,
    arm: Link,
    ring: RingBuffer<'static>,
    ring_map: MapHandle,
    counts: MapHandle,
    arm_count: MapHandle,
    conns: MapHandle,
    filter: MapHandle,
    namespaces: MapHandle,
    batch: Arc<Mutex<Vec<Sample>>>,
    spare: Vec<Sample>,
}

/// Totals since the attachment, over all CPUs. `seen` is `ring_failures` plus the records that [`Closes::drain`] has handed
/// over or will.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CloseCounters {
    /// Connections whose close the program saw.
    pub seen: u64,
    /// Closes whose record found no room in the ring: lost, but counted.
    pub ring_failures: u64,
}

/// What a pass over the sockets that were open before the attachment did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Armed {
    /// Sockets whose close will now be recorded.
    pub armed: u64,
    /// Sockets whose close would have been recorded anyhow.
    pub before: u64,
    /// Sockets on which the callback could not be turned on.
    pub failures: u64,
}

/// A filter that could not be set.
#[derive(Debug, thiserror::Error)]
pub enum SetFilterError {
    /// It holds more than the kernel program has room for.
    #[error(transparent)]
    Filter(#[from] FilterTooLong),
    /// The kernel refused.
    #[error(
        "cannot tell the close program what is wanted: {0}; it needs CAP_BPF or root, and at most 4,096 namespaces"
    )]
    Map(libbpf_rs::Error),
}

/// A pass over older sockets that could not be made.
#[derive(Debug, thiserror::Error)]
pub enum ArmError {
    /// The kernel has no way to turn a callback on from outside a connection's own callbacks.
    #[error(
        "connections that were open before Weirgate started close without a record: that needs Linux 6.12 or later \
         (TCP_BPF_SOCK_OPS_CB_FLAGS); {sockets} are concerned, and are counted as lost when they vanish between polls"
    )]
    KernelTooOld {
        /// How many sockets it concerns.
        sockets: u64,
    },
    /// The namespace cannot be entered.
    #[error("cannot enter the network namespace `{name}`: {source}; it needs CAP_SYS_ADMIN")]
    Namespace {
        /// As it was opened; empty is the current one.
        name: String,
        /// From setns(2).
        source: io::Error,
    },
    /// The iterator cannot be opened or read.
    #[error("cannot look at the sockets that were open before: {0}")]
    Iterator(io::Error),
}

impl Closes {
    /// Attaches to `cgroup` (a folder of the cgroup v2 tree; its root is every socket of the host) beside whatever other
    /// programs are there, with a ring of `ring_bytes` (rounded up to a power of two, 4 KB to 1 GB; [`RING_BYTES`]).
    ///
    /// `conns` is the map in which steering remembers connections, where it is loaded; `None` makes an own one.
    pub fn attach(cgroup: &Path, ring_bytes: Bytes, conns: Option<BorrowedFd<'_>>) -> Result<Self, LoadError> {
        let ring_bytes = u32::try_from(ring_bytes.as_u64().clamp(4 << 10, 1 << 30).next_power_of_two())
            .expect("at most 2^30 after clamping");
        let cgroup =
            File::open(cgroup).map_err(|source| LoadError::Cgroup { path: cgroup.display().to_string(), source })?;
        check_shared(PROGRAM, conns, size_of::<skel::types::wg_conn>())?;
        let mut object = MaybeUninit::uninit();
        explain(PROGRAM, NEEDS, || {
            let mut open = skel::CloseSkelBuilder::default().open(&mut object)?;
            if let Some(data) = open.maps.rodata_data.as_deref_mut() {
                data.tick_us = tick_us();
                data.wake_bytes = u64::from(ring_bytes / 4);
            }
            open.maps.closes.set_max_entries(ring_bytes)?;
            if let Some(fd) = conns {
                open.maps.conns.reuse_fd(fd)?;
            }
            let skel = open.load()?;
            let ring_map = MapHandle::try_from(&skel.maps.closes)?;
            let batch = Arc::new(Mutex::new(Vec::with_capacity(BATCH)));
            let taken = Arc::clone(&batch);
            let mut builder = RingBufferBuilder::new();
            builder.add(&ring_map, move |record| {
                if let Ok((sample, _)) = Sample::from_bytes(record) {
                    taken.lock().unwrap_or_else(PoisonError::into_inner).push(sample);
                }
                0
            })?;
            let ring = builder.build()?;
            // Links hold the programs and handles the maps: the rest of the object can go.
            Ok(Self {
                _link: skel.progs.wg_sockops.attach_cgroup(cgroup.as_raw_fd())?,
                arm: skel.progs.wg_arm.attach_iter_with_opts(libbpf_rs::IterOpts::None)?,
                ring,
                ring_map,
                counts: MapHandle::try_from(&skel.maps.close_counts)?,
                arm_count: MapHandle::try_from(&skel.maps.data_arm)?,
                conns: MapHandle::try_from(&skel.maps.conns)?,
                filter: MapHandle::try_from(&skel.maps.data_filter)?,
                namespaces: MapHandle::try_from(&skel.maps.namespaces)?,
                batch,
                spare: Vec::with_capacity(BATCH),
            })
        })
    }

    /// Readable while records wait, but whoever sleeps on it is woken only once a quarter of the ring is full: so that a
    /// burst does not overflow between two timed drains, and single closes cost no wake-up. Drain by a timer, too.
    pub fn fd(&self) -> BorrowedFd<'_> {
        self.ring_map.as_fd()
    }

    /// The map in which the programs remember connections; for [`IterPoller::load_sharing`](super::IterPoller::load_sharing).
    pub fn conns(&self) -> BorrowedFd<'_> {
        self.conns.as_fd()
    }

    /// Restricts the records, and their counting, to what `filter` wants (its states are of polls and have no say here)
    /// in `namespaces`; `None` is all. Before the first call everything is recorded. Closes while it changes may be
    /// judged by either filter.
    pub fn set_filter(&mut self, filter: &Filter, namespaces: Option<&[Netns]>) -> Result<(), SetFilterError> {
        let mut wire = WireCloseFilter::new_zeroed();
        wire.sockets.set(filter)?;
        wire.namespaces_used = u32::from(namespaces.is_some());
        super::namespaces::set(&self.namespaces, namespaces.unwrap_or_default()).map_err(SetFilterError::Map)?;
        self.filter.update(&0u32.to_ne_bytes(), wire.as_bytes(), MapFlags::ANY).map_err(SetFilterError::Map)
    }

    /// Hands every record that waits to `each`, oldest first, and returns how many there were. Ends after the ring was
    /// empty once, or after 1,048,576 records.
    pub fn drain(&mut self, each: &mut dyn FnMut(&Sample)) -> usize {
        let mut count = 0;
        while count < 1 << 20 {
            let taken = self.ring.consume_raw_n(BATCH);
            std::mem::swap(&mut self.spare, &mut self.batch.lock().unwrap_or_else(PoisonError::into_inner));
            self.spare.iter().for_each(&mut *each);
            count += self.spare.len();
            self.spare.clear();
            if taken <= 0 {
                break;
            }
        }
        count
    }

    /// The counters now. Read after [`Self::drain`], `seen` may be ahead by the closes that came since.
    pub fn counters(&self) -> CloseCounters {
        let mut sum = CloseCounters::default();
        let cpus = self.counts.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY);
        for cpu in cpus.ok().flatten().unwrap_or_default() {
            let Ok(count) = WireCloseCount::read_from_bytes(&cpu) else { continue };
            sum.seen += count.seen;
            sum.ring_failures += count.ring_failures;
        }
        sum
    }

    /// Turns the close record on for the connections of `ns` that were open before the attachment. Needs Linux 6.12.
    pub fn arm_open(&mut self, ns: &Netns) -> Result<Armed, ArmError> {
        self.arm(ns, 0)
    }

    /// Whether [`Self::arm_open`] works on this kernel, tried on a socket of our own.
    pub fn can_arm_open(&mut self) -> Result<(), ArmError> {
        let listener = TcpListener::bind("0.0.0.0:0").map_err(ArmError::Iterator)?;
        let cookie = sockopt::socket_cookie(&listener).map_err(|e| ArmError::Iterator(e.into()))?;
        let here = Netns::current().map_err(ArmError::Iterator)?;
        self.arm(&here, cookie).map(drop)
    }

    /// All connections of `ns`, or just the socket with the cookie `only` if that is not 0.
    fn arm(&mut self, ns: &Netns, only: u64) -> Result<Armed, ArmError> {
        let key = 0u32.to_ne_bytes();
        let failed = |e: libbpf_rs::Error| ArmError::Iterator(io::Error::other(e));
        let order = WireArmCount { only, ..WireArmCount::default() };
        self.arm_count.update(&key, order.as_bytes(), MapFlags::ANY).map_err(failed)?;
        let mut iter = ns
            .within(|| Iter::new(&self.arm))
            .map_err(|source| ArmError::Namespace { name: ns.name().to_owned(), source })?
            .map_err(failed)?;
        // It writes nothing; reading runs it.
        while read_on(&mut iter, &mut [0; 8]).map_err(ArmError::Iterator)? > 0 {}
        let bytes = self.arm_count.lookup(&key, MapFlags::ANY).map_err(failed)?.unwrap_or_default();
        let count = WireArmCount::read_from_bytes(&bytes).unwrap_or_default();
        if count.failures > 0 && count.error == -i64::from(libc::EINVAL) {
            return Err(ArmError::KernelTooOld { sockets: count.failures });
        }
        Ok(Armed { armed: count.armed, before: count.armed_before, failures: count.failures })
    }
}

/// `struct wg_close_count`.
#[derive(FromBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WireCloseCount {
    seen: u64,
    ring_failures: u64,
}

/// `struct wg_close_filter`.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WireCloseFilter {
    sockets: WireFilter,
    namespaces_used: u32,
    reserved: u32,
}

/// `struct wg_arm_count`.
#[derive(Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct WireArmCount {
    armed: u64,
    armed_before: u64,
    failures: u64,
    error: i64,
    only: u64,
}

impl core::fmt::Debug for Closes {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Closes").field("counters", &self.counters()).finish_non_exhaustive()
    }
}

skeleton!("/close.skel.rs");
