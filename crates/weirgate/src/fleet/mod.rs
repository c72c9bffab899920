//! Policies for a fleet: [`keys`] sign them and say whose they are, the [`controller`] decides them from ClickHouse and publishes them, and
//! an edge [`follow`]s them.
//!
//! The order of things: read a round, decide, sign, publish, and only then save what was learnt. Whoever is killed in between decides the
//! same round again, from the same data and the same memory, and so publishes the same.

pub(crate) mod controller;
pub(crate) mod follow;
pub(crate) mod keys;
