//! What a front end says, and what it does to the rings. See QEMU's docs/interop/vhost-user.rst; the messages' bytes are read and
//! checked by the vhost crate.

use std::fs::File;
use std::io;
use std::sync::Arc;

use vhost::VhostUserMemoryRegionBase;
use vhost::vhost_user::message::{
    VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags, VhostUserInflight, VhostUserLog,
    VhostUserMemoryRegion, VhostUserProtocolFeatures, VhostUserShMemConfig, VhostUserSharedMsg,
    VhostUserSingleMemoryRegion, VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
};
use vhost::vhost_user::{Error, GpuBackend, Result, VhostUserBackendReqHandlerMut};
use virtio_queue::QueueT as _;
use vm_memory::{GuestAddress, GuestMemoryMmap, GuestRegionMmap};

use super::ring::Ring;
use super::shared::Shared;

/// One front end's conversation.
pub(super) struct Control {
    shared: Arc<Shared>,
    regions: Vec<Region>,
    protocol_features: u64,
}

/// Where the front end has a part of the guest's memory: rings are named by its addresses.
struct Region {
    front_end: u64,
    guest: u64,
    len: u64,
}

/// Without it, rings are enabled from the start.
const PROTOCOL_FEATURES: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

impl Control {
    pub(super) const fn new(shared: Arc<Shared>) -> Self {
        Self { shared, regions: Vec::new(), protocol_features: 0 }
    }

    /// Whether the front end was promised answers to messages that have none of their own.
    pub(super) const fn acknowledges(&self) -> bool {
        self.protocol_features & VhostUserProtocolFeatures::REPLY_ACK.bits() != 0
    }

    fn ring(&self, index: impl Into<u64>) -> Result<std::sync::MutexGuard<'_, Ring>> {
        usize::try_from(index.into()).ok().and_then(|index| self.shared.ring(index)).ok_or(Error::InvalidParam)
    }

    fn guest_address(&self, front_end: u64) -> Result<GuestAddress> {
        let region = self.regions.iter().find(|r| front_end.wrapping_sub(r.front_end) < r.len);
        region.map(|r| GuestAddress(front_end - r.front_end + r.guest)).ok_or(Error::InvalidParam)
    }
}

fn refused<T>(why: impl std::error::Error + Send + Sync + 'static) -> Result<T> {
    Err(Error::ReqHandlerError(io::Error::other(why)))
}

/// The answer to everything that was not offered.
fn not_offered<T>() -> Result<T> {
    Err(Error::InvalidOperation("not offered by this device"))
}

impl VhostUserBackendReqHandlerMut for Control {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    /// No longer used by front ends, and once meant as a reset: stops everything.
    fn reset_owner(&mut self) -> Result<()> {
        self.shared.stop();
        self.shared.changed();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(self.shared.features | PROTOCOL_FEATURES)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        if features & !(self.shared.features | PROTOCOL_FEATURES) != 0 {
            return Err(Error::InvalidParam);
        }
        for mut ring in self.shared.rings() {
            ring.negotiate(features);
            if features & PROTOCOL_FEATURES == 0 {
                ring.enable(true);
            }
        }
        self.shared.changed();
        Ok(())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(VhostUserProtocolFeatures::MQ | VhostUserProtocolFeatures::REPLY_ACK)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        self.protocol_features = features;
        Ok(())
    }

    /// Queue pairs: what QEMU compares its `queues=` with.
    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(self.shared.pairs.len() as u64)
    }

    fn set_mem_table(
        &mut self,
        table: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<Vec<VhostUserMemoryRegionBase>>> {
        let (mut maps, mut regions) = (Vec::new(), Vec::new());
        for (region, file) in table.iter().zip(files) {
            let map = GuestRegionMmap::new(region.mmap_region(file)?, GuestAddress(region.guest_phys_addr));
            maps.push(map.ok_or(Error::InvalidParam)?);
            let (front_end, guest, len) = (region.user_addr, region.guest_phys_addr, region.memory_size);
            regions.push(Region { front_end, guest, len });
        }
        let memory = Arc::new(GuestMemoryMmap::from_regions(maps).or_else(refused)?);
        for mut ring in self.shared.rings() {
            ring.memory = Some(Arc::clone(&memory));
        }
        self.regions = regions;
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        self.stopped(index)?.split.queue().try_set_size(size).or_else(refused)
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let [table, used, available] = [descriptor, used, available].map(|address| self.guest_address(address));
        let mut ring = self.stopped(index)?;
        let queue = ring.split.queue();
        queue.try_set_desc_table_address(table?).or_else(refused)?;
        queue.try_set_used_ring_address(used?).or_else(refused)?;
        queue.try_set_avail_ring_address(available?).or_else(refused)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.stopped(index)?.split.queue().set_next_avail(base);
        Ok(())
    }

    /// Stops the ring.
    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        let base = self.ring(index)?.stop();
        self.shared.changed();
        Ok(VhostUserVringState::new(index, base.into()))
    }

    /// Starts the ring: the protocol lets it start at the first kick, which it need not wait for.
    fn set_vring_kick(&mut self, index: u8, kick: Option<File>) -> Result<()> {
        let Some(kick) = kick else { return Err(Error::InvalidOperation("rings without kicks are not polled")) };
        let mut ring = self.ring(index)?;
        ring.set_kick(kick).map_err(Error::ReqHandlerError)?;
        if !ring.is_started() {
            ring.start().or_else(refused)?;
        }
        drop(ring);
        self.shared.changed();
        Ok(())
    }

    fn set_vring_call(&mut self, index: u8, call: Option<File>) -> Result<()> {
        self.ring(index)?.set_call(call).map_err(Error::ReqHandlerError)
    }

    /// Not used: an error is counted, and the next conversation tells.
    fn set_vring_err(&mut self, index: u8, _err: Option<File>) -> Result<()> {
        self.ring(index).map(drop)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        self.ring(index)?.enable(enable);
        self.shared.changed();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_config(&mut self, _offset: u32, _size: u32, _flags: VhostUserConfigFlags) -> Result<Vec<u8>> {
        not_offered()
    }

    fn set_config(&mut self, _offset: u32, _bytes: &[u8], _flags: VhostUserConfigFlags) -> Result<()> {
        not_offered()
    }

    fn set_gpu_socket(&mut self, _gpu: GpuBackend) -> Result<()> {
        not_offered()
    }

    fn get_shared_object(&mut self, _uuid: VhostUserSharedMsg) -> Result<File> {
        not_offered()
    }

    fn get_inflight_fd(&mut self, _inflight: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        not_offered()
    }

    fn set_inflight_fd(&mut self, _inflight: &VhostUserInflight, _file: File) -> Result<()> {
        not_offered()
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        not_offered()
    }

    fn add_mem_region(
        &mut self,
        _region: &VhostUserSingleMemoryRegion,
        _file: File,
        _postcopy_listening: Option<bool>,
    ) -> Result<Option<VhostUserMemoryRegionBase>> {
        not_offered()
    }

    fn remove_mem_region(&mut self, _region: &VhostUserSingleMemoryRegion) -> Result<()> {
        not_offered()
    }

    fn set_device_state_fd(
        &mut self,
        _direction: VhostTransferStateDirection,
        _phase: VhostTransferStatePhase,
        _file: File,
    ) -> Result<Option<File>> {
        not_offered()
    }

    fn check_device_state(&mut self) -> Result<()> {
        not_offered()
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        not_offered()
    }

    fn set_log_base(&mut self, _log: &VhostUserLog, _file: File) -> Result<()> {
        not_offered()
    }
}

impl Control {
    /// A ring that is not in use: its shape may be changed.
    fn stopped(&self, index: u32) -> Result<std::sync::MutexGuard<'_, Ring>> {
        let ring = self.ring(index)?;
        if ring.is_started() { Err(Error::InvalidOperation("the ring is in use")) } else { Ok(ring) }
    }
}
