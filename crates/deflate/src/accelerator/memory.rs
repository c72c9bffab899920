//! What the device and the processes share: a header, instances, and for each room for a body and for what it becomes.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::word::Word;
use crate::engine::bound;

/// The longest body that an instance has room for, in bytes.
pub const BODY_MAX: usize = 256 << 10;

/// Room for what the longest body becomes.
const ANSWER_MAX: usize = bound(BODY_MAX).next_multiple_of(PAGE);

const PAGE: usize = 4_096;

/// Whoever has the file can write to it, and no more.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW;

/// "wgaccel" and the number of this layout.
const MAGIC: u64 = 0x7767_6163_6365_6c01;

/// The first page.
#[derive(Debug)]
#[repr(C)]
struct Header {
    /// Written last.
    magic: AtomicU64,
    /// When the device last said that it lives, in nanoseconds of the monotonic clock.
    alive: AtomicU64,
    instances: AtomicU32,
    /// The longest body that this device takes, in bytes.
    body_max: AtomicU32,
    /// Not 0: what level is asked for makes no difference.
    has_no_levels: AtomicU32,
}

/// One instance. Its two sides of memory come after all of them.
#[derive(Debug)]
#[repr(C, align(64))]
pub(super) struct Instance {
    pub(super) word: Word,
    /// When its holder last began a body, in nanoseconds of the monotonic clock.
    pub(super) used: AtomicU64,
    /// That zlib was asked for.
    pub(super) level: AtomicU32,
    /// Bytes of the body, and of the answer; none: the device could not.
    pub(super) body_len: AtomicU32,
    pub(super) answer_len: AtomicU32,
}

/// A mapping of the shared file.
#[derive(Debug)]
pub struct Memory {
    base: NonNull<u8>,
    len: usize,
    instances: u32,
}

// SAFETY: all of it is reached through atomics, or copied from and to by whoever the instance's word says.
unsafe impl Send for Memory {}
// SAFETY: as above.
unsafe impl Sync for Memory {}

impl Memory {
    /// How long the file of a device with so many instances is.
    pub const fn len_of(instances: u32) -> usize {
        Self::sides(instances) + instances as usize * (BODY_MAX + ANSWER_MAX)
    }

    /// Where the room for bodies begins.
    const fn sides(instances: u32) -> usize {
        (PAGE + instances as usize * size_of::<Instance>()).next_multiple_of(PAGE)
    }

    /// The device's: a file of memory that keeps its length, and its mapping. Its header says that bodies are to have up to `body_max`
    /// bytes.
    ///
    /// # Errors
    /// There is not so much memory.
    pub fn make(instances: u32, body_max: usize) -> io::Result<(OwnedFd, Self)> {
        let len = Self::len_of(instances);
        // SAFETY: makes a file of its own.
        let file = unsafe {
            let fd = libc::memfd_create(c"weirgate-accelerator".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            OwnedFd::from_raw_fd(fd)
        };
        // SAFETY: the file is open.
        let reserved = unsafe { libc::posix_fallocate(file.as_raw_fd(), 0, len as libc::off_t) };
        if reserved != 0 {
            return Err(io::Error::from_raw_os_error(reserved));
        }
        // SAFETY: as above.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS | libc::F_SEAL_SEAL) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let memory = Self::map(file.as_fd(), len, instances)?;
        memory.header().instances.store(instances, Ordering::Relaxed);
        memory.header().body_max.store(body_max.min(BODY_MAX) as u32, Ordering::Relaxed);
        memory.header().magic.store(MAGIC, Ordering::Release);
        Ok((file, memory))
    }

    /// A process's: maps the file of a device.
    ///
    /// # Errors
    /// As mmap(2)'s; `InvalidData`: it is no such file, one that can be cut off, or of another release.
    pub fn open(file: BorrowedFd<'_>) -> io::Result<Self> {
        let len = len(file)?;
        // SAFETY: the file is open.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        if seals < 0 || seals & SEALS != SEALS {
            return Err(io::ErrorKind::InvalidData.into());
        }
        if len < PAGE {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut memory = Self::map(file, len, 0)?;
        let header = memory.header();
        let (magic, instances) = (header.magic.load(Ordering::Acquire), header.instances.load(Ordering::Relaxed));
        if magic != MAGIC || instances > 1 << 16 || Self::len_of(instances) != len {
            return Err(io::ErrorKind::InvalidData.into());
        }
        memory.instances = instances;
        Ok(memory)
    }

    fn map(file: BorrowedFd<'_>, wanted: usize, instances: u32) -> io::Result<Self> {
        if len(file)? != wanted {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let prot = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping of a file that is that long.
        let at = unsafe { libc::mmap(ptr::null_mut(), wanted, prot, libc::MAP_SHARED, file.as_raw_fd(), 0) };
        match NonNull::new(at.cast::<u8>()) {
            Some(base) if at != libc::MAP_FAILED => Ok(Self { base, len: wanted, instances }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    fn header(&self) -> &Header {
        // SAFETY: the mapping is at least a page long, and any bytes are such a header.
        unsafe { self.base.cast().as_ref() }
    }

    /// How many there are.
    pub const fn instances(&self) -> u32 {
        self.instances
    }

    /// Whether the device has said that it lives, not long before `now`.
    pub fn is_alive(&self, now: u64) -> bool {
        // A time to come is nonsense that somebody has written.
        now.abs_diff(self.alive()) < super::ALIVE
    }

    /// Says that this device compresses all bodies alike, whatever level is asked for.
    pub fn without_levels(self) -> Self {
        self.header().has_no_levels.store(1, Ordering::Relaxed);
        self
    }

    /// Whether it is smaller output that a higher level asks for.
    pub(super) fn has_levels(&self) -> bool {
        self.header().has_no_levels.load(Ordering::Relaxed) == 0
    }

    /// The longest body that the device takes.
    pub(super) fn body_max(&self) -> usize {
        (self.header().body_max.load(Ordering::Relaxed) as usize).min(BODY_MAX)
    }

    /// When the device last said that it lives.
    pub(super) fn alive(&self) -> u64 {
        self.header().alive.load(Ordering::Relaxed)
    }

    /// The device lives at `now`.
    pub(super) fn beat(&self, now: u64) {
        self.header().alive.store(now, Ordering::Relaxed);
    }

    /// One of them. Panics where there is no such one.
    pub(super) fn instance(&self, index: u32) -> &Instance {
        assert!(index < self.instances, "instance {index} of {}", self.instances);
        // SAFETY: within the mapping, which is as long as so many want; any bytes are an instance.
        unsafe { self.base.add(PAGE).cast::<Instance>().add(index as usize).as_ref() }
    }

    /// Where an instance's body is, and its answer.
    fn side(&self, index: u32, at: usize) -> *mut u8 {
        assert!(index < self.instances, "instance {index} of {}", self.instances);
        // SAFETY: as above.
        unsafe { self.base.add(Self::sides(self.instances) + index as usize * (BODY_MAX + ANSWER_MAX) + at).as_ptr() }
    }

    /// Writes an instance's body. Panics if it is longer than [`BODY_MAX`].
    pub(super) fn put_body(&self, index: u32, body: &[u8]) {
        assert!(body.len() <= BODY_MAX, "a body of {} bytes", body.len());
        // SAFETY: within the mapping; the word says that it is ours to write, and whoever writes all the same spoils nobody's memory.
        unsafe { ptr::copy_nonoverlapping(body.as_ptr(), self.side(index, 0), body.len()) }
    }

    /// Copies an instance's body out. Panics if it is longer than [`BODY_MAX`].
    pub(super) fn body(&self, index: u32, len: usize, into: &mut Vec<u8>) {
        assert!(len <= BODY_MAX, "a body of {len} bytes");
        into.clear();
        into.reserve(len);
        // SAFETY: within the mapping, and into room that is there; bytes of any value are bytes.
        unsafe {
            ptr::copy_nonoverlapping(self.side(index, 0), into.as_mut_ptr(), len);
            into.set_len(len);
        }
    }

    /// Writes what an instance's body became, if there is room for it.
    pub(super) fn put_answer(&self, index: u32, answer: &[u8]) -> bool {
        let fits = answer.len() <= ANSWER_MAX;
        if fits {
            // SAFETY: as `put_body`.
            unsafe { ptr::copy_nonoverlapping(answer.as_ptr(), self.side(index, BODY_MAX), answer.len()) }
        }
        fits
    }

    /// Copies the first `out.len()` bytes of an instance's answer out. False: there are not so many.
    pub(super) fn answer(&self, index: u32, out: &mut [std::mem::MaybeUninit<u8>]) -> bool {
        let fits = out.len() <= ANSWER_MAX;
        if fits {
            // SAFETY: as `body`.
            unsafe { ptr::copy_nonoverlapping(self.side(index, BODY_MAX), out.as_mut_ptr().cast(), out.len()) }
        }
        fits
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: it was mapped so, and nobody has it any more.
        unsafe { libc::munmap(self.base.as_ptr().cast(), self.len) };
    }
}

fn len(file: BorrowedFd<'_>) -> io::Result<usize> {
    // SAFETY: zeroed, it is a valid stat, which fstat fills.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(file.as_raw_fd(), &raw mut stat) != 0 {
            return Err(io::Error::last_os_error());
        }
        stat
    };
    Ok(usize::try_from(stat.st_size).unwrap_or(0))
}
