//! The clocks, read here and handed to everything else as arguments. See clock_gettime(2).

use std::time::SystemTime;

use rustix::time::{ClockId, Timespec, clock_gettime};
use weirgate_units::{Duration, Instant, UnixTime};

/// Now on CLOCK_MONOTONIC: what `bpf_ktime_get_ns` reads. Stands still while the machine is suspended.
pub fn monotonic() -> Instant {
    Instant::from_nanos(nanos(clock_gettime(ClockId::Monotonic)))
}

/// Now on CLOCK_BOOTTIME: what `bpf_ktime_get_boot_ns` reads. Goes on while the machine is suspended.
pub fn boottime() -> Instant {
    Instant::from_nanos(nanos(clock_gettime(ClockId::Boottime)))
}

/// Now in civil time; set back and forth by others. Asked of the C library, in whose place faketime(1) may answer.
pub fn unix() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}

/// The processor time that the calling thread has used, in the kernel and outside.
pub fn thread_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ThreadCPUTime)))
}

/// The processor time that the process has used, all its threads, in the kernel and outside.
pub fn process_cpu() -> Duration {
    Duration::from_nanos(nanos(clock_gettime(ClockId::ProcessCPUTime)))
}

/// A time before the clock's origin is the origin.
fn nanos(t: Timespec) -> u64 {
    u64::try_from(t.tv_sec).map_or(0, |s| s.saturating_mul(1_000_000_000).saturating_add(t.tv_nsec as u64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clocks_go_forward_and_are_what_they_say() {
        let (before, boot) = (monotonic(), boottime());
        assert!(monotonic() >= before && boottime() >= boot);
        assert!(boot >= before, "time since boot includes what was slept");
        assert!(unix().as_secs() > 1_700_000_000, "after 2023");
        let used = thread_cpu();
        assert!((0..10_000_u64).map(std::hint::black_box).sum::<u64>() > 0 && thread_cpu() >= used);
    }
}
