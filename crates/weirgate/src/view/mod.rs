//! The daemon's view of itself and its host: what the page, the metrics and `sockets --watch` show.
//!
//! Ground rules. The thread that polls owns the [`Collector`] and calls it for every record: no lock, no allocation but
//! for a network's first record, memory bounded (10,000 networks; see `collector`). At a poll's end the
//! collector publishes into [`Shared`], which any thread may read and which the rarer events (a round, a policy, losses)
//! are reported to. Nothing here decides anything, and nothing here is a source of truth for `tune`.
//!
//! Goodput by network needs no memory of single connections: what a network's open connections have acknowledged in
//! total, plus what those acknowledged that closed in between, minus what was open at the poll before, is what was
//! delivered between the two polls.

mod collector;
mod histogram;
mod history;
mod shared;

pub mod api;

pub(crate) use collector::NETWORKS_MAX;
pub use collector::{Collector, PollEnd};
pub(crate) use shared::DECISIONS_MAX;
pub use shared::{DeflateSource, Order, Shared, SwitchSource, UplinksSource};

/// A view of a host of which nothing has been seen yet.
pub fn new(facts: api::Facts) -> (Collector, Shared) {
    let shared = Shared::new(facts);
    (Collector::new(shared.clone()), shared)
}
