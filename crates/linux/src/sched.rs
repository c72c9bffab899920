//! How soon a thread runs once it has something to do, and where. Read first: sched_setattr(2), sched_setaffinity(2), the kernel's
//! Documentation/scheduler/sched-eevdf.rst.

use std::io;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// `struct sched_attr` of linux/sched/types.h, its first version.
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// The shortest slice that the kernel takes, in nanoseconds.
const SLICE_NS: u64 = 100_000;

/// Has the calling thread run soon after it wakes up, before threads that compute: the highest weight of the normal class, and
/// (Linux 6.12) the shortest slice, whose deadline is the next. Not a real-time class: a thread that never sleeps would then keep
/// everybody else from a processor.
///
/// # Errors
/// Without CAP_SYS_NICE.
pub fn wake_early() -> io::Result<()> {
    let attr = SchedAttr {
        size: size_of::<SchedAttr>() as u32,
        policy: 0,
        flags: 0,
        nice: -20,
        priority: 0,
        runtime: SLICE_NS,
        deadline: 0,
        period: 0,
    };
    // SAFETY: sched_setattr reads a `struct sched_attr` of the size that it says, which outlives the call; 0 is the caller.
    let result = unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Has the calling thread run on one processor alone: the one of place `core`, from 0, among those that it may use until then. So no two
/// threads of different places take a processor from each other, wherever the scheduler would have them. False: it may use no more than
/// `core`, and nothing was changed.
///
/// # Errors
/// Where the kernel refuses.
pub fn keep_to_core(core: usize) -> io::Result<bool> {
    let allowed = sched_getaffinity(None)?;
    let Some(cpu) = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).nth(core) else { return Ok(false) };
    let mut only = CpuSet::new();
    only.set(cpu);
    sched_setaffinity(None, &only)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_keep_to_processors_of_their_own() {
        let allowed = sched_getaffinity(None).expect("it can be asked").count() as usize;
        let kept: Vec<CpuSet> = (0..allowed)
            .map(|core| {
                let keep = move || {
                    assert!(keep_to_core(core).expect("it may"));
                    sched_getaffinity(None).expect("it can be asked")
                };
                std::thread::spawn(keep).join().expect("it ends")
            })
            .collect();
        for (at, set) in kept.iter().enumerate() {
            assert!(set.count() == 1 && !kept[..at].contains(set), "{kept:?}");
        }
        assert!(!keep_to_core(allowed).expect("it can be asked"), "one more than there are");
        assert_eq!(sched_getaffinity(None).expect("it can be asked").count() as usize, allowed);
    }
}
