//! A simulator of data-centre fabrics: hosts with TCP, switches, the links between them, and what balances load over these.
//!
//! Pure: no clock, no I/O, no threads. A run is deterministic to the last event: time is whole picoseconds, of what happens at the same
//! time what was scheduled first comes first, what is random is drawn from streams of a seed ([`Chance`]), and no result is the system's
//! mathematical library's. [`Simulation::digest`] is a hash of all packet arrivals.
//!
//! Each switch has a stream of its own, which its engines share; all hosts together have one, and so have all wires for what they lose.
//! What a workload draws is of the stream that it was made with: an open one brings the same flows whatever the balancer.
#![forbid(unsafe_code)]

mod chance;
mod events;
mod flow;
mod ideal;
mod line;
mod measure;
mod packet;
mod routes;
mod scheme;
mod simulation;
mod sizes;
mod switch;
mod tcp;
mod time;
pub mod verify;
mod workload;

pub use chance::Chance;
pub use events::{EventId, Events};
pub use ideal::{Distances, ideal, shortest_path};
pub use line::LineCounters;
pub use measure::{Carried, Cause, Finished, Hop, Measures, Queues};
pub use scheme::{Scheme, uplinks};
pub use simulation::{Buffers, Change, Settings, Simulation};
pub use sizes::{PUBLISHED, Sizes, SizesError, SizesTextError, shown};
pub use tcp::{ControlKind, TcpSettings};
pub use time::{Span, Time};
pub use workload::{
    AllToAll, Both, Hosts, Incast, Listed, Mice, Pairs, Pattern, Poisson, Ring, RingOrder, Start, Workload,
};
