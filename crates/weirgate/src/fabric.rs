//! The fabric simulator's files, sweeps and threads; the simulator itself is `weirgate_fabric`, which knows none of these.

pub mod figure;
mod files;
pub mod merge;
pub mod outcome;
pub mod run;
pub mod scenario;
pub mod statistics;
pub mod sweep;
mod threads;
pub mod vectors;
pub mod verify;
