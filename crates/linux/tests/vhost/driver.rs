//! The other end: a front end with a guest's memory in a memfd, and a driver that fills its rings by hand, honestly or not.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{Ordering, fence};

use rustix::fs::{MemfdFlags, memfd_create};
use vhost::vhost_user::message::VhostUserProtocolFeatures;
use vhost::vhost_user::{Frontend, VhostUserFrontend};
use vhost::{VhostBackend, VhostUserMemoryRegionInfo, VringConfigData};
use vm_memory::{Bytes, FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestRegionMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};
use weirgate_port::Offload;

/// Bytes of guest memory: 64 KiB for each ring's tables, then its buffers.
const MEMORY: usize = 64 << 20;
/// Where the memory begins in the guest, so that address 0 is outside.
const BASE: u64 = 0x1_0000;
/// Bytes of a ring's part of the memory.
const PART: u64 = 8 << 20;

pub(crate) const NEXT: u16 = 1;
pub(crate) const WRITE: u16 = 2;
pub(crate) const INDIRECT: u16 = 4;

pub(crate) const EVENT_IDX: u64 = 1 << 29;
pub(crate) const MRG_RXBUF: u64 = 1 << 15;

/// A descriptor: address, length, flags, next.
pub(crate) type Descriptor = (u64, u32, u16, u16);

/// A guest with its rings: 2n receives, 2n + 1 transmits.
pub(crate) struct Driver {
    pub(crate) front_end: Frontend,
    pub(crate) rings: Vec<Ring>,
}

pub(crate) struct Ring {
    pub(crate) memory: GuestMemoryMmap<()>,
    pub(crate) call: EventFd,
    pub(crate) kick: EventFd,
    pub(crate) size: u16,
    index: u64,
    available: u16,
    seen_used: u16,
    event_idx: bool,
}

impl Driver {
    /// Connects, agrees to all features that are offered but `without`, and starts `pairs` queue pairs of `size` entries.
    pub(crate) fn connect(socket: &Path, pairs: u16, size: u16, without: u64) -> Self {
        let file = File::from(memfd_create("guest", MemfdFlags::CLOEXEC).expect("a memfd"));
        file.set_len(MEMORY as u64).expect("grows");
        let mut driver = Self::negotiate(socket, pairs, without);
        let region = GuestRegionMmap::from_range(GuestAddress(BASE), MEMORY, Some(FileOffset::new(file, 0)));
        let memory = GuestMemoryMmap::from_regions(vec![region.expect("memory")]).expect("one region");
        let event_idx = driver.front_end.get_features().expect("features") & EVENT_IDX & !without != 0;
        for index in 0..2 * u64::from(pairs) {
            driver.rings.push(Ring {
                memory: memory.clone(),
                call: EventFd::new(EFD_NONBLOCK).expect("an eventfd"),
                kick: EventFd::new(EFD_NONBLOCK).expect("an eventfd"),
                size,
                index,
                available: 0,
                seen_used: 0,
                event_idx,
            });
        }
        driver.start();
        driver
    }

    /// As far as the features.
    pub(crate) fn negotiate(socket: &Path, pairs: u16, without: u64) -> Self {
        let mut front_end = Frontend::connect(socket, 2 * u64::from(pairs)).expect("the device listens");
        front_end.set_owner().expect("owner");
        let features = front_end.get_features().expect("features");
        front_end.get_protocol_features().expect("protocol features");
        let wanted = VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK;
        front_end.set_protocol_features(wanted).expect("offered");
        front_end.set_hdr_flags(vhost::vhost_user::message::VhostUserHeaderFlag::NEED_REPLY);
        front_end.set_features(features & !without).expect("features are taken");
        Self { front_end, rings: Vec::new() }
    }

    /// Hands over memory and rings, each from where it stands in memory: also to a device that knows nothing of it.
    pub(crate) fn start(&mut self) {
        let region = self.rings[0].memory.iter().next().expect("a region");
        let region = VhostUserMemoryRegionInfo::from_guest_region(region).expect("it has a file");
        self.front_end.set_mem_table(&[region]).expect("memory is taken");
        for i in 0..self.rings.len() {
            let base = self.rings[i].used_index();
            self.start_ring(i, base).expect("the ring starts");
        }
    }

    /// Starts one ring with `base` as the next available index.
    pub(crate) fn start_ring(&mut self, i: usize, base: u16) -> vhost::Result<()> {
        let ring = &self.rings[i];
        let here = |address| ring.memory.get_host_address(GuestAddress(address)).expect("inside") as u64;
        self.front_end.set_vring_num(i, ring.size)?;
        self.front_end.set_vring_base(i, base)?;
        let addresses = VringConfigData {
            queue_max_size: ring.size,
            queue_size: ring.size,
            flags: 0,
            desc_table_addr: here(ring.table()),
            used_ring_addr: here(ring.used()),
            avail_ring_addr: here(ring.available()),
            log_addr: None,
        };
        self.front_end.set_vring_addr(i, &addresses)?;
        self.front_end.set_vring_kick(i, &ring.kick)?;
        self.front_end.set_vring_call(i, &ring.call)?;
        self.front_end.set_vring_enable(i, true)
    }

    /// Goes as a killed QEMU does, and leaves the guest as it was.
    pub(crate) fn vanish(self) -> Vec<Ring> {
        self.rings
    }
}

impl Ring {
    fn table(&self) -> u64 {
        BASE + self.index * PART
    }

    fn available(&self) -> u64 {
        self.table() + 0x4000
    }

    fn used(&self) -> u64 {
        self.table() + 0x8000
    }

    /// Where this ring's buffers are: `slot` of 2 KiB.
    pub(crate) fn buffer(&self, slot: u64) -> u64 {
        self.table() + 0x1_0000 + slot * 2_048
    }

    pub(crate) fn write<T: vm_memory::ByteValued>(&self, value: T, address: u64) {
        self.memory.write_obj(value, GuestAddress(address)).expect("inside");
    }

    pub(crate) fn write_bytes(&self, address: u64, bytes: &[u8]) {
        self.memory.write_slice(bytes, GuestAddress(address)).expect("inside");
    }

    pub(crate) fn read<T: vm_memory::ByteValued>(&self, address: u64) -> T {
        self.memory.read_obj(GuestAddress(address)).expect("inside")
    }

    pub(crate) fn describe(&self, table: u64, at: u16, (address, len, flags, next): Descriptor) {
        let place = table + 16 * u64::from(at);
        self.write(address, place);
        self.write(len, place + 8);
        self.write(flags, place + 12);
        self.write(next, place + 14);
    }

    /// Puts a descriptor into the ring's own table.
    pub(crate) fn set(&self, at: u16, descriptor: Descriptor) {
        self.describe(self.table(), at, descriptor);
    }

    /// Makes the chain at `head` available; no kick.
    pub(crate) fn offer(&mut self, head: u16) {
        self.write(head, self.available() + 4 + 2 * u64::from(self.available % self.size));
        self.move_available(1);
    }

    /// Says that so many more are available.
    pub(crate) fn move_available(&mut self, by: u16) {
        self.available = self.available.wrapping_add(by);
        fence(Ordering::SeqCst);
        self.write(self.available, self.available() + 2);
        fence(Ordering::SeqCst);
    }

    /// Kicks where the device wants to be kicked for the last `added` chains, as Linux's driver does, and says whether it did.
    pub(crate) fn kick(&self, added: u16) -> bool {
        let wanted = if self.event_idx {
            let event: u16 = self.read(self.used() + 4 + 8 * u64::from(self.size));
            self.available.wrapping_sub(event).wrapping_sub(1) < added
        } else {
            self.read::<u16>(self.used()) & 1 == 0
        };
        if wanted {
            self.kick.write(1).expect("kicks");
        }
        wanted
    }

    /// Offers a frame with a virtio header that asks for nothing, in one descriptor at `slot`, and kicks where that is wanted.
    pub(crate) fn send(&mut self, slot: u16, frame: &[u8]) -> bool {
        self.send_with(slot, Offload::default().to_bytes(0), frame)
    }

    pub(crate) fn send_with(&mut self, slot: u16, header: [u8; Offload::LEN], frame: &[u8]) -> bool {
        let bytes = [&header, frame].concat();
        let address = self.buffer(slot.into());
        self.memory.write_slice(&bytes, GuestAddress(address)).expect("inside");
        self.set(slot, (address, bytes.len() as u32, 0, 0));
        self.offer(slot);
        self.kick(1)
    }

    /// Offers `count` receive buffers of `len` bytes, one descriptor each, from `slot` on.
    pub(crate) fn give_room(&mut self, slot: u16, count: u16, len: u32) -> bool {
        for slot in slot..slot + count {
            self.set(slot, (self.buffer(slot.into()), len, WRITE, 0));
            self.offer(slot);
        }
        self.kick(count)
    }

    /// The used ring's index, as the device left it.
    pub(crate) fn used_index(&self) -> u16 {
        self.read(self.used() + 2)
    }

    /// What the device has given back since this was last asked: head and bytes written.
    pub(crate) fn take_used(&mut self) -> Vec<(u32, u32)> {
        let mut taken = Vec::new();
        while self.seen_used != self.used_index() {
            fence(Ordering::SeqCst);
            let place = self.used() + 4 + 8 * u64::from(self.seen_used % self.size);
            taken.push((self.read(place), self.read(place + 4)));
            self.seen_used = self.seen_used.wrapping_add(1);
            if self.event_idx {
                self.ask_for_interrupt_at(self.seen_used);
            }
        }
        taken
    }

    /// Wants to be told when the used index has passed this.
    pub(crate) fn ask_for_interrupt_at(&self, used: u16) {
        self.write(used, self.available() + 4 + 2 * u64::from(self.size));
    }

    /// Bytes from a buffer.
    pub(crate) fn bytes(&self, slot: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, GuestAddress(self.buffer(slot))).expect("inside");
        bytes
    }

    /// Whether the device has signalled since this was last asked.
    pub(crate) fn signalled(&self) -> bool {
        self.call.read().is_ok()
    }
}
