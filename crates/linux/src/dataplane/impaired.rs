//! A device behind a fault: delay, loss, rate of what is sent by it ([`Impair`]), as everywhere else.

use std::io;
use std::os::fd::BorrowedFd;

use weirgate_port::{Impair, Packet, Port};
use weirgate_units::Instant;

use super::device::{Device, Received, Sent};
use crate::clock;

/// A device whose sent frames pass an [`Impair`] first. A super-packet is one packet to it.
#[derive(Debug)]
pub struct Impaired<D> {
    device: D,
    impair: Impair,
    /// Frames that came out of the fault, and that the device had no room for or would not have.
    unsent: u64,
}

impl<D: Device> Impaired<D> {
    /// `device` behind `impair`.
    pub const fn new(device: D, impair: Impair) -> Self {
        Self { device, impair, unsent: 0 }
    }
}

impl<D: Device> Device for Impaired<D> {
    fn queues(&self) -> usize {
        self.device.queues()
    }

    fn queue_fd(&self, queue: usize) -> Option<BorrowedFd<'_>> {
        self.device.queue_fd(queue)
    }

    fn receive(&mut self, queue: usize, packet: &mut Packet) -> io::Result<Received> {
        self.device.receive(queue, packet)
    }

    fn send(&mut self, packet: &mut Packet) -> io::Result<Sent> {
        let mut packet = std::mem::replace(packet, Packet::with_capacity(0));
        // What is on the wire has left the switch.
        packet.set_hold(None);
        self.impair.handle_packet(clock::boottime(), packet);
        Ok(Sent::Yes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.handle_time(clock::boottime())
    }

    fn lost(&mut self) -> u64 {
        self.device.lost() + self.impair.counters().dropped() + self.unsent
    }

    fn pushes_back(&self) -> bool {
        self.device.pushes_back()
    }

    fn handle_time(&mut self, now: Instant) -> io::Result<()> {
        while let Some(mut packet) = self.impair.poll_packet(now) {
            // A link has no memory for what its end has no room for.
            let sent = self.device.send(&mut packet);
            self.unsent += u64::from(!matches!(sent, Ok(Sent::Yes)));
            sent?;
        }
        self.device.flush()?;
        self.device.handle_time(now)
    }

    fn poll_at(&self) -> Option<Instant> {
        self.impair.poll_at().into_iter().chain(self.device.poll_at()).min()
    }
}
