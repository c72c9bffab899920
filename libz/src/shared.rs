//! The process's counters: its own, and where a daemon wants to see them, in a file that it maps.
//!
//! A daemon that wants to see them has made the folder; without it nothing is written. The file belongs to the process's user, so that
//! nobody else can take its pages away. Its name is drawn at random: process numbers are other ones in other namespaces, and come again.
//! When a process has not said for an hour that it lives, the daemon adds the file up and removes it; who lives all the same begins another
//! one.

use std::fs;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use weirgate_deflate::Counters;

/// How often it is looked whether the folder, or the file in it, is there, in nanoseconds.
const LOOK_EVERY: u64 = 5_000_000_000;

static OWN: Counters = Counters::new();
static CURRENT: AtomicPtr<Counters> = AtomicPtr::new((&raw const OWN).cast_mut());
static LOOKED: AtomicU64 = AtomicU64::new(0);
static BUSY: AtomicBool = AtomicBool::new(false);
/// The name of the file that is mapped, in two halves; only who is busy looks at it.
static NAME: [AtomicU64; 2] = [const { AtomicU64::new(0) }; 2];

/// The parent counts in its file, and the child is to have one of its own: until then it counts for itself, from nothing.
pub(crate) fn forked() {
    OWN.clear();
    CURRENT.store((&raw const OWN).cast_mut(), Ordering::Relaxed);
    LOOKED.store(0, Ordering::Relaxed);
    BUSY.store(false, Ordering::Relaxed);
}

/// Says in the file that the process ends.
#[used]
#[unsafe(link_section = ".fini_array")]
static ENDED: extern "C" fn() = ended;

extern "C" fn ended() {
    counters().end();
}

/// The counters now.
pub(crate) fn counters() -> &'static Counters {
    // SAFETY: what was mapped stays so, and the process's own are there for ever.
    unsafe { &*CURRENT.load(Ordering::Acquire) }
}

/// Looks now and then after the file in `folder`; to be called where a stream begins.
pub(crate) fn look(now: u64, folder: &Path) {
    let looked = LOOKED.load(Ordering::Relaxed);
    let is_due = looked == 0 || now.saturating_sub(looked) >= LOOK_EVERY;
    if !is_due || BUSY.swap(true, Ordering::Acquire) {
        return;
    }
    LOOKED.store(now.max(1), Ordering::Relaxed);
    counters().beat(now);
    // Between two daemons the folder has another name, or is another one; and a daemon for which this process had ended has removed the file.
    let name = NAME.each_ref().map(|half| half.load(Ordering::Relaxed));
    let is_there = is_shared() && path(folder, name).exists();
    if !is_there
        && folder.is_dir()
        && let Some((name, mapped)) = map(folder)
    {
        if is_shared() {
            mapped.begin();
        } else {
            mapped.begin_with(counters());
        }
        mapped.beat(now);
        CURRENT.store(std::ptr::from_ref(mapped).cast_mut(), Ordering::Release);
        NAME.iter().zip(name).for_each(|(half, drawn)| half.store(drawn, Ordering::Relaxed));
    }
    BUSY.store(false, Ordering::Release);
}

fn is_shared() -> bool {
    !std::ptr::eq(counters(), &raw const OWN)
}

fn path(folder: &Path, [first, second]: [u64; 2]) -> PathBuf {
    folder.join(format!("{first:016x}{second:016x}"))
}

/// Makes a file and maps it. What was mapped before stays, since others may be counting there: a page for each start of a daemon.
fn map(folder: &Path) -> Option<([u64; 2], &'static Counters)> {
    let mut name = [0_u64; 2];
    let len = size_of_val(&name);
    // SAFETY: it writes to these bytes.
    if unsafe { libc::getrandom(name.as_mut_ptr().cast(), len, libc::GRND_NONBLOCK) } != len as isize {
        return None;
    }
    let path = path(folder, name);
    let file = fs::OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o644)
        .custom_flags(libc::O_NOFOLLOW)
        .open(&path)
        .ok()?;
    // The daemon reads it, whatever the process's mask.
    // SAFETY: the file is open.
    unsafe { libc::fchmod(file.as_raw_fd(), 0o644) };
    let len = size_of::<Counters>();
    // Where the file system is full, a write to what is not there would end the process.
    // SAFETY: the file is open.
    if unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len as libc::off_t) } != 0 {
        let _others_may_have = fs::remove_file(path);
        return None;
    }
    // SAFETY: a new mapping of a file that is that long, and all zero: counters of a layout for which that is valid.
    unsafe {
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        let at = libc::mmap(std::ptr::null_mut(), len, prot, libc::MAP_SHARED, file.as_raw_fd(), 0);
        (at != libc::MAP_FAILED).then(|| (name, &*at.cast::<Counters>()))
    }
}
