//! The lab: experiments on the running kernel, with real servers and real TCP, each of which ends in a report.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

pub mod edge;
pub mod expectation;
pub mod machine;
pub mod net;
pub mod nginx;
pub mod report;
pub mod stats;
