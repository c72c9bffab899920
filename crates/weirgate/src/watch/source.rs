//! Where the numbers come from: the running daemon, else own polls.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, SystemTime};

use weirgate_linux::bpf::IterPoller;
use weirgate_linux::clock;
use weirgate_linux::diag::{DestroyListener, DiagPoller, PollError};
use weirgate_linux::netns::Netns;
use weirgate_linux::poll::{Filter, PollStats};
use weirgate_sockets::ledger::{Ledger, Options};
use weirgate_sockets::record::Record;
use weirgate_sockets::sample::Sample;
use weirgate_units::{Prefix, UnixTime};

use super::Look;
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
    /// The namespace cannot be opened.
    #[error("cannot open this network namespace: {0}")]
    Namespace(#[source] io::Error),
    /// The kernel does not say.
    #[error("no daemon answers, and polling here fails: {0}")]
    Poll(#[source] PollError),
}

/// One of the two.
pub(super) enum Source {
    Daemon(SocketAddr),
    Own(Box<Own>),
}

/// Polls of this program's own namespace.
pub(super) struct Own {
    ns: Netns,
    poller: Poller,
    /// Closes between two polls; without them what closed connections delivered is missing.
    closes: Option<DestroyListener>,
    ledger: Ledger,
    collector: Collector,
    shared: Shared,
    why: String,
}

enum Poller {
    Iter(Box<IterPoller>),
    Netlink(Box<DiagPoller>),
}

impl Source {
    /// The daemon at `address` if one answers there, else own polls.
    pub(super) fn open(address: Option<SocketAddr>) -> Result<Self, ReadError> {
        let Some(address) = address else {
            return Own::open("no daemon's page is configured".to_owned()).map(Self::own);
        };
        match ask::<api::Status>(address, "status") {
            Ok(_) => Ok(Self::Daemon(address)),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                Own::open(format!("no daemon serves {address}")).map(Self::own)
            }
            Err(error) => Own::open(format!("{address} does not answer as a daemon: {error}")).map(Self::own),
        }
    }

    fn own(own: Own) -> Self {
        Self::Own(Box::new(own))
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
    fn open(no_daemon: String) -> Result<Self, ReadError> {
        let ns = Netns::current().map_err(ReadError::Namespace)?;
        let (poller, name) = match IterPoller::load() {
            Ok(poller) => (Poller::Iter(Box::new(poller)), "the BPF iterator"),
            Err(_) => (Poller::Netlink(Box::new(DiagPoller::new())), "netlink"),
        };
        let closes = DestroyListener::open(&ns).ok();
        let uncounted = if closes.is_some() { "" } else { "; what closes between two polls is not counted" };
        let why = format!("own polls of this network namespace by {name} ({no_daemon}){uncounted}");
        let interval_ms = u64::try_from(OWN_INTERVAL.as_millis()).unwrap_or(u64::MAX);
        let facts = api::Facts { poll_interval_ms: interval_ms, ..api::Facts::default() };
        let (collector, shared) = view::new(facts);
        Ok(Self { ns, poller, closes, ledger: Ledger::new(Options::default()), collector, shared, why })
    }

    fn look(&self, order: Order) -> Look {
        let now = now();
        Look {
            source: self.why.clone(),
            status: self.shared.status(now),
            networks: self.shared.networks(now, order, ROWS),
        }
    }

    fn poll(&mut self) -> Result<PollStats, ReadError> {
        let began = clock::boottime();
        let time = now();
        let (ledger, collector) = (&mut self.ledger, &mut self.collector);
        let mut each = |sample: &Sample| {
            if let Some(seen) = ledger.handle_sample(sample) {
                collector.handle_record(&Record {
                    sample,
                    time,
                    sequence: seen.sequence,
                    direction: seen.direction,
                    listener_port: seen.listener_port,
                    network: Prefix::client_network(seen.remote.ip()),
                    asn: 0,
                    country: [0; 2],
                });
            }
        };
        let filter = Filter::default();
        let polled = match &mut self.poller {
            Poller::Iter(poller) => poller.poll(&self.ns, &filter, &mut each).ok(),
            Poller::Netlink(_) => None,
        };
        let polled = match (polled, &mut self.poller) {
            (Some(stats), _) => Ok(stats),
            (None, Poller::Netlink(poller)) => poller.poll(&self.ns, &filter, &mut each),
            // What loaded and does not run: the older way always works.
            (None, Poller::Iter(_)) => {
                let mut poller = Box::new(DiagPoller::new());
                let stats = poller.poll(&self.ns, &filter, &mut each);
                self.poller = Poller::Netlink(poller);
                stats
            }
        };
        // The closes of connections that the poll still met are the ledger's to sort out.
        if let Some(closes) = &mut self.closes {
            // Announcements lost to a full buffer show as connections that vanished.
            let _ = closes.drain(&mut each);
        }
        let stats = polled.map_err(ReadError::Poll)?;
        let ended = clock::boottime();
        self.ledger.handle_poll_end(self.ns.inode(), ended, &mut |_| {});
        self.collector.handle_poll_end(PollEnd {
            now: now(),
            took: ended.saturating_since(began),
            bytes: stats.bytes,
            complete: true,
        });
        self.shared.handle_losses(api::Losses::of_ledger(self.ledger.counts()));
        Ok(stats)
    }
}

pub(super) fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
