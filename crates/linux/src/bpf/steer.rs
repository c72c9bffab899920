//! Steering: hands a policy to the kernel program that obeys it, and takes everything back.
//!
//! Read first: `bpf/steer.bpf.c` (what a response is, when a connection is switched and when it goes back), `bpf/steer.h`.
//!
//! Ground rules:
//! - Links and maps are pinned under `pin_dir`: the program goes on when this process ends, until the expiry that
//!   [`Steering::renew`] moves. Past it every connection goes back to its own congestion control when next active.
//! - [`undo`] needs the pins only, no running daemon and not this version of Weirgate.
//! - The map `conns`, what is remembered of each connection, outlives a process that was killed, so that what it changed is
//!   known as such. It goes with [`Steering::detach`] and [`undo`]; connections that were changed before and are still open
//!   then look as if their application had chosen, and the next run leaves them alone.

mod algorithms;
mod layout;
mod networks;
mod pins;
mod unpace;

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{IterOpts, Link, MapCore, MapFlags, MapHandle};
use thiserror::Error;
use weirgate_sockets::sample::CcName;
use weirgate_tune::policy::Policy;
use weirgate_units::{Duration, Instant};

use self::layout::{Control, Settings};
use self::networks::Networks;
use super::load::{LoadError, explain};
use crate::netns::Netns;

pub use self::algorithms::{AlgorithmError, make_available};
pub use self::layout::SteerCounters;
pub use self::pins::{UndoError, Undone, undo};
pub use self::unpace::is_unpacer;

const NEEDS: &str = "it needs Linux 5.15 or later with CONFIG_CGROUP_BPF and CONFIG_DEBUG_INFO_BTF; \
                     use per-route congctl instead";

/// The life of a policy that is applied when none is left, so that open connections can be taken up. Long enough for a caller
/// that renews right after, short enough to be no life of its own.
const FIRST_LIFE: Duration = Duration::from_secs(10);

skeleton!("/steer.skel.rs");

/// Where the program is attached and what it looks at.
#[derive(Clone, Debug)]
pub struct SteerOptions {
    /// A folder of its own on a bpffs, made if need be: `/sys/fs/bpf/weirgate/INSTANCE`.
    pub pin_dir: PathBuf,
    /// The cgroup v2 folder whose sockets are looked at, those of its descendants included.
    pub cgroup: PathBuf,
    /// Local ports whose accepted connections are steered; none means that nothing is. At most 256.
    pub server_ports: Vec<u16>,
    /// The most networks that a policy may hold. Freeing a trie of millions stalls a CPU for seconds: 100,000 is a good
    /// bound.
    pub networks_max: u32,
}

/// The attached program. Dropping this changes nothing in the kernel; see [`Steering::detach`].
#[derive(Debug)]
pub struct Steering {
    pin_dir: PathBuf,
    control: Control,
    networks: Networks,
    namespaces: MapHandle,
    counters: MapHandle,
    conns: MapHandle,
    generation: u32,
    paces_on: Option<LoadError>,
    /// Held so that the program stays attached where somebody removes the pin.
    _link: Link,
}

/// What [`Steering::apply`] did.
#[derive(Debug, Default)]
pub struct Applied {
    /// Networks added to the kernel's map.
    pub added: usize,
    /// Networks removed from it.
    pub removed: usize,
    /// Networks that stay, with another algorithm.
    pub changed: usize,
    /// Open connections that were taken up, or changed to another default.
    pub sockets_set: u64,
    /// Open connections that the policy no longer selects.
    pub sockets_reset: u64,
    /// Open connections that are selected but that this kernel cannot take up (before Linux 6.12); they stay as they are.
    pub sockets_unreached: u64,
    /// Namespaces whose open connections could not be walked, with the reason; the policy holds for new ones.
    pub unwalked: Vec<(String, io::Error)>,
}

/// Why the program could not be attached. Nothing is left behind but what is known of connections ([`undo`] removes it).
#[derive(Debug, Error)]
pub enum AttachError {
    /// This user may not pin there.
    #[error(transparent)]
    Denied(UndoError),
    /// An earlier run's pins could not be taken down.
    #[error("what an earlier run left under {0} cannot be taken down: {1}")]
    Earlier(PathBuf, #[source] UndoError),
    /// The pin folder cannot be made, or is on no bpffs.
    #[error("{0}: {1}; kernel objects are pinned on a bpffs: `mount -t bpf bpf /sys/fs/bpf`")]
    PinDir(PathBuf, #[source] io::Error),
    /// No such cgroup, or not of version 2.
    #[error("{0} is no cgroup v2 folder: {1}; `mount -t cgroup2` says where the hierarchy is")]
    Cgroup(PathBuf, #[source] io::Error),
    /// More ports than the program's map holds.
    #[error("{0} server ports, at most 256 can be given")]
    Ports(usize),
    /// The kernel refused the program or its maps.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// The kernel refused to attach it.
    #[error(
        "the program cannot be attached to {0}: {1}; a program attached without `multi` further up excludes others"
    )]
    Attach(PathBuf, #[source] libbpf_rs::Error),
    /// A map could not be written or pinned.
    #[error("the program's maps cannot be set up: {0}")]
    Maps(#[source] libbpf_rs::Error),
    /// The control page could not be mapped.
    #[error("the program's control page cannot be mapped: {0}")]
    Control(#[source] io::Error),
}

/// Why a policy was not applied. [`ApplyError::Networks`] apart, nothing was changed.
#[derive(Debug, Error)]
pub enum ApplyError {
    /// An algorithm that this kernel does not have.
    #[error(transparent)]
    Algorithm(#[from] AlgorithmError),
    /// The policy is larger than the kernel's map.
    #[error("the policy holds {0} networks, the kernel's map at most {1}: raise the limit or select fewer")]
    TooMany(usize, u32),
    /// The networks are not in strictly ascending order.
    #[error("the policy's networks are not in ascending order at {0}")]
    Unordered(weirgate_units::Prefix),
    /// The map could not be written; some networks may have changed. The earlier settings stay in force; try again.
    #[error("the kernel's map of networks cannot be written: {0}")]
    Networks(#[source] libbpf_rs::Error),
}

impl Steering {
    /// Takes down what an earlier run left under the pin folder (connections in `namespaces` go back), then loads, attaches
    /// and pins the program. Nothing is steered before the first [`Self::apply`], and nothing in other namespaces than those
    /// that it was last given.
    pub fn attach(options: &SteerOptions, namespaces: &[Netns]) -> Result<Self, AttachError> {
        let pin_dir = &options.pin_dir;
        if options.server_ports.len() > 256 {
            return Err(AttachError::Ports(options.server_ports.len()));
        }
        let (cgroup, cgroup_id) = open_cgroup(&options.cgroup)?;
        pins::take_down(pin_dir, namespaces, true).map_err(|e| match e {
            UndoError::Denied(_) => AttachError::Denied(e),
            _ => AttachError::Earlier(pin_dir.clone(), e),
        })?;
        pins::make_dir(pin_dir).map_err(|e| match e.kind() {
            io::ErrorKind::PermissionDenied => AttachError::Denied(UndoError::Denied(pin_dir.clone())),
            _ => AttachError::PinDir(pin_dir.clone(), e),
        })?;
        let attached = Self::load(options, &cgroup, cgroup_id, namespaces);
        if attached.is_err() {
            let _half_made = pins::remove(pin_dir, true);
        }
        attached
    }

    fn load(
        options: &SteerOptions,
        cgroup: &std::fs::File,
        cgroup_id: u64,
        namespaces: &[Netns],
    ) -> Result<Self, AttachError> {
        let pin = |name: &str| options.pin_dir.join(name);
        let mut place = MaybeUninit::uninit();
        let networks_max = options.networks_max.max(1);
        let (unpacer, paces_on) = match unpace::register(&pin(pins::UNPACE)) {
            Ok(name) => (name, None),
            Err(e) => ([0; 16], Some(e)),
        };
        let mut loaded = explain("steer.bpf.c", NEEDS, || {
            let mut open = skel::SteerSkelBuilder::default().open(&mut place)?;
            open.maps.networks.set_max_entries(networks_max)?;
            if let Some(constants) = open.maps.rodata_data.as_deref_mut() {
                constants.unpacer = unpacer.map(u8::cast_signed);
                constants.tick_ns = tick().as_nanos();
            }
            if let Some(kept) = pins::kept_conns(&options.pin_dir, open.maps.conns.value_size()) {
                open.maps.conns.reuse_fd(kept.as_fd())?;
            }
            open.load()
        })?;

        for port in &options.server_ports {
            let set = loaded.maps.server_ports.update(&port.to_ne_bytes(), &[1], MapFlags::ANY);
            set.map_err(AttachError::Maps)?;
        }
        let namespaces_map = MapHandle::try_from(&loaded.maps.namespaces).map_err(AttachError::Maps)?;
        super::namespaces::set(&namespaces_map, namespaces).map_err(AttachError::Maps)?;
        if !pin(pins::CONNS).exists() {
            loaded.maps.conns.pin(pin(pins::CONNS)).map_err(AttachError::Maps)?;
        }
        loaded.maps.control.pin(pin(pins::CONTROL)).map_err(AttachError::Maps)?;
        loaded.maps.counters.pin(pin(pins::COUNTERS)).map_err(AttachError::Maps)?;
        let control = Control::map(loaded.maps.control.as_fd(), cgroup_id).map_err(AttachError::Control)?;
        // An iterator's link, pinned, is a file: opening it walks the opener's namespace. `undo` needs nothing else.
        for (program, name) in [(&loaded.progs.steer_open, pins::OPEN), (&loaded.progs.steer_sweep, pins::SWEEP)] {
            let mut link = program.attach_iter_with_opts(IterOpts::None).map_err(AttachError::Maps)?;
            link.pin(pin(name)).map_err(AttachError::Maps)?;
        }
        let attached = loaded.progs.steer.attach_cgroup(cgroup.as_raw_fd());
        let mut link = attached.map_err(|e| AttachError::Attach(options.cgroup.clone(), e))?;
        link.pin(pin(pins::PROGRAM)).map_err(AttachError::Maps)?;
        Ok(Self {
            pin_dir: options.pin_dir.clone(),
            control,
            networks: Networks::new(
                MapHandle::try_from(&loaded.maps.networks).map_err(AttachError::Maps)?,
                networks_max,
            ),
            namespaces: namespaces_map,
            counters: MapHandle::try_from(&loaded.maps.counters).map_err(AttachError::Maps)?,
            conns: MapHandle::try_from(&loaded.maps.conns).map_err(AttachError::Maps)?,
            generation: 0,
            paces_on,
            _link: link,
        })
    }

    /// Puts `policy` in force: loads the algorithms' modules, brings the kernel's map to it by the difference only, publishes
    /// it, then walks the open connections of `namespaces`. Where the life that [`Self::renew`] gave has run out, or none was
    /// given yet, it gets ten seconds, in which the caller is to renew.
    ///
    /// Work: one step per network of the old and the new policy, one system call per 4,096 differences, one walk per
    /// namespace (about 1 us per socket).
    pub fn apply(&mut self, policy: &Policy, namespaces: &[Netns]) -> Result<Applied, ApplyError> {
        let mut named: Vec<CcName> = policy.networks.iter().map(|(_, cc)| *cc).chain(policy.default_cc).collect();
        named.sort_unstable_by_key(|cc| *cc.as_bytes());
        named.dedup();
        algorithms::make_available(&named)?;
        let delta = self.networks.update(&policy.networks)?;
        // Before the policy is published: active connections may find it before the walk finds them.
        let before = self.counters().unwrap_or_default();
        self.generation = self.generation.wrapping_add(1).max(1);
        self.control.publish(self.generation, Settings::of(policy));
        let unset = self.set_namespaces(namespaces);
        self.control.revive(FIRST_LIFE);
        let mut unwalked = self.walk(pins::OPEN, namespaces);
        unwalked.extend(unset);
        let after = self.counters().unwrap_or_default();
        // Taken up and let go again.
        let unreached = after.open_unreached - before.open_unreached;
        Ok(Applied {
            added: delta.added,
            removed: delta.removed,
            changed: delta.changed,
            sockets_set: (after.open_set - before.open_set).saturating_sub(unreached),
            sockets_reset: after.open_reset - before.open_reset,
            sockets_unreached: unreached,
            unwalked,
        })
    }

    /// Walks the open connections of `namespaces` under the policy in force. Those on which nothing followed a switched
    /// response go back (the kernel calls no program on the acknowledgement that ends one, so they would otherwise go back
    /// as their next response begins). About 1 us per socket; as often as sockets are polled is often enough.
    pub fn settle(&self, namespaces: &[Netns]) -> Vec<(String, io::Error)> {
        let unset = self.set_namespaces(namespaces);
        let mut unwalked = self.walk(pins::OPEN, namespaces);
        unwalked.extend(unset);
        unwalked
    }

    fn set_namespaces(&self, namespaces: &[Netns]) -> Option<(String, io::Error)> {
        let error = super::namespaces::set(&self.namespaces, namespaces).err()?;
        Some(("all".to_owned(), io::Error::other(error)))
    }

    /// Lets the program act until `until` on `CLOCK_BOOTTIME`. True: it had expired before, connections may have gone back,
    /// and the policy should be applied again.
    pub fn renew(&self, until: Instant) -> bool {
        self.control.renew(until)
    }

    /// What the program counted since it was attached, over all CPUs.
    pub fn counters(&self) -> io::Result<SteerCounters> {
        SteerCounters::read(&self.counters)
    }

    /// Why connections that were on an algorithm that paces stay paced after it, where this kernel leaves no way to end
    /// that. It costs a short response about a fifth of a round trip.
    pub fn paces_on(&self) -> Option<&LoadError> {
        self.paces_on.as_ref()
    }

    /// The map of what is known of each connection, for the sense to be loaded with.
    pub fn conns(&self) -> BorrowedFd<'_> {
        self.conns.as_fd()
    }

    /// Puts the connections of `namespaces` back to their own algorithm, and stops steering until the next
    /// [`Self::apply`]. Returns how many were put back and what could not be walked.
    pub fn sweep(&self, namespaces: &[Netns]) -> (u64, Vec<(String, io::Error)>) {
        // Active ones may find the expiry before the iterator finds them.
        let reset = || self.counters().map_or(0, |counted| counted.open_reset + counted.expired);
        let before = reset();
        self.control.expire();
        let unwalked = self.walk(pins::SWEEP, namespaces);
        (reset() - before, unwalked)
    }

    /// Detaches, puts the connections of `namespaces` back, and removes every pin.
    pub fn detach(self, namespaces: &[Netns]) -> Result<Undone, UndoError> {
        pins::take_down(&self.pin_dir, namespaces, false)
    }

    fn walk(&self, iterator: &str, namespaces: &[Netns]) -> Vec<(String, io::Error)> {
        let pin = self.pin_dir.join(iterator);
        let walked = namespaces.iter().map(|ns| (ns, pins::walk(&pin, ns)));
        walked.filter_map(|(ns, result)| Some((ns.name().to_owned(), result.err()?))).collect()
    }
}

/// Between two of the kernel's timer interrupts: what its coarse clocks resolve.
fn tick() -> Duration {
    let tick = rustix::time::clock_getres(rustix::time::ClockId::MonotonicCoarse);
    Duration::from_nanos(tick.tv_nsec as u64)
}

/// The folder, and its id as sockets carry it: 0 for the root, which every socket is below.
fn open_cgroup(path: &Path) -> Result<(std::fs::File, u64), AttachError> {
    let fail = |e| AttachError::Cgroup(path.to_owned(), e);
    let folder = std::fs::File::open(path).map_err(fail)?;
    let kind = rustix::fs::fstatfs(&folder).map_err(|e| fail(e.into()))?;
    // include/uapi/linux/magic.h
    if kind.f_type != 0x6367_7270 {
        return Err(fail(io::Error::other("it is not on a cgroup2 file system")));
    }
    let id = folder.metadata().map_err(fail)?.ino();
    Ok((folder, if id == 1 { 0 } else { id }))
}
