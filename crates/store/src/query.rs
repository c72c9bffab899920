//! SQL over the recorded telemetry, by DataFusion: one table, `sockets` ([`crate::schema::COLUMNS`]).
//!
//! A query sees every finished file that was there when it began; what the daemon recorded since it last closed a file
//! (a minute by default) is not among it. A file that is torn, damaged or not ours is left out and named in a warning.
//! A query takes one core and leaves the others to the host. It can only read: statements that change something are
//! refused.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arrow::datatypes::SchemaRef;
use arrow::error::ArrowError;
use arrow::record_batch::RecordBatch;
use arrow::util::pretty::pretty_format_batches_with_schema;
use datafusion::error::DataFusionError;
use datafusion::execution::context::SQLOptions;
use datafusion::execution::session_state::SessionStateBuilder;
use datafusion::physical_plan::SendableRecordBatchStream;
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::StreamExt;

use crate::check::{self, Warning};
use crate::sql::Files;

/// The most rows [`query`] keeps. More belong through [`query_each`].
pub const ROWS_MAX: usize = 100_000;

/// A query's result.
#[derive(Debug)]
pub struct Table {
    /// The columns' names and types.
    pub schema: SchemaRef,
    /// The rows, at most [`ROWS_MAX`].
    pub batches: Vec<RecordBatch>,
    /// Whether there were more rows.
    pub truncated: bool,
    /// Files that were left out.
    pub warnings: Vec<Warning>,
}

/// Why a query gave no result.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// The folder is not there.
    #[error("there is no store in {}: has `weirgate run` recorded there? `[store] dir` sets the folder", .0.display())]
    NoStore(PathBuf),
    /// Nothing has been recorded yet, or nothing that can be read.
    #[error("the store in {} holds no records yet: the first file is closed [store] flush after the start", dir.display())]
    Empty {
        /// The store's folder.
        dir: PathBuf,
        /// Files that were left out.
        warnings: Vec<Warning>,
    },
    /// The text is not SQL that can be run on the table.
    #[error("{0}")]
    Sql(String),
    /// Reading failed at something that is not a bad file.
    #[error("the query failed: {0}")]
    Run(String),
    /// The store's folder or the result's destination.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// Runs `sql` over the store in `dir` and keeps up to [`ROWS_MAX`] rows.
pub fn query(dir: &Path, sql: &str) -> Result<Table, QueryError> {
    let mut batches = Vec::new();
    let mut rows = 0;
    let mut truncated = false;
    let done = query_each(dir, sql, &mut |batch| {
        let room = ROWS_MAX - rows;
        truncated = batch.num_rows() > room;
        batches.push(batch.slice(0, batch.num_rows().min(room)));
        rows += batch.num_rows().min(room);
        Ok(!truncated)
    })?;
    Ok(Table { schema: done.schema, batches, truncated, warnings: done.warnings })
}

/// What remains to be said when all rows have been handed out.
#[derive(Debug)]
pub struct Done {
    /// The columns' names and types.
    pub schema: SchemaRef,
    /// Files that were left out.
    pub warnings: Vec<Warning>,
}

/// Runs `sql` over the store in `dir` and hands out the rows batch by batch, until `each` says false.
///
/// May be called on any thread, one of a tokio runtime included: it runs on a thread of its own.
pub fn query_each(
    dir: &Path,
    sql: &str,
    each: &mut (dyn FnMut(&RecordBatch) -> io::Result<bool> + Send),
) -> Result<Done, QueryError> {
    let run = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(run(dir, sql, each))
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("query".to_owned()).spawn_scoped(scope, run)?;
        thread.join().unwrap_or_else(|_| Err(QueryError::Run("a fault in the query engine; see the log".to_owned())))
    })
}

/// Writes `batch` as JSON, one object per row; columns that are NULL are left out.
pub fn write_json_lines(batch: &RecordBatch, out: &mut dyn Write) -> io::Result<()> {
    let mut writer = arrow::json::LineDelimitedWriter::new(out);
    let wrong = |e| match e {
        ArrowError::IoError(_, e) => e,
        other => io::Error::other(other),
    };
    writer.write(batch).map_err(wrong)?;
    writer.finish().map_err(wrong)
}

impl Table {
    /// The rows as a table of text.
    pub fn to_text(&self) -> Result<String, QueryError> {
        let text = pretty_format_batches_with_schema(Arc::clone(&self.schema), &self.batches);
        text.map(|t| t.to_string()).map_err(|e| QueryError::Run(e.to_string()))
    }

    /// The rows as JSON, one object per row; columns that are NULL are left out.
    pub fn write_json_lines(&self, out: &mut dyn Write) -> io::Result<()> {
        self.batches.iter().try_for_each(|batch| write_json_lines(batch, out))
    }

    /// The number of rows.
    pub fn rows(&self) -> usize {
        self.batches.iter().map(RecordBatch::num_rows).sum()
    }
}

async fn run(
    dir: &Path,
    sql: &str,
    each: &mut (dyn FnMut(&RecordBatch) -> io::Result<bool> + Send),
) -> Result<Done, QueryError> {
    let dir = match dir.canonicalize() {
        Ok(dir) => dir,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(QueryError::NoStore(dir.to_owned())),
        Err(e) => return Err(e.into()),
    };
    let files = Files::list(&dir)?;
    if files.is_empty() {
        return Err(QueryError::Empty { dir, warnings: files.take_warnings() });
    }
    let mut tries = 0;
    loop {
        let files = Arc::clone(&files);
        let mut handed_out = false;
        let (stream, schema) = start(&files, sql).await?;
        match drain(stream, each, &mut handed_out).await {
            Ok(()) => return Ok(Done { schema, warnings: files.take_warnings() }),
            Err(Stopped::Io(e)) => return Err(e.into()),
            Err(Stopped::Run(e)) => {
                // Whole by its footer and still not readable: find the file, and go on without it where no row is out
                // yet.
                tries += 1;
                let found = files.leave_out(check::whole);
                if found == 0 || handed_out || tries > 2 {
                    return Err(QueryError::Run(e.strip_backtrace()));
                }
            }
        }
    }
}

enum Stopped {
    Run(DataFusionError),
    Io(io::Error),
}

async fn start(files: &Arc<Files>, sql: &str) -> Result<(SendableRecordBatchStream, SchemaRef), QueryError> {
    let config = SessionConfig::new().with_target_partitions(1).with_information_schema(true);
    let state = SessionStateBuilder::new().with_config(config).with_default_features().build();
    let context = SessionContext::new_with_state(state);
    let wrong = |e: DataFusionError| QueryError::Sql(in_words(&e));
    files.register(&context).await.map_err(wrong)?;
    let read_only = SQLOptions::new().with_allow_ddl(false).with_allow_dml(false).with_allow_statements(false);
    let frame = context.sql_with_options(sql, read_only).await.map_err(wrong)?;
    let stream = frame.execute_stream().await.map_err(wrong)?;
    let schema = stream.schema();
    Ok((stream, schema))
}

/// What is wrong with a query, for who wrote it: not as Rust shows it, and with the table's name where another was meant.
fn in_words(error: &DataFusionError) -> String {
    if let DataFusionError::SQL(parser, _) = error.find_root() {
        return format!("not SQL: {}", parser.to_string().trim_start_matches("sql parser error: "));
    }
    let text = error.strip_backtrace();
    let table = text.split_once("table '").and_then(|(_, rest)| rest.split_once("' not found"));
    match table {
        Some((name, _)) => {
            format!("there is no table `{}`: the table is `sockets`", name.trim_start_matches("datafusion.public."))
        }
        None => text,
    }
}

async fn drain(
    mut stream: SendableRecordBatchStream,
    each: &mut (dyn FnMut(&RecordBatch) -> io::Result<bool> + Send),
    handed_out: &mut bool,
) -> Result<(), Stopped> {
    while let Some(batch) = stream.next().await {
        let batch = batch.map_err(Stopped::Run)?;
        *handed_out = true;
        if batch.num_rows() > 0 && !each(&batch).map_err(Stopped::Io)? {
            break;
        }
    }
    Ok(())
}
