//! Interfaces that exist already as ports: [`PacketPort`] as a [`Device`].

use std::io;
use std::os::fd::BorrowedFd;

use weirgate_port::Packet;
use weirgate_units::Instant;

use super::device::{Device, Received, Sent};
use crate::interface::{InterfaceError, PacketPort, Taken};
use crate::netns::Netns;

impl Device for PacketPort {
    fn queues(&self) -> usize {
        Self::queues(self)
    }

    fn queue_fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        (queue < self.queues()).then(|| Self::queue_fd(self, queue))
    }

    fn receive(&mut self, queue: usize, packet: &mut Packet) -> io::Result<Received> {
        Ok(Self::receive(self, queue, packet).into())
    }

    fn send(&mut self, packet: &mut Packet) -> io::Result<Sent> {
        match Self::send(self, packet.offload(), packet.bytes()) {
            Ok(()) => Ok(Sent::Yes),
            // As much as may be is on its way, or the interface's own queue is full: neither took the frame.
            Err(e) if e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(libc::ENOBUFS) => {
                Ok(Sent::Full)
            }
            Err(e) => Err(e),
        }
    }

    fn split(self: Box<Self>, parts: usize) -> io::Result<Vec<Box<dyn Device>>> {
        let parts = Self::split(*self, parts)?;
        Ok(parts.into_iter().map(|part| Box::new(part) as Box<dyn Device>).collect())
    }

    fn lost(&mut self) -> u64 {
        Self::lost(self)
    }

    /// What its ring has no room for is dropped.
    fn pushes_back(&self) -> bool {
        false
    }

    fn handle_time(&mut self, now: Instant) -> io::Result<()> {
        Self::handle_time(self, now)
    }

    fn poll_at(&self) -> Option<Instant> {
        Some(Self::poll_at(self))
    }
}

/// Opens an interface of `ns` as a port: by AF_XDP, or by `queues` packet sockets.
///
/// # Errors
/// [`InterfaceError`].
pub fn open_interface(ns: &Netns, name: &str, queues: u16, xdp: bool) -> Result<Box<dyn Device>, InterfaceError> {
    match xdp {
        false => Ok(Box::new(PacketPort::open(ns, name, queues)?)),
        #[cfg(feature = "xdp")]
        true => Ok(Box::new(crate::interface::XdpPort::open(ns, name)?)),
        #[cfg(not(feature = "xdp"))]
        true => Err(InterfaceError::NoXdp),
    }
}

impl From<Taken> for Received {
    fn from(taken: Taken) -> Self {
        match taken {
            Taken::Frame => Self::Frame,
            Taken::Empty => Self::Empty,
            Taken::Malformed => Self::Malformed,
        }
    }
}
