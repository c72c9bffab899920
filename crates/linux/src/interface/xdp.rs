//! An interface by AF_XDP: frames come before the kernel has made anything of them, and without its having them too. A program
//! ([`crate::bpf`]'s `redirect`) hands each queue's frames to a [socket](super::xsk). Read first: the kernel's
//! Documentation/networking/af_xdp.rst.
//!
//! There are no offloads: what is sent has to be whole and no longer than the MTU, which [`XdpPort::send`]'s caller sees to.
//! What is received comes as it is on the wire, and so without anything said of it. Two things to know on interfaces that are no
//! cards: the other end of a veth pair leaves checksums undone, which is found out here ([`unfinished`]); and VLAN tags that the
//! interface takes out are lost, so have it not do that (`ethtool -K DEVICE rxvlan off`; of a veth pair the other end, `txvlan off`).

use std::io;
use std::os::fd::BorrowedFd;

use weirgate_port::{Checksum, Offload, Packet};
use weirgate_switch::frame::checksum::Sum;
use weirgate_switch::frame::{Fragment, Frame, Transport};
use weirgate_units::{Duration, Instant};

use super::xsk::{FRAME_MAX, Socket};
use super::{Interface, InterfaceError, LOOK_EVERY, Taken, gone};
use crate::bpf::redirect::{Redirect, is_busy, patiently};
use crate::netns::Netns;

/// Most queues: places in the program's map.
const QUEUES_MAX: u32 = 64;

/// Bytes of an Ethernet header with two tags.
const LINK: usize = 22;

/// When to try again to send what the interface had no room for.
const AGAIN: Duration = Duration::from_millis(1);

/// An interface, by one socket for each of its queues. Its program is detached when dropped.
#[derive(Debug)]
pub struct XdpPort {
    name: String,
    // Before the sockets, so that it is detached before they are closed.
    redirect: Redirect,
    sockets: Vec<Socket>,
    /// When to offer the kernel again what it did not take of the send ring.
    again_at: Option<Instant>,
    unsent: bool,
    /// Frames that the interface took with it when it went.
    left_behind: u64,
    look_at: Instant,
}

impl XdpPort {
    /// Opens the interface `name` of `ns`, all its queues, each with 16 MB.
    ///
    /// # Errors
    /// [`InterfaceError`].
    pub fn open(ns: &Netns, name: &str) -> Result<Self, InterfaceError> {
        let interface = Interface::usable(ns, name)?;
        let longest = (FRAME_MAX - LINK) as u32;
        if interface.mtu > longest {
            return Err(InterfaceError::Mtu { name: name.to_owned(), mtu: interface.mtu, longest });
        }
        let refused = |(what, source)| InterfaceError::Open { name: name.to_owned(), what, source };
        let redirect = Redirect::attach(ns, interface.index).map_err(InterfaceError::Program)?;
        if !redirect.is_native() {
            tracing::info!(
                "`{name}`: its driver has no XDP, so the kernel hands its frames over; what is longer than {FRAME_MAX} bytes is lost"
            );
        }
        let mut sockets = Vec::new();
        while sockets.len() < QUEUES_MAX as usize {
            let queue = sockets.len() as u32;
            let Some(socket) = patiently(|| Socket::open(ns, interface.index, queue), |(_, error)| is_busy(error))
                .map_err(|error| match error {
                    (_, error) if is_busy(&error) => InterfaceError::Busy { name: name.to_owned(), queue },
                    error => refused(error),
                })?
            else {
                break;
            };
            let handed = redirect.hand(queue, socket.file()).map_err(io::Error::other);
            handed.map_err(|source| refused(("the map of sockets", source)))?;
            sockets.push(socket);
        }
        Ok(Self {
            name: name.to_owned(),
            redirect,
            sockets,
            again_at: None,
            unsent: false,
            left_behind: 0,
            look_at: Instant::ZERO,
        })
    }

    /// The interface's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether the driver itself runs the program. Otherwise the kernel does, having made its buffers, and super-packets that
    /// the other end of a veth pair sends are lost: have it send none (`ethtool -K DEVICE tso off`).
    pub const fn is_native(&self) -> bool {
        self.redirect.is_native()
    }

    /// How many queues it has.
    pub fn queues(&self) -> usize {
        self.sockets.len()
    }

    /// A queue's socket, to be waited for.
    pub fn queue_fd(&self, queue: usize) -> BorrowedFd<'_> {
        self.sockets[queue].file()
    }

    /// Copies the next frame of `queue` into `packet`. Linear in its length at most.
    pub(crate) fn receive(&mut self, queue: usize, packet: &mut Packet) -> Taken {
        let taken = self.sockets[queue].take(packet);
        if taken == Taken::Frame {
            let checksum = unfinished(packet.bytes()).unwrap_or_default();
            packet.set_offload(Offload { checksum, ..Offload::default() });
        }
        taken
    }

    /// Puts a frame, as it goes on the wire, where [`flush`](Self::flush) sends it from. False: there is no room now.
    ///
    /// # Errors
    /// `InvalidInput` where it is longer than any MTU that [`open`](Self::open) takes.
    pub fn send(&mut self, frame: &[u8]) -> io::Result<bool> {
        if frame.len() > FRAME_MAX {
            let longer = format!("a frame of {} bytes is longer than a chunk of {FRAME_MAX}", frame.len());
            return Err(io::Error::new(io::ErrorKind::InvalidInput, longer));
        }
        let sent = self.sockets[0].put(frame);
        self.unsent = true;
        Ok(sent)
    }

    /// How many frames [`send`](Self::send) has room for now.
    pub fn room(&mut self) -> usize {
        self.sockets[0].room()
    }

    /// Has the kernel send what was put; what it does not take is tried again by [`handle_time`](Self::handle_time).
    ///
    /// # Errors
    /// `NotFound` where the interface is gone. While it is down, what was put waits.
    pub fn flush(&mut self, now: Instant) -> io::Result<()> {
        if !self.unsent {
            return Ok(());
        }
        match self.sockets[0].push() {
            Ok(true) => (self.unsent, self.again_at) = (false, None),
            Ok(false) => self.again_at = Some(now + AGAIN),
            Err(error) if error.raw_os_error() == Some(libc::ENETDOWN) => self.again_at = Some(now + LOOK_EVERY),
            Err(error) => {
                self.again_at = Some(now + LOOK_EVERY);
                return Err(if error.raw_os_error() == Some(libc::ENXIO) { self.gone() } else { error });
            }
        }
        Ok(())
    }

    /// Sends what the interface did not take before, and looks whether it is still there, each when it is time to.
    ///
    /// # Errors
    /// As [`flush`](Self::flush).
    pub fn handle_time(&mut self, now: Instant) -> io::Result<()> {
        if now >= self.look_at {
            self.look_at = now + LOOK_EVERY;
            // Only its removal leaves an error here.
            if !matches!(rustix::net::sockopt::socket_error(self.sockets[0].file()), Ok(Ok(()))) {
                return Err(self.gone());
            }
        }
        if self.again_at.is_some_and(|at| now >= at) { self.flush(now) } else { Ok(()) }
    }

    /// When to call [`handle_time`](Self::handle_time).
    pub fn poll_at(&self) -> Instant {
        self.again_at.map_or(self.look_at, |at| at.min(self.look_at))
    }

    /// Frames that were dropped before they were read, or after they were [put](Self::send), since the start.
    pub fn lost(&self) -> u64 {
        self.left_behind + self.sockets.iter().map(Socket::lost).sum::<u64>()
    }

    /// The interface is gone, and with it what waited to be sent.
    fn gone(&mut self) -> io::Error {
        self.left_behind = self.sockets.iter().map(|socket| u64::from(socket.left())).sum();
        gone(&self.name)
    }
}

/// The checksum that the other end of a veth pair has left to be done, where there is one: nothing tells it but the field, which holds
/// the sum of the pseudo-header. One that is complete and looks the same by chance (one in 65,536) sums up; linear in the frame's
/// length then.
fn unfinished(bytes: &[u8]) -> Option<Checksum> {
    let ip = Frame::ethernet(bytes).ok()?.ip.filter(|ip| ip.fragment == Fragment::Whole)?;
    let offset = match ip.transport {
        Transport::Tcp { .. } => 16,
        Transport::Udp { .. } => 6,
        _ => return None,
    };
    let start = ip.transport_offset();
    let segment = bytes.get(start..usize::from(ip.offset) + ip.total_len as usize)?;
    let field = segment.get(offset..offset + 2)?;
    let pseudo = Sum::default().pseudo_header(ip.source, ip.destination, ip.protocol, segment.len() as u32);
    let left = field == pseudo.fold().to_be_bytes() && pseudo.bytes(segment).checksum() != 0;
    left.then_some(Checksum::Partial { start: start as u16, offset: offset as u16 })
}
