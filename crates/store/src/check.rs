//! Whether a file under a finished name is one of ours, and whole.
//!
//! Read first: the Parquet format's README: a file begins and ends with `PAR1`; before the last four bytes stands the
//! footer's length, and before that the footer. What lacks its end is torn.

use std::fs::File;
use std::path::{Path, PathBuf};

use parquet::arrow::arrow_reader::{ArrowReaderMetadata, ArrowReaderOptions, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;

use crate::schema::{FILE_SCHEMA, FORMAT, FORMAT_KEY};

/// A file that was left out, and why.
#[derive(Debug)]
pub struct Warning {
    /// The file.
    pub path: PathBuf,
    /// What is wrong with it.
    pub why: BadFile,
}

impl core::fmt::Display for Warning {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "skipped {}: {}", self.path.display(), self.why)
    }
}

/// What is wrong with a file.
#[derive(Debug, thiserror::Error)]
pub enum BadFile {
    /// It cannot be opened or read.
    #[error("cannot be read: {0}")]
    Unreadable(std::io::Error),
    /// It has no footer, or one that makes no sense.
    #[error("torn or not Parquet ({0}); it can be deleted")]
    Torn(ParquetError),
    /// Its footer is whole and its data is not.
    #[error("damaged ({0}); it can be deleted")]
    Damaged(String),
    /// Another program wrote it, or another version of this one.
    #[error("not written by Weirgate, or by a version that this one cannot read")]
    Foreign,
    /// A column has another type than it always had.
    #[error("its column `{0}` is not what Weirgate writes")]
    Column(String),
    /// Its name is not one that the store gives.
    #[error("not a file of the store; move it elsewhere")]
    Name,
}

/// Reads the footer of the file at `path`: whether it is ours, whole as far as that tells, and can be read.
pub(crate) fn footer(path: &Path) -> Result<ArrowReaderMetadata, BadFile> {
    let file = File::open(path).map_err(BadFile::Unreadable)?;
    let metadata = ArrowReaderMetadata::load(&file, ArrowReaderOptions::new()).map_err(BadFile::Torn)?;
    let pairs = metadata.metadata().file_metadata().key_value_metadata();
    let format = pairs.and_then(|pairs| pairs.iter().find(|p| p.key == FORMAT_KEY)?.value.as_deref());
    if format != Some(FORMAT) {
        return Err(BadFile::Foreign);
    }
    for field in metadata.schema().fields() {
        if FILE_SCHEMA.field_with_name(field.name()).is_ok_and(|ours| ours.data_type() != field.data_type()) {
            return Err(BadFile::Column(field.name().clone()));
        }
    }
    Ok(metadata)
}

/// Reads all of the file at `path`. Slow: for finding out which file a failed query failed at.
pub(crate) fn whole(path: &Path) -> Result<(), BadFile> {
    let metadata = footer(path)?;
    let file = File::open(path).map_err(BadFile::Unreadable)?;
    let reader = ParquetRecordBatchReaderBuilder::new_with_metadata(file, metadata).build().map_err(BadFile::Torn)?;
    for batch in reader {
        batch.map_err(|e| BadFile::Damaged(e.to_string()))?;
    }
    Ok(())
}
