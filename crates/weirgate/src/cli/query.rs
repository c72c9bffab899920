//! `weirgate query`: SQL over what was recorded.

use std::path::PathBuf;

use clap::Args;
use weirgate_store::{QueryError, schema};

use super::output::Output;
use super::{Common, Failure};

#[derive(Debug, Args)]
pub(super) struct Query {
    #[command(flatten)]
    common: Common,
    /// What to ask; the table is `sockets`, one row per observation of a connection
    #[arg(value_name = "SQL", required_unless_present = "schema")]
    sql: Option<String>,
    /// Show the table's columns instead
    #[arg(long, conflicts_with = "sql")]
    schema: bool,
    /// The store, where it is not the configured one
    #[arg(long, value_name = "DIR")]
    store: Option<PathBuf>,
    /// Print JSON, one object per row
    #[arg(long)]
    json: bool,
}

impl Query {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let Some(sql) = &self.sql else { return columns(out, self.json) };
        let dir = match &self.store {
            Some(dir) => dir.clone(),
            None => match self.common.load()?.store {
                Some(store) => store.dir,
                None => {
                    let why = "the configuration has [store] enabled = false: name a store with --store DIR";
                    return Err(Failure::Usage(anyhow::anyhow!(why)));
                }
            },
        };
        let table = weirgate_store::query(&dir, sql).map_err(|error| match error {
            QueryError::Sql(_) => Failure::Usage(error.into()),
            QueryError::Io(_) => Failure::Work(anyhow::Error::new(error).context(format!(
                "the store in {} cannot be read: run as the user that records it, or name another with --store",
                dir.display()
            ))),
            QueryError::NoStore(_) | QueryError::Empty { .. } | QueryError::Run(_) => Failure::Work(error.into()),
        })?;
        for warning in &table.warnings {
            say!("weirgate: {warning}");
        }
        if self.json {
            table.write_json_lines(out.writer())?;
        } else {
            out.line(&table.to_text()?)?;
        }
        if table.truncated {
            say!("weirgate: only the first {} rows are shown: add LIMIT, or ask for less", weirgate_store::ROWS_MAX);
        }
        Ok(())
    }
}

fn columns(out: &mut Output, json: bool) -> Result<(), Failure> {
    if json {
        for column in schema::COLUMNS.iter() {
            out.json(&serde_json::json!({
                "name": column.name,
                "type": column.kind.name(),
                "unit": column.unit,
                "source": column.source,
                "about": column.about,
            }))?;
        }
        return Ok(());
    }
    let row = |column: &schema::Column| {
        vec![column.name.to_owned(), column.kind.name().to_owned(), column.unit.to_owned(), column.about.to_owned()]
    };
    let rows: Vec<Vec<String>> = schema::COLUMNS.iter().map(row).collect();
    Ok(out.table(&["column of `sockets`", "type", "unit", "what it says"], &rows)?)
}
