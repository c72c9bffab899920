//! How soon a thread runs once it has something to do. Read first: sched_setattr(2), the kernel's Documentation/scheduler/sched-eevdf.rst.

use std::io;

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
