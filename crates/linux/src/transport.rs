//! The loop around a multipath connection (`weirgate_spray`): datagrams in, datagrams out, and timers.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;

use weirgate_spray::{Connection, Event, Sink, Source};
use weirgate_units::Instant;

use crate::clock;
use crate::udp::{Room, Udp};
use crate::wait::Waiter;

/// Datagrams of one path that go in one call, at most: as many as the kernel cuts.
const BATCH_MAX: usize = 64;

/// Datagrams that are made before it is looked at what came.
const BURST: usize = 256;

/// Batches that are received before something is sent.
const RECEIVES: usize = 8;

/// What a program does with a connection.
pub trait App: Source + Sink {
    /// Why it has no more use for the connection; the other side is told `{:#}` of it.
    type Error: From<io::Error> + Display;

    /// Something has happened.
    ///
    /// # Errors
    /// The connection is of no more use: it is closed, with this as the reason.
    fn handle_event(&mut self, connection: &mut Connection, event: Event) -> Result<(), Self::Error>;

    /// What came was handed over: whatever follows from it.
    ///
    /// # Errors
    /// As [`handle_event`](Self::handle_event).
    fn advance(&mut self, connection: &mut Connection) -> Result<(), Self::Error>;

    /// When it is to be [advanced](Self::advance) again, if nothing comes before.
    fn poll_at(&self) -> Option<Instant> {
        None
    }

    /// What was to leave from this address could not. The path that does not work loses it, and the connection finds out.
    fn handle_unsent(&mut self, local: SocketAddr, problem: io::Error) {
        let _nobody_wants_to_know = (local, problem);
    }

    /// Sockets of paths that it has added meanwhile.
    fn take_sockets(&mut self) -> Vec<Udp> {
        Vec::new()
    }

    /// Where those are bound whose paths are no more.
    fn take_gone(&mut self) -> Vec<SocketAddr> {
        Vec::new()
    }
}

/// Sockets, and what is between them and connections.
#[derive(Debug)]
pub struct Driver {
    /// By their tokens, of which each is used once.
    sockets: BTreeMap<u64, Udp>,
    next_token: u64,
    waiter: Waiter,
    room: Room,
    out: Vec<u8>,
    batches: Vec<Batch>,
}

/// Datagrams that go to one address in one call.
#[derive(Debug)]
struct Batch {
    local: SocketAddr,
    remote: SocketAddr,
    bytes: Vec<u8>,
    each: usize,
    count: usize,
    /// A shorter one was the last.
    is_full: bool,
}

impl Driver {
    /// Over these sockets.
    ///
    /// # Errors
    /// Where the process has too many files open.
    pub fn new(sockets: Vec<Udp>) -> io::Result<Self> {
        let mut driver = Self {
            sockets: BTreeMap::new(),
            next_token: 0,
            waiter: Waiter::new()?,
            room: Room::default(),
            out: Vec::new(),
            batches: Vec::new(),
        };
        sockets.into_iter().try_for_each(|socket| driver.add_socket(socket))?;
        Ok(driver)
    }

    /// One socket more.
    ///
    /// # Errors
    /// Where it cannot be waited for.
    pub fn add_socket(&mut self, socket: Udp) -> io::Result<()> {
        self.waiter.add(&socket, self.next_token)?;
        self.sockets.insert(self.next_token, socket);
        self.next_token += 1;
        Ok(())
    }

    /// Ends a wait for datagrams also when this has something to be read: the application knows what.
    ///
    /// # Errors
    /// Where it cannot be waited for.
    pub fn wake_for(&self, file: impl AsFd) -> io::Result<()> {
        self.waiter.add(file, u64::MAX)
    }

    /// Where the sockets are bound.
    pub fn locals(&self) -> impl Iterator<Item = SocketAddr> + '_ {
        self.sockets.values().map(Udp::local)
    }

    /// Sends what a connection has to send now; whether it has more.
    pub fn transmit(&mut self, connection: &mut Connection, app: &mut impl App) -> bool {
        let mut count = 0;
        let now = clock::monotonic();
        while count < BURST
            && let Some(transmit) = connection.poll_transmit(now, app, &mut self.out)
        {
            count += 1;
            self.add(transmit.local, transmit.remote, app);
        }
        for mut batch in std::mem::take(&mut self.batches) {
            self.flush(&mut batch, app);
        }
        count == BURST
    }

    fn add(&mut self, local: SocketAddr, remote: SocketAddr, app: &mut impl App) {
        let len = self.out.len();
        let of = self.batches.iter().position(|batch| (batch.local, batch.remote) == (local, remote));
        let mut batch = match of {
            Some(at) => self.batches.swap_remove(at),
            None => Batch { local, remote, bytes: Vec::new(), each: len, count: 0, is_full: false },
        };
        // One that is longer than what follows may ask whether its size passes: the others must not be lost with it.
        let is_other = len > batch.each || (batch.count == 1 && len < batch.each);
        if batch.is_full || is_other || batch.count >= BATCH_MAX || batch.bytes.len() + len > 65_000 {
            self.flush(&mut batch, app);
        }
        if batch.count == 0 {
            batch.each = len;
        }
        batch.bytes.extend(&self.out);
        batch.count += 1;
        batch.is_full = len < batch.each;
        self.batches.push(batch);
    }

    /// Sends a datagram of no connection, if that can be done now.
    pub fn send(&self, local: SocketAddr, remote: SocketAddr, datagram: &[u8]) {
        if let Some(socket) = self.socket(local) {
            let _whoever_asked_asks_again = socket.send(local.ip(), remote, datagram, datagram.len());
        }
    }

    /// The one that is bound to this address, or to any.
    fn socket(&self, wanted: SocketAddr) -> Option<&Udp> {
        self.sockets.values().find(|socket| {
            let is = socket.local();
            let is_any = is.ip().is_unspecified() && is.is_ipv4() == wanted.is_ipv4() && is.port() == wanted.port();
            is == wanted || is_any
        })
    }

    fn flush(&self, batch: &mut Batch, app: &mut impl App) {
        if batch.count == 0 {
            return;
        }
        if let Some(socket) = self.socket(batch.local) {
            let step = socket.datagrams_max().max(1) * batch.each;
            for part in batch.bytes.chunks(step) {
                match socket.send(batch.local.ip(), batch.remote, part, batch.each) {
                    // A full socket is a full queue.
                    Err(problem) if problem.kind() != io::ErrorKind::WouldBlock => {
                        app.handle_unsent(batch.local, problem);
                    }
                    _ => {}
                }
            }
        }
        batch.bytes.clear();
        (batch.count, batch.is_full) = (0, false);
    }

    /// Waits until something comes or `until`, and hands over what came: to which address, from where, and its bytes.
    ///
    /// # Errors
    /// Where waiting is refused.
    pub fn receive(
        &mut self,
        until: Option<Instant>,
        mut each: impl FnMut(SocketAddr, SocketAddr, &mut [u8]),
    ) -> io::Result<()> {
        let timeout = until.map(|until| until.saturating_since(clock::monotonic()));
        let ready: Vec<u64> = self.waiter.wait(timeout)?.collect();
        for token in ready {
            let Some(socket) = self.sockets.get(&token) else { continue };
            for _ in 0..RECEIVES {
                // Nothing is there any more, or the path says that somebody is not there: the connection finds out.
                if socket.receive(&mut self.room, &mut each).is_err() {
                    break;
                }
            }
        }
        Ok(())
    }

    /// Runs one connection until it is closed.
    ///
    /// # Errors
    /// The application's, after the other side was told; and where it cannot be waited.
    pub fn run<A: App>(&mut self, connection: &mut Connection, app: &mut A) -> Result<(), A::Error> {
        let mut result = Ok(());
        loop {
            connection.handle_timeout(clock::monotonic());
            if let Err(problem) = step(connection, app)
                && result.is_ok()
            {
                connection.close(clock::monotonic(), 1, &format!("{problem:#}"));
                result = Err(problem);
            }
            app.take_sockets().into_iter().try_for_each(|socket| self.add_socket(socket))?;
            let has_more = self.transmit(connection, app);
            for gone in app.take_gone() {
                self.sockets.retain(|_, socket| socket.local() != gone);
            }
            if connection.is_closed() {
                return result;
            }
            let now = clock::monotonic();
            let until = [connection.poll_at(now), app.poll_at()].into_iter().flatten().min();
            let until = if has_more { Some(now) } else { until };
            self.receive(until, |local, remote, datagram| {
                connection.handle_datagram(clock::monotonic(), (local, remote), datagram, app);
            })?;
        }
    }
}

/// Hands what has happened to the application.
///
/// # Errors
/// The application's.
pub fn step<A: App>(connection: &mut Connection, app: &mut A) -> Result<(), A::Error> {
    while let Some(event) = connection.poll_event() {
        app.handle_event(connection, event)?;
    }
    app.advance(connection)
}

#[cfg(test)]
mod tests {
    use weirgate_spray::wire::ConnectionId;
    use weirgate_spray::{Closed, Secret, Settings};
    use weirgate_units::Duration;

    use super::*;

    /// Calls, and hears of what goes wrong.
    #[derive(Default)]
    struct Caller {
        unsent: Vec<(SocketAddr, io::Error)>,
        ended: Option<Closed>,
    }

    impl Source for Caller {
        fn read(&mut self, _: u64, _: u64, _: &mut [u8]) {}
    }

    impl Sink for Caller {
        fn write(&mut self, _: u64, _: u64, _: &[u8]) {}
    }

    impl App for Caller {
        type Error = io::Error;

        fn handle_event(&mut self, _: &mut Connection, event: Event) -> io::Result<()> {
            if let Event::Closed(why) = event {
                self.ended = Some(why);
            }
            Ok(())
        }

        fn advance(&mut self, _: &mut Connection) -> io::Result<()> {
            Ok(())
        }

        fn handle_unsent(&mut self, local: SocketAddr, problem: io::Error) {
            self.unsent.push((local, problem));
        }
    }

    #[test]
    fn whoever_calls_hears_from_where_nothing_can_be_sent() {
        let sockets = ["127.0.0.2:0", "127.0.0.3:0"].map(|local| Udp::bind(local.parse().unwrap(), None).unwrap());
        let [good, bad] = sockets.each_ref().map(Udp::local);
        // Nobody listens at the one, and from the loopback the other is not reached.
        let nobody = Udp::bind("127.0.0.1:0".parse().unwrap(), None).unwrap().local();
        let ends = [(good, nobody), (bad, "192.0.2.1:9".parse().unwrap())];
        let settings = Settings { call_max: Duration::from_millis(300), ..Settings::default() };
        let (secret, peer) = (Secret::from_bytes([1; 32]), Secret::from_bytes([2; 32]).public());
        let now = clock::monotonic();
        let mut connection = Connection::connect(now, settings, &secret, peer, (ConnectionId(1), 1), &ends).unwrap();
        let mut caller = Caller::default();
        Driver::new(sockets.into()).unwrap().run(&mut connection, &mut caller).unwrap();
        assert_eq!(caller.ended, Some(Closed::Unanswered));
        assert!(
            !caller.unsent.is_empty() && caller.unsent.iter().all(|(local, _)| *local == bad),
            "{:?}",
            caller.unsent
        );
    }
}
