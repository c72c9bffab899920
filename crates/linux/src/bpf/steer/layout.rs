//! The twins of `bpf/steer.h`, and the control page that both sides see at once.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use libbpf_rs::{MapCore, MapFlags};
use weirgate_sockets::sample::{CcName, mapped};
use weirgate_tune::policy::Policy;
use weirgate_units::{Duration, Instant, Prefix};
use zerocopy::FromBytes;

/// What the program counted; `struct wg_steer_counters`. Connections are counted when a policy takes them up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, FromBytes)]
#[repr(C)]
pub struct SteerCounters {
    /// Accepted connections whose client lies in a selected network.
    pub matched: u64,
    /// Of these, to be switched.
    pub treated: u64,
    /// Of these, kept on the default for comparison.
    pub held_out: u64,
    /// Left alone: the application chose its own congestion control.
    pub exempt: u64,
    /// Responses that passed the threshold and were switched.
    pub switched: u64,
    /// Responses at whose end the connection went back.
    pub returned: u64,
    /// Connections found past the expiry and undone.
    pub expired: u64,
    /// Changes that the kernel refused; the connection is left alone afterwards.
    pub failed: u64,
    /// Responses told apart from the one before.
    pub boundaries: u64,
    /// Responses that ended below the threshold while switched. Must stay 0.
    pub violations: u64,
    /// Open connections that a policy took up, or put on another default.
    pub open_set: u64,
    /// Open connections that a policy, or the sweep, put back.
    pub open_reset: u64,
    /// Open connections that this kernel cannot take up.
    pub open_unreached: u64,
    /// Switched responses whose start was capped at what their network is known to carry.
    pub capped: u64,
    /// Connections whose pacing, the leftover of a chosen algorithm, ended when they went back.
    pub unpaced: u64,
}

impl SteerCounters {
    const WORDS: usize = size_of::<Self>() / 8;

    /// The sums over all CPUs. Counters that an older program lacks are 0.
    pub(super) fn read(map: &dyn MapCore) -> io::Result<Self> {
        let per_cpu = map.lookup_percpu(&0u32.to_ne_bytes(), MapFlags::ANY).map_err(io::Error::other)?;
        let mut sums = [0u64; Self::WORDS];
        for cpu in per_cpu.unwrap_or_default() {
            for (sum, word) in sums.iter_mut().zip(cpu.as_chunks::<8>().0) {
                *sum += u64::from_ne_bytes(*word);
            }
        }
        Ok(zerocopy::transmute!(sums))
    }
}

/// `struct wg_settings`: a policy without its networks.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub(super) struct Settings {
    policy_version: u32,
    epoch: u32,
    seed: u64,
    share_ppm: u32,
    stay: u16,
    cap_start: u16,
    switch_after: u64,
    default_cc: [u8; 16],
}

impl Settings {
    pub(super) fn of(policy: &Policy) -> Self {
        Self {
            policy_version: policy.version,
            epoch: policy.holdout.epoch,
            seed: policy.holdout.seed,
            share_ppm: policy.holdout.share_ppm,
            stay: policy.stay.into(),
            cap_start: policy.cap_start.into(),
            switch_after: policy.switch_after.as_u64(),
            default_cc: policy.default_cc.map_or([0; 16], |cc| *cc.as_bytes()),
        }
    }
}

/// `struct wg_control`.
#[repr(C)]
struct Page {
    expiry_ns: AtomicU64,
    generation: AtomicU32,
    reserved: u32,
    settings: [Settings; 2],
    cgroup_id: u64,
}

/// The map `control`, in this process's memory: stores reach the program at once, without a system call, and whole.
#[derive(Debug)]
pub(super) struct Control {
    page: NonNull<Page>,
}

// SAFETY: the mapping belongs to no thread; shared access goes through atomics, `publish` takes `&mut self`.
unsafe impl Send for Control {}
// SAFETY: as above: `&Control` reaches the expiry only.
unsafe impl Sync for Control {}

impl Control {
    /// How much is mapped: the kernel rounds a mapping to pages, and `Page` is smaller than any.
    const LEN: usize = size_of::<Page>();

    pub(super) fn map(map: BorrowedFd<'_>, cgroup_id: u64) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a map made with BPF_F_MMAPABLE; the kernel chooses where.
        let at =
            unsafe { libc::mmap(std::ptr::null_mut(), Self::LEN, protection, libc::MAP_SHARED, map.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let page = NonNull::new(at.cast::<Page>()).ok_or_else(|| io::Error::other("mapped at address 0"))?;
        // SAFETY: the mapping is page-aligned, at least as large as `Page`, and zeroed, which is a valid `Page`. No program
        // reads it yet: none is attached.
        unsafe { (&raw mut (*page.as_ptr()).cgroup_id).write_volatile(cgroup_id) };
        Ok(Self { page })
    }

    /// Fills the slot that no program reads, then makes it the one that is read.
    pub(super) fn publish(&mut self, generation: u32, settings: Settings) {
        let slot = (generation & 1) as usize;
        // SAFETY: as in `map`; this process is the only writer, and programs read the other slot.
        unsafe { (&raw mut (*self.page.as_ptr()).settings[slot]).write_volatile(settings) };
        // SAFETY: mapped as long as `self` lives; an atomic, so that the programs may read it meanwhile.
        unsafe { &(*self.page.as_ptr()).generation }.store(generation, Ordering::Release);
    }

    /// Moves the expiry; true where it lay in the past.
    pub(super) fn renew(&self, until: Instant) -> bool {
        self.expiry().swap(until.as_nanos(), Ordering::Relaxed) <= boot_now().as_nanos()
    }

    /// Moves the expiry to `life` from now where it lies in the past.
    pub(super) fn revive(&self, life: Duration) {
        let now = boot_now();
        let revived = |expiry| (expiry <= now.as_nanos()).then(|| (now + life).as_nanos());
        let _unless_alive = self.expiry().fetch_update(Ordering::Relaxed, Ordering::Relaxed, revived);
    }

    pub(super) fn expire(&self) {
        self.expiry().store(0, Ordering::Relaxed);
    }

    fn expiry(&self) -> &AtomicU64 {
        // SAFETY: mapped as long as `self` lives; an atomic, so that the programs may read it meanwhile.
        unsafe { &(*self.page.as_ptr()).expiry_ns }
    }
}

fn boot_now() -> Instant {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

impl Drop for Control {
    fn drop(&mut self) {
        // SAFETY: mapped in `map` with this length, and not used afterwards.
        unsafe { libc::munmap(self.page.as_ptr().cast(), Self::LEN) };
    }
}

/// `struct wg_network_key`.
pub(super) fn key(network: Prefix) -> [u8; 20] {
    let address = network.address();
    let len = u32::from(network.len()) + if address.is_ipv4() { 96 } else { 0 };
    let mut key = [0; 20];
    key[..4].copy_from_slice(&len.to_ne_bytes());
    key[4..].copy_from_slice(&mapped(address));
    key
}

/// `struct wg_network`, knowing nothing yet of what the network carries.
pub(super) fn value((network, cc): &(Prefix, CcName)) -> [u8; 48] {
    let family: u32 = if network.address().is_ipv4() { 4 } else { 6 };
    let mut value = [0; 48];
    value[..16].copy_from_slice(cc.as_bytes());
    value[16..20].copy_from_slice(&family.to_ne_bytes());
    value
}

/// The network whose key this is.
pub(super) fn network(key: &[u8]) -> Option<Prefix> {
    let (len, address) = key.split_first_chunk::<4>()?;
    let address = IpAddr::from(<[u8; 16]>::try_from(address).ok()?).to_canonical();
    let len = u32::from_ne_bytes(*len).checked_sub(if address.is_ipv4() { 96 } else { 0 })?;
    Some(Prefix::of(address, u8::try_from(len).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::offset_of;

    #[test]
    fn layouts_are_those_of_steer_h() {
        assert_eq!(size_of::<Settings>(), 48);
        assert_eq!(offset_of!(Settings, switch_after), 24);
        assert_eq!(offset_of!(Page, settings), 16);
        assert_eq!(offset_of!(Page, cgroup_id), 112);
        assert_eq!(size_of::<Page>(), 120);
        assert_eq!(SteerCounters::WORDS, 15);
    }

    #[test]
    fn ipv4_networks_lie_where_mapped_clients_are_looked_up() {
        let key = key("192.0.2.0/24".parse().unwrap());
        assert_eq!(key[..4], 120u32.to_ne_bytes());
        assert_eq!(network(&key), Some("192.0.2.0/24".parse().unwrap()));
        assert_eq!(key[4..], [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 192, 0, 2, 0]);
    }
}
