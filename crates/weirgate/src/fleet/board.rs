//! What a controller shows to those who ask: the snapshot of each point of presence, and numbers about it.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use axum::body::Bytes;
use tokio::sync::watch;
use weirgate_linux::clock;
use weirgate_units::{Instant, UnixTime};

use super::memory::Sealed;
use crate::metrics::Text;

/// All points of presence.
#[derive(Debug)]
pub(crate) struct Board {
    pops: BTreeMap<String, Row>,
    /// The epoch in which this controller decides; 0: another does.
    epoch: AtomicU64,
    /// Until when, in nanoseconds since the machine was started; 0: for as long as it runs.
    until: AtomicU64,
    /// Times that it could not be known whose turn it is.
    turn_failures: AtomicU64,
    /// For each topic that has such, messages of the last hour that the database could not read.
    unread: Mutex<BTreeMap<String, u64>>,
    /// Edges that were answered, by how.
    pub(super) answers: Answers,
}

/// Answers to edges.
#[derive(Debug, Default)]
pub(super) struct Answers {
    pub(super) sent: AtomicU64,
    pub(super) unchanged: AtomicU64,
    pub(super) nothing: AtomicU64,
    pub(super) refused: AtomicU64,
    /// Whose TLS did not come about: no certificate, or a foreign one, for example.
    pub(super) no_tls: AtomicU64,
    /// Edges that wait for news now.
    pub(super) waiting: AtomicU64,
}

#[derive(Debug)]
struct Row {
    document: watch::Sender<Option<Arc<Document>>>,
    numbers: Mutex<Numbers>,
}

/// A snapshot as it is sent.
#[derive(Debug)]
pub(super) struct Document {
    /// What its bytes are told from others by (RFC 9110, 8.8.3), in quotes.
    pub(super) etag: String,
    pub(super) bytes: Bytes,
    until: UnixTime,
    pub(super) version: u64,
}

/// What became of a point of presence's rounds since this controller was started, and the last of them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Numbers {
    /// Rounds with data that were decided.
    pub(super) decided: u64,
    /// Rounds without.
    pub(super) empty: u64,
    /// Of the decided ones those of fewer than half of the hosts of the one before.
    pub(super) partial: u64,
    /// Connections in tallies that were summed up under other settings than this controller's.
    pub(super) foreign: u64,
    /// Those whose policy the checks have refused.
    pub(super) refused: u64,
    /// Rows that say what no host sends.
    pub(super) skipped: u64,
    /// Responses that no connection's record is of.
    pub(super) unmatched: u64,
    /// Attempts that failed.
    pub(super) failed: u64,
    /// Times that all networks on trial were given up.
    pub(super) halted: u64,
    /// The version of the policy that brokers have taken last; 0: none, or there is no topic.
    pub(super) in_topic: u64,
    /// Of the last round with data: its end, hosts, rows, connections, votes; networks that all treat, and those on trial.
    pub(super) ended: UnixTime,
    pub(super) hosts: u64,
    pub(super) rows: u64,
    pub(super) connections: u64,
    pub(super) votes: u64,
    pub(super) networks: u64,
    pub(super) on_trial: u64,
    /// How long it took from the question to the signature, in seconds.
    pub(super) took_s: f64,
}

impl Document {
    pub(super) fn is_alive(&self, now: UnixTime) -> bool {
        now < self.until
    }
}

impl Board {
    pub(crate) fn new(pops: &[String]) -> Self {
        let row = || Row { document: watch::Sender::new(None), numbers: Mutex::default() };
        let pops = pops.iter().map(|pop| (pop.clone(), row())).collect();
        Self {
            pops,
            epoch: AtomicU64::new(0),
            until: AtomicU64::new(0),
            turn_failures: AtomicU64::new(0),
            unread: Mutex::default(),
            answers: Answers::default(),
        }
    }

    /// From now on `sealed` is what edges of `pop` are sent.
    pub(super) fn publish(&self, pop: &str, sealed: &Sealed) {
        let etag = format!("\"{}\"", &blake3::hash(&sealed.bytes).to_hex()[..32]);
        let Some(row) = self.pops.get(pop) else { return };
        let document =
            Document { etag, bytes: sealed.bytes.clone().into(), until: sealed.until, version: sealed.version };
        row.document.send_if_modified(|shown| {
            let is_news = shown.as_ref().is_none_or(|shown| shown.etag != document.etag);
            if is_news {
                *shown = Some(Arc::new(document));
            }
            is_news
        });
    }

    /// What edges of `pop` are sent, now and whenever it changes; `None`: there is no such point of presence.
    pub(super) fn watch(&self, pop: &str) -> Option<watch::Receiver<Option<Arc<Document>>>> {
        self.pops.get(pop).map(|row| row.document.subscribe())
    }

    /// What edges are sent, of each point of presence of which there is something.
    pub(super) fn documents(&self) -> impl Iterator<Item = (&str, Arc<Document>)> {
        self.pops.iter().filter_map(|(pop, row)| Some((pop.as_str(), row.document.borrow().clone()?)))
    }

    /// Whether this controller decides.
    pub(super) fn is_active(&self) -> bool {
        let until = self.until.load(Ordering::Relaxed);
        self.epoch.load(Ordering::Relaxed) > 0 && (until == 0 || clock::boottime().as_nanos() < until)
    }

    pub(super) fn count(&self, pop: &str, count: impl FnOnce(&mut Numbers)) {
        if let Some(row) = self.pops.get(pop) {
            count(&mut row.numbers.lock().unwrap_or_else(PoisonError::into_inner));
        }
    }

    /// For how long this controller decides, if that is known: whoever asks is not told what has run out meanwhile.
    pub(super) fn set_until(&self, until: Option<Instant>) {
        self.until.store(until.map_or(0, Instant::as_nanos), Ordering::Relaxed);
    }

    /// This controller decides in `epoch`; 0: it does not.
    pub(super) fn set_epoch(&self, epoch: u64) {
        self.epoch.store(epoch, Ordering::Relaxed);
    }

    pub(super) fn count_turn_failure(&self) {
        self.turn_failures.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn set_unread(&self, unread: BTreeMap<String, u64>) {
        *self.unread.lock().unwrap_or_else(PoisonError::into_inner) = unread;
    }

    /// In Prometheus' text format.
    pub(super) fn metrics(&self) -> String {
        let mut out = Text::new();
        let epoch = self.epoch.load(Ordering::Relaxed);
        out.gauge("controller_active", "Whether this controller decides: 0 where another does.");
        out.sample("controller_active", &[], u8::from(self.is_active()));
        out.gauge("controller_epoch", "The number of the lease under which it decides; 1 without a lease.");
        out.sample("controller_epoch", &[], epoch);
        out.counter("controller_turn_failures_total", "Times that it could not be known whose turn it is.");
        out.sample("controller_turn_failures_total", &[], self.turn_failures.load(Ordering::Relaxed));
        let name = "controller_unread_messages";
        out.gauge(name, "Messages of the last hour that ClickHouse could not read, of topics that have such.");
        for (topic, count) in &*self.unread.lock().unwrap_or_else(PoisonError::into_inner) {
            out.sample(name, &[("topic", topic)], count);
        }
        let answers = &self.answers;
        out.counter("controller_answers_total", "Answers to edges that asked for their policy, by what they were.");
        for (what, count) in [
            ("sent", &answers.sent),
            ("unchanged", &answers.unchanged),
            ("nothing", &answers.nothing),
            ("refused", &answers.refused),
            ("no_tls", &answers.no_tls),
        ] {
            out.sample("controller_answers_total", &[("answer", what)], count.load(Ordering::Relaxed));
        }
        out.gauge("controller_waiting_edges", "Edges that wait for a newer policy now.");
        out.sample("controller_waiting_edges", &[], answers.waiting.load(Ordering::Relaxed));
        self.pops_in(&mut out);
        out.0
    }

    fn pops_in(&self, out: &mut Text) {
        let rows: Vec<(&str, Numbers, Option<Arc<Document>>)> = self
            .pops
            .iter()
            .map(|(pop, row)| {
                let numbers = *row.numbers.lock().unwrap_or_else(PoisonError::into_inner);
                (pop.as_str(), numbers, row.document.borrow().clone())
            })
            .collect();
        type Value = fn(&Numbers) -> f64;
        let counters: [(&str, &str, Value); 9] = [
            ("controller_rounds_total", "Rounds that were decided.", |n| n.decided as f64),
            ("controller_empty_rounds_total", "Rounds of which there were no data.", |n| n.empty as f64),
            (
                "controller_partial_rounds_total",
                "Decided rounds of fewer than half of the hosts of the one before.",
                |n| n.partial as f64,
            ),
            (
                "controller_foreign_connections_total",
                "Connections left out: summed up under other settings than ours.",
                |n| n.foreign as f64,
            ),
            (
                "controller_refused_rounds_total",
                "Decided rounds whose policy was refused: the one before stays.",
                |n| n.refused as f64,
            ),
            ("controller_skipped_rows_total", "Rows that say what no host sends, and were left out.", |n| {
                n.skipped as f64
            }),
            ("controller_unmatched_responses_total", "Responses that no connection's record is of, left out.", |n| {
                n.unmatched as f64
            }),
            ("controller_failures_total", "Attempts to decide or to publish that failed.", |n| n.failed as f64),
            ("controller_halts_total", "Times that all networks on trial were given up.", |n| n.halted as f64),
        ];
        let gauges: [(&str, &str, Value); 8] = [
            ("controller_round_end_timestamp_seconds", "When the last decided round ended, Unix time.", |n| {
                n.ended.as_secs() as f64
            }),
            ("controller_round_hosts", "Hosts that it was decided from.", |n| n.hosts as f64),
            ("controller_round_rows", "Rows that it was decided from.", |n| n.rows as f64),
            ("controller_round_connections", "Connections in them.", |n| n.connections as f64),
            ("controller_round_votes", "Votes in them.", |n| n.votes as f64),
            ("controller_round_seconds", "How long it took, from the question to the signature.", |n| n.took_s),
            ("controller_networks", "Client networks that all edges treat.", |n| n.networks as f64),
            ("controller_networks_on_trial", "Client networks that the first edges treat.", |n| n.on_trial as f64),
        ];
        let all = counters.map(|of| ("counter", of)).into_iter().chain(gauges.map(|of| ("gauge", of)));
        for (kind, (name, help, value)) in all {
            out.family(name, help, kind);
            rows.iter().for_each(|(pop, numbers, _)| out.sample(name, &[("pop", pop)], value(numbers)));
        }
        if rows.iter().any(|(_, numbers, _)| numbers.in_topic > 0) {
            let name = "controller_topic_policy_version";
            out.gauge(name, "Version of the policy that brokers have taken last.");
            rows.iter().for_each(|(pop, numbers, _)| out.sample(name, &[("pop", pop)], numbers.in_topic));
        }
        type Of = fn(&Document) -> u64;
        let documents: [(&str, &str, Of); 3] = [
            ("controller_policy_version", "Version of the policy that is published.", |d| d.version),
            ("controller_policy_expiry_timestamp_seconds", "Until when it may be obeyed, Unix time.", |d| {
                d.until.as_secs()
            }),
            ("controller_policy_bytes", "Its size.", |d| d.bytes.len() as u64),
        ];
        for (name, help, value) in documents {
            out.gauge(name, help);
            for (pop, _, document) in &rows {
                if let Some(document) = document {
                    out.sample(name, &[("pop", pop)], value(document));
                }
            }
        }
    }
}
