//! Connections of whoever calls: answers first messages of those who may, and runs all of them over the same sockets.

mod door;

use std::collections::BTreeMap;
use std::time::Instant;

use anyhow::{Result, anyhow};
use weirgate_linux::clock;
use weirgate_linux::transport::{self, App, Driver};
use weirgate_spray::crypto::HandshakeError;
use weirgate_spray::wire::{ConnectionId, Datagram, put_retry};
use weirgate_spray::{Connection, Public, Secret, Settings, crypto};
use weirgate_units::Duration;

use self::door::{Door, Verdict};
use crate::random;

/// Connections at a time, at most.
const SESSIONS_MAX: usize = 256;

/// Of one key: each may hold what its connection may.
const SESSIONS_PER_KEY: usize = 16;

/// How often the caller has its turn, at least: it looks for signals.
const PATIENCE: Duration = Duration::from_millis(200);

/// Of a caller that was heard so much later than its earlier connection, that one is over: it would be heard each second (`keep_alive`).
const LEFT_AFTER: Duration = Duration::from_secs(3);

/// This side was not there for so long: what came meanwhile has not been looked at.
const ABSENT: Duration = Duration::from_secs(1);

/// Strangers and floods are said this often: anybody can be one, or send one.
const WARN_EVERY: Duration = Duration::from_secs(60);

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
    /// The last turn, and the first one since this side was not there for a while.
    looked: weirgate_units::Instant,
    there_since: weirgate_units::Instant,
    door: Door,
    strangers: Seldom,
}

/// What anybody can have this side say: it does so once in [`WARN_EVERY`].
#[derive(Debug, Default)]
struct Seldom(Option<weirgate_units::Instant>);

impl Seldom {
    fn is_due(&mut self, now: weirgate_units::Instant) -> bool {
        let is_due = self.0.is_none_or(|said| now.saturating_since(said) >= WARN_EVERY);
        if is_due {
            self.0 = Some(now);
        }
        is_due
    }
}

impl<'a, A: App<Error = anyhow::Error>> Sessions<'a, A> {
    /// Of those who have one of the keys of `allow`.
    ///
    /// # Errors
    /// Where the system has no randomness.
    pub fn new(secret: &'a Secret, settings: Settings, allow: &'a [Public]) -> Result<Self> {
        let now = clock::monotonic();
        Ok(Self {
            secret,
            settings,
            allow,
            open: BTreeMap::new(),
            looked: now,
            there_since: now,
            door: Door::new(now)?,
            strangers: Seldom::default(),
        })
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
        if now.saturating_since(self.looked) > ABSENT {
            self.there_since = now;
        }
        self.looked = now;
        let left = self.take_left(now, driver);
        if !left.is_empty() {
            return Ok(left);
        }
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
        let mut retries = Vec::new();
        driver.receive(Some(if has_more { now } else { until }), |local, remote, datagram| {
            let id = match Datagram::parse(datagram) {
                Ok(Datagram::Init { connection, path, cookie, message }) => {
                    if !self.open.contains_key(&connection) {
                        match self.door.judge(clock::monotonic(), remote, cookie) {
                            Verdict::Looked => self.call(connection, message, begin),
                            Verdict::Asked(cookie) => retries.push((local, remote, connection, path, cookie)),
                            Verdict::Dropped => {}
                        }
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
        let mut out = Vec::new();
        for (local, remote, connection, path, cookie) in retries {
            out.clear();
            put_retry(&mut out, connection, path, cookie);
            driver.send(local, remote, &out);
        }
        Ok(Vec::new())
    }

    /// Somebody calls.
    fn call(&mut self, id: ConnectionId, message: &[u8], begin: &mut impl FnMut() -> Result<A>) {
        if let Some(session) = self.answer(id, message, begin)
            && self.has_room(session.connection.peer())
        {
            self.open.insert(id, session);
        }
    }

    /// Ends those whose callers are gone and have called again: what they hold, a file or an address, is for the new ones.
    fn take_left(&mut self, now: weirgate_units::Instant, driver: &mut Driver) -> Vec<Session<A>> {
        let heard = |session: &Session<A>| session.connection.last_received().max(self.there_since);
        let is_after = |one: &Session<A>, other: &Session<A>| {
            let is_its = one.connection.peer() == other.connection.peer() && one.connection.has_peer();
            is_its && one.began > other.began && heard(one).saturating_since(heard(other)) > LEFT_AFTER
        };
        let silent = self.open.iter().filter(|(_, session)| now.saturating_since(heard(session)) > LEFT_AFTER);
        let left = silent.filter(|(_, session)| self.open.values().any(|later| is_after(later, session)));
        let left: Vec<ConnectionId> = left.map(|(id, _)| *id).collect();
        let mut over: Vec<Session<A>> = left.into_iter().filter_map(|id| self.open.remove(&id)).collect();
        for Session { connection, app, failed, .. } in &mut over {
            let why = "nothing came any more, and its caller has called again";
            connection.close(now, 1, why);
            driver.transmit(connection, app);
            failed.get_or_insert_with(|| anyhow!(why));
        }
        over.retain(|session| session.connection.has_peer());
        over
    }

    /// Tells all callers that it is over.
    pub fn close(&mut self, driver: &mut Driver) {
        let now = clock::monotonic();
        for session in self.open.values_mut() {
            session.connection.close(now, 1, "the other side was ended");
            driver.transmit(&mut session.connection, &mut session.app);
        }
    }

    /// Whether there may be one more of this key; the oldest one goes for it whose caller has shown nothing but a first message, which can
    /// be repeated by whoever saw it.
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
    fn answer(
        &mut self,
        id: ConnectionId,
        message: &[u8],
        begin: &mut impl FnMut() -> Result<A>,
    ) -> Option<Session<A>> {
        let hello = Connection::hello(&self.settings);
        let called = crypto::answer(id, self.secret, message, &hello, |peer| self.allow.contains(peer));
        let began = called.map_err(anyhow::Error::from).and_then(|called| {
            let (_, seed) = random()?;
            let connection = Connection::accept(clock::monotonic(), self.settings, called, (id, seed));
            Ok(Session { connection, app: begin()?, began: Instant::now(), failed: None })
        });
        began.inspect_err(|problem| self.say_refused(problem)).ok()
    }

    /// Anybody can have it said.
    fn say_refused(&mut self, problem: &anyhow::Error) {
        match problem.downcast_ref() {
            Some(HandshakeError::Unknown(key)) if self.strangers.is_due(clock::monotonic()) => {
                tracing::warn!("a caller is not answered, since nobody has allowed its key: --allow {key}");
            }
            _ => tracing::debug!("a connection is refused: {problem:#}"),
        }
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
    let [id, seed] = [random::bytes()?, random::bytes()?].map(u64::from_ne_bytes);
    Ok((ConnectionId(id), seed))
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, UdpSocket};

    use weirgate_linux::udp::Udp;
    use weirgate_spray::{Event, Sink, Source};

    use super::*;

    /// Does nothing with what comes.
    #[derive(Debug)]
    struct Nothing;

    impl Source for Nothing {
        fn read(&mut self, _: u64, _: u64, _: &mut [u8]) {}
    }

    impl Sink for Nothing {
        fn write(&mut self, _: u64, _: u64, _: &[u8]) {}
    }

    impl App for Nothing {
        type Error = anyhow::Error;

        fn handle_event(&mut self, _: &mut Connection, _: Event) -> Result<()> {
            Ok(())
        }

        fn advance(&mut self, _: &mut Connection) -> Result<()> {
            Ok(())
        }
    }

    struct Caller {
        socket: UdpSocket,
        connection: Connection,
        server: SocketAddr,
    }

    impl Caller {
        fn new(secret: &Secret, peer: Public, server: SocketAddr) -> Self {
            let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
            socket.set_nonblocking(true).unwrap();
            let ends = [(socket.local_addr().unwrap(), server)];
            let now = clock::monotonic();
            let connection =
                Connection::connect(now, Settings::default(), secret, peer, random().unwrap(), &ends).unwrap();
            Self { socket, connection, server }
        }

        /// Sends all that it may.
        fn speak(&mut self) {
            let mut out = Vec::new();
            while self.connection.poll_transmit(clock::monotonic(), &mut Nothing, &mut out).is_some() {
                self.socket.send_to(&out, self.server).unwrap();
            }
        }

        fn hear(&mut self) {
            let mut datagram = vec![0; 2_000];
            while let Ok(len) = self.socket.recv(&mut datagram) {
                let ends = (self.socket.local_addr().unwrap(), self.server);
                self.connection.handle_datagram(clock::monotonic(), ends, &mut datagram[..len], &mut Nothing);
            }
        }
    }

    #[test]
    fn a_caller_is_answered_in_the_middle_of_a_flood() {
        let [secret, known] = [(); 2].map(|()| Secret::generate());
        let mut driver = Driver::new(vec![Udp::bind("127.0.0.1:0".parse().unwrap(), None).unwrap()]).unwrap();
        let server = driver.locals().next().unwrap();
        let allow = [known.public()];
        let mut sessions = Sessions::<Nothing>::new(&secret, Settings::default(), &allow).unwrap();
        let began = clock::monotonic();
        let mut caller = Caller::new(&known, secret.public(), server);
        for _ in 0..50 {
            // As if so many had come from elsewhere meanwhile.
            let flood = "192.0.2.1:1".parse().unwrap();
            while sessions.door.judge(clock::monotonic(), flood, Default::default()) == Verdict::Looked {}
            caller.speak();
            assert!(sessions.turn(&mut driver, &mut || Ok(Nothing)).unwrap().is_empty(), "nothing is over");
            caller.hear();
            if sessions.open().any(|session| session.connection.has_peer()) {
                break;
            }
        }
        assert!(caller.connection.has_peer());
        let took = clock::monotonic().saturating_since(began);
        assert!(took < Duration::from_secs(5), "{took}: it is called again at once");
    }

    #[test]
    fn callers_that_show_nothing_but_a_first_message_take_no_place_of_those_who_go_on() {
        let [secret, known, stranger] = [(); 3].map(|()| Secret::generate());
        let mut driver = Driver::new(vec![Udp::bind("127.0.0.1:0".parse().unwrap(), None).unwrap()]).unwrap();
        let server = driver.locals().next().unwrap();
        let allow = [known.public()];
        let mut sessions = Sessions::new(&secret, Settings::default(), &allow).unwrap();
        let mut turn = |sessions: &mut Sessions<'_, Nothing>| {
            assert!(sessions.turn(&mut driver, &mut || Ok(Nothing)).unwrap().is_empty(), "nothing is over");
        };
        let ids = |sessions: &Sessions<'_, Nothing>| -> Vec<ConnectionId> {
            sessions.open().map(|session| session.connection.id()).collect()
        };
        let mut first = Caller::new(&known, secret.public(), server);
        for _ in 0..200 {
            first.speak();
            turn(&mut sessions);
            first.hear();
            if sessions.open().any(|session| session.connection.has_peer()) {
                break;
            }
        }
        assert_eq!(ids(&sessions), [first.connection.id()]);
        let mut callers: Vec<Caller> = Vec::new();
        for _ in 0..2 * SESSIONS_PER_KEY {
            let mut caller = Caller::new(&known, secret.public(), server);
            caller.speak();
            callers.push(caller);
            turn(&mut sessions);
        }
        let last = callers.last().unwrap().connection.id();
        for _ in 0..200 {
            if ids(&sessions).contains(&last) {
                break;
            }
            turn(&mut sessions);
        }
        let open = ids(&sessions);
        assert_eq!(open.len(), SESSIONS_PER_KEY);
        assert!(open.contains(&first.connection.id()), "who goes on keeps its place");
        assert!(open.contains(&last) && !open.contains(&callers[0].connection.id()), "the oldest of the others went");
        // Whose key nobody has allowed is not answered.
        let mut other = Caller::new(&stranger, secret.public(), server);
        other.speak();
        turn(&mut sessions);
        turn(&mut sessions);
        assert!(!ids(&sessions).contains(&other.connection.id()));
    }
}
