//! Which of several links takes this packet, or this flow: the load balancers of data-centre fabrics, in one library for a
//! software switch, a simulator and test vectors for hardware.
//!
//! Pure: no clock, no threads, no allocation while packets are balanced. What a balancer looks at is read through [`Depths`], what it draws
//! comes from a [`Sampler`], so a switch's registers and a generator in a chip fit as well as a simulator's.
#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod alike;
mod conga;
mod drill;
mod flowlet;
mod hash;
mod label;
mod lfsr;
mod presto;
mod reps;
mod spread;
pub mod symmetry;
#[cfg(test)]
mod testing;
pub mod topology;
mod weighted;

pub use conga::{Conga, CongaSettings, Estimator, Header};
pub use drill::{DrillPerFlow, Engine, LOOKS_MAX, Looks, LooksError, Memory, Rule};
pub use flowlet::{Flowlets, Known, LetFlow};
pub use hash::{FiveTuple, FlowHash};
pub use label::{Label, LabelSettings};
pub use lfsr::Lfsr;
pub use presto::{CELL, Cell, Cells, Schedule, ScheduleError, gcd};
pub use reps::Reps;
pub use spread::{Ecmp, RoundRobin, Wcmp, random, shortest};
pub use weighted::{Share, Weighted};

/// An output port, by its number in the switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Port(pub u16);

/// What is queued at the ports now.
pub trait Depths {
    /// Bytes that are fully enqueued at `port`: those of packets on their way to the queue do not count yet.
    fn depth(&self, port: Port) -> u64;
}

impl<F: Fn(Port) -> u64> Depths for F {
    fn depth(&self, port: Port) -> u64 {
        self(port)
    }
}

/// Where random numbers come from.
pub trait Sampler {
    /// A number below `bound`, each as likely as any other. `bound` is not 0.
    fn below(&mut self, bound: u32) -> u32;
}
