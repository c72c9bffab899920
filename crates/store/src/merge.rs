//! The small files of a finished hour made into one, a step at a time.
//!
//! Reads the inputs batch by batch and writes them on, so it needs the memory of one row group on each side. A step is
//! one batch (a few milliseconds), so that what is being recorded never waits for it long.

use std::collections::VecDeque;
use std::fs::File;
use std::path::PathBuf;

use arrow::array::new_null_array;
use arrow::compute::cast;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use parquet::arrow::arrow_reader::{ParquetRecordBatchReader, ParquetRecordBatchReaderBuilder};
use parquet::errors::ParquetError;

use crate::columns::BATCH_ROWS;
use crate::hour::Hour;
use crate::layout::Part;
use crate::part::{OpenPart, PartError};
use crate::schema::FILE_SCHEMA;

/// Why a merge was given up. The inputs are untouched.
#[derive(Debug, thiserror::Error)]
pub(crate) enum MergeError {
    #[error("cannot read {}: {source}", path.display())]
    Read { path: PathBuf, source: MergeReadError },
    #[error(transparent)]
    Write(#[from] PartError),
}

/// What was wrong with an input.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) enum MergeReadError {
    Open(#[from] std::io::Error),
    Parquet(#[from] ParquetError),
    Arrow(#[from] ArrowError),
}

pub(crate) enum Step {
    /// There is more to do.
    More,
    /// The new part, in its place, and the parts whose place it took.
    Done(Part, Vec<Part>),
}

pub(crate) struct Merge {
    dir: PathBuf,
    inputs: Vec<Part>,
    waiting: VecDeque<Part>,
    reading: Option<(PathBuf, ParquetRecordBatchReader)>,
    writing: Option<OpenPart>,
}

impl Merge {
    /// Will merge `inputs`: at least two neighbours of one hour, in order.
    pub(crate) fn new(dir: PathBuf, inputs: Vec<Part>) -> Self {
        Self { dir, waiting: inputs.iter().copied().collect(), inputs, reading: None, writing: None }
    }

    pub(crate) fn hour(&self) -> Hour {
        self.inputs[0].hour
    }

    /// An upper bound of what it will still write.
    pub(crate) fn bytes_left(&self) -> u64 {
        self.waiting.iter().map(|p| p.bytes).sum()
    }

    /// Copies the next batch, or ends.
    pub(crate) fn step(&mut self) -> Result<Step, MergeError> {
        let part = match &mut self.writing {
            Some(part) => part,
            none => {
                let (first, last) = (self.inputs[0].first, self.inputs[self.inputs.len() - 1].last);
                none.insert(OpenPart::create(&self.dir, self.inputs[0].hour, first, last)?)
            }
        };
        if let Some((path, reader)) = &mut self.reading {
            match reader.next() {
                Some(batch) => {
                    let batch = batch.and_then(|b| conform(&b)).map_err(wrong(path))?;
                    part.write(batch)?;
                }
                None => self.reading = None,
            }
            return Ok(Step::More);
        }
        if let Some(input) = self.waiting.pop_front() {
            let path = input.path(&self.dir);
            let reader = open(&path).map_err(|source| MergeError::Read { path: path.clone(), source })?;
            self.reading = Some((path, reader));
            return Ok(Step::More);
        }
        let Some(part) = self.writing.take() else { return Ok(Step::More) };
        Ok(Step::Done(part.close()?, core::mem::take(&mut self.inputs)))
    }

    /// Gives it up; the inputs stay.
    pub(crate) fn abandon(self) {
        if let Some(part) = self.writing {
            part.abandon();
        }
    }
}

fn wrong(path: &std::path::Path) -> impl FnOnce(ArrowError) -> MergeError + use<> {
    let path = path.to_owned();
    move |e| MergeError::Read { path, source: e.into() }
}

fn open(path: &std::path::Path) -> Result<ParquetRecordBatchReader, MergeReadError> {
    Ok(ParquetRecordBatchReaderBuilder::try_new(File::open(path)?)?.with_batch_size(BATCH_ROWS).build()?)
}

/// `batch` with today's columns: those that an older file lacks are NULL, those that are no more are left out.
pub(crate) fn conform(batch: &RecordBatch) -> Result<RecordBatch, ArrowError> {
    let columns = FILE_SCHEMA.fields().iter().map(|field| match batch.column_by_name(field.name()) {
        Some(column) if column.data_type() == field.data_type() => Ok(column.clone()),
        Some(column) => cast(column, field.data_type()),
        None => Ok(new_null_array(field.data_type(), batch.num_rows())),
    });
    RecordBatch::try_new(FILE_SCHEMA.clone(), columns.collect::<Result<_, _>>()?)
}
