//! One account per connection: polls and closes, from whichever source, brought together by identity.
//!
//! A connection is (namespace inode, socket cookie); the boot id is implied, since a ledger lives in one daemon. Cookies
//! are given once per boot (`net/core/sock_diag.c`, `__sock_gen_cookie`), so that an account never changes hands.
//!
//! Ground rules, for whoever drives it:
//!
//! - Samples of one namespace's poll, then [`Ledger::handle_poll_end`], or [`Ledger::handle_poll_failed`] where not all
//!   of it came. Close records at any time between. A dump yields a family's listeners before its connections.
//! - What a poll no longer shows and nobody reported closed is **missing**. It is given the length of one more poll, for
//!   its close record may still lie in a buffer; then it has **vanished**, is counted and reported with what was known.
//!   A close that comes later still is matched and counted as recovered: it is never two connections.
//! - A [`Progress`] is the change since the last one, so that adding up all of a connection's never counts a byte twice.
//!   What a connection did before the first whole poll of its namespace is left out: nobody knows over what time.
//!
//! Memory: 160 bytes and about 7 of index per open connection, 35 per close of the last two `closed_memory`s.

mod closed;
mod counts;
mod entry;
mod table;

#[cfg(test)]
mod tests;

use core::net::SocketAddr;

use hashbrown::HashMap;
use weirgate_units::{Duration, Instant};

pub use self::counts::Counts;

use self::closed::{Closed, ClosedSet};
use self::entry::{Entry, Names, Standing};
use self::table::Table;
use crate::progress::Progress;
use crate::record::Direction;
use crate::sample::{Field, Kind, Sample, state};

/// The ledger's bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Open connections that have an account at a time, over all namespaces; 1 to `u32::MAX`. Samples of others are
    /// still records, each with sequence 0, and counted in [`Counts::untracked`].
    pub connections_max: u32,
    /// How long a closed connection is remembered at least, so that a second close record or a poll that was read
    /// before it is known for what it is. Two polling intervals do.
    pub closed_memory: Duration,
}

impl Default for Options {
    /// A million connections (170 MB), and two polls of the default 10 s.
    fn default() -> Self {
        Self { connections_max: 1_000_000, closed_memory: Duration::from_secs(20) }
    }
}

/// What the ledger knows about the connection that a sample is of: the part of its record that no single sample holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    /// Counts the records of this connection, from 0.
    pub sequence: u32,
    /// Which end opened it: by the sample's flags or state, else by a listener on the local port, else unknown.
    pub direction: Direction,
    /// The listener's port where it was accepted, else 0.
    pub listener_port: u16,
    /// Whether this is the connection's first record.
    pub first: bool,
    /// The remote end. The sample may have lost it (remote port 0): an end that sent a reset is announced so.
    pub remote: SocketAddr,
    /// The highest delivery rate of its samples that the application did not limit, bytes/s; 0 where there was none.
    pub delivery_rate_max: u64,
    /// At the close: what it did since its last [`Progress`], if anything. Its account is closed with this.
    pub last: Option<Progress>,
}

/// What the end of a poll found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PollEnd {
    /// Connections that this poll showed.
    pub open: u32,
    /// Not shown, not reported closed: given until the end of the next poll.
    pub missing: u32,
    /// Given that time, and still nothing: lost from the last poll that showed them on.
    pub vanished: u32,
}

/// The accounts of all open connections. See the module's head.
#[derive(Debug)]
pub struct Ledger {
    namespaces: Vec<Namespace>,
    /// The namespace of the last sample: samples come in runs.
    last_namespace: usize,
    names: Names,
    closed: ClosedSet,
    connections: u32,
    options: Options,
    counts: Counts,
}

#[derive(Debug)]
struct Namespace {
    inode: u32,
    table: Table,
    /// Number of the poll under way, from 1; see [`Entry::seen`].
    poll: u32,
    /// Connections that the poll under way showed.
    shown: u32,
    /// Whether a poll ever came to its end: before, an unknown connection may be of any age.
    whole: bool,
    /// Ports listened on, and the poll that showed it last.
    listeners: HashMap<u16, u32>,
}

impl Ledger {
    /// An empty ledger. Allocates as connections come.
    pub fn new(options: Options) -> Self {
        Self {
            namespaces: Vec::new(),
            last_namespace: 0,
            names: Names::default(),
            closed: ClosedSet::new(options.closed_memory, options.connections_max),
            connections: 0,
            options: Options { connections_max: options.connections_max.max(1), ..options },
            counts: Counts::default(),
        }
    }

    /// Enters `sample` in its connection's account. `None` where it makes no record: a listener (noted), a pseudo socket
    /// (TIME-WAIT, SYN-RECV), a second report of the same close or in the same poll, a poll read before the close.
    ///
    /// O(1); two cache misses where samples come in another order than before, none where they come in the same.
    pub fn handle_sample(&mut self, sample: &Sample) -> Option<Seen> {
        match sample.kind() {
            Kind::Poll if sample.state == state::LISTEN => {
                let namespace = self.namespace_made(sample.netns);
                let namespace = &mut self.namespaces[namespace];
                namespace.listeners.insert(sample.local_port, namespace.poll);
                None
            }
            _ if sample.cookie == 0 => {
                self.counts.without_identity += 1;
                None
            }
            Kind::Poll if is_pseudo(sample) => {
                self.counts.pseudo += 1;
                None
            }
            Kind::Poll => self.handle_polled(sample),
            Kind::Close => self.handle_closed(sample),
        }
    }

    /// The poll of namespace `netns` is whole. Connections that have vanished are handed to `each` with what they did
    /// since their last [`Progress`], where that is anything.
    ///
    /// O(1) where the poll showed every open connection, else O(open connections of the namespace).
    pub fn handle_poll_end(&mut self, netns: u32, now: Instant, each: &mut dyn FnMut(&Progress)) -> PollEnd {
        let index = self.namespace_made(netns);
        self.closed.handle_time(now);
        let namespace = &mut self.namespaces[index];
        let mut end = PollEnd { open: namespace.shown, ..PollEnd::default() };
        if namespace.shown < namespace.table.len() {
            let (names, closed, counts, poll) = (&self.names, &mut self.closed, &mut self.counts, namespace.poll);
            let before = namespace.table.len();
            namespace.table.retain(|entry| {
                if entry.seen == poll {
                    return true;
                }
                match entry.standing {
                    Standing::Open => {
                        entry.standing = Standing::Missing;
                        end.missing += 1;
                    }
                    Standing::Missing => {
                        entry.standing = Standing::Vanished;
                        end.vanished += 1;
                        counts.vanished += 1;
                        if let Some(progress) = entry.take_progress(names, true) {
                            each(&progress);
                        }
                    }
                    Standing::Vanished => {
                        closed.insert(Closed::vanished(entry.cookie, netns, entry.sequence));
                        return false;
                    }
                }
                true
            });
            self.connections -= before - namespace.table.len();
        }
        let poll = namespace.poll;
        namespace.listeners.retain(|_, shown| *shown == poll);
        namespace.whole = true;
        namespace.begin_poll();
        end
    }

    /// The poll of namespace `netns` broke off: what it did not show is not missing.
    pub fn handle_poll_failed(&mut self, netns: u32) {
        let index = self.namespace_made(netns);
        self.namespaces[index].begin_poll();
    }

    /// The namespace `netns` is gone, or is no longer polled: its connections have vanished, all of them.
    pub fn handle_namespace_gone(&mut self, netns: u32, each: &mut dyn FnMut(&Progress)) {
        let Some(index) = self.namespace(netns) else { return };
        let mut namespace = self.namespaces.swap_remove(index);
        self.last_namespace = 0;
        self.connections -= namespace.table.len();
        for entry in namespace.table.entries_mut() {
            if entry.standing != Standing::Vanished {
                self.counts.vanished += 1;
            }
            if let Some(progress) = entry.take_progress(&self.names, true) {
                each(&progress);
            }
        }
    }

    /// Hands over what every open connection did since it was last asked, those that did nothing left out. With the
    /// `last` of [`Seen`] and what [`Self::handle_poll_end`] yields, a round has one [`Progress`] per active connection.
    ///
    /// O(open connections).
    pub fn take_round(&mut self, each: &mut dyn FnMut(&Progress)) {
        for namespace in &mut self.namespaces {
            for entry in namespace.table.entries_mut() {
                if let Some(progress) = entry.take_progress(&self.names, false) {
                    each(&progress);
                }
            }
        }
    }

    /// Open connections that have an account, missing ones included.
    pub const fn connections(&self) -> u32 {
        self.connections
    }

    /// Everything counted since the ledger was made.
    pub const fn counts(&self) -> Counts {
        self.counts
    }

    /// Bytes of heap memory held, as far as the ledger's own sizes tell.
    pub fn heap_bytes(&self) -> usize {
        self.namespaces.iter().map(|n| n.table.heap_bytes() + n.listeners.allocation_size()).sum::<usize>()
            + self.closed.heap_bytes()
    }

    /// Whether the accounts agree with each other; for tests and debug assertions, O(connections).
    pub fn is_valid(&self) -> bool {
        let tracked: u64 = self.namespaces.iter().map(|n| u64::from(n.table.len())).sum();
        tracked == u64::from(self.connections)
            && self.connections <= self.options.connections_max
            && self.counts.recovered <= self.counts.vanished
            && self.closed.is_valid()
            && self.namespaces.iter().all(|n| {
                let shown = n.table.entries().filter(|e| e.seen == n.poll).count();
                n.table.is_valid() && shown == n.shown as usize && n.table.entries().all(|e| e.is_valid(n.poll))
            })
    }

    fn handle_polled(&mut self, sample: &Sample) -> Option<Seen> {
        let index = self.namespace_made(sample.netns);
        let namespace = &mut self.namespaces[index];
        if let Some(entry) = namespace.table.find_mut(sample.cookie) {
            if entry.seen == namespace.poll {
                self.counts.polls_repeated += 1;
                return None;
            }
            match core::mem::replace(&mut entry.standing, Standing::Open) {
                Standing::Open => {}
                Standing::Missing => self.counts.skipped += 1,
                Standing::Vanished => self.counts.recovered += 1,
            }
            entry.seen = namespace.poll;
            namespace.shown += 1;
            entry.sequence = entry.sequence.wrapping_add(1);
            entry.enter(sample, &mut self.names, &namespace.listeners);
            return Some(entry.seen_as(false, None));
        }
        // An account is opened; its first record has sequence 0, unless it was given up too early.
        let mut since_known = namespace.whole;
        let mut sequence = 0;
        if let Some(closed) = self.closed.find(sample.cookie, sample.netns) {
            if !closed.is_vanished() {
                self.counts.polls_after_close += 1;
                return None;
            }
            self.counts.recovered += 1;
            since_known = false;
            sequence = closed.sequence().wrapping_add(1);
        }
        let mut entry = Entry::new(sample.cookie, sequence, namespace.poll);
        entry.enter(sample, &mut self.names, &namespace.listeners);
        if !since_known {
            entry.forget_progress();
        }
        let seen = entry.seen_as(sequence == 0, None);
        if self.connections >= self.options.connections_max {
            self.counts.untracked += 1;
            return Some(seen);
        }
        if sequence > 0 {
            self.closed.remove(sample.cookie, sample.netns);
        }
        self.counts.opened += u64::from(sequence == 0);
        self.connections += 1;
        namespace.shown += 1;
        namespace.table.insert(entry);
        Some(seen)
    }

    fn handle_closed(&mut self, sample: &Sample) -> Option<Seen> {
        self.closed.handle_time(Instant::from_nanos(sample.time_ns));
        let namespace = self.namespace(sample.netns).map(|index| &mut self.namespaces[index]);
        let none = HashMap::new();
        let (listeners, whole, mut entry) = match namespace {
            None => (&none, false, None),
            Some(n) => {
                let entry = n.table.remove(sample.cookie);
                n.shown -= u32::from(entry.is_some_and(|e| e.seen == n.poll));
                (&n.listeners, n.whole, entry)
            }
        };
        let seen = if let Some(entry) = &mut entry {
            self.connections -= 1;
            self.counts.recovered += u64::from(entry.standing == Standing::Vanished);
            entry.sequence = entry.sequence.wrapping_add(1);
            entry.enter(sample, &mut self.names, listeners);
            let last = entry.take_progress(&self.names, true);
            entry.seen_as(false, last)
        } else {
            // Without an account, a socket without a peer is no connection: a listener, or one that was never used.
            if is_pseudo(sample) {
                self.counts.pseudo += 1;
                return None;
            }
            let (mut sequence, mut since_known) = (0, whole);
            match self.closed.find(sample.cookie, sample.netns) {
                None => self.counts.closes_unpolled += 1,
                Some(closed) if closed.is_vanished() => {
                    self.counts.recovered += 1;
                    since_known = false;
                    sequence = closed.sequence().wrapping_add(1);
                }
                Some(_) => {
                    self.counts.closes_repeated += 1;
                    return None;
                }
            }
            let mut entry = Entry::new(sample.cookie, sequence, 0);
            entry.enter(sample, &mut self.names, listeners);
            if !since_known {
                entry.forget_progress();
            }
            let last = entry.take_progress(&self.names, true);
            entry.seen_as(sequence == 0, last)
        };
        self.counts.closes += 1;
        self.closed.insert(Closed::reported(sample.cookie, sample.netns));
        Some(seen)
    }

    fn namespace(&mut self, inode: u32) -> Option<usize> {
        if self.namespaces.get(self.last_namespace).is_none_or(|n| n.inode != inode) {
            self.last_namespace = self.namespaces.iter().position(|n| n.inode == inode)?;
        }
        Some(self.last_namespace)
    }

    fn namespace_made(&mut self, inode: u32) -> usize {
        self.namespace(inode).unwrap_or_else(|| {
            self.namespaces.push(Namespace {
                inode,
                table: Table::default(),
                poll: 1,
                shown: 0,
                whole: false,
                listeners: HashMap::new(),
            });
            self.last_namespace = self.namespaces.len() - 1;
            self.last_namespace
        })
    }
}

impl Namespace {
    fn begin_poll(&mut self) {
        self.poll += 1;
        self.shown = 0;
    }
}

/// Whether the sample is of something that is not a connection: a mini socket (TIME-WAIT, and FIN-WAIT-2 without an
/// owner, which the kernel keeps as one; a half-open request), or a socket that never had a peer.
fn is_pseudo(sample: &Sample) -> bool {
    matches!(sample.state, state::TIME_WAIT | state::NEW_SYN_RECV)
        || sample.remote_port == 0
        || !sample.has(Field::TcpInfo)
}
