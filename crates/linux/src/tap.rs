//! TAP devices with virtio headers: Ethernet frames come out of the kernel into this process and go back in, super-packets
//! and unfinished checksums included. Read first: the kernel's Documentation/networking/tuntap.rst, linux/if_tun.h and
//! linux/virtio_net.h.
//!
//! Every frame has a `struct virtio_net_hdr_v1` (12 bytes) before it, which says how it is to be cut and what is missing of its
//! checksum. With that and [`OFFLOADS`] the kernel hands over up to 64 KB at once and takes as much, which is what makes ten
//! times the throughput.
//!
//! A TAP gives its sender no back-pressure (see [`crate::tun`]): what is not read in time is dropped by the kernel, and not
//! counted here but by the device.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};

use crate::netns::Netns;
use crate::tun::{TunError, open};

/// Bytes of the header before each frame.
pub const HEADER: usize = 12;

/// The longest frame: an Ethernet header with two VLAN tags, and 64 KB of IP.
pub const FRAME_MAX: usize = 22 + 65_535;

// linux/if_tun.h
const TUN_F_CSUM: libc::c_uint = 0x01;
const TUN_F_TSO4: libc::c_uint = 0x02;
const TUN_F_TSO6: libc::c_uint = 0x04;
const TUN_F_TSO_ECN: libc::c_uint = 0x08;

/// What the kernel may leave for us to do: checksums, and cutting TCP.
pub const OFFLOADS: libc::c_uint = TUN_F_CSUM | TUN_F_TSO4 | TUN_F_TSO6 | TUN_F_TSO_ECN;

/// A TAP device of one or more queues. Gone when dropped.
#[derive(Debug)]
pub struct Tap {
    queues: Vec<File>,
    /// What frames are sent by.
    out: File,
    name: String,
}

impl Tap {
    /// Makes the device `name` in `ns` with `queues` queues (at least one), not yet up, its files non-blocking.
    ///
    /// # Errors
    /// Where the name is taken or no name, or the process may not.
    pub fn create(ns: &Netns, name: &str, queues: u16) -> Result<Self, TunError> {
        let many = if queues > 1 { libc::IFF_MULTI_QUEUE } else { 0 };
        let flags = libc::IFF_TAP | libc::IFF_NO_PI | libc::IFF_VNET_HDR | many;
        // The first one makes the device, where there is none; the others join it.
        let flags = |queue: u16| if queue == 0 { flags | libc::IFF_TUN_EXCL } else { flags };
        let queues: Vec<File> =
            (0..queues.max(1)).map(|queue| Self::queue(ns, name, flags(queue))).collect::<Result<_, _>>()?;
        let fail = |source| TunError::Create { name: name.to_owned(), source };
        let out = queues[0].try_clone().map_err(fail)?;
        Ok(Self { queues, out, name: name.to_owned() })
    }

    /// Divides its queues among `parts`, for as many threads; those beyond the queues only send.
    ///
    /// # Errors
    /// Where the process has too many files open.
    pub fn split(self, parts: usize) -> io::Result<Vec<Self>> {
        let Self { queues, out, name } = self;
        let empty = || Ok(Self { queues: Vec::new(), out: out.try_clone()?, name: name.clone() });
        let mut split = (0..parts.max(1)).map(|_| empty()).collect::<io::Result<Vec<Self>>>()?;
        for (at, queue) in queues.into_iter().enumerate() {
            let part = &mut split[at % parts.max(1)];
            if part.queues.is_empty() {
                part.out = queue.try_clone()?;
            }
            part.queues.push(queue);
        }
        Ok(split)
    }

    fn queue(ns: &Netns, name: &str, flags: libc::c_int) -> Result<File, TunError> {
        let file = open(ns, name, flags)?;
        let fail = || TunError::Create { name: name.to_owned(), source: io::Error::last_os_error() };
        let size = HEADER as libc::c_int;
        // SAFETY: TUNSETVNETHDRSZ reads an int, which outlives the call.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETVNETHDRSZ, &raw const size) } < 0 {
            return Err(fail());
        }
        // SAFETY: TUNSETOFFLOAD takes its argument by value.
        if unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETOFFLOAD, OFFLOADS as libc::c_ulong) } < 0 {
            return Err(fail());
        }
        Ok(file)
    }

    /// The device's name in its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// How many queues it has.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Reads the next frame of `queue`, its header apart, and gives its length; `None` where there is none now. What does not fit
    /// into `frame` is cut by the kernel: give it [`FRAME_MAX`].
    ///
    /// # Errors
    /// The kernel's, `EBADFD` where the device was removed.
    pub fn receive(&self, queue: usize, header: &mut [u8; HEADER], frame: &mut [u8]) -> io::Result<Option<usize>> {
        let mut parts = [IoSliceMut::new(header), IoSliceMut::new(frame)];
        match rustix::io::readv(&self.queues[queue], &mut parts) {
            Ok(len) => Ok(Some(len.saturating_sub(HEADER))),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Gives a frame to the kernel as received from the device, by its first queue; most of the receiving is done within the call.
    ///
    /// # Errors
    /// `EINVAL` where the header contradicts the frame, `EIO` where the device is not up, `ENOMEM`.
    pub fn send(&self, header: &[u8; HEADER], frame: &[u8]) -> io::Result<()> {
        let parts = [IoSlice::new(header), IoSlice::new(frame)];
        rustix::io::writev(&self.out, &parts).map(drop).map_err(Into::into)
    }

    /// A queue's file, to be waited for.
    pub fn queue_fd(&self, queue: usize) -> BorrowedFd<'_> {
        self.queues[queue].as_fd()
    }
}
