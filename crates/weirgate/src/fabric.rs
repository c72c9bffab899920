//! The fabric simulator's files, sweeps and threads; the simulator itself is `weirgate_fabric`, which knows none of these.

pub mod figure;
pub mod scenario;
mod threads;
pub mod verify;
