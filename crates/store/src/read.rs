//! The recorded telemetry read back, record by record, for replays.
//!
//! Records come file by file in the order the files were written, and within a file in the order in which they were
//! appended: the order in which the daemon saw them. That is the order of time but for closes that were reported late.
//! Memory is bounded by one row group's compressed columns and one batch (about 4 MB), whatever the store holds.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use arrow::array::{Array, AsArray};
use arrow::datatypes::TimestampNanosecondType;
use parquet::arrow::arrow_reader::statistics::StatisticsConverter;
use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ParquetRecordBatchReaderBuilder};
use weirgate_sockets::record::{Origin, Record};
use weirgate_units::{Duration, UnixTime};

use crate::check::{self, BadFile, Warning};
use crate::columns::BATCH_ROWS;
use crate::decode;
use crate::layout;

/// A span of civil time: from `from`, up to and without `to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRange {
    /// The first moment.
    pub from: UnixTime,
    /// The first moment after it.
    pub to: UnixTime,
}

impl TimeRange {
    /// All time.
    pub const ALL: Self = Self { from: UnixTime::from_nanos(0), to: UnixTime::from_nanos(u64::MAX) };

    const fn contains(self, time: UnixTime) -> bool {
        self.from.as_nanos() <= time.as_nanos() && time.as_nanos() < self.to.as_nanos()
    }
}

/// Why reading came to an end before its time.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The folder is not there or cannot be read.
    #[error("{} is neither a store nor one of its files, or cannot be read: {source}", dir.display())]
    Folder {
        /// The folder.
        dir: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The one file that was asked for holds nothing that can be read.
    #[error("{}: {why}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: BadFile,
    },
}

/// What was read.
#[derive(Debug, Default)]
pub struct ReadDone {
    /// Records handed out.
    pub records: u64,
    /// Files that were left out, wholly or from where they turned out damaged.
    pub warnings: Vec<Warning>,
}

/// Hands every record of `range` to `each`, until that says false. `store` is a store's folder, or one of its files.
///
/// What the kernel had not given is zero and its bit in [`Sample::given`](weirgate_sockets::sample::Sample::given)
/// clear, as it was. Four things are not as they were: whether a direction was known or guessed (the flags say known),
/// what an anonymised address was, a request socket's state (`SYN-RECV` is one state here) and unknown numbers of
/// states.
pub fn for_each_record(
    store: &Path,
    range: TimeRange,
    each: &mut dyn FnMut(&Record<'_>, &Origin) -> bool,
) -> Result<ReadDone, ReadError> {
    let mut done = ReadDone::default();
    if store.is_file() {
        let read = read_file(store, range, each, &mut done.records);
        return match read {
            Ok(_) => Ok(done),
            Err(why) if done.records == 0 => Err(ReadError::File { path: store.to_owned(), why }),
            Err(why) => {
                done.warnings.push(Warning { path: store.to_owned(), why });
                Ok(done)
            }
        };
    }
    let folder = |source| ReadError::Folder { dir: store.to_owned(), source };
    if !store.is_dir() {
        return Err(folder(io::ErrorKind::NotFound.into()));
    }
    let listing = layout::list(store).map_err(folder)?;
    for part in listing.parts.values() {
        // Late records are in the folder of the hour they were written in, so that a record may be older than its
        // folder, and after a clock was set back younger: an hour of grace, and the row groups' own bounds do the rest.
        let grace = Duration::from_secs(3_600);
        if part.hour.start() > range.to + grace || part.hour.end() + grace < range.from {
            continue;
        }
        let path = part.path(store);
        match read_file(&path, range, each, &mut done.records) {
            Ok(true) => {}
            Ok(false) => return Ok(done),
            Err(why) => done.warnings.push(Warning { path, why }),
        }
    }
    let foreign = listing.foreign.into_iter().map(|path| Warning { path, why: BadFile::Name });
    done.warnings.extend(foreign);
    Ok(done)
}

fn read_file(
    path: &Path,
    range: TimeRange,
    each: &mut dyn FnMut(&Record<'_>, &Origin) -> bool,
    count: &mut u64,
) -> Result<bool, BadFile> {
    let metadata = check::footer(path)?;
    let groups = row_groups(&metadata, range);
    let file = File::open(path).map_err(BadFile::Unreadable)?;
    let builder = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata)
        .with_batch_size(BATCH_ROWS)
        .with_row_groups(groups);
    let damaged = |e: &dyn core::fmt::Display| BadFile::Damaged(e.to_string());
    let mut go_on = true;
    for batch in builder.build().map_err(|e| damaged(&e))? {
        let batch = batch.map_err(|e| damaged(&e))?;
        let mut within = |record: &Record<'_>, origin: &Origin| {
            !range.contains(record.time) || {
                *count += 1;
                go_on = each(record, origin);
                go_on
            }
        };
        if !decode::records(&batch, &mut within).map_err(|e| damaged(&e))? {
            break;
        }
    }
    Ok(go_on)
}

/// The row groups that may hold a record of `range`, by the bounds of their `time`.
fn row_groups(metadata: &ArrowReaderMetadata, range: TimeRange) -> Vec<usize> {
    let groups = metadata.metadata().row_groups();
    let bounds = || {
        let converter = StatisticsConverter::try_new("time", metadata.schema(), metadata.parquet_schema()).ok()?;
        Some((converter.row_group_mins(groups).ok()?, converter.row_group_maxes(groups).ok()?))
    };
    let Some((mins, maxes)) = bounds() else { return (0..groups.len()).collect() };
    let bound = |bounds: &dyn Array, n| {
        let bounds = bounds.as_primitive_opt::<TimestampNanosecondType>().filter(|b| b.is_valid(n))?;
        u64::try_from(bounds.value(n)).ok().map(UnixTime::from_nanos)
    };
    let may_hold = |n: &usize| {
        bound(&mins, *n).is_none_or(|min| min < range.to) && bound(&maxes, *n).is_none_or(|max| max >= range.from)
    };
    (0..groups.len()).filter(may_hold).collect()
}
