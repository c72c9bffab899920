//! The port that does nothing.

use std::collections::VecDeque;

use weirgate_units::Instant;

use crate::{Packet, Port};

/// Passes every packet at once, in order. The innermost port.
#[derive(Debug, Default)]
pub struct Wire {
    queue: VecDeque<Packet>,
}

impl Wire {
    /// An empty wire.
    pub const fn new() -> Self {
        Self { queue: VecDeque::new() }
    }
}

impl Port for Wire {
    fn handle_packet(&mut self, now: Instant, mut packet: Packet) {
        packet.set_at(now);
        self.queue.push_back(packet);
    }

    fn poll_packet(&mut self, _now: Instant) -> Option<Packet> {
        self.queue.pop_front()
    }

    fn poll_at(&self) -> Option<Instant> {
        self.queue.front().map(Packet::at)
    }
}
