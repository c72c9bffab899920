//! The lab: experiments on the running kernel, with real servers and real TCP, each of which ends in a report.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

mod bench_shape;
mod cgroup;
mod daemon;
mod edge;
mod expectation;
pub mod experiment;
mod links;
mod machine;
pub mod net;
mod nginx;
mod plot;
pub mod report;
mod scale;
mod stats;

use experiment::Experiment;

pub use scale::hold;

/// Every experiment, in the order of `weirgate lab list`.
pub const EXPERIMENTS: &[Experiment] = &[
    Experiment { name: "links", about: "whether emulated links do what their settings say", run: links::run },
    Experiment {
        name: "sockets-scale",
        about: "what a look at 100,000 sockets costs, and whether any close is missed",
        run: scale::run,
    },
    Experiment {
        name: "edge",
        about: "goodput of 20 client networks when the congestion control is chosen per network",
        run: edge::run,
    },
    Experiment { name: "bench-shape", about: "what a bucket, a wheel and an aggregate cost", run: bench_shape::run },
];
