//! `weirgate store init` and what its tables make of records, on real servers: Debian's of 2018, and that of 25.8, alone, with Apache
//! Kafka before it, and as a cluster; and on the newest engine, a Python library behind HTTP.
#![allow(clippy::disallowed_methods, reason = "real servers on loopback")]

mod controller;
mod current;
mod debian;
mod failover;
mod fleet;
mod lease;
mod message;
mod records;
mod replicated;
mod responses;
mod rounds;
mod server;
mod standby;
