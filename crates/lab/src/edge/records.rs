//! What an arm's daemon recorded, read back from its store as anybody would: by SQL.

use std::net::IpAddr;
use std::path::Path;

use anyhow::Result;
use serde::Deserialize;
use serde::de::DeserializeOwned;

/// What the store has on an arm.
pub(super) struct Records {
    /// The last numbers of every connection of a client.
    pub(super) closes: Vec<Close>,
    /// Networks in the order in which they were first treated.
    pub(super) selected: Vec<Selected>,
}

/// A close record.
#[derive(Debug, Deserialize)]
pub(super) struct Close {
    pub(super) remote_address: IpAddr,
    pub(super) remote_port: Option<u16>,
    pub(super) arm: Option<String>,
    /// The last delivery-rate sample, bytes per second.
    pub(super) delivery_rate: Option<u64>,
    /// The highest that the application did not limit.
    pub(super) delivery_rate_max: Option<u64>,
    pub(super) app_limited: Option<bool>,
    pub(super) bytes_sent: Option<u64>,
    pub(super) bytes_retrans: Option<u64>,
}

/// When a network was first seen treated or held out.
#[derive(Debug, Deserialize)]
pub(super) struct Selected {
    pub(super) network: String,
    /// Seconds since the arm's first record.
    pub(super) after_s: f64,
}

pub(super) fn read(store: &Path) -> Result<Records> {
    let closes = rows(
        store,
        "SELECT remote_address, remote_port, arm, delivery_rate, delivery_rate_max, app_limited, bytes_sent,
         bytes_retrans FROM sockets
         WHERE kind = 'close' AND local_port = 80 AND direction = 'accepted'",
    )?;
    let selected = rows(
        store,
        "SELECT network, (MIN(CASE WHEN arm IS NOT NULL THEN boot_time_ns END) - (SELECT MIN(boot_time_ns) FROM sockets)) / 1e9
           AS after_s
         FROM sockets WHERE local_port = 80 AND arm IS NOT NULL GROUP BY network ORDER BY after_s",
    )?;
    Ok(Records { closes, selected })
}

fn rows<T: DeserializeOwned>(store: &Path, sql: &str) -> Result<Vec<T>> {
    let mut lines = Vec::new();
    weirgate_store::query(store, sql)?.write_json_lines(&mut lines)?;
    Ok(serde_json::Deserializer::from_slice(&lines).into_iter().collect::<Result<_, _>>()?)
}
