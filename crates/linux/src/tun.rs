//! TUN devices: where the kernel's packets come out into this process and go back in. Read first: the kernel's
//! Documentation/networking/tuntap.rst and linux/if_tun.h.
//!
//! TUN and not TAP: emulated links are point to point at layer 3, so there is no Ethernet header to make up, no ARP, no
//! neighbour discovery, no duplicate address detection (the device has IFF_NOARP). And no virtio header: without
//! TUNSETOFFLOAD the device has neither checksum nor segmentation offload, so the kernel hands over packets of at most the
//! MTU with their checksums done. A link's loss and queue are per packet, so that is what they must see.
//!
//! A TUN gives its sender no back-pressure: the driver orphans every packet from its socket, and a full ring drops. The
//! ring has `txqueuelen` entries: make it longer than any burst ([`crate::link`] does), and read the device's drops.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::OpenOptionsExt;

use crate::netns::Netns;

/// A TUN device. Gone when dropped.
#[derive(Debug)]
pub struct Tun {
    file: File,
    name: String,
}

/// Why there is no device.
#[derive(Debug, thiserror::Error)]
pub enum TunError {
    /// The name is empty or longer than the kernel takes.
    #[error("`{0}` is not a name for a network device: use 1 to 15 bytes")]
    Name(String),
    /// No TUN driver, or no right to use it.
    #[error("cannot open /dev/net/tun: load the module `tun`, and run as root")]
    Open(#[source] io::Error),
    /// The kernel refused.
    #[error("cannot make the network device `{name}`: is there one of that name?")]
    Create {
        /// The device's name.
        name: String,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The namespace cannot be entered.
    #[error("cannot enter the network namespace")]
    Namespace(#[source] io::Error),
}

/// `struct ifreq` of linux/if.h, as far as TUNSETIFF looks at it.
#[repr(C)]
struct Request {
    name: [u8; libc::IFNAMSIZ],
    flags: libc::c_short,
    rest: [u8; 22],
}

impl Tun {
    /// Makes the device `name` in `ns`, not yet up, its file non-blocking. It may be used from any namespace.
    ///
    /// # Errors
    /// Where the name is taken or no name, or the process may not.
    pub fn create(ns: &Netns, name: &str) -> Result<Self, TunError> {
        Self::with_flags(ns, name, 0)
    }

    /// As [`create`](Self::create), but every packet, sent or received, has a virtio-net header of 10 bytes in front
    /// (`struct virtio_net_hdr`, IFF_VNET_HDR). By it packets may be sent that the kernel is to sum or to cut; what it gives
    /// is whole all the same, since no offload is asked for (TUNSETOFFLOAD).
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn create_with_headers(ns: &Netns, name: &str) -> Result<Self, TunError> {
        Self::with_flags(ns, name, libc::IFF_VNET_HDR)
    }

    fn with_flags(ns: &Netns, name: &str, flags: libc::c_int) -> Result<Self, TunError> {
        let file = open(ns, name, libc::IFF_TUN | libc::IFF_NO_PI | libc::IFF_TUN_EXCL | flags)?;
        Ok(Self { file, name: name.to_owned() })
    }

    /// The device's name in its namespace.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Reads the next packet that the kernel sends into `buffer`; `None` where there is none now. A packet longer than
    /// `buffer` is cut by the kernel: give it the MTU.
    ///
    /// # Errors
    /// The kernel's, `EBADFD` where the device was removed.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        match rustix::io::read(&self.file, buffer) {
            Ok(len) => Ok(Some(len)),
            Err(rustix::io::Errno::AGAIN) => Ok(None),
            Err(e) => Err(e.into()),
        }
    }

    /// Gives a packet to the kernel as received from the device; most of the receiving is done within the call.
    ///
    /// # Errors
    /// `EINVAL` where the bytes are not IP, `EIO` where the device is not up, `ENOMEM`.
    pub fn send(&self, packet: &[u8]) -> io::Result<()> {
        rustix::io::write(&self.file, packet).map(drop).map_err(Into::into)
    }
}

/// Opens the driver and attaches a device, or a queue of one, with these flags of TUNSETIFF. Non-blocking.
pub(crate) fn open(ns: &Netns, name: &str, flags: libc::c_int) -> Result<File, TunError> {
    let mut request = Request { name: [0; libc::IFNAMSIZ], flags: flags as libc::c_short, rest: [0; 22] };
    if name.is_empty() || name.len() >= libc::IFNAMSIZ || name.contains('\0') {
        return Err(TunError::Name(name.to_owned()));
    }
    request.name[..name.len()].copy_from_slice(name.as_bytes());
    // The device is born in the namespace of the thread that opens the file.
    let file = ns
        .within(|| OpenOptions::new().read(true).write(true).custom_flags(libc::O_NONBLOCK).open("/dev/net/tun"))
        .map_err(TunError::Namespace)?
        .map_err(TunError::Open)?;
    // SAFETY: TUNSETIFF reads and writes a `struct ifreq` (40 bytes), which `request` is and which outlives the call.
    let result = unsafe { libc::ioctl(file.as_raw_fd(), libc::TUNSETIFF, &raw mut request) };
    if result < 0 {
        return Err(TunError::Create { name: name.to_owned(), source: io::Error::last_os_error() });
    }
    Ok(file)
}

impl AsFd for Tun {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_none_is_refused() {
        let ns = Netns::current().expect("this thread has a namespace");
        for name in ["", "sixteen-bytes-xx", "a\0b"] {
            assert!(matches!(Tun::create(&ns, name), Err(TunError::Name(_))), "{name:?}");
        }
        assert_eq!(size_of::<Request>(), 40, "struct ifreq on 64-bit Linux");
    }
}
