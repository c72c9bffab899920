//! The record that stays: Parquet files partitioned by hour, and SQL over them.
//!
//! - [`Writer`] takes [`Record`](weirgate_sockets::record::Record)s and writes files.
//! - [`query`] runs SQL over them.
//! - [`for_each_record`] reads them back as records, for replays.
//! - [`Geo`] knows autonomous systems and countries, [`Anonymise`] forgets clients.
//! - [`export::Exporter`] sends them to Kafka, and [`snapshots`] go from a controller to its edges there.
//! - [`schema::COLUMNS`] is the table `sockets`, column by column.
//! - [`clickhouse`] makes the tables of a fleet in a ClickHouse server.
#![forbid(unsafe_code)]
#![allow(clippy::disallowed_methods, reason = "this room touches the world: clocks, files, threads are its work")]

mod anonymise;
mod check;
pub mod clickhouse;
mod columns;
mod decode;
pub mod export;
mod geo;
mod hour;
mod kafka;
mod layout;
mod merge;
mod part;
mod presence;
mod query;
mod queue;
mod read;
pub mod schema;
mod sink;
pub mod snapshots;
mod sql;
mod writer;

pub use anonymise::Anonymise;
pub use check::{BadFile, Warning};
pub use columns::Encoder;
pub use geo::{Geo, GeoError, Place};
pub use hour::{Hour, ParseHourError};
pub use query::{Done, QueryError, ROWS_MAX, Table, query, query_each, write_json_lines};
pub use read::{ReadDone, ReadError, TimeRange, for_each_record};
pub use writer::{OpenError, Options, Status, Writer};
