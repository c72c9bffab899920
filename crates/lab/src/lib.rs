//! The lab: experiments on the running kernel, with real servers and real TCP, each of which ends in a report.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

mod bench_shape;
mod bench_spray;
mod bench_switch;
mod cgroup;
pub mod codecs;
mod commit;
pub mod corpus;
mod daemon;
mod edge;
pub mod expectation;
pub mod experiment;
mod fabric;
mod fleet;
pub mod guest;
mod gzip;
mod limit;
mod links;
pub mod machine;
mod multipath;
pub mod net;
mod nginx;
pub mod plot;
mod process;
mod recorder;
pub mod report;
mod scale;
pub mod stats;

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
    Experiment {
        name: "limit-precision",
        about: "what leaves a paced limit, against its rate, from 10 kbit/s to 5 Gbit/s",
        run: limit::precision,
    },
    Experiment {
        name: "limit-cascade",
        about: "two close limits that both drop, with and without giving back what was taken in vain",
        run: limit::cascade,
    },
    Experiment {
        name: "limit-rtt",
        about: "one TCP connection behind a limit at round trips of 1 to 100 ms: drop, tbf, htb, gate, pace",
        run: limit::rtt,
    },
    Experiment {
        name: "limit-udp",
        about: "a sender that does not slow down, offering twice its limit",
        run: limit::udp,
    },
    Experiment {
        name: "limit-fair",
        about: "one elephant, 50 mice and 20 equal senders behind one limit: drop, htb, gate, pace",
        run: limit::fair,
    },
    Experiment {
        name: "limit-10g",
        about: "a limit of up to 10 Gbit/s in both directions, second by second: gate, pace",
        run: limit::fast,
    },
    Experiment {
        name: "limit-peer",
        about: "Open vSwitch's user-space datapath with its policer, in the switch's place",
        run: limit::peer,
    },
    Experiment {
        name: "limit-vm",
        about: "a real guest behind a limit, from it and to it: goodput, ping, evenness, small transfers",
        run: limit::vm,
    },
    Experiment {
        name: "gzip",
        about: "what compressing responses costs nginx: zlib, zlib-rs, and Weirgate's libz in its place",
        run: gzip::run,
    },
    Experiment {
        name: "accelerator",
        about: "an nginx whose responses a simulated card compresses, and everything that goes wrong with one",
        run: gzip::accelerator,
    },
    Experiment {
        name: "multipath",
        about: "a host with unlike uplinks: one transfer over all of them, pinned TCP, MPTCP",
        run: multipath::run,
    },
    Experiment {
        name: "fleet",
        about: "records by Kafka and ClickHouse to a decision for a million networks, and what faults lose on the way",
        run: fleet::run,
    },
    Experiment { name: "bench-shape", about: "what a bucket, a wheel and an aggregate cost", run: bench_shape::run },
    Experiment {
        name: "bench-spray",
        about: "sealing by one thread and by two: datagrams beside an ordered stream",
        run: bench_spray::run,
    },
    Experiment {
        name: "bench-switch",
        about: "what a frame costs in the switch, by one thread and by two",
        run: bench_switch::run,
    },
    Experiment {
        name: "fabric-speed",
        about: "packet-hops a second of the fabric simulator, beside a hold model and ns-3",
        run: fabric::speed,
    },
];
