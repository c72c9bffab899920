//! How long it takes from a socket to a decision that an edge obeys, in parts.

use crate::report::{Table, number};

/// Seconds of each part, without waiting for a round to end.
pub(super) struct Delay {
    /// From the end of a connection to its record.
    pub(super) record: f64,
    /// From the record to the producer: the exporter's interval and the spool.
    pub(super) kafka: f64,
    /// From the producer to a row in ClickHouse: linger, broker, and the pace at which the engine reads and writes.
    pub(super) clickhouse: f64,
    /// From the start of the controller to its snapshot.
    pub(super) round: f64,
    /// From the snapshot's file to the edge that obeys it.
    pub(super) edge: f64,
    /// Connections of which the first three are medians.
    pub(super) connections: usize,
}

impl Delay {
    pub(super) fn sum(&self) -> f64 {
        self.record + self.kafka + self.clickhouse + self.round + self.edge
    }

    pub(super) fn table(&self) -> Table {
        let caption = format!(
            "From a connection's end to a decision that its edge obeys, s: medians of {} connections and one round; not among \
             them is the wait for the round's end and for what comes late (settle)",
            self.connections
        );
        let mut table = Table::new(&caption, &["part", "s"]);
        for (name, value) in [
            ("end of the connection to its record", self.record),
            ("record to Kafka's producer (interval 4 s)", self.kafka),
            ("producer to a row in ClickHouse", self.clickhouse),
            ("controller: start to signed snapshot", self.round),
            ("snapshot to the edge that obeys it (looked at every 5 s)", self.edge),
            ("sum", self.sum()),
        ] {
            table.rows.push(vec![name.into(), number(value)]);
        }
        table
    }
}
