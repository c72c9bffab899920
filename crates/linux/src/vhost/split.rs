//! A split virtqueue in the guest's memory, seen from the device: virtio 1.2, section 2.7.
//!
//! The available side and the chains are virtio-queue's. The used side is here, for two reasons: the buffers of one merged
//! frame must become visible by one store of the index (Linux's driver takes a frame whose second buffer it does not see yet
//! for a broken one), and a driver without `VIRTIO_F_EVENT_IDX` can ask for no interrupts.

use std::num::Wrapping;
use std::sync::atomic::{Ordering, fence};

use virtio_bindings::virtio_ring::VRING_AVAIL_F_NO_INTERRUPT;
use virtio_queue::{DescriptorChain, Error, Queue, QueueOwnedT as _, QueueT as _};
use vm_memory::{Bytes as _, GuestAddress, GuestMemoryMmap};

/// The guest's memory, mapped.
pub(super) type Memory = GuestMemoryMmap<()>;

/// One virtqueue. All of it but the addresses is in guest memory, so nothing that it says is believed unchecked.
pub(super) struct Split {
    queue: Queue,
    /// The used index when a signal was last thought about; `None`: not since the start.
    signalled: Option<Wrapping<u16>>,
    /// The guest was asked to kick.
    listening: bool,
}

impl Split {
    /// One of at most `size` entries, a power of two, without addresses yet.
    pub(super) fn new(size: u16) -> Result<Self, Error> {
        Ok(Self { queue: Queue::new(size)?, signalled: None, listening: false })
    }

    /// To set addresses, size and indices while it is stopped.
    pub(super) const fn queue(&mut self) -> &mut Queue {
        &mut self.queue
    }

    pub(super) fn is_running(&self) -> bool {
        self.queue.ready()
    }

    pub(super) fn size(&self) -> u16 {
        self.queue.size()
    }

    pub(super) fn next_available(&self) -> u16 {
        self.queue.next_avail()
    }

    /// Begins where the guest's indices stand.
    pub(super) fn start(&mut self, memory: &Memory) -> Result<(), Error> {
        self.queue.set_ready(true);
        if !self.queue.is_valid(memory) {
            self.queue.set_ready(false);
            return Err(Error::QueueNotReady);
        }
        let used = self.queue.used_idx(memory, Ordering::Acquire)?;
        self.queue.set_next_used(used.0);
        self.signalled = None;
        self.listen(memory, self.queue.next_avail()).map(drop)
    }

    pub(super) fn stop(&mut self) {
        self.queue.set_ready(false);
    }

    /// Takes the next chain, and says how many were there with it.
    pub(super) fn pop<'m>(&mut self, memory: &'m Memory) -> Result<Option<DescriptorChain<&'m Memory>>, Error> {
        Ok(self.queue.iter(memory)?.next())
    }

    /// Goes back to where [`next_available`](Self::next_available) was: the chains since then were not taken.
    pub(super) fn rewind(&mut self, next_available: u16) {
        self.queue.set_next_avail(next_available);
    }

    /// The index up to which the guest has made chains available.
    pub(super) fn available_end(&self, memory: &Memory) -> Result<u16, Error> {
        Ok(self.queue.avail_idx(memory, Ordering::Acquire)?.0)
    }

    /// Whether the guest has made so many more chains available; if not, it is asked to kick.
    pub(super) fn room(&mut self, memory: &Memory, wanted: u16) -> Result<bool, Error> {
        let known = self.available_end(memory)?;
        if known.wrapping_sub(self.next_available()) >= wanted {
            return Ok(true);
        }
        // It may have meanwhile.
        self.listen(memory, known)?;
        Ok(self.available_end(memory)?.wrapping_sub(self.next_available()) >= wanted)
    }

    /// Gives chains back, by head and bytes written, all in one step.
    pub(super) fn give_back(&mut self, memory: &Memory, chains: &[(u16, u32)]) -> Result<(), Error> {
        let (size, ring) = (self.queue.size(), GuestAddress(self.queue.used_ring()));
        let mut next = Wrapping(self.queue.next_used());
        for &(head, written) in chains {
            let place = offset(ring, 4 + 8 * u64::from(next.0 % size))?;
            let element = u64::from(head) | u64::from(written) << 32;
            memory.write_obj(element.to_le(), place).map_err(Error::GuestMemory)?;
            next += 1;
        }
        self.queue.set_next_used(next.0);
        memory.store(next.0.to_le(), offset(ring, 2)?, Ordering::Release).map_err(Error::GuestMemory)
    }

    /// Whether the guest is to be told of what was given back since this was last asked (section 2.7.7.2), while the device holds
    /// `held` chains.
    pub(super) fn wants_signal(&mut self, memory: &Memory, held: u64) -> Result<bool, Error> {
        // What was given back must be seen before the guest's wish is read, or both sides could wait.
        fence(Ordering::SeqCst);
        let new = Wrapping(self.queue.next_used());
        let old = self.signalled.replace(new);
        if held > 0 && self.queue.event_idx_enabled() {
            // Linux's driver asks to be told when three quarters of what it has sent came back (virtqueue_enable_cb_delayed). With
            // some of it held that may be never, and a sender whose frames are back waits for that to be noticed.
            return Ok(old != Some(new));
        }
        let available = GuestAddress(self.queue.avail_ring());
        let read = |at| memory.load::<u16>(at, Ordering::Relaxed).map(u16::from_le).map_err(Error::GuestMemory);
        if !self.queue.event_idx_enabled() {
            return Ok(old != Some(new) && u32::from(read(available)?) & VRING_AVAIL_F_NO_INTERRUPT == 0);
        }
        let event = Wrapping(read(offset(available, 4 + 2 * u64::from(self.queue.size()))?)?);
        Ok(old.is_none_or(|old| new - event - Wrapping(1) < new - old))
    }

    /// Asks the guest to kick once it makes more available than up to `known`. True: it has already, and may not kick.
    pub(super) fn listen(&mut self, memory: &Memory, known: u16) -> Result<bool, Error> {
        // virtio-queue asks for a kick at the next chain to be taken, which the guest is past where some were left.
        let next = self.queue.next_avail();
        self.queue.set_next_avail(known);
        let more = self.queue.enable_notification(memory);
        self.queue.set_next_avail(next);
        self.listening = true;
        more
    }

    /// Wants no kicks. With `VIRTIO_F_EVENT_IDX` there is none after the one that was asked for, so nothing is done.
    pub(super) fn hush(&mut self, memory: &Memory) -> Result<(), Error> {
        if std::mem::take(&mut self.listening) { self.queue.disable_notification(memory) } else { Ok(()) }
    }
}

fn offset(address: GuestAddress, by: u64) -> Result<GuestAddress, Error> {
    address.0.checked_add(by).map(GuestAddress).ok_or(Error::AddressOverflow)
}
