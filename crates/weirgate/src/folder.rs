//! Folders that may not be there yet.

use std::path::{Path, PathBuf};

/// Whether `folder` is one where files can be made, or can be made itself; how many bytes are free there.
pub(crate) fn writable(folder: &Path) -> std::io::Result<u64> {
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
