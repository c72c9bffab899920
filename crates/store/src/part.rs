//! One Parquet file, from its temporary name to its place: written, closed, fsynced, renamed, its folder fsynced.
//!
//! Read first: the Parquet format's README (row groups, column chunks, pages, the footer at the end), and
//! "Ext4, fsync and rename" in rename(2)'s NOTES: a rename is atomic, but durable only once the folder is fsynced too.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use arrow::record_batch::RecordBatch;
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::schema::types::ColumnPath;

use crate::hour::Hour;
use crate::layout::{self, Part};
use crate::schema::{COLUMNS, FILE_SCHEMA, FORMAT, FORMAT_KEY, Kind};

/// Rows whose columns are gathered before they are written together. The compressed pages of one row group wait in
/// memory: at 16,384 rows that is about 2 MB. Four times as many save 3 % of the file and cost four times the memory.
pub(crate) const ROW_GROUP_ROWS: usize = 16_384;
/// A file is closed early when it holds so many rows: each row group's description waits in memory for the footer.
pub(crate) const PART_ROWS_MAX: u64 = 64 * ROW_GROUP_ROWS as u64;

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub(crate) struct PartError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// A file that is being written.
pub(crate) struct OpenPart {
    writer: ArrowWriter<File>,
    dir: PathBuf,
    temporary: PathBuf,
    hour: Hour,
    first: u64,
    last: u64,
    rows: u64,
}

impl OpenPart {
    /// Begins the part `first` to `last` of `hour` below `dir`, whose folder is made if need be.
    pub(crate) fn create(dir: &Path, hour: Hour, first: u64, last: u64) -> Result<Self, PartError> {
        let folder = layout::folder(dir, hour);
        if !folder.is_dir() {
            fs::create_dir_all(&folder).map_err(failed("create", &folder))?;
            sync_folder(dir)?;
        }
        let temporary = folder.join(layout::unfinished_name(first, last));
        let file = File::create(&temporary).map_err(failed("create", &temporary))?;
        let writer = ArrowWriter::try_new(file, FILE_SCHEMA.clone(), Some(properties()))
            .map_err(|e| failed("write", &temporary)(io_error(e)))?;
        Ok(Self { writer, dir: dir.to_owned(), temporary, hour, first, last, rows: 0 })
    }

    pub(crate) const fn hour(&self) -> Hour {
        self.hour
    }

    /// Rows handed to it.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether `rows` more fill a row group, which then goes to the disk.
    pub(crate) fn fills_group(&self, rows: usize) -> bool {
        self.writer.in_progress_rows() + rows >= ROW_GROUP_ROWS
    }

    /// Adds `batch`. After an error the part is of no use: [`OpenPart::abandon`] it.
    pub(crate) fn write(&mut self, batch: &RecordBatch) -> Result<(), PartError> {
        self.rows += batch.num_rows() as u64;
        self.writer.write(batch).map_err(|e| failed("write", &self.temporary)(io_error(e)))
    }

    /// Writes the rest and the footer, and puts the file in its place for good.
    pub(crate) fn close(mut self) -> Result<Part, PartError> {
        match self.finish() {
            Ok(part) => Ok(part),
            Err(error) => {
                self.abandon();
                Err(error)
            }
        }
    }

    fn finish(&mut self) -> Result<Part, PartError> {
        let temporary = &self.temporary;
        self.writer.finish().map_err(|e| failed("write", temporary)(io_error(e)))?;
        let file = self.writer.inner();
        file.sync_all().map_err(failed("fsync", temporary))?;
        let bytes = file.metadata().map_err(failed("read the size of", temporary))?.len();
        let part = Part { hour: self.hour, first: self.first, last: self.last, bytes };
        let path = part.path(&self.dir);
        fs::rename(temporary, &path).map_err(failed("rename", temporary))?;
        sync_folder(&layout::folder(&self.dir, self.hour))?;
        Ok(part)
    }

    /// Gives the file up and its place on the disk back. What was in it is lost: the caller counts it.
    pub(crate) fn abandon(self) {
        if let Err(error) = fs::remove_file(&self.temporary) {
            tracing::warn!(path = %self.temporary.display(), %error, "cannot remove an unfinished file");
        }
    }
}

fn sync_folder(folder: &Path) -> Result<(), PartError> {
    File::open(folder).and_then(|f| f.sync_all()).map_err(failed("fsync", folder))
}

fn failed(doing: &'static str, path: &Path) -> impl FnOnce(io::Error) -> PartError + use<> {
    let path = path.to_owned();
    move |source| PartError { doing, path, source }
}

/// The operating system's error where there is one beneath, so that "No space left on device" is what is read.
fn io_error(error: ParquetError) -> io::Error {
    match error {
        ParquetError::External(source) => match source.downcast::<io::Error>() {
            Ok(io) => *io,
            Err(other) => io::Error::other(other),
        },
        other => io::Error::other(other),
    }
}

/// How the columns are written. Measured by `examples/encode.rs`; see its head.
fn properties() -> WriterProperties {
    let mut properties = WriterProperties::builder()
        .set_writer_version(WriterVersion::PARQUET_2_0)
        .set_created_by(concat!("weirgate ", env!("CARGO_PKG_VERSION")).to_owned())
        .set_key_value_metadata(Some(vec![KeyValue::new(FORMAT_KEY.to_owned(), FORMAT.to_owned())]))
        .set_compression(Compression::ZSTD(ZstdLevel::try_new(1).unwrap_or_default()))
        .set_max_row_group_row_count(Some(ROW_GROUP_ROWS))
        .set_data_page_row_count_limit(ROW_GROUP_ROWS)
        .set_statistics_enabled(EnabledStatistics::Chunk)
        .set_offset_index_disabled(true)
        .set_dictionary_enabled(false);
    for column in COLUMNS.iter() {
        let path = ColumnPath::from(column.stored_as);
        properties = match column.kind {
            Kind::Text | Kind::Network => properties.set_column_dictionary_enabled(path, true),
            Kind::Time | Kind::U64 | Kind::U32 => properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            _ => properties,
        };
    }
    properties.build()
}
