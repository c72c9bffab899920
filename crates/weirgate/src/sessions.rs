//! Connections of whoever calls: answers first messages of those who may, and runs all of them over the same sockets.

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::Result;
use weirgate_linux::clock;
use weirgate_linux::transport::{self, App, Driver};
use weirgate_spray::wire::{ConnectionId, Datagram, init_message};
use weirgate_spray::{Connection, Public, Secret, Settings, crypto};
use weirgate_units::Duration;

/// Connections at a time, at most.
const SESSIONS_MAX: usize = 256;

/// Of one key: each may hold what its connection may.
const SESSIONS_PER_KEY: usize = 16;

/// How often the caller has its turn, at least: it looks for signals.
const PATIENCE: Duration = Duration::from_millis(200);

/// One that called, and what is done with it.
#[derive(Debug)]
pub struct Session<A> {
    /// Its connection.
    pub connection: Connection,
    /// What is done with it.
    pub app: A,
    /// When it called.
    pub began: Instant,
    /// Why this side has ended it.
    pub failed: Option<anyhow::Error>,
}

/// All of them.
#[derive(Debug)]
pub struct Sessions<'a, A> {
    secret: &'a Secret,
    settings: Settings,
    allow: &'a [Public],
    open: BTreeMap<ConnectionId, Session<A>>,
}

impl<'a, A: App<Error = anyhow::Error>> Sessions<'a, A> {
    /// Of those who have one of the keys of `allow`.
    pub const fn new(secret: &'a Secret, settings: Settings, allow: &'a [Public]) -> Self {
        Self { secret, settings, allow, open: BTreeMap::new() }
    }

    /// Those that are open.
    pub fn open(&self) -> impl Iterator<Item = &Session<A>> {
        self.open.values()
    }

    /// Does what there is to do, or waits for something; gives those that are over. `begin` says what is done with a new one.
    ///
    /// # Errors
    /// Where the kernel cannot wait.
    pub fn turn(&mut self, driver: &mut Driver, begin: &mut impl FnMut() -> Result<A>) -> Result<Vec<Session<A>>> {
        let now = clock::monotonic();
        let (mut has_more, mut until) = (false, now + PATIENCE);
        let mut over = Vec::new();
        for (id, session) in &mut self.open {
            session.connection.handle_timeout(now);
            session.step(now);
            let Session { connection, app, .. } = session;
            has_more |= driver.transmit(connection, app);
            if connection.is_closed() {
                session.step(now);
                over.push(*id);
            } else {
                until = [connection.poll_at(now), app.poll_at()].into_iter().flatten().fold(until, Ord::min);
            }
        }
        if !over.is_empty() {
            let over = over.into_iter().filter_map(|id| self.open.remove(&id));
            // Whoever repeats somebody else's first message does not go on.
            return Ok(over.filter(|session| session.connection.has_peer()).collect());
        }
        driver.receive(Some(if has_more { now } else { until }), |local, remote, datagram| {
            let id = match Datagram::parse(datagram) {
                Ok(Datagram::Init { connection, message, .. }) => {
                    if !self.open.contains_key(&connection)
                        && let Some(session) = self.answer(connection, message, begin)
                        && self.has_room(session.connection.peer())
                    {
                        self.open.insert(connection, session);
                    }
                    connection
                }
                Ok(Datagram::Protected(header)) => header.connection,
                _ => return,
            };
            if let Some(Session { connection, app, .. }) = self.open.get_mut(&id) {
                connection.handle_datagram(clock::monotonic(), (local, remote), datagram, app);
            }
        })?;
        Ok(Vec::new())
    }

    /// Tells all callers that it is over.
    pub fn close(&mut self, driver: &mut Driver) {
        let now = clock::monotonic();
        for session in self.open.values_mut() {
            session.connection.close(now, 1, "the other side was ended");
            driver.transmit(&mut session.connection, &mut session.app);
        }
    }

    /// Whether there may be one more of this key; the oldest one goes for it whose caller has shown nothing but a first message, which can be repeated
    /// by whoever saw it.
    fn has_room(&mut self, peer: Public) -> bool {
        let is_its = |session: &Session<A>| session.connection.peer() == peer;
        let its = self.open.values().filter(|session| is_its(session)).count();
        if self.open.len() >= SESSIONS_MAX || its >= SESSIONS_PER_KEY {
            let may_go =
                |session: &Session<A>| !session.connection.has_peer() && (its < SESSIONS_PER_KEY || is_its(session));
            let unproven = self.open.iter().filter(|(_, session)| may_go(session));
            let oldest = unproven.min_by_key(|(_, session)| session.began).map(|(id, _)| *id);
            let Some(oldest) = oldest else { return false };
            self.open.remove(&oldest);
        }
        true
    }

    /// A new one, if its caller may have one.
    fn answer(&self, id: ConnectionId, message: &[u8], begin: &mut impl FnMut() -> Result<A>) -> Option<Session<A>> {
        let hello = Connection::hello(&self.settings);
        let called = crypto::answer(id, self.secret, init_message(message)?, &hello, |peer| self.allow.contains(peer));
        let began = called.map_err(anyhow::Error::from).and_then(|called| {
            let (_, seed) = random()?;
            let connection = Connection::accept(clock::monotonic(), self.settings, called, (id, seed));
            Ok(Session { connection, app: begin()?, began: Instant::now(), failed: None })
        });
        // Anybody can have it said.
        began.inspect_err(|problem| tracing::debug!("a connection is refused: {problem:#}")).ok()
    }
}

impl<A: App<Error = anyhow::Error>> Session<A> {
    /// Hands what has happened to the application, until something went wrong with it.
    fn step(&mut self, now: weirgate_units::Instant) {
        let Self { connection, app, failed, .. } = self;
        if failed.is_some() {
            while connection.poll_event().is_some() {}
            return;
        }
        if let Err(problem) = transport::step(connection, app) {
            connection.close(now, 1, &format!("{problem:#}"));
            *failed = Some(problem);
        }
    }
}

/// A connection's name, and what it draws tokens from.
///
/// # Errors
/// Where the system has no randomness.
pub fn random() -> Result<(ConnectionId, u64)> {
    let mut bytes = [0; 16];
    let len = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    anyhow::ensure!(len == bytes.len(), "the system has no randomness");
    let (id, seed) = bytes.split_at(8);
    let of = |half: &[u8]| half.iter().fold(0, |number, byte| number << 8 | u64::from(*byte));
    Ok((ConnectionId(of(id)), of(seed)))
}
