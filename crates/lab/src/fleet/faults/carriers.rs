//! Faults of what carries and keeps records: the broker, the edge, ClickHouse.

use std::time::Duration;

use anyhow::{Context as _, Result};
use weirgate_linux::clock;

use super::{CLICKHOUSE_AWAY, FAILURES, Fleet, ROUND_S, TOPIC};
use crate::fleet::ground::{Current, count, until};

impl Fleet<'_> {
    pub(super) fn broker_is_killed(&mut self) -> Result<()> {
        let from = clock::unix();
        self.ground.services("kill", "kafka")?;
        let noticed = until("the edge notices that the broker is away", || Ok(self.problems()? > 0)).is_ok();
        self.pause();
        self.ground.start("kafka", "KAFKA")?;
        self.is_as_before()?;
        self.note("broker killed and restarted", from, "weirgate_problems, weirgate_export_waiting_records", noticed);
        Ok(())
    }

    pub(super) fn edge_is_killed(&mut self) -> Result<()> {
        let from = clock::unix();
        let started = self.metric("start_time_seconds")?;
        self.kill_edge()?;
        std::thread::sleep(Duration::from_secs(2));
        // Before it was killed it had the last seconds' records in memory.
        self.start_edge(from, 6)?;
        let noticed = self.metric("start_time_seconds")? > started;
        self.pause();
        self.is_as_before()?;
        self.note("edge killed and restarted", from, "weirgate_start_time_seconds", noticed);
        Ok(())
    }

    pub(super) fn both_are_killed(&mut self) -> Result<()> {
        let from = clock::unix();
        self.ground.services("kill", "kafka")?;
        self.pause();
        until("the spool has something", || {
            Ok(self.metric(&format!("export_spool_files{{topic=\"{TOPIC}\"}}"))?.unwrap_or(0.0) > 0.0)
        })?;
        let killed = clock::unix();
        self.kill_edge()?;
        self.start_edge(killed, 6)?;
        let noticed = until("the edge says what it found", || Ok(self.export("found")? > 0)).is_ok();
        self.ground.start("kafka", "KAFKA")?;
        self.is_as_before()?;
        self.note(
            "edge killed while the broker is away",
            from,
            "weirgate_export_records_total{state=\"found\"}",
            noticed,
        );
        Ok(())
    }

    pub(super) fn clickhouse_is_away(&mut self) -> Result<()> {
        // What an edge obeys goes on while nobody decides, until it expires.
        self.rounds()?;
        self.decide()?;
        let controller = self.decider.start()?;
        until("the controller answers", || Ok(controller.number(FAILURES)? == 0.0))?;
        let from = clock::unix();
        let expiry = self.metric("fleet_policy_expiry_timestamp_seconds")?;
        drop(self.engine.take());
        self.ground.services("kill", "clickhouse")?;
        std::thread::sleep(Duration::from_secs(self.size.away_s));
        // Without a round that has ended since then nobody is asked.
        let is_told = until("the controller says that it cannot decide", || Ok(controller.number(FAILURES)? > 0.0));
        let is_told = is_told.is_ok() && controller.log()?.contains("no ClickHouse answers");
        let unchanged = expiry.is_some() && self.metric("fleet_policy_expiry_timestamp_seconds")? == expiry;
        let engine = Current::start(self.ground, "engine")?;
        self.engine = Some(engine);
        self.ground.start("clickhouse", "CLICKHOUSE")?;
        let mut filled = clock::unix().as_secs() / ROUND_S * ROUND_S;
        until("the controller decides again", || {
            self.bring(&mut filled)?;
            let ended = controller.number("controller_round_end_timestamp_seconds{pop=\"lab\"}")?;
            Ok(ended > from.as_secs() as f64)
        })?;
        self.note(
            CLICKHOUSE_AWAY,
            from,
            "weirgate_controller_failures_total; weirgate_fleet_policy_expiry_timestamp_seconds stands still",
            is_told && unchanged,
        );
        Ok(())
    }

    /// Waits until both ClickHouses have what they missed. Kafka hands a killed reader's partitions on after 45 s, its session's timeout.
    pub(super) fn clickhouse_has_caught_up(&mut self) -> Result<()> {
        let last = self.closes.made().last().context("connections were made")?.1;
        let sql = format!("SELECT count() FROM weirgate.sockets WHERE cookie = {last}");
        let url = self.engine()?.url.clone();
        until("the engine has caught up", || Ok(count(&url, &sql)? > 0))?;
        until("Debian's has caught up", || Ok(count(&self.debian, &sql)? > 0))?;
        if let Some(row) = self.rows.iter_mut().find(|row| row.fault == CLICKHOUSE_AWAY) {
            row.to = clock::unix();
        }
        Ok(())
    }
}
