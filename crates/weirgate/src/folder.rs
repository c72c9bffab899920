//! Folders that may not be there yet, and files that are there whole or not at all.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Writes `bytes` in the place of `path`, for those that `mode` says: a crash leaves the old file or the new one.
pub(crate) fn replace(path: &Path, mode: u32, bytes: &[u8]) -> io::Result<()> {
    let beside = path.with_extension("new");
    // A crash may have left one, which keeps the mode that it was made with.
    let _ = fs::remove_file(&beside);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(mode).open(&beside)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&beside, path)
}

/// Whether `folder` is one where files can be made, or can be made itself; how many bytes are free there.
pub(crate) fn writable(folder: &Path) -> io::Result<u64> {
    let mut nearest: PathBuf = folder.to_owned();
    while !nearest.exists() {
        if !nearest.pop() {
            break;
        }
    }
    rustix::fs::access(&nearest, rustix::fs::Access::WRITE_OK)?;
    let stat = rustix::fs::statvfs(&nearest)?;
    Ok(stat.f_bavail * stat.f_frsize)
}
