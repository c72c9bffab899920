//! What a process keeps: what is in force, and the engines' choice by it. A child that was forked begins anew, so that a web server that
//! reads its configuration again has workers by the settings of then.

use std::fs::OpenOptions;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use weirgate_deflate::Choice;
use weirgate_deflate::accelerator::{Client, Memory};

use crate::settings::{self, Settings};
use crate::shared;

/// The process's, and for ever: a pointer, since a child's is another one.
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(ptr::null_mut());

/// Whether this process was forked from one that has the library.
static IS_FORKED: AtomicBool = AtomicBool::new(false);

/// When it was looked for an accelerator.
static LOOKED: AtomicU64 = AtomicU64::new(0);

/// How often that is, where there is none, in nanoseconds.
const LOOK_EVERY: u64 = 1_000_000_000;

pub(crate) struct Process {
    pub(crate) settings: Settings,
    pub(crate) choice: Choice,
}

/// Reads the settings when the library is loaded.
#[used]
#[unsafe(link_section = ".init_array")]
static LOADED: extern "C" fn() = loaded;

extern "C" fn loaded() {
    settings::loaded();
    current();
    // SAFETY: the function stays where it is, and does what may be done after a fork.
    unsafe { libc::pthread_atfork(None, None, Some(forked)) };
}

/// What the parent has is not the child's: instances of an accelerator, counters.
extern "C" fn forked() {
    shared::forked();
    // SAFETY: what was stored there stays for ever.
    let process = unsafe { CURRENT.swap(ptr::null_mut(), Ordering::Relaxed).as_ref() };
    if let Some(accelerator) = process.and_then(|process| process.choice.accelerator()) {
        accelerator.forked();
    }
    LOOKED.store(0, Ordering::Relaxed);
    IS_FORKED.store(true, Ordering::Relaxed);
}

/// This process's.
pub(crate) fn current() -> &'static Process {
    // SAFETY: what was stored there stays for ever.
    if let Some(process) = unsafe { CURRENT.load(Ordering::Acquire).as_ref() } {
        return process;
    }
    let settings = settings::read(!IS_FORKED.load(Ordering::Relaxed));
    let client = Client::new(settings.patience, now, nap);
    let choice = Choice::new(settings.mode, settings.larger_max).with_accelerator(client, settings.offload);
    let new = Box::into_raw(Box::new(Process { settings, choice }));
    match CURRENT.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
        // SAFETY: it was just made, and nobody frees it.
        Ok(_) => unsafe { &*new },
        Err(first) => {
            // SAFETY: nobody else has seen the new one; the first one stays for ever.
            unsafe {
                drop(Box::from_raw(new));
                &*first
            }
        }
    }
}

/// To be called where a stream begins: looks after the counters' file and the accelerator now and then.
pub(crate) fn look(now: u64) {
    let process = current();
    shared::look(now, &process.settings.counters);
    let looked = LOOKED.load(Ordering::Relaxed);
    if looked != 0 && now.saturating_sub(looked) < LOOK_EVERY {
        return;
    }
    let is_mine = LOOKED.compare_exchange(looked, now.max(1), Ordering::Relaxed, Ordering::Relaxed).is_ok();
    if let Some(client) = process.choice.accelerator()
        && is_mine
        && !client.is_alive(now)
        && let Some(memory) = open(&process.settings.accelerator)
    {
        client.attach(memory, now);
    }
}

/// An accelerator's memory, if it is there and of someone who may be trusted with what this process sends.
fn open(path: &Path) -> Option<Memory> {
    let file = OpenOptions::new().read(true).write(true).custom_flags(libc::O_NOFOLLOW).open(path).ok()?;
    let owner = file.metadata().ok()?.uid();
    // SAFETY: it has no preconditions.
    let is_trusted = owner == 0 || owner == unsafe { libc::geteuid() };
    if is_trusted { Memory::open(file.as_fd()).ok() } else { None }
}

/// Nanoseconds of the clock that never goes back; no system call, by the vDSO.
pub(crate) fn now() -> u64 {
    let mut at = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: it writes to `at`.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut at) };
    at.tv_sec as u64 * 1_000_000_000 + at.tv_nsec as u64
}

fn nap(nanos: u64) {
    let at = libc::timespec { tv_sec: (nanos / 1_000_000_000) as _, tv_nsec: (nanos % 1_000_000_000) as _ };
    // SAFETY: it reads `at`; a signal that wakes it earlier does no harm.
    unsafe { libc::nanosleep(&raw const at, ptr::null_mut()) };
}
