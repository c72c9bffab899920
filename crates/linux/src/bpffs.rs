//! The file system that holds pinned kernel programs and maps beyond their maker's life.
//! Read first: BPF_OBJ_PIN in bpf(2), kernel/bpf/inode.c.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock, statfs};
use rustix::mount::{MountFlags, mount};

/// Where it belongs.
pub const DEFAULT: &str = "/sys/fs/bpf";

/// `BPF_FS_MAGIC`, include/uapi/linux/magic.h.
const MAGIC: u32 = 0xcafe_4a11;

/// No BPF file system.
#[derive(Debug, thiserror::Error)]
pub enum BpffsError {
    /// The folder is missing.
    #[error(
        "cannot open {path}: {source}; it should exist where the kernel has CONFIG_BPF_SYSCALL and /sys is mounted"
    )]
    Folder {
        /// Where it was looked for.
        path: PathBuf,
        /// From open(2).
        source: io::Error,
    },
    /// It is not mounted, and cannot be.
    #[error(
        "no BPF file system is mounted on {path}, and mounting one failed: {source}; as root: `mount -t bpf bpf {path}`"
    )]
    Mount {
        /// Where it should be.
        path: PathBuf,
        /// From mount(2).
        source: io::Error,
    },
}

/// Whether a BPF file system is mounted on `path`, or `path` lies in one.
pub fn is_mounted(path: &Path) -> bool {
    // The magic is 32 bits wide; f_type is signed and wider.
    statfs(path).is_ok_and(|s| s.f_type as u32 == MAGIC)
}

/// Mounts a BPF file system on `path` unless there is one. Several processes may do so at once: a second mount would hide
/// the pins of the first, so they queue at a lock on the folder underneath.
pub fn ensure(path: &Path) -> Result<(), BpffsError> {
    if is_mounted(path) {
        return Ok(());
    }
    let folder = |source: io::Error| BpffsError::Folder { path: path.to_owned(), source };
    let underneath = File::open(path).map_err(folder)?;
    flock(&underneath, FlockOperation::LockExclusive).map_err(|e| folder(e.into()))?;
    if is_mounted(path) {
        return Ok(());
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
    mount("bpf", path, "bpf", flags, Some(c"mode=0700"))
        .map_err(|e| BpffsError::Mount { path: path.to_owned(), source: e.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_file_systems_are_not_it() {
        assert!(!is_mounted(Path::new("/proc")));
        assert!(!is_mounted(Path::new("/no/such/folder")));
        assert!(matches!(ensure(Path::new("/no/such/folder")), Err(BpffsError::Folder { .. })));
    }

    #[test]
    fn it_is_mounted_once() {
        match ensure(Path::new(DEFAULT)) {
            Ok(()) => assert!(is_mounted(Path::new(DEFAULT))),
            Err(e) => println!("SKIPPED: {e}"),
        }
    }
}
