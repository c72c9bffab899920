//! `weirgate fabric`: the simulator of data-centre fabrics.

use clap::{Args, Subcommand};

use super::Failure;
use super::figure::{Figure, Verify};
use super::output::Output;

#[derive(Debug, Args)]
pub(super) struct Fabric {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Measure a figure of the DRILL article: its claim beside what is measured, as page, CSV and SVG
    Figure(Figure),
    /// Check the simulator against queueing theory, closed forms, and outcomes that are known by hand
    Verify(Verify),
}

impl Fabric {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self.what {
            What::Figure(figure) => figure.run(out),
            What::Verify(verify) => verify.run(out),
        }
    }
}
