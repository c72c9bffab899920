//! A virtual machine's network card as a port: [`VhostUser`] as a [`Device`].
//!
//! The guest has a frame's descriptors back when the frame has left the switch, and not before (Carousel's deferred completion):
//! so the socket that sent it stays charged, TCP's small queues keep a connection to what its rate needs, and who sends without
//! slowing down waits in its own system call.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weirgate_port::{Offload, Packet};
use weirgate_switch::frame::{Frame, Segments, Sums, checksum};
use zerocopy::FromBytes as _;

use super::device::{Device, Received, Sent};
use crate::vhost::{TransmitError, VhostUser, VnetHeader};

impl Device for VhostUser {
    fn queues(&self) -> usize {
        self.own().len()
    }

    fn queue_fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        Some(Self::queue_fd(self, self.own().start + queue as u16))
    }

    fn receive(&mut self, queue: usize, packet: &mut Packet) -> io::Result<Received> {
        let (device, queue) = (&*self, self.own().start + queue as u16);
        let mut got = Received::Empty;
        let mut take = |frame: &mut crate::vhost::Frame<'_>| {
            let len = frame.bytes.len();
            packet.buffer_mut()[..len].copy_from_slice(frame.bytes);
            packet.set_len(len);
            got = match Offload::from_bytes(zerocopy::IntoBytes::as_bytes(&frame.header), len) {
                Ok(offload) => {
                    packet.set_offload(offload);
                    packet.set_hold(Some(Arc::new(device.held(frame.hold()))));
                    Received::Frame
                }
                Err(error) => Received::Malformed(error),
            };
        };
        let received = Self::receive(device, queue, 1, &mut take);
        // Nothing was there, and a kick is asked for: one that came before that was noted by the file, which is looked at and
        // cleared, so that the next one is an edge.
        if received.frames == 0 && (received.more || Self::events(device, queue).sent) {
            Self::receive(device, queue, 1, &mut take);
        }
        Ok(got)
    }

    fn send(&mut self, packet: &mut Packet) -> io::Result<Sent> {
        match put(self, packet.bytes(), packet.offload()) {
            Ok(()) => Ok(Sent::Yes),
            Err(TransmitError::Full) => Ok(Sent::Full),
            Err(TransmitError::Header(_)) => in_software(self, packet),
            Err(error @ (TransmitError::Down | TransmitError::TooLong)) => Err(io::Error::other(error)),
        }
    }

    fn split(self: Box<Self>, parts: usize) -> io::Result<Vec<Box<dyn Device>>> {
        let parts = Self::split(*self, parts);
        Ok(parts.into_iter().map(|part| Box::new(part) as Box<dyn Device>).collect())
    }

    fn handle_sent(&mut self) {
        self.complete_dropped();
    }

    /// Its driver stops the queue when it is not read.
    fn pushes_back(&self) -> bool {
        true
    }
}

fn put(device: &VhostUser, bytes: &[u8], offload: &Offload) -> Result<(), TransmitError> {
    let header = VnetHeader::read_from_bytes(&offload.to_bytes(1)).expect("twelve bytes");
    let own = device.own().start;
    match device.transmit(own, &header, bytes) {
        // The guest uses fewer queues than it was offered.
        Err(TransmitError::Down) if own != 0 => device.transmit(0, &header, bytes),
        other => other,
    }
}

/// Does what the guest's driver did not agree to do: cuts the super-packet, finishes its checksums. Where the ring fills up in the
/// middle, the rest is lost, as on a wire.
fn in_software(device: &VhostUser, packet: &mut Packet) -> io::Result<Sent> {
    if packet.offload().gso.is_none() {
        let mut offload = *packet.offload();
        if !checksum::finish(packet.bytes_mut(), &mut offload) {
            return Err(io::Error::other("a checksum outside of the frame"));
        }
        packet.set_offload(offload);
        return match put(device, packet.bytes(), &offload) {
            Err(TransmitError::Full) => Ok(Sent::Full),
            other => other.map(|()| Sent::Yes).map_err(io::Error::other),
        };
    }
    let frame = Frame::ethernet(packet.bytes()).map_err(io::Error::other)?;
    let pieces =
        Segments::new(packet.bytes(), &frame, packet.offload(), 1, Sums::Software).map_err(io::Error::other)?;
    for piece in pieces {
        let piece = piece.packet();
        put(device, piece.bytes(), piece.offload()).map_err(io::Error::other)?;
    }
    Ok(Sent::Yes)
}
