//! The same where it is otherwise: at nginx's own level, which is 1 where a configuration has no `gzip_comp_level`; and of bodies that come
//! from behind the server, with so many connections that it comes back to one of them when it was at all others. Pieces of a body lie far
//! apart then, though nobody is slow but the server.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::{Context, Result};

use super::load::Load;
use super::server::{Library, Server};
use super::{Body, Sizes, against, fetched, larger, order};
use crate::experiment::Options;
use crate::report::{Table, number};
use crate::stats::median;

/// nginx's own.
const LEVEL: u32 = 1;

/// Connections of what is proxied.
const CLIENTS: u32 = 64;

/// What is asked for, and how often: sizes in KB, rounds, and seconds of each.
#[derive(Clone, Copy)]
pub(super) struct Asked<'a> {
    pub(super) bodies: &'a [Body],
    pub(super) kbs: &'a [usize],
    pub(super) rounds: usize,
    pub(super) seconds: f64,
}

/// What came of it.
pub(super) struct More {
    title: String,
    /// By library and size, in microseconds for a request, by round.
    us: BTreeMap<(usize, usize), Vec<f64>>,
    sizes: Vec<Sizes>,
    kbs: Vec<usize>,
    pub(super) alerts: Vec<usize>,
    pub(super) failed: u64,
}

/// At nginx's own level, from files below `root`.
pub(super) fn at_its_level(
    options: &Options,
    libraries: &[Library],
    asked: Asked<'_>,
    (root, dir): (&Path, &Path),
) -> Result<More> {
    let start =
        |library: &Library| Server::start(&dir.join(library.folder("nginx-level-1")), &library.at_level(LEVEL), root);
    let servers = libraries.iter().map(start).collect::<Result<Vec<_>>>()?;
    measure(options, "At nginx's own level, 1, as fast as it can", &servers, asked, Load::default(), dir)
}

/// From another nginx, on the clients' core.
pub(super) fn proxied(
    options: &Options,
    libraries: &[Library],
    asked: Asked<'_>,
    (root, dir): (&Path, &Path),
) -> Result<More> {
    let stock = libraries.first().context("zlib is among the libraries")?;
    let origin = Server::start(&dir.join("origin"), &stock.on_core(1), root)?;
    let start = |library: &Library| Server::proxy(&dir.join(library.folder("proxied")), library, origin.port);
    let servers = libraries.iter().map(start).collect::<Result<Vec<_>>>()?;
    let load = Load { clients: CLIENTS, ..Load::default() };
    let title = format!("From behind the server, {CLIENTS} connections, as fast as it can");
    measure(options, &title, &servers, asked, load, dir)
}

/// Loads the servers, of which the first one is zlib's, with the bodies of each of the sizes.
fn measure(
    options: &Options,
    title: &str,
    servers: &[Server],
    Asked { bodies, kbs, rounds, seconds }: Asked<'_>,
    load: Load,
    dir: &Path,
) -> Result<More> {
    let load = Load { seconds, ..load };
    let bodies = || bodies.iter().filter(|body| kbs.contains(&body.kb));
    let mut more = More {
        title: title.to_owned(),
        us: BTreeMap::new(),
        sizes: Vec::new(),
        kbs: kbs.to_vec(),
        alerts: Vec::new(),
        failed: 0,
    };
    for server in servers {
        let (sizes, failed) = fetched(server, bodies())?;
        more.sizes.push(sizes);
        more.failed += failed;
    }
    for kb in kbs {
        let paths: Vec<&str> = bodies().filter(|body| body.kb == *kb).map(|body| body.name.as_str()).collect();
        options.say(format!("{}: {kb} KB", title.to_lowercase()));
        for round in 0..rounds {
            for at in order(round, servers.len()) {
                let loaded = load.run(&servers[at], &paths, dir)?;
                more.failed += loaded.failed;
                more.us.entry((at, *kb)).or_default().push(loaded.us_per_request());
            }
        }
    }
    more.alerts = servers.iter().map(Server::alerts).collect();
    Ok(more)
}

impl More {
    /// By how much a library's bodies are larger than zlib's, in per cent, at the size where that is most.
    pub(super) fn largest(&self, at: usize) -> f64 {
        let of = |kb: &usize| larger(&self.sizes[at], &self.sizes[0], *kb);
        self.kbs.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
    }

    /// In a table.
    pub(super) fn table(&self, libraries: &[Library]) -> Table {
        let mut table =
            Table::new(&self.title, &["library", "KB", "us", "over zlib", "95 % interval", "larger than zlib's, %"]);
        for kb in &self.kbs {
            for (at, library) in libraries.iter().enumerate() {
                let (ratio, interval) = against(&self.us[&(at, *kb)], &self.us[&(0, *kb)]);
                table.rows.push(vec![
                    library.name.to_owned(),
                    kb.to_string(),
                    number(median(self.us[&(at, *kb)].iter().copied())),
                    number(ratio),
                    format!("{} to {}", number(interval.low), number(interval.high)),
                    number(larger(&self.sizes[at], &self.sizes[0], *kb)),
                ]);
            }
        }
        table
    }
}
