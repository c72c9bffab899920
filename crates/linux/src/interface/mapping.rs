//! Memory that is shared with the kernel: words that both sides change, and bytes that one side has for the moment. Everything is
//! length-checked here, so that what is above needs no `unsafe`.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::AtomicU32;

/// A mapping. Unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: the memory is the mapping's alone in this process, and nothing about it is bound to a thread.
unsafe impl Send for Mapping {}

impl Mapping {
    /// `len` bytes of `file`, from `offset` on, to be read and written.
    pub(super) fn of_file(file: BorrowedFd<'_>, len: usize, offset: i64) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, file.as_raw_fd(), offset)
    }

    /// `len` bytes of this process's own, zeroed, to be handed to the kernel by their address.
    #[cfg(feature = "xdp")]
    pub(super) fn own(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_POPULATE, -1, 0)
    }

    /// Where it begins, for the kernel.
    #[cfg(feature = "xdp")]
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr().expose_provenance() as u64
    }

    fn map(len: usize, flags: libc::c_int, file: libc::c_int, offset: i64) -> io::Result<Self> {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: a new mapping, at an address that the kernel chooses, touches nothing that exists.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), len, protection, flags, file, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mapped at address zero"))?;
        Ok(Self { start, len })
    }

    /// The word at `at`, which both sides may change; `None` outside of the mapping or where it is not aligned.
    pub(super) fn word(&self, at: usize) -> Option<&AtomicU32> {
        let inside = at.checked_add(size_of::<u32>())? <= self.len && at.is_multiple_of(align_of::<u32>());
        // SAFETY: four aligned bytes inside of the mapping (which begins at a page), which lives as long as `self`; in this
        // process they are reached as atomics or copied.
        inside.then(|| unsafe { AtomicU32::from_ptr(self.start.as_ptr().add(at).cast()) })
    }

    /// Copies the bytes from `at` on into all of `into`; `None` where they are not all inside. Whoever calls has seen by a word
    /// that the kernel is done with them; where it is not, bytes of two times come, which are as good as any from outside.
    pub(super) fn read(&self, at: usize, into: &mut [u8]) -> Option<()> {
        if at.checked_add(into.len())? > self.len {
            return None;
        }
        // SAFETY: the source is inside of the mapping, the destination is borrowed exclusively and elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), into.as_mut_ptr(), into.len()) };
        Some(())
    }

    /// Copies all of `bytes` to `at`; `None`, and nothing is changed, where they have not all room. As [`read`](Self::read), only
    /// where the kernel does not look or does not mind.
    #[cfg(feature = "xdp")]
    pub(super) fn write(&self, at: usize, bytes: &[u8]) -> Option<()> {
        if at.checked_add(bytes.len())? > self.len {
            return None;
        }
        // SAFETY: the destination is inside of the mapping, no reference to it exists but by atomics, and the source is elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.start.as_ptr().add(at), bytes.len()) };
        Some(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `map` with this length; every reference into it borrowed `self`.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::sync::atomic::Ordering;

    use super::*;

    #[test]
    fn nothing_outside_is_reached() {
        let file = tempfile::tempfile().expect("a file");
        file.set_len(4_096).expect("room");
        let map = Mapping::of_file(file.as_fd(), 4_096, 0).expect("maps");
        map.word(4_092).expect("the last one").store(0x0403_0201_u32.to_le(), Ordering::Relaxed);
        for at in [4_093, 4_094, 4_096, usize::MAX - 1, 2] {
            assert!(map.word(at).is_none(), "{at}");
        }
        let mut bytes = [0; 5];
        assert_eq!((map.read(4_091, &mut bytes), bytes), (Some(()), [0, 1, 2, 3, 4]));
        assert_eq!(map.read(4_092, &mut bytes), None);
        assert_eq!(map.read(usize::MAX, &mut bytes), None);
        assert_eq!(map.read(4_096, &mut []), Some(()));
    }
}
