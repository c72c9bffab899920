//! Network namespaces: named, opened, entered for the length of a closure. See setns(2), network_namespaces(7).

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// An open network namespace. Holds it alive.
#[derive(Debug)]
pub struct Netns {
    file: File,
    name: String,
    inode: u32,
}

impl Netns {
    /// The calling thread's.
    pub fn current() -> io::Result<Self> {
        Self::open(Path::new("/proc/thread-self/ns/net"), "")
    }

    /// The one that `ip netns add NAME` made.
    pub fn by_name(name: &str) -> io::Result<Self> {
        Self::open(&PathBuf::from("/run/netns").join(name), name)
    }

    /// The one at `path`, a file under `/run/netns` or `/proc/PID/ns/net`.
    pub fn open(path: &Path, name: &str) -> io::Result<Self> {
        let file = File::open(path)?;
        // Namespace inodes come from a 32-bit allocator (include/linux/ns_common.h).
        let inode = u32::try_from(file.metadata()?.ino()).map_err(|_| io::Error::other("not a namespace file"))?;
        Ok(Self { file, name: name.to_owned(), inode })
    }

    /// The name it was opened by; empty for the current one.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its inode number, by which records name it.
    pub const fn inode(&self) -> u32 {
        self.inode
    }

    /// Runs `f` with the calling thread in this namespace, and takes the thread back.
    ///
    /// # Panics
    /// Where the thread cannot be taken back: it must not go on in the wrong namespace.
    pub fn within<T>(&self, f: impl FnOnce() -> T) -> io::Result<T> {
        let home = Self::current()?;
        if home.inode == self.inode {
            return Ok(f());
        }
        move_into_link_name_space(self.as_fd(), Some(LinkNameSpaceType::Network))?;
        let result = f();
        move_into_link_name_space(home.as_fd(), Some(LinkNameSpaceType::Network))
            .expect("the thread's own namespace can be entered again");
        Ok(result)
    }
}

impl AsFd for Netns {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}
