//! Interfaces by AF_XDP as ports: [`XdpPort`] as a [`Device`].

use std::io;
use std::os::fd::BorrowedFd;

use weirgate_port::Packet;
use weirgate_units::Instant;

use super::device::{Device, Received, Sent};
use super::software::in_software;
use crate::clock;
use crate::interface::XdpPort;

/// More frames than this are not waited for: half of a ring.
const ROOM_MAX: usize = 1_024;

impl Device for XdpPort {
    fn queues(&self) -> usize {
        Self::queues(self)
    }

    fn queue_fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        Some(Self::queue_fd(self, queue))
    }

    fn receive(&mut self, queue: usize, packet: &mut Packet) -> io::Result<Received> {
        Ok(Self::receive(self, queue, packet).into())
    }

    fn send(&mut self, packet: &mut Packet) -> io::Result<Sent> {
        // All of a super-packet's frames or none; those that have 64 KB in more than all of the ring are lost in part.
        if let Some(gso) = packet.offload().gso {
            let frames = packet.bytes().len().div_ceil(usize::from(gso.size.get()));
            if self.room() < frames.min(ROOM_MAX) {
                return Ok(Sent::Full);
            }
        }
        in_software(packet, |bytes, _| Ok(if Self::send(self, bytes)? { Sent::Yes } else { Sent::Full }))
    }

    fn flush(&mut self) -> io::Result<()> {
        Self::flush(self, clock::boottime())
    }

    fn lost(&mut self) -> u64 {
        Self::lost(self)
    }

    /// What its rings have no room for is dropped.
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
