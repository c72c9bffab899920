//! `weirgate sockets`: connections now, by client network and by congestion control; as text, as JSON, or live.
//!
//! The numbers are the running daemon's where one answers, else this program's own polls of the namespaces that the
//! configuration names, through the same sources, ledger and view. Either way the table is the page's, [`crate::view::api`].

mod live;
mod source;
pub(crate) mod text;

use std::io::{self, IsTerminal, Write};
use std::net::SocketAddr;

use serde::Serialize;

use crate::config;
use crate::view::api;
pub use source::ReadError;
use source::Source;

/// What was asked for.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where a daemon's page would be; `None` where none is configured.
    pub daemon: Option<SocketAddr>,
    /// What is looked at where no daemon answers.
    pub sockets: config::Sockets,
    /// As JSON, for programs.
    pub json: bool,
    /// Live, until `q`.
    pub watch: bool,
}

/// The table could not be shown.
#[derive(Debug, thiserror::Error)]
pub enum SocketsError {
    /// There is nobody to draw for.
    #[error(
        "--watch draws on a terminal, and standard output is none: leave it out for a table, or write --json for programs"
    )]
    NotATerminal,
    /// Two answers at once.
    #[error("--watch and --json exclude each other: leave one out")]
    Contradiction,
    /// No numbers.
    #[error(transparent)]
    Read(#[from] ReadError),
    /// They could not be written.
    #[error("cannot write to standard output: {0}")]
    Write(#[from] io::Error),
}

impl SocketsError {
    /// Whether the command was wrong, and not the host: exit status 2.
    pub const fn is_usage(&self) -> bool {
        matches!(self, Self::NotATerminal | Self::Contradiction)
    }
}

/// One look at all connections.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
struct Look {
    /// Whose numbers these are, and why.
    source: String,
    status: api::Status,
    networks: api::Networks,
}

/// Runs the command to its end, writing to standard output.
pub fn run(options: Options) -> Result<(), SocketsError> {
    if options.watch && options.json {
        return Err(SocketsError::Contradiction);
    }
    if options.watch && !io::stdout().is_terminal() {
        return Err(SocketsError::NotATerminal);
    }
    let mut source = Source::open(options.daemon, &options.sockets)?;
    if options.watch {
        return live::run(source);
    }
    let look = source.read_once()?;
    let out = if options.json {
        let mut json = serde_json::to_string_pretty(&look).map_err(io::Error::from)?;
        json.push('\n');
        json
    } else {
        text::table(&look)
    };
    let mut stdout = io::stdout().lock();
    match stdout.write_all(out.as_bytes()).and_then(|()| stdout.flush()) {
        // `weirgate sockets | head` is satisfied, not in error.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => Ok(result?),
    }
}
