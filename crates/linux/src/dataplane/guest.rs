//! A virtual machine's network card as a port: [`VhostUser`] as a [`Device`].
//!
//! The guest has a frame's descriptors back when the frame has left the switch, and not before (Carousel's deferred completion):
//! so the socket that sent it stays charged, TCP's small queues keep a connection to what its rate needs, and who sends without
//! slowing down waits in its own system call.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use weirgate_port::{Offload, Packet};

use super::device::{Device, Received, Sent};
use super::software::{frames_of, in_software};
use crate::vhost::{TransmitError, VhostUser};

impl Device for VhostUser {
    fn queues(&self) -> usize {
        self.own().len()
    }

    fn queue_fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.own().nth(queue).map(|queue| Self::queue_fd(self, queue))
    }

    fn receive(&mut self, queue: usize, packet: &mut Packet) -> io::Result<Received> {
        let (device, queue) = (&*self, self.own().start + queue as u16);
        let mut got = None;
        let mut take = |frame: &mut crate::vhost::Frame<'_>| {
            let len = frame.bytes.len();
            packet.buffer_mut()[..len].copy_from_slice(frame.bytes);
            packet.set_len(len);
            packet.set_offload(frame.offload);
            packet.set_hold(Some(Arc::new(device.held(frame.hold()))));
            got = Some(Received::Frame);
        };
        let mut received = Self::receive(device, queue, 1, &mut take);
        // Nothing was there, and a kick is asked for: one that came before that was noted by the file, which is looked at and
        // cleared, so that the next one is an edge.
        let nothing = received.frames == 0 && received.malformed == 0;
        if nothing && (received.more || Self::events(device, queue).sent) {
            received = Self::receive(device, queue, 1, &mut take);
        }
        // Empty only where nothing was there: behind what was dropped there may be more, which no kick tells of.
        Ok(got.unwrap_or(if received.malformed > 0 { Received::Malformed } else { Received::Empty }))
    }

    fn send(&mut self, packet: &mut Packet) -> io::Result<Sent> {
        match put(self, packet.bytes(), packet.offload()) {
            Ok(()) => Ok(Sent::Yes),
            Err(TransmitError::Full) => Ok(Sent::Full),
            // What the guest's driver did not agree to do: none of it, where there is no room for all.
            Err(TransmitError::Header(_)) if !self.has_room(out(self), frames_of(packet)) => Ok(Sent::Full),
            Err(TransmitError::Header(_)) => in_software(packet, |bytes, offload| match put(self, bytes, offload) {
                Ok(()) => Ok(Sent::Yes),
                Err(TransmitError::Full) => Ok(Sent::Full),
                Err(error) => Err(io::Error::other(error)),
            }),
            Err(error @ (TransmitError::Down | TransmitError::TooLong)) => Err(io::Error::other(error)),
        }
    }

    fn split(self: Box<Self>, parts: usize) -> io::Result<Vec<Box<dyn Device>>> {
        let parts = Self::split(*self, parts);
        Ok(parts.into_iter().map(|part| Box::new(part) as Box<dyn Device>).collect())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.complete_dropped();
        Ok(())
    }

    /// Its driver stops the queue when it is not read.
    fn pushes_back(&self) -> bool {
        true
    }
}

fn put(device: &VhostUser, bytes: &[u8], offload: &Offload) -> Result<(), TransmitError> {
    device.transmit(out(device), *offload, bytes)
}

/// The queue to send by: the first of its own, unless the guest uses fewer than it was offered.
fn out(device: &VhostUser) -> u16 {
    let own = device.own().start;
    if device.takes(own) { own } else { 0 }
}
