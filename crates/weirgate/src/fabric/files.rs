//! Files of runs.

use std::path::Path;
use std::{fs, io};

/// Writes a file at once, or not at all: who reads it meanwhile has the old one or none.
pub(super) fn write_whole(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let part = path.with_extension("part");
    fs::write(&part, bytes)?;
    fs::rename(&part, path)
}
