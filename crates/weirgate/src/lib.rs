//! Weirgate's binary as a library, so that its tests can reach it: the command line, the daemon, its page, and the
//! journal that lets everything be undone.
//!
//! `cli` reads what was typed and hands over to `daemon` (measures, decides, applies), to `control` (talks to a running
//! daemon), to `doctor`, to `fabric` (the simulator's files and threads), or to `journal` (undo). `config` is what all of them are told.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "the binary touches the world: clocks, files, threads are its work")]

/// Says something on standard error, for as long as somebody reads it: `eprintln!` panics where nobody does.
macro_rules! say {
    ($($what:tt)*) => {{
        use std::io::Write as _;
        let _nobody_reads = writeln!(std::io::stderr(), $($what)*);
    }};
}

pub mod cli;
pub mod config;
pub mod control;
pub mod daemon;
pub mod fabric;
mod fleet;
mod folder;
mod groups;
pub mod http;
pub mod journal;
pub mod metrics;
mod random;
mod recorded;
pub mod sessions;
pub mod transfer;
pub mod tunnel;
mod uplink;
pub mod view;
pub mod watch;
