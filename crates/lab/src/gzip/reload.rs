//! The configuration read again and again, under load: workers begin and end with the library in them.

use anyhow::Result;

use super::Body;
use super::clients::{self, Seen};
use super::server::{Library, Server};
use crate::report::{Table, number};

/// What came of it.
pub(super) struct Reloads {
    times: usize,
    pub(super) seen: Seen,
    library: &'static str,
}

/// Has `server` read its configuration so many times, while clients ask for `bodies`.
pub(super) fn run(server: &Server, library: &Library, bodies: &[&Body], times: usize) -> Result<Reloads> {
    let ((), seen) = clients::beside(server.port, bodies, || (0..times).try_for_each(|_| server.reload()))?;
    Ok(Reloads { times, seen, library: library.name })
}

impl Reloads {
    /// In a table.
    pub(super) fn table(&self) -> Table {
        let mut table = Table::new(
            "The configuration read again, under load",
            &["library", "times", "in, s", "requests meanwhile", "failed"],
        );
        let Self { times, seen: Seen { requests, failed, seconds }, library } = self;
        let counts = [times.to_string(), number(*seconds), requests.to_string(), failed.to_string()];
        table.rows.push([vec![(*library).to_owned()], counts.to_vec()].concat());
        table
    }
}
