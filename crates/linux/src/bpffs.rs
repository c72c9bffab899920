//! The file system that holds pinned kernel programs and maps beyond their maker's life.
//! Read first: BPF_OBJ_PIN in bpf(2), kernel/bpf/inode.c.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::{fs, io};

use rustix::fs::{FlockOperation, flock, statfs};
use rustix::mount::{MountFlags, UnmountFlags, mount};

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

/// Whether anything is pinned in the BPF file system on `path`, by whomever. What cannot be read counts as pinned.
pub fn holds_pins(path: &Path) -> bool {
    // The kernel puts these two into every one it mounts, where it has CONFIG_BPF_PRELOAD (kernel/bpf/inode.c).
    let own = |name: &std::ffi::OsStr| name == "maps.debug" || name == "progs.debug";
    let Ok(entries) = fs::read_dir(path) else { return true };
    entries.flatten().any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => holds_pins(&entry.path()),
        _ => !own(&entry.file_name()),
    })
}

/// Takes the BPF file system off `path`; with the last mount of one go its pins, so ask [`holds_pins`] first.
///
/// # Errors
/// Where none is mounted there, where somebody has a file of it open, and without CAP_SYS_ADMIN.
pub fn unmount(path: &Path) -> io::Result<()> {
    Ok(rustix::mount::unmount(path, UnmountFlags::NOFOLLOW)?)
}

/// A BPF file system on a folder for a while: one that was there, or one that goes with this value unless somebody pinned
/// something meanwhile.
#[derive(Debug)]
pub struct ForNow {
    made: Option<PathBuf>,
}

impl ForNow {
    /// Mounts one where there is none.
    ///
    /// # Errors
    /// Those of [`ensure`].
    pub fn on(path: &Path) -> Result<Self, BpffsError> {
        Ok(Self { made: ensure(path)?.then(|| path.to_owned()) })
    }
}

impl Drop for ForNow {
    fn drop(&mut self) {
        if let Some(path) = self.made.take()
            && !holds_pins(&path)
        {
            // Refused where somebody has begun to use it: it is theirs then.
            let _ = unmount(&path);
        }
    }
}

/// Mounts a BPF file system on `path` unless there is one; true where it did. Several processes may do so at once: a second mount
/// would hide
/// the pins of the first, so they queue at a lock on the folder underneath.
pub fn ensure(path: &Path) -> Result<bool, BpffsError> {
    if is_mounted(path) {
        return Ok(false);
    }
    let folder = |source: io::Error| BpffsError::Folder { path: path.to_owned(), source };
    let underneath = File::open(path).map_err(folder)?;
    flock(&underneath, FlockOperation::LockExclusive).map_err(|e| folder(e.into()))?;
    if is_mounted(path) {
        return Ok(false);
    }
    let flags = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC | MountFlags::RELATIME;
    mount("bpf", path, "bpf", flags, Some(c"mode=0700"))
        .map_err(|e| BpffsError::Mount { path: path.to_owned(), source: e.into() })?;
    Ok(true)
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
            Ok(_) => assert!(is_mounted(Path::new(DEFAULT)) && !ensure(Path::new(DEFAULT)).unwrap()),
            Err(e) => println!("SKIPPED: {e}"),
        }
    }

    #[test]
    fn one_for_now_goes_again_and_what_was_there_stays() {
        let dir = tempfile::tempdir().unwrap();
        let here = match ForNow::on(dir.path()) {
            Ok(here) => here,
            Err(e) => return println!("SKIPPED: {e}"),
        };
        assert!(is_mounted(dir.path()) && !holds_pins(dir.path()));
        drop(ForNow::on(dir.path()).unwrap());
        assert!(is_mounted(dir.path()), "who did not mount it leaves it");
        fs::create_dir_all(dir.path().join("empty/folders")).unwrap();
        assert!(!holds_pins(dir.path()));
        drop(here);
        assert!(!is_mounted(dir.path()));
    }

    #[test]
    fn whatever_lies_in_it_is_somebodys_pin() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("maps.debug"), "").unwrap();
        assert!(!holds_pins(dir.path()));
        fs::create_dir(dir.path().join("theirs")).unwrap();
        fs::write(dir.path().join("theirs/map"), "").unwrap();
        assert!(holds_pins(dir.path()));
    }
}
