//! Where files lie and what their names say: `DIR/hour=2026-11-21T20/part-00000012.parquet`.
//!
//! Parts are numbered in the order they were begun. `part-00000012-00000071.parquet` was made of the parts 12 to 71 of
//! its hour and takes their place: from the moment its name exists they no longer count, whether or not they are
//! deleted yet. So merging needs no journal: one rename is the whole change. A name that begins with a dot is being
//! written.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use crate::hour::Hour;

/// One finished file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) hour: Hour,
    /// The numbers of the first and the last part it was made of; equal where it is one.
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) bytes: u64,
}

/// What lies in a store's folder.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    /// Finished files that count, oldest hour first and in the order they were written.
    pub(crate) parts: BTreeMap<(Hour, u64), Part>,
    /// Parts whose place a merged one took: to be deleted.
    pub(crate) superseded: Vec<PathBuf>,
    /// Files that are being written or that a crash left half written.
    pub(crate) unfinished: Vec<PathBuf>,
    /// What the store did not make.
    pub(crate) foreign: Vec<PathBuf>,
    /// The highest number that any name holds.
    pub(crate) last: u64,
}

impl Part {
    /// Its place below `dir`.
    pub(crate) fn path(&self, dir: &Path) -> PathBuf {
        folder(dir, self.hour).join(name(self.first, self.last))
    }
}

/// The folder of an hour.
pub(crate) fn folder(dir: &Path, hour: Hour) -> PathBuf {
    dir.join(format!("hour={hour}"))
}

/// The name of a finished file.
pub(crate) fn name(first: u64, last: u64) -> String {
    if first == last { format!("part-{first:08}.parquet") } else { format!("part-{first:08}-{last:08}.parquet") }
}

/// The name of the same file while it is written.
pub(crate) fn unfinished_name(first: u64, last: u64) -> String {
    format!(".{}.open", name(first, last))
}

/// Reads the folder. A folder that does not exist, or that vanishes meanwhile, is empty.
pub(crate) fn list(dir: &Path) -> io::Result<Listing> {
    let mut found = Listing::default();
    for (path, name) in entries(dir)? {
        match name.strip_prefix("hour=").and_then(|h| h.parse::<Hour>().ok()) {
            Some(hour) => list_hour(&path, hour, &mut found)?,
            None if name.starts_with('.') => {}
            None => found.foreign.push(path),
        }
    }
    Ok(found)
}

fn list_hour(folder: &Path, hour: Hour, found: &mut Listing) -> io::Result<()> {
    let mut parts = Vec::new();
    for (path, name) in entries(folder)? {
        let unfinished = name.strip_prefix('.').and_then(|n| n.strip_suffix(".open"));
        match numbers(unfinished.unwrap_or(&name)) {
            Some((_, last)) if unfinished.is_some() => {
                found.last = found.last.max(last);
                found.unfinished.push(path);
            }
            Some((first, last)) => {
                found.last = found.last.max(last);
                match fs::metadata(&path) {
                    Ok(meta) => parts.push((Part { hour, first, last, bytes: meta.len() }, path)),
                    Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                    Err(e) => return Err(e),
                }
            }
            None if name.starts_with('.') => {}
            None => found.foreign.push(path),
        }
    }
    // Widest first, so that what it covers comes after it.
    parts.sort_by_key(|(p, _)| (p.first, u64::MAX - p.last));
    let mut covered = None;
    for (part, path) in parts {
        if covered.is_some_and(|last| part.last <= last) {
            found.superseded.push(path);
        } else {
            covered = Some(part.last);
            found.parts.insert((hour, part.first), part);
        }
    }
    Ok(())
}

fn entries(dir: &Path) -> io::Result<Vec<(PathBuf, String)>> {
    let read = match fs::read_dir(dir) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) if e.kind() == io::ErrorKind::NotADirectory => {
            let name = dir.file_name().unwrap_or_default().to_string_lossy().into_owned();
            // A file where an hour's folder is expected; of the store's own folder it is an error.
            return if name.starts_with("hour=") { Ok(Vec::new()) } else { Err(e) };
        }
        other => other?,
    };
    let mut entries = Vec::new();
    for entry in read {
        let entry = entry?;
        entries.push((entry.path(), entry.file_name().to_string_lossy().into_owned()));
    }
    entries.sort_unstable();
    Ok(entries)
}

/// The numbers in a finished file's name.
fn numbers(file: &str) -> Option<(u64, u64)> {
    let text = file.strip_prefix("part-")?.strip_suffix(".parquet")?;
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    (first <= last && name(first, last) == file).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_merged_part_takes_the_place_of_what_it_was_made_of() {
        let dir = tempfile::tempdir().unwrap();
        let hour = dir.path().join("hour=2026-11-21T20");
        fs::create_dir(&hour).unwrap();
        for n in ["part-00000001.parquet", "part-00000002.parquet", "part-00000002-00000004.parquet"] {
            fs::write(hour.join(n), n).unwrap();
        }
        for n in [
            "part-00000004.parquet",
            "part-00000005.parquet",
            ".part-00000009.parquet.open",
            "notes.txt",
            "part-7.parquet",
        ] {
            fs::write(hour.join(n), n).unwrap();
        }
        fs::write(dir.path().join("hour=2026-11-21T21"), "a file").unwrap();
        fs::write(dir.path().join("hour=yesterday"), "").unwrap();
        fs::write(dir.path().join(".lock"), "").unwrap();

        let found = list(dir.path()).unwrap();
        let names = |paths: &[PathBuf]| {
            paths.iter().map(|p| p.file_name().unwrap().to_str().unwrap().to_owned()).collect::<Vec<_>>()
        };
        let parts: Vec<_> = found.parts.values().map(|p| (p.first, p.last)).collect();
        assert_eq!(parts, [(1, 1), (2, 4), (5, 5)]);
        assert_eq!(names(&found.superseded), ["part-00000002.parquet", "part-00000004.parquet"]);
        assert_eq!(names(&found.unfinished), [".part-00000009.parquet.open"]);
        assert_eq!(names(&found.foreign), ["notes.txt", "part-7.parquet", "hour=yesterday"]);
        assert_eq!(found.last, 9);
    }

    #[test]
    fn no_folder_is_an_empty_store() {
        assert!(list(Path::new("/nonexistent/store")).unwrap().parts.is_empty());
    }
}
