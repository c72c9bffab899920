//! One Parquet file, from its temporary name to its place: written, closed, fsynced, renamed, its folder fsynced.
//!
//! Read first: the Parquet format's README (row groups, column chunks, pages, the footer at the end), and
//! "Ext4, fsync and rename" in rename(2)'s NOTES: a rename is atomic, but durable only once the folder is fsynced too.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, LazyLock};

use arrow::compute::concat_batches;
use arrow::datatypes::{Field, Schema};
use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_writer::{ArrowColumnChunk, ArrowRowGroupWriterFactory, compute_leaves};
use parquet::arrow::{ArrowSchemaConverter, ArrowWriter};
use parquet::basic::{Compression, Encoding, ZstdLevel};
use parquet::errors::ParquetError;
use parquet::file::metadata::KeyValue;
use parquet::file::properties::{EnabledStatistics, WriterProperties, WriterVersion};
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::types::ColumnPath;
use rustix::fs::{FallocateFlags, fallocate};
use rustix::io::Errno;

use crate::columns::BATCH_ROWS;
use crate::hour::Hour;
use crate::layout::{self, Part};
use crate::schema::{COLUMNS, FILE_SCHEMA, FORMAT, FORMAT_KEY, Kind};

/// Rows that wait and are then written together, column after column. They take 7 MB; four times as many would make
/// files a seventh smaller for 15 MB more, half as many a tenth larger for 1.5 MB less.
pub(crate) const ROW_GROUP_ROWS: usize = 16_384;
/// A file is closed early when it holds so many rows: each row group's description waits in memory for the footer.
pub(crate) const PART_ROWS_MAX: u64 = 64 * ROW_GROUP_ROWS as u64;
/// What a footer takes at most with the schema in it, and what each row group adds: measured were 13 KB with one row
/// group, and 6 KB for each further one.
const FOOTER_BYTES_MAX: u64 = 32 << 10;
const FOOTER_GROUP_BYTES_MAX: u64 = 16 << 10;

/// Why a file could not be written.
#[derive(Debug, thiserror::Error)]
#[error("cannot {doing} {}: {source}", path.display())]
pub(crate) struct PartError {
    doing: &'static str,
    path: PathBuf,
    source: io::Error,
}

/// Rows of one hour that wait to be written together.
///
/// A row group's batches wait as they are until it is full; then column after column is encoded and compressed. The
/// usual way ([`ArrowWriter::write`]) does all columns side by side as batches come, with a compressor, a decompressor
/// and page buffers for each of seventy columns: 30 to 50 MB, where this takes 10, the queue included.
#[derive(Default)]
pub(crate) struct Group {
    batches: Vec<RecordBatch>,
    rows: usize,
}

impl Group {
    pub(crate) const fn is_empty(&self) -> bool {
        self.rows == 0
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.rows >= ROW_GROUP_ROWS
    }

    pub(crate) const fn rows(&self) -> u64 {
        self.rows as u64
    }

    pub(crate) fn push(&mut self, batch: RecordBatch) {
        self.rows += batch.num_rows();
        self.batches.push(batch);
    }

    /// Makes one batch of many small ones, which take more memory than their rows.
    pub(crate) fn compact(&mut self) {
        if self.batches.len() > 2 * ROW_GROUP_ROWS / BATCH_ROWS
            && let Ok(one) = concat_batches(&FILE_SCHEMA, &self.batches)
        {
            self.batches = vec![one];
        }
    }

    /// The rows as a file holds them, about a tenth of their size; the group is empty afterwards, after an error too.
    pub(crate) fn encode(&mut self) -> Result<Encoded, ParquetError> {
        let rows = self.rows();
        let batches = core::mem::take(self).batches;
        // Each array is given back as soon as it is encoded: while this goes on, the queue fills.
        let mut batches: Vec<_> = batches.into_iter().map(|batch| batch.columns().to_vec().into_iter()).collect();
        let mut columns = Vec::with_capacity(COLUMN_WRITERS.len());
        for (one, field) in COLUMN_WRITERS.iter().zip(FILE_SCHEMA.fields()) {
            // The number of the row group is for encrypted files.
            let mut writers = one.create_column_writers(0)?;
            let Some(mut column) = writers.pop() else { continue };
            for array in batches.iter_mut().filter_map(Iterator::next) {
                for leaf in compute_leaves(field, &array)? {
                    column.write(&leaf)?;
                }
            }
            columns.push(column.close()?);
        }
        Ok(Encoded { rows, columns })
    }
}

/// A row group, ready to be put into any file.
pub(crate) struct Encoded {
    rows: u64,
    columns: Vec<ArrowColumnChunk>,
}

impl Encoded {
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// What it will take in a file, without its share of the footer.
    fn bytes(&self) -> u64 {
        self.columns.iter().map(|column| column.close().bytes_written).sum()
    }

    /// What it takes in memory: its pages, and about a kilobyte for each column's description.
    pub(crate) fn memory(&self) -> u64 {
        self.bytes() + 1_024 * self.columns.len() as u64
    }
}

/// A file that is being written.
pub(crate) struct OpenPart {
    writer: SerializedFileWriter<File>,
    group: Group,
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
        let (writer, _) = ArrowWriter::try_new(file, FILE_SCHEMA.clone(), Some(properties()))
            .and_then(ArrowWriter::into_serialized_writer)
            .map_err(|e| failed("write", &temporary)(io_error(e)))?;
        Ok(Self { writer, group: Group::default(), dir: dir.to_owned(), temporary, hour, first, last, rows: 0 })
    }

    pub(crate) const fn hour(&self) -> Hour {
        self.hour
    }

    /// Rows in the file.
    pub(crate) const fn rows(&self) -> u64 {
        self.rows
    }

    /// Claims the disk's room for `group` and for the footer after it, so that neither fails for want of it. After an
    /// error the file is as good as before. A file system that cannot promise room is taken at its word when it is
    /// written to.
    pub(crate) fn reserve(&self, group: &Encoded) -> Result<(), PartError> {
        let groups = self.writer.flushed_row_groups().len() as u64 + 1;
        let room = group.bytes() + FOOTER_BYTES_MAX + groups * FOOTER_GROUP_BYTES_MAX;
        let from = self.writer.bytes_written() as u64;
        match fallocate(self.writer.inner(), FallocateFlags::KEEP_SIZE, from, room) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(error) => Err(failed("reserve room for", &self.temporary)(error.into())),
        }
    }

    /// Adds `group`. After an error the part is of no use: [`OpenPart::abandon`] it.
    pub(crate) fn append(&mut self, group: Encoded) -> Result<(), PartError> {
        self.rows += group.rows;
        let written = self.writer.next_row_group().and_then(|mut into| {
            group.columns.into_iter().try_for_each(|column| column.append_to_row_group(&mut into))?;
            into.close().map(drop)
        });
        written.map_err(|e| failed("write", &self.temporary)(io_error(e)))
    }

    /// Adds `batch`, which waits until its row group is full. After an error as [`OpenPart::append`].
    pub(crate) fn write(&mut self, batch: RecordBatch) -> Result<(), PartError> {
        self.group.push(batch);
        if self.group.is_full() { self.write_group() } else { Ok(()) }
    }

    fn write_group(&mut self) -> Result<(), PartError> {
        if self.group.is_empty() {
            return Ok(());
        }
        let group = self.group.encode().map_err(|e| failed("write", &self.temporary)(io_error(e)))?;
        self.reserve(&group)?;
        self.append(group)
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
        self.write_group()?;
        let temporary = &self.temporary;
        self.writer.finish().map_err(|e| failed("write", temporary)(io_error(e)))?;
        let file = self.writer.inner();
        // What was reserved beyond the end is given back.
        file.metadata().and_then(|meta| file.set_len(meta.len())).map_err(failed("write", temporary))?;
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

/// What makes the writer of each column, one at a time: the file's own would make all at once, and with each a
/// compressor and a decompressor (0.1 MB).
static COLUMN_WRITERS: LazyLock<Vec<ArrowRowGroupWriterFactory>> = LazyLock::new(|| {
    let properties = Arc::new(properties());
    let one = |field: &Arc<Field>| {
        let alone = Arc::new(Schema::new(vec![Arc::clone(field)]));
        let parquet = ArrowSchemaConverter::new().convert(&alone)?;
        let writer = SerializedFileWriter::new(io::sink(), parquet.root_schema_ptr(), Arc::clone(&properties))?;
        Ok::<_, ParquetError>(ArrowRowGroupWriterFactory::new(&writer, alone))
    };
    FILE_SCHEMA.fields().iter().map(|f| one(f).expect("each of our columns is one of Parquet's")).collect()
});

/// How the columns are written. CPU and bytes per record by `examples/encode.rs`, which polls invented connections:
///
/// | numbers | compression | write | size | read |
/// |---|---|---|---|---|
/// | plain | ZSTD 1 | 0.54 us | 37 B | 0.23 us |
/// | plain | ZSTD 3 | 0.58 us | 38 B | 0.23 us |
/// | plain | LZ4 | 0.44 us | 65 B | 0.30 us |
/// | byte stream split | ZSTD 1 | 0.49 us | 36 B | 0.21 us |
/// | delta | ZSTD 1 | 0.62 us | 47 B | 0.18 us |
/// | dictionary | ZSTD 1 | 0.85 us | 59 B | 0.23 us |
///
/// Plain it is: byte stream split is allowed for integers only since version 2.11 of the format, and many a reader is
/// older. Times grow steadily, so they are written as differences.
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
            Kind::Time => properties.set_column_encoding(path, Encoding::DELTA_BINARY_PACKED),
            _ => properties.set_column_encoding(path, Encoding::PLAIN),
        };
    }
    properties.build()
}
