//! Both ends held against each other: what was made, acknowledged, and is in either ClickHouse; and the groups that read Kafka for it.

use std::collections::HashSet;
use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;
use weirgate_store::ROWS_MAX;
use weirgate_units::UnixTime;

use super::{Faults, Fleet, ID, TOPIC};
use crate::fleet::ground::{ask, count, until};
use crate::report::{Table, number};

/// Of the edge's store, which is too large for one answer.
const PARTS: u32 = 16;

impl Fleet<'_> {
    /// Ends the load, lets everything arrive, and holds both ends against each other.
    pub(super) fn count(mut self) -> Result<Faults> {
        self.pause();
        self.closes.pause(true);
        until("all records are acknowledged", || Ok(self.waiting()? == 0))?;
        self.acknowledged += self.export("acknowledged")?;
        let lost_by_edge = self.metric("export_lost_records_total")?.unwrap_or(0.0) as u64;
        let mut edge = self.edge.take().context("the edge runs")?;
        edge.stop()?;
        let recorded = self.recorded(&edge.store())?;
        let engine = self.engine()?;
        for statement in witness(&self.brokers) {
            engine.ask(&statement)?;
        }
        let all = || count(&engine.url, "SELECT count() FROM weirgate.witness");
        until("Kafka's log is read", || {
            let before = all()?;
            std::thread::sleep(Duration::from_secs(8));
            Ok(before > 0 && before == all()?)
        })?;
        let ids = |url: &str, table: &str, second: &str| -> Result<HashSet<String>> {
            let rows = ask(url, &format!("SELECT DISTINCT {ID}, {second} FROM weirgate.{table}"))?;
            Ok(rows.lines().map(str::to_owned).collect())
        };
        let in_log = ids(&engine.url, "witness", "second")?;
        let missing = |url: &str| -> Result<u64> {
            let mut missing = u64::MAX;
            // What is late is not lost.
            let _ = until("ClickHouse has all of it", || {
                missing = in_log.difference(&ids(url, "sockets", "toUnixTimestamp(time)")?).count() as u64;
                Ok(missing == 0)
            });
            Ok(missing)
        };
        let not_in_engine = missing(&engine.url)?;
        let not_in_debian = missing(&self.debian)?;
        let not_in_log = self.acknowledged.saturating_sub(all()?);
        let is_down = |at: UnixTime| self.down.iter().any(|(from, to)| at >= *from && at <= *to);
        let unsent =
            recorded.iter().filter(|record| !in_log.contains(&record.id()) && !is_down(record.at())).count() as u64;
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id")?;
        let closed = engine.ask(&format!(
            "SELECT DISTINCT cookie FROM weirgate.sockets WHERE boot_id = '{}' AND netns = {} AND kind = 'close'",
            boot.trim(),
            self.ns.netns().inode()
        ))?;
        let closed: HashSet<u64> = closed.lines().filter_map(|line| line.parse().ok()).collect();
        let made = self.closes.made();
        let unseen = |(at, cookie): &&(UnixTime, u64)| !closed.contains(cookie) && !is_down(*at);
        let unrecorded = made.iter().filter(unseen).count() as u64;
        let mut table = Table::new(
            "Faults",
            &[
                "fault",
                "s",
                "connections meanwhile",
                "in ClickHouse",
                "edge was down",
                "unaccounted",
                "shown by",
                "policy obeyed",
            ],
        );
        for row in &self.rows {
            let within: Vec<_> = made.iter().filter(|(at, _)| *at >= row.from && *at < row.to).collect();
            let found = within.iter().filter(|(_, cookie)| closed.contains(cookie)).count();
            let lost = within.iter().copied().filter(unseen).count();
            let policy = row
                .policy
                .map_or("-".into(), |(what, right)| if right { what.to_owned() } else { format!("NOT {what}") });
            table.rows.push(vec![
                row.fault.into(),
                number(row.to.saturating_since(row.from).as_secs_f64()),
                within.len().to_string(),
                found.to_string(),
                (within.len() - found - lost).to_string(),
                lost.to_string(),
                if row.noticed { row.metric.into() } else { "NOTHING".into() },
                policy,
            ]);
        }
        table.rows.push(
            [
                "all, and what lay between".to_owned(),
                "-".into(),
                made.len().to_string(),
                made.iter().filter(|(_, cookie)| closed.contains(cookie)).count().to_string(),
                made.iter().filter(|(at, cookie)| !closed.contains(cookie) && is_down(*at)).count().to_string(),
                unrecorded.to_string(),
                format!(
                    "{} records in the edge's store, of which {unsent} are missing in Kafka's log; {} acknowledged, {} in Kafka's log, \
                     {not_in_log} missing there, {not_in_engine} in the engine, {not_in_debian} in 18.16",
                    recorded.len(),
                    self.acknowledged,
                    in_log.len()
                ),
                "-".into(),
            ]
            .to_vec(),
        );
        Ok(Faults {
            table,
            acknowledged_lost: unsent + not_in_log + not_in_engine + not_in_debian + unrecorded + lost_by_edge,
            unnoticed: self.rows.iter().filter(|row| !row.noticed).count() as u64,
            misapplied: self.rows.iter().filter(|row| row.policy.is_some_and(|(_, right)| !right)).count() as u64,
        })
    }

    /// All that the edge has written into its own store, asked for in parts: an answer has [`ROWS_MAX`] rows at most.
    fn recorded(&self, store: &Path) -> Result<Vec<Recorded>> {
        let mut all = Vec::new();
        for part in 0..PARTS {
            let sql = format!(
                "SELECT DISTINCT {ID}, CAST(time AS BIGINT) AS ns FROM sockets WHERE CAST(cookie AS BIGINT) % {PARTS} = {part}"
            );
            let rows = self.ground.weirgate(&["query", "--json", "--store", &store.display().to_string(), &sql])?.0;
            ensure!(rows.lines().count() < ROWS_MAX, "more than {ROWS_MAX} records in a part of the edge's store");
            for row in rows.lines() {
                all.push(serde_json::from_str(row).with_context(|| format!("a row of its store: {row}"))?);
            }
        }
        Ok(all)
    }
}

/// A record in an edge's store.
#[derive(Deserialize)]
struct Recorded {
    boot_id: String,
    netns: u32,
    cookie: u64,
    sequence: u32,
    ns: i64,
}

impl Recorded {
    /// As a row of [`ID`] and the second.
    fn id(&self) -> String {
        let Self { boot_id, netns, cookie, sequence, .. } = self;
        format!("{boot_id}\t{netns}\t{cookie}\t{sequence}\t{}", self.at().as_secs())
    }

    fn at(&self) -> UnixTime {
        UnixTime::from_nanos(u64::try_from(self.ns).unwrap_or_default())
    }
}

/// A second group in the engine, whose rows are kept in the order in which they came: what Debian's ClickHouse is fed with.
pub(super) fn second_group(brokers: &str) -> [String; 3] {
    [
        kafka_table("queue_kafka", brokers, "queue"),
        "CREATE TABLE weirgate.queue (arrived DateTime64(6) DEFAULT now64(6), time UInt64, sent_ms Int64, host String, pop String, \
         boot_id String, kind String, sequence UInt32, cookie UInt64, netns UInt32, local_address String, remote_address String, \
         network String, bytes_acked Nullable(UInt64)) ENGINE = MergeTree ORDER BY arrived"
            .to_owned(),
        "CREATE MATERIALIZED VIEW weirgate.queue_mv TO weirgate.queue AS SELECT k.time AS time, \
         toInt64(toUnixTimestamp64Milli(assumeNotNull(_timestamp_ms))) AS sent_ms, host, pop, boot_id, kind, sequence, cookie, netns, \
         toString(CAST(k.local_address, 'IPv6')) AS local_address, toString(CAST(k.remote_address, 'IPv6')) AS remote_address, \
         concat(toString(CAST(k.remote_address, 'IPv6')), '/', toString(network_len)) AS network, bytes_acked \
         FROM weirgate.queue_kafka AS k WHERE length(_error) = 0"
            .to_owned(),
    ]
}

/// A third group, which reads all that Kafka's log holds.
fn witness(brokers: &str) -> [String; 3] {
    [
        kafka_table("witness_kafka", brokers, "witness"),
        format!(
            "CREATE TABLE weirgate.witness ENGINE = MergeTree ORDER BY ({ID}) AS SELECT {ID}, toUInt64(0) AS second \
             FROM weirgate.sockets LIMIT 0"
        ),
        format!(
            "CREATE MATERIALIZED VIEW weirgate.witness_mv TO weirgate.witness AS SELECT {ID}, intDiv(time, 1000000000) AS second FROM weirgate.witness_kafka \
             WHERE length(_error) = 0"
        ),
    ]
}

fn kafka_table(name: &str, brokers: &str, group: &str) -> String {
    format!(
        "CREATE TABLE weirgate.{name} AS weirgate.sockets_kafka ENGINE = Kafka SETTINGS kafka_broker_list = '{brokers}', \
         kafka_topic_list = '{TOPIC}', kafka_group_name = '{group}', kafka_format = 'Protobuf', \
         kafka_schema = 'weirgate/v1/sockets.proto:Socket', kafka_handle_error_mode = 'stream'"
    )
}

/// Hands rows on to Debian's ClickHouse every second, by HTTP: those that came since ten seconds before the last that it took. What it has
/// twice it drops.
pub(super) fn feed(url: String, debian: String, goes_on: Arc<AtomicBool>) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut taken = 0.0f64;
        while goes_on.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_secs(1));
            let newest = ask(&url, "SELECT toFloat64(max(arrived)) FROM weirgate.queue");
            let Some(newest) = newest.ok().and_then(|text| text.trim().parse::<f64>().ok()) else { continue };
            let rows = ask(
                &url,
                &format!(
                    "SELECT intDiv(time, 1000000000) AS time, * EXCEPT (arrived, time, sent_ms) FROM weirgate.queue \
                     WHERE arrived > toDateTime64({:.6}, 6) FORMAT JSONEachRow SETTINGS output_format_json_quote_64bit_integers = 0",
                    (taken - 10.0).max(0.0)
                ),
            );
            let Ok(rows) = rows else { continue };
            if !rows.is_empty()
                && ask(&debian, &format!("INSERT INTO weirgate.sockets FORMAT JSONEachRow\n{rows}")).is_ok()
            {
                taken = newest;
            }
        }
    })
}
