//! The tables of a fleet in ClickHouse: what `packaging/clickhouse` says, applied to a server.
//!
//! - [`Tables`] is what is wanted: where, for how long, from which Kafka.
//! - [`init`] brings a [`Server`] there; [`script`] is the SQL of that, for who applies it by hand.
//!
//! - [`round`] is what the connections of a point of presence came to in a round, for who decides for it.
//! - [`standby`] tells controllers which of them decides, and what the one before knew.
//!
//! Records get there by Kafka or as JSON, never from here: no edge waits for this database.

mod client;
mod dialect;
mod file;
mod init;
mod round;
pub mod standby;
mod tables;
mod unread;

pub use client::{Server, ServerError};
pub use dialect::{Dialect, UnknownVersion};
pub use init::{Done, InitError, init, script};
pub use round::{Round, RoundError, Source, can_add_up, round};
pub use tables::{BadTables, Kafka, Tables};
pub use unread::{Idle, Unread, idle, unread};
