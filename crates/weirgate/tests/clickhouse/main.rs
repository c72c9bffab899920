//! `weirgate store init` and what its tables make of records, on real engines: Debian's server of 2018, and the current engine as a
//! Python library behind HTTP; with Apache Kafka before it, and with messages from files.
#![allow(clippy::disallowed_methods, reason = "real servers on loopback")]

mod controller;
mod current;
mod debian;
mod failover;
mod fleet;
mod message;
mod records;
mod replicated;
mod responses;
mod rounds;
mod server;
mod standby;
