//! A packet's bytes, in a buffer that is used again.

use core::any::Any;
use core::fmt;
use std::cell::RefCell;
use std::sync::Arc;

use weirgate_units::{Bytes, Instant};

use crate::Offload;

/// The smallest buffer: an Ethernet MTU of 1,500 and room for what a device puts before the packet.
pub const STANDARD_CAPACITY: usize = 2_048;

/// The sizes of buffers that are kept for reuse. The last is for the longest super-packet, 64 KB of IP and its Ethernet header.
const CAPACITIES: [usize; 6] = [STANDARD_CAPACITY, 4_096, 8_192, 16_384, 32_768, 66_560];

/// The most free buffers of one size that a thread keeps, in bytes: what a second of 250 Mbit/s holds. More than that at once in
/// a thread's queues is rare, and merely goes back to the allocator.
const FREE_MAX: usize = 32 << 20;

type Free = [Vec<Box<Filled>>; CAPACITIES.len()];

thread_local! {
    /// A thread's free buffers, by their size. An allocator's cache, without meaning of its own.
    static FREE: RefCell<Free> = const { RefCell::new([const { Vec::new() }; CAPACITIES.len()]) };
}

/// What a packet's sender waits for, to be told by its drop: shared by all packets that were made of one, it is gone when the
/// last of them is.
pub type Hold = Arc<dyn Any + Send + Sync>;

/// A packet: an owned buffer, the part of it that is filled, the instant at which the packet was where it is, and what its
/// sender left to be done to it.
///
/// Buffers of up to 66,560 bytes come from the thread's free ones and return there when the packet is dropped, so that a steady
/// flow of packets allocates nothing. A packet is one pointer: it goes from queue to queue, and what it says of itself stays where
/// it is.
pub struct Packet(
    /// Always there, until it is dropped.
    Option<Box<Filled>>,
);

struct Filled {
    buffer: Box<[u8]>,
    len: usize,
    at: Instant,
    offload: Offload,
    hold: Option<Hold>,
}

impl Packet {
    /// An empty packet with room for at least `capacity` bytes.
    pub fn with_capacity(capacity: usize) -> Self {
        let class = CAPACITIES.iter().position(|held| capacity <= *held);
        // `try_with`: at the end of a thread the list may be gone already.
        let free = class.and_then(|class| FREE.try_with(|free| free.borrow_mut()[class].pop()).ok().flatten());
        let Some(mut filled) = free else {
            let buffer = vec![0; class.map_or(capacity, |class| CAPACITIES[class])].into_boxed_slice();
            let (at, offload) = (Instant::ZERO, Offload::default());
            return Self(Some(Box::new(Filled { buffer, len: 0, at, offload, hold: None })));
        };
        (filled.len, filled.at, filled.offload) = (0, Instant::ZERO, Offload::default());
        Self(Some(filled))
    }

    /// A packet with these bytes.
    pub fn copy_of(bytes: &[u8]) -> Self {
        let mut packet = Self::with_capacity(bytes.len());
        let filled = packet.filled_mut();
        filled.buffer[..bytes.len()].copy_from_slice(bytes);
        filled.len = bytes.len();
        packet
    }

    /// What it says, headers first.
    #[inline]
    pub fn bytes(&self) -> &[u8] {
        let filled = self.filled();
        &filled.buffer[..filled.len]
    }

    /// The whole buffer, to be written into; then say how much with [`set_len`](Self::set_len). What is in it is left over
    /// from other packets.
    pub fn buffer_mut(&mut self) -> &mut [u8] {
        &mut self.filled_mut().buffer
    }

    /// Says that the first `len` bytes are the packet; cut to the capacity.
    #[inline]
    pub fn set_len(&mut self, len: usize) {
        let filled = self.filled_mut();
        filled.len = len.min(filled.buffer.len());
    }

    /// What it says, to be changed in place.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        let filled = self.filled_mut();
        &mut filled.buffer[..filled.len]
    }

    /// What is still to be done to it; nothing, unless [`set_offload`](Self::set_offload) said so.
    #[inline]
    pub const fn offload(&self) -> &Offload {
        &self.filled().offload
    }

    /// Says what is still to be done to it.
    pub const fn set_offload(&mut self, offload: Offload) {
        self.filled_mut().offload = offload;
    }

    /// What its sender waits for, if it does.
    #[inline]
    pub const fn hold(&self) -> Option<&Hold> {
        self.filled().hold.as_ref()
    }

    /// Says what its sender waits for.
    pub fn set_hold(&mut self, hold: Option<Hold>) {
        self.filled_mut().hold = hold;
    }

    /// Takes that away, to be given to another packet.
    pub const fn take_hold(&mut self) -> Option<Hold> {
        self.filled_mut().hold.take()
    }

    /// Its length.
    #[inline]
    pub const fn size(&self) -> Bytes {
        Bytes::new(self.filled().len as u64)
    }

    /// What it takes of memory: its buffer.
    #[inline]
    pub const fn memory(&self) -> Bytes {
        Bytes::new(self.filled().buffer.len() as u64)
    }

    /// When it came to, or through, the last place it passed.
    #[inline]
    pub const fn at(&self) -> Instant {
        self.filled().at
    }

    /// Says when it came to where it is. For ports.
    #[inline]
    pub const fn set_at(&mut self, at: Instant) {
        self.filled_mut().at = at;
    }

    #[inline]
    const fn filled(&self) -> &Filled {
        self.0.as_ref().expect("it was not dropped")
    }

    #[inline]
    const fn filled_mut(&mut self) -> &mut Filled {
        self.0.as_mut().expect("it was not dropped")
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        let Some(mut filled) = self.0.take() else { return };
        // Its sender is told now, and not when the buffer is used again.
        filled.hold = None;
        let capacity = filled.buffer.len();
        if let Some(class) = CAPACITIES.iter().position(|held| capacity == *held) {
            // Where the list is gone (the thread ends) or full, the buffer goes to the allocator.
            let _ = FREE.try_with(|free| {
                let free = &mut free.borrow_mut()[class];
                if (free.len() + 1) * capacity <= FREE_MAX {
                    free.push(filled);
                }
            });
        }
    }
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Packet").field("len", &self.size()).field("at", &self.at()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_packet_gives_its_buffer_to_the_next() {
        let packet = Packet::copy_of(b"first");
        let buffer = packet.bytes().as_ptr();
        drop(packet);
        let packet = Packet::copy_of(b"2nd");
        assert_eq!((packet.bytes(), packet.bytes().as_ptr()), (&b"2nd"[..], buffer));
    }

    #[test]
    fn a_large_packets_buffer_is_used_for_a_large_one() {
        let packet = Packet::copy_of(&[7; 9_000]);
        assert_eq!((packet.size(), packet.memory(), packet.bytes()[8_999]), (Bytes::new(9_000), Bytes::new(16_384), 7));
        let buffer = packet.bytes().as_ptr();
        drop(packet);
        assert_eq!(Packet::with_capacity(1).buffer_mut().len(), STANDARD_CAPACITY);
        assert_eq!(Packet::with_capacity(10_000).buffer_mut().as_ptr(), buffer);
        let giant = Packet::with_capacity(1 << 20);
        assert_eq!(giant.memory(), Bytes::new(1 << 20));
    }

    #[test]
    fn a_length_past_the_buffer_is_cut() {
        let mut packet = Packet::with_capacity(10);
        packet.set_len(1 << 20);
        assert_eq!(packet.bytes().len(), STANDARD_CAPACITY);
    }
}
