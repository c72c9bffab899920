//! What waits to be acknowledged: a folder with a file for each batch. A file is written before its batch is sent and removed when
//! the broker has acknowledged all of it, so that neither a broker that is away nor a daemon that is killed costs a record that
//! was handed over; a file that is sent in part, and then again by the next daemon, is what can arrive twice.
//!
//! Nothing is synced: a host that loses its power loses what the kernel had not written yet, some seconds. Where the disk takes
//! nothing, batches wait in memory, up to [`HELD_MAX`].

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;

use super::batch::Batch;

/// Bytes that may wait in memory while the disk takes nothing.
const HELD_MAX: u64 = 8 << 20;
/// Of a batch's file.
const SUFFIX: &str = ".batch";

/// A spool that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// Another process sends from there.
    #[error("another Weirgate already exports from {}: stop it, or choose another folder ([export.kafka] spool)", .0.display())]
    Taken(PathBuf),
    /// The folder cannot be used.
    #[error("cannot use {} as a spool: {source}; choose a folder that can be written ([export.kafka] spool)", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// There is no thread to send from it.
    #[error("cannot start the thread that sends to Kafka: {0}; does the service's TasksMax leave room for one?")]
    Thread(io::Error),
}

/// The batches that are not acknowledged, in the order of their numbers.
#[derive(Debug)]
pub(super) struct Spool {
    dir: PathBuf,
    batches: BTreeMap<u64, Stored>,
    next: u64,
    bytes: u64,
    held: u64,
    records: u64,
    _lock: File,
}

/// A batch that waits.
#[derive(Debug)]
struct Stored {
    size: u64,
    records: u64,
    /// Its bytes, where the disk did not take them.
    held: Option<Vec<u8>>,
}

impl Spool {
    /// The spool in `dir`, which is made where it does not exist, with what an earlier daemon left there.
    pub(super) fn open(dir: &Path) -> Result<Self, SpoolError> {
        let folder = |source| SpoolError::Folder { dir: dir.to_owned(), source };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(folder)?;
        let lock = File::create(dir.join("lock")).map_err(folder)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::WOULDBLOCK) => return Err(SpoolError::Taken(dir.to_owned())),
            other => other.map_err(|error| folder(error.into()))?,
        }
        let mut batches = BTreeMap::new();
        for entry in fs::read_dir(dir).map_err(folder)? {
            let entry = entry.map_err(folder)?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(".new") {
                // Being written when its daemon ended.
                let _ = fs::remove_file(entry.path());
            } else if let Some((number, records)) = named(&name) {
                let size = entry.metadata().map_err(folder)?.len();
                batches.insert(number, Stored { size, records, held: None });
            }
        }
        let next = batches.last_key_value().map_or(0, |(number, _)| number + 1);
        let bytes = batches.values().map(|stored| stored.size).sum();
        let records = batches.values().map(|stored| stored.records).sum();
        Ok(Self { dir: dir.to_owned(), batches, next, bytes, held: 0, records, _lock: lock })
    }

    /// Adds `batch` at the end. An error says why it is not on the disk; whether it waits in memory instead is the second part.
    pub(super) fn add(&mut self, batch: &Batch) -> Result<(), (io::Error, bool)> {
        let (bytes, records) = (batch.bytes(), batch.records());
        let path = self.path(self.next, records);
        let new = path.with_extension("new");
        let written = fs::write(&new, bytes).and_then(|()| fs::rename(&new, &path));
        let (held, failed) = match written {
            Ok(()) => (None, None),
            Err(error) => {
                let _ = fs::remove_file(&new);
                if self.held + bytes.len() as u64 > HELD_MAX {
                    return Err((error, false));
                }
                self.held += bytes.len() as u64;
                (Some(bytes.to_vec()), Some(error))
            }
        };
        self.bytes += bytes.len() as u64;
        self.records += records;
        self.batches.insert(self.next, Stored { size: bytes.len() as u64, records, held });
        self.next += 1;
        failed.map_or(Ok(()), |error| Err((error, true)))
    }

    /// The first batch whose number is not below `number`. What cannot be read is put aside, as a file `*.bad`, and its records
    /// are the error.
    pub(super) fn read_from(&mut self, number: u64) -> Option<Result<(u64, Batch), (u64, io::Error)>> {
        let (&number, stored) = self.batches.range(number..).next()?;
        let path = self.path(number, stored.records);
        let bytes = stored.held.clone().map_or_else(|| fs::read(&path), Ok);
        let batch = bytes
            .and_then(|bytes| Batch::read(bytes).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error)));
        Some(match batch {
            Ok(batch) => Ok((number, batch)),
            Err(error) => {
                let records = stored.records;
                let _ = fs::rename(&path, path.with_extension("bad"));
                self.forget(number);
                Err((records, io::Error::new(error.kind(), format!("{}: {error}", path.display()))))
            }
        })
    }

    /// Batch `number` was acknowledged.
    pub(super) fn remove(&mut self, number: u64) {
        let Some(stored) = self.batches.get(&number) else { return };
        if stored.held.is_none() {
            let path = self.path(number, stored.records);
            if let Err(error) = fs::remove_file(&path) {
                tracing::warn!("{}: {error}: a restart would send it again; remove it by hand", path.display());
            }
        }
        self.forget(number);
    }

    fn forget(&mut self, number: u64) {
        if let Some(stored) = self.batches.remove(&number) {
            self.bytes -= stored.size;
            self.records -= stored.records;
            self.held -= stored.held.map_or(0, |bytes| bytes.len() as u64);
        }
    }

    /// Batches, their bytes, and the records in them.
    pub(super) fn waiting(&self) -> (u64, u64, u64) {
        (self.batches.len() as u64, self.bytes, self.records)
    }

    fn path(&self, number: u64, records: u64) -> PathBuf {
        self.dir.join(format!("{number:012}-{records}{SUFFIX}"))
    }
}

/// The number and the records of the batch in the file `name`.
fn named(name: &str) -> Option<(u64, u64)> {
    let (number, records) = name.strip_suffix(SUFFIX)?.split_once('-')?;
    Some((number.parse().ok()?, records.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::Form;
    use super::super::batch::{Loose, Place};
    use super::*;

    fn batch(records: u32) -> Batch {
        let network = "10.0.0.0/24".parse().unwrap();
        let places = (0..records).map(|n| Place { network, start: n, end: n + 1, prefix: 0 });
        Loose { bytes: vec![7; records as usize], records: places.collect() }.pack(Form::Delimited, "")
    }

    fn next(spool: &mut Spool, from: u64) -> Option<(u64, u64)> {
        spool.read_from(from).map(|read| read.map(|(number, batch)| (number, batch.records())).unwrap())
    }

    #[test]
    fn what_was_not_acknowledged_is_there_again_in_its_order() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path()).unwrap();
        assert!(matches!(Spool::open(folder.path()), Err(SpoolError::Taken(_))));
        (1..=3).for_each(|records| spool.add(&batch(records)).unwrap());
        assert_eq!(next(&mut spool, 0), Some((0, 1)));
        spool.remove(0);
        drop(spool);
        fs::write(folder.path().join("000000000009-7.new"), b"half").unwrap();
        let mut spool = Spool::open(folder.path()).unwrap();
        assert_eq!((spool.waiting().0, spool.waiting().2), (2, 5));
        assert_eq!([next(&mut spool, 0), next(&mut spool, 2), next(&mut spool, 3)], [Some((1, 2)), Some((2, 3)), None]);
        spool.add(&batch(4)).unwrap();
        assert_eq!(next(&mut spool, 3), Some((3, 4)));
        (1..=3).for_each(|number| spool.remove(number));
        assert_eq!(spool.waiting(), (0, 0, 0));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the lock");
    }

    #[test]
    fn a_damaged_file_is_put_aside_and_counted() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(folder.path()).unwrap();
        (1..=2).for_each(|records| spool.add(&batch(records)).unwrap());
        fs::write(folder.path().join("000000000000-1.batch"), b"something else").unwrap();
        let (records, error) = spool.read_from(0).unwrap().unwrap_err();
        assert_eq!(records, 1);
        assert!(error.to_string().contains("000000000000-1.batch: it is no batch"), "{error}");
        assert!(folder.path().join("000000000000-1.bad").exists());
        assert_eq!(next(&mut spool, 0), Some((1, 2)));
    }

    #[test]
    fn what_the_disk_does_not_take_waits_in_memory_up_to_a_bound() {
        let folder = tempfile::tempdir().unwrap();
        let mut spool = Spool::open(&folder.path().join("spool")).unwrap();
        fs::remove_dir_all(folder.path().join("spool")).unwrap();
        let network = "10.0.0.0/24".parse().unwrap();
        let one = Place { network, start: 0, end: 3 << 20, prefix: 0 };
        let large = Loose { bytes: vec![7; 3 << 20], records: vec![one] }.pack(Form::Delimited, "");
        let waits: Vec<bool> = (0..3).map(|_| spool.add(&large).unwrap_err().1).collect();
        assert_eq!(waits, [true, true, false]);
        assert_eq!(next(&mut spool, 1), Some((1, 1)));
        spool.remove(0);
        assert!(spool.add(&large).unwrap_err().1);
    }
}
