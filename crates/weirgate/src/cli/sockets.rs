//! `weirgate sockets`: what is typed; the command itself is [`crate::watch`].

use clap::Args;

use super::{Common, Failure};
use crate::daemon;
use crate::watch::{self, Options};

#[derive(Debug, Args)]
pub(super) struct Sockets {
    #[command(flatten)]
    common: Common,
    /// Show them live, until q
    #[arg(long)]
    watch: bool,
    /// Print JSON
    #[arg(long, conflicts_with = "watch")]
    json: bool,
}

impl Sockets {
    pub(super) fn run(self) -> Result<(), Failure> {
        let config = self.common.load()?;
        let daemon = daemon::page_address(&config);
        let options = Options { daemon, sockets: config.sockets, json: self.json, watch: self.watch };
        watch::run(options).map_err(|error| match error.is_usage() {
            true => Failure::Usage(error.into()),
            false => Failure::Work(error.into()),
        })
    }
}
