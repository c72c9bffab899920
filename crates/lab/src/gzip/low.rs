//! The same at nginx's own level: where a configuration has no `gzip_comp_level` it is 1.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Result;

use super::load::Load;
use super::server::{Library, Server};
use super::{Body, Sizes, against, fetched, larger, order};
use crate::experiment::Options;
use crate::report::{Table, number};
use crate::stats::median;

/// nginx's own.
const LEVEL: u32 = 1;

/// What came of it.
pub(super) struct Low {
    /// By library and size, in microseconds for a request, by round.
    us: BTreeMap<(usize, usize), Vec<f64>>,
    sizes: Vec<Sizes>,
    kbs: Vec<usize>,
    pub(super) alerts: Vec<usize>,
    pub(super) failed: u64,
}

/// Loads a server of each library, of which the first one is zlib's, with the bodies of each of these sizes, as fast as it can.
pub(super) fn run(
    options: &Options,
    libraries: &[Library],
    bodies: &[Body],
    (kbs, rounds, seconds): (&[usize], usize, f64),
    (root, dir): (&Path, &Path),
) -> Result<Low> {
    let start =
        |library: &Library| Server::start(&dir.join(library.folder("nginx-level-1")), &library.at_level(LEVEL), root);
    let servers = libraries.iter().map(start).collect::<Result<Vec<_>>>()?;
    let bodies = || bodies.iter().filter(|body| kbs.contains(&body.kb));
    let mut low = Low { us: BTreeMap::new(), sizes: Vec::new(), kbs: kbs.to_vec(), alerts: Vec::new(), failed: 0 };
    for server in &servers {
        let (sizes, failed) = fetched(server, bodies())?;
        low.sizes.push(sizes);
        low.failed += failed;
    }
    for kb in kbs {
        let paths: Vec<&str> = bodies().filter(|body| body.kb == *kb).map(|body| body.name.as_str()).collect();
        options.say(format!("level 1, {kb} KB"));
        for round in 0..rounds {
            for at in order(round, servers.len()) {
                let load = Load { secure: false, gzip: true, rate: None, seconds };
                let loaded = load.run(&servers[at], &paths, dir)?;
                low.failed += loaded.failed;
                low.us.entry((at, *kb)).or_default().push(loaded.us_per_request());
            }
        }
    }
    low.alerts = servers.iter().map(Server::alerts).collect();
    Ok(low)
}

impl Low {
    /// By how much a library's bodies are larger than zlib's, in per cent, at the size where that is most.
    pub(super) fn largest(&self, at: usize) -> f64 {
        let of = |kb: &usize| larger(&self.sizes[at], &self.sizes[0], *kb);
        self.kbs.iter().map(of).fold(f64::NEG_INFINITY, f64::max)
    }

    /// In a table.
    pub(super) fn table(&self, libraries: &[Library]) -> Table {
        let mut table = Table::new(
            "At nginx's own level, 1, as fast as it can",
            &["library", "KB", "us", "over zlib", "95 % interval", "larger than zlib's, %"],
        );
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
