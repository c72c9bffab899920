//! `weirgate fabric vectors`: what the hardware in `hdl/` is tested with.

use std::io::Write as _;
use std::path::PathBuf;

use anyhow::Context;
use clap::{Args, Subcommand};
use weirgate_balance::Looks;

use super::{create, usage};
use crate::cli::Failure;
use crate::cli::output::Output;
use crate::fabric::vectors;

#[derive(Debug, Subcommand)]
pub(super) enum Vectors {
    /// Packets that come to a switch of DRILL engines, and their ports, clock by clock
    Switch(Switch),
    /// Flows, and the symmetric components that they go by
    Components(Components),
}

#[derive(Debug, Args)]
pub(super) struct Switch {
    /// Ports
    #[arg(long, value_name = "N", default_value_t = 48, value_parser = clap::value_parser!(u8).range(2..=64))]
    ports: u8,
    /// Ports drawn for each packet
    #[arg(long, value_name = "N", default_value_t = 2, value_parser = clap::value_parser!(u8).range(1..=8))]
    d: u8,
    /// Ports remembered
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(0..=8))]
    m: u8,
    /// Engines that share the queues
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=64))]
    engines: u8,
    /// Groups of next hops
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=16))]
    groups: u8,
    /// Bits of a queue's depth
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(1..=32))]
    depth_bits: u8,
    /// Bits of a packet's size
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u8).range(1..=8))]
    size_bits: u8,
    /// Clocks from when a packet's port is known until it is in the queue
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(1..=64))]
    enqueue: u8,
    /// Packets that have a port: so many at least
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    decisions: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
pub(super) struct Components {
    /// Components of a group
    #[arg(long, value_name = "N", default_value_t = 4, value_parser = clap::value_parser!(u8).range(2..=8))]
    components: u8,
    /// Bits of the sum of their weights
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = clap::value_parser!(u8).range(4..=16))]
    bits: u8,
    /// Flows
    #[arg(long, value_name = "N", default_value_t = 20_000)]
    flows: u64,
    #[command(flatten)]
    common: Common,
}

#[derive(Debug, Args)]
struct Common {
    /// The seed of everything random
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Where they are written, as docs/hardware.md says: words of 64 bits, a row of them for each clock
    #[arg(short, long, value_name = "FILE")]
    out: PathBuf,
    /// Print what is in them as JSON
    #[arg(long)]
    json: bool,
}

impl Vectors {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self {
            Self::Switch(switch) => switch.run(out),
            Self::Components(components) => components.run(out),
        }
    }
}

impl Switch {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let switch = vectors::Switch {
            looks: Looks::new(self.d.into(), self.m.into()).map_err(usage)?,
            ports: self.ports.into(),
            engines: self.engines.into(),
            groups: self.groups.into(),
            depth_bits: self.depth_bits.into(),
            size_bits: self.size_bits.into(),
            enqueue: self.enqueue.into(),
        };
        let Common { seed, out: path, json } = self.common;
        let mut to = create(&path)?;
        let written = switch.write(self.decisions, seed, &mut to).and_then(|summary| to.flush().map(|()| summary));
        let summary = written.with_context(|| path.display().to_string())?;
        if json {
            return Ok(out.json(&summary)?);
        }
        let vectors::Summary { clocks, decisions, without, changes, downs, depth_max } = summary;
        Ok(out.line(&format!(
            "{decisions} packets with a port and {without} without, in {clocks} clocks; {changes} groups changed, {downs} ports went \
             down, the deepest queue had {depth_max}"
        ))?)
    }
}

impl Components {
    fn run(self, out: &mut Output) -> Result<(), Failure> {
        let components = vectors::Components { components: self.components.into(), bits: self.bits.into() };
        let Common { seed, out: path, json } = self.common;
        let mut to = create(&path)?;
        let written = components.write(self.flows, seed, &mut to).and_then(|clocks| to.flush().map(|()| clocks));
        let clocks = written.with_context(|| path.display().to_string())?;
        if json {
            return Ok(out.json(&serde_json::json!({ "clocks": clocks, "decisions": self.flows }))?);
        }
        Ok(out.line(&format!("{} flows and their components, in {clocks} clocks", self.flows))?)
    }
}
