//! The program that hands an interface's frames to AF_XDP sockets. Twin: `bpf/redirect.bpf.c`.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::thread::sleep;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{MapCore, MapFlags, MapHandle, libbpf_sys};
use weirgate_units::Duration;

use super::load::{LoadError, explain};
use crate::clock;
use crate::netns::Netns;

/// The program, attached to an interface. Detached when dropped, or when the process ends.
#[derive(Debug)]
pub(crate) struct Redirect {
    _link: OwnedFd,
    sockets: MapHandle,
    native: bool,
}

impl Redirect {
    /// Attaches it to interface number `index` of `ns`: in the driver where that can, before the kernel's own buffers otherwise.
    pub(crate) fn attach(ns: &Netns, index: u32) -> Result<Self, LoadError> {
        let mut object = MaybeUninit::uninit();
        let needs = "it needs Linux 5.9 or later with CONFIG_XDP_SOCKETS, and an interface without another XDP program (`ip link` \
                     shows it as `prog/xdp`)";
        explain("redirect.bpf.c", needs, || {
            let skel = skel::RedirectSkelBuilder::default().open(&mut object)?.load()?;
            let program = skel.progs.wg_redirect.as_fd();
            let attach = |mode| ns.within(|| link(program, index, mode)).and_then(|linked| linked);
            let (link, native) = match patiently(|| attach(libbpf_sys::XDP_FLAGS_DRV_MODE), is_busy) {
                Ok(link) => (link, true),
                Err(error) if is_busy(&error) => return Err(error.into()),
                Err(_) => (patiently(|| attach(libbpf_sys::XDP_FLAGS_SKB_MODE), is_busy)?, false),
            };
            Ok(Self { _link: link, sockets: MapHandle::try_from(&skel.maps.sockets)?, native })
        })
    }

    /// From now on hands the frames of `queue` to `socket`.
    pub(crate) fn hand(&self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), libbpf_rs::Error> {
        let socket = socket.as_raw_fd().cast_unsigned();
        self.sockets.update(&queue.to_ne_bytes(), &socket.to_ne_bytes(), MapFlags::ANY)
    }

    /// Whether the driver runs it.
    pub(crate) const fn is_native(&self) -> bool {
        self.native
    }
}

/// What was just closed is not free at once: the kernel lets a queue go in the background, and whoever is being forked meanwhile has
/// all files until it executes its program. So that a daemon can be started anew, tries for up to two seconds while it is `busy`.
pub(crate) fn patiently<T, E>(act: impl Fn() -> Result<T, E>, busy: impl Fn(&E) -> bool) -> Result<T, E> {
    let until = clock::boottime() + Duration::from_secs(2);
    loop {
        match act() {
            Err(error) if busy(&error) && clock::boottime() < until => sleep(std::time::Duration::from_millis(10)),
            other => return other,
        }
    }
}

/// Whether somebody else has it; of a program: one in the other mode (EEXIST).
pub(crate) fn is_busy(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EBUSY | libc::EEXIST))
}

/// libbpf's own call has no place for the mode.
fn link(program: BorrowedFd<'_>, index: u32, mode: u32) -> io::Result<OwnedFd> {
    let options = libbpf_sys::bpf_link_create_opts {
        sz: size_of::<libbpf_sys::bpf_link_create_opts>() as libbpf_sys::size_t,
        flags: mode,
        ..Default::default()
    };
    // SAFETY: bpf_link_create reads the options, of the size that they say, which outlive the call; the rest are numbers.
    let link = unsafe {
        libbpf_sys::bpf_link_create(program.as_raw_fd(), index as i32, libbpf_sys::BPF_XDP, &raw const options)
    };
    if link < 0 {
        return Err(io::Error::from_raw_os_error(-link));
    }
    // SAFETY: the kernel just gave it, so that nobody else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(link) })
}

skeleton!("/redirect.skel.rs");
