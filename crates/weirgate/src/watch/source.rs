//! Where the numbers come from: the running daemon, else own polls.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, SystemTime};

use weirgate_linux::clock;
use weirgate_linux::netns::Netns;
use weirgate_sockets::ledger::{Ledger, Options};
use weirgate_sockets::record::Record;
use weirgate_sockets::sample::Sample;
use weirgate_units::{Prefix, UnixTime};

use super::Look;
use crate::config::{self, Close};
use crate::daemon::namespaces::Namespaces;
use crate::daemon::sources::Sources;
use crate::http::client;
use crate::view::{self, Collector, Order, PollEnd, Shared, api};

/// Rows that are read; a terminal shows fewer, and the order is the reader's.
const ROWS: usize = 1_000;
/// Between two own polls: long enough to see what is delivered, short enough to wait for.
pub(super) const OWN_INTERVAL: Duration = Duration::from_secs(2);

/// There are no numbers.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The daemon went away, or what it says is not understood.
    #[error("the daemon at {address} does not answer any more: {error}")]
    Daemon {
        /// Where it was.
        address: SocketAddr,
        /// What happened.
        error: io::Error,
    },
    /// The kernel does not say.
    #[error("no daemon answers, and polling here fails: {0}")]
    Poll(String),
}

/// One of the two.
pub(super) enum Source {
    Daemon(SocketAddr),
    Own(Box<Own>),
}

/// This program's own polls of what the configuration names.
pub(super) struct Own {
    config: config::Sockets,
    namespaces: Namespaces,
    sources: Sources,
    ledger: Ledger,
    collector: Collector,
    shared: Shared,
    why: String,
}

impl Source {
    /// The daemon at `address` if one answers there, else own polls of what `sockets` names.
    pub(super) fn open(address: Option<SocketAddr>, sockets: &config::Sockets) -> Result<Self, ReadError> {
        let no_daemon = match address.map(|address| (address, ask::<api::Status>(address, "status"))) {
            Some((address, Ok(_))) => return Ok(Self::Daemon(address)),
            Some((address, Err(error))) if error.kind() == io::ErrorKind::ConnectionRefused => {
                format!("no daemon serves {address}")
            }
            Some((address, Err(error))) => format!("{address} does not answer as a daemon: {error}"),
            None => "no daemon's page is configured".to_owned(),
        };
        Ok(Self::Own(Box::new(Own::open(sockets, no_daemon)?)))
    }

    /// The numbers now, rows in `order`.
    pub(super) fn read(&mut self, order: Order) -> Result<Look, ReadError> {
        match self {
            Self::Daemon(address) => {
                let address = *address;
                let failed = |error| ReadError::Daemon { address, error };
                let path = format!("networks?sort={}&limit={ROWS}", order.name());
                Ok(Look {
                    source: format!("the daemon at {address}"),
                    status: ask(address, "status").map_err(failed)?,
                    networks: ask(address, &path).map_err(failed)?,
                })
            }
            Self::Own(own) => {
                own.poll()?;
                Ok(own.look(order))
            }
        }
    }

    /// As [`Self::read`], but worth printing once: an own poll is compared with one before it.
    pub(super) fn read_once(&mut self) -> Result<Look, ReadError> {
        if matches!(self, Self::Own(_)) {
            self.read(Order::default())?;
            thread::sleep(OWN_INTERVAL);
        }
        self.read(Order::default())
    }
}

/// One document of the daemon's API.
fn ask<T: serde::de::DeserializeOwned>(address: SocketAddr, path: &str) -> io::Result<T> {
    let answer = client::get(address, &format!("/api/v1/{path}"))?;
    if answer.status != 200 {
        return Err(io::Error::other(format!("status {}", answer.status)));
    }
    Ok(serde_json::from_slice(&answer.body)?)
}

impl Own {
    fn open(config: &config::Sockets, no_daemon: String) -> Result<Self, ReadError> {
        // Closes come by multicast: to look at connections is no reason to attach a program to the kernel.
        let config = config::Sockets { close: Close::Destroy, ..config.clone() };
        let sources = Sources::open(&config, None).map_err(|error| ReadError::Poll(error.to_string()))?;
        let why = format!("own polls by {} ({no_daemon})", sources.polls.name);
        let interval_ms = u64::try_from(OWN_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        let facts = api::Facts { poll_interval_ms: interval_ms, ..api::Facts::default() };
        let (collector, shared) = view::new(facts);
        let namespaces = Namespaces::new(config.namespaces.clone());
        Ok(Self { config, namespaces, sources, ledger: Ledger::new(Options::default()), collector, shared, why })
    }

    fn look(&self, order: Order) -> Look {
        let now = now();
        Look {
            source: self.why.clone(),
            status: self.shared.status(now),
            networks: self.shared.networks(now, order, ROWS),
        }
    }

    fn poll(&mut self) -> Result<(), ReadError> {
        let began = clock::boottime();
        let time = now();
        let changes = self.namespaces.refresh();
        self.shared.set_problem("namespaces", changes.missing);
        for inode in changes.gone {
            self.sources.handle_gone(inode);
        }
        let is_new = |ns: &&Netns| changes.new.contains(&ns.inode());
        let unheard = self.namespaces.open().iter().filter(is_new).filter_map(|ns| self.sources.handle_new(ns)).last();
        if let Some(why) = unheard {
            self.shared.set_problem("closes", Some(format!("what closes between two polls is not counted: {why}")));
        }
        let (ledger, collector) = (&mut self.ledger, &mut self.collector);
        let mut each = |sample: &Sample| {
            if let Some(seen) = ledger.handle_sample(sample) {
                collector.handle_record(&Record {
                    sample,
                    time,
                    sequence: seen.sequence,
                    direction: seen.direction,
                    listener_port: seen.listener_port,
                    delivery_rate_max: seen.delivery_rate_max,
                    network: Prefix::client_network(seen.remote.ip()),
                    asn: 0,
                    country: [0; 2],
                });
            }
        };
        let filter = &self.config.filter;
        let mut bytes = 0;
        for ns in self.namespaces.open() {
            bytes += self.sources.poll(ns, filter, &mut each).map_err(ReadError::Poll)?.bytes;
        }
        // The closes of connections that the poll still met are the ledger's to sort out, and announcements lost to a full
        // buffer show as connections that vanished.
        let _ = self.sources.drain(filter, &mut each);
        let ended = clock::boottime();
        for ns in self.namespaces.open() {
            self.ledger.handle_poll_end(ns.inode(), ended, &mut |_| {});
        }
        let took = ended.saturating_since(began);
        self.collector.handle_poll_end(PollEnd { now: now(), took, bytes, complete: true });
        self.shared.handle_losses(api::Losses::of_ledger(self.ledger.counts()));
        Ok(())
    }
}

pub(super) fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
