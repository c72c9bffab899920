//! The transport as a library, in this process: both ends' clocks are one, so that what an object took and how long an outage was felt are
//! known to the datagram.

use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context, Result, anyhow, ensure};
use weirgate_linux::clock;
use weirgate_linux::transport::{App, Driver};
use weirgate_linux::udp::Udp;
use weirgate_spray::wire::{ConnectionId, Datagram};
use weirgate_spray::{Connection, Event, Secret, Settings, Sink, Source, crypto};
use weirgate_units::{Duration, Instant};

use super::SETTLES_MS;
use super::ground::Ground;

const PORT: u16 = 4_748;

/// What a path's first probes need, and its datagrams' size.
const SETTLE: Duration = Duration::from_millis(SETTLES_MS);

/// What came of one object.
#[derive(Clone, Debug, Default)]
pub(super) struct Came {
    /// When the sender opened it, once all paths were there.
    pub(super) began: Option<Instant>,
    /// When all of it was there.
    pub(super) whole: Option<Instant>,
    /// New bytes, as they were written.
    pub(super) arrivals: Vec<(Instant, u64)>,
}

/// Sends one object of `len` bytes by these uplinks when all of them work, or an endless one until `until` says so; meanwhile `beside` runs,
/// from when it begins on.
pub(super) fn send(
    ground: &Ground,
    uplinks: &[usize],
    len: Option<u64>,
    beside: impl FnOnce(Instant) -> Result<()>,
) -> Result<Came> {
    let (mine, theirs) = (Secret::generate(), Secret::generate());
    let socket = ground.server.netns().within(|| Udp::bind(ground.at(PORT), None))??;
    let bind = |at: &usize| -> Result<Udp> {
        let local = SocketAddr::new(ground.address(*at), 0);
        Ok(ground.client.netns().within(|| Udp::bind(local, Some(&Ground::device(*at))))??)
    };
    let sockets = uplinks.iter().map(bind).collect::<Result<Vec<_>>>()?;
    let is_over = AtomicBool::new(false);
    let (secret, is_over) = (&mine, &is_over);
    thread::scope(|scope| {
        let public = theirs.public();
        let far = scope.spawn(|| receive(socket, &theirs, is_over));
        let (say, hear) = std::sync::mpsc::channel();
        let near = scope.spawn(move || {
            let sent = transmit(ground.at(PORT), sockets, secret, public, len, is_over, &say);
            is_over.store(true, Ordering::Relaxed);
            sent
        });
        let ran = match hear.recv() {
            Ok(began) => beside(began),
            // Why, the sender says.
            Err(_) => Ok(()),
        };
        if len.is_none() || ran.is_err() {
            is_over.store(true, Ordering::Relaxed);
        }
        let sent = near.join().map_err(|_| anyhow!("the sender has panicked"))?;
        let came = far.join().map_err(|_| anyhow!("the receiver has panicked"))??;
        ran?;
        Ok(Came { began: Some(sent?), ..came })
    })
}

struct Near<'a> {
    len: Option<u64>,
    paths: usize,
    up: usize,
    settled: Option<Instant>,
    object: Option<u64>,
    began: Option<Instant>,
    is_over: &'a AtomicBool,
    say: &'a std::sync::mpsc::Sender<Instant>,
}

impl Source for Near<'_> {
    fn read(&mut self, _: u64, offset: u64, out: &mut [u8]) {
        for (at, out) in (offset..).zip(out) {
            *out = at as u8;
        }
    }
}

impl Sink for Near<'_> {
    fn write(&mut self, _: u64, _: u64, _: &[u8]) {}
}

impl App for Near<'_> {
    type Error = io::Error;

    fn handle_event(&mut self, connection: &mut Connection, event: Event) -> io::Result<()> {
        match event {
            Event::PathUp(_) if self.object.is_none() => {
                self.up += 1;
                if self.up == self.paths {
                    self.settled = Some(clock::monotonic() + SETTLE);
                }
            }
            Event::Delivered(_) => connection.close(clock::monotonic(), 0, "it is there"),
            _ => {}
        }
        Ok(())
    }

    fn advance(&mut self, connection: &mut Connection) -> io::Result<()> {
        let now = clock::monotonic();
        if self.object.is_none() && self.settled.is_some_and(|at| at <= now) {
            let object = connection.open();
            connection.provide(object, self.len.unwrap_or(1 << 40), self.len.is_some());
            (self.object, self.began) = (Some(object), Some(now));
            let _nobody_may_listen = self.say.send(now);
        }
        if self.is_over.load(Ordering::Relaxed) && !connection.is_closed() {
            connection.close(now, 0, "it is over");
        }
        Ok(())
    }

    fn poll_at(&self) -> Option<Instant> {
        // What others tell is looked for now and then.
        Some(
            self.settled
                .filter(|_| self.object.is_none())
                .unwrap_or_else(|| clock::monotonic() + Duration::from_millis(20)),
        )
    }
}

fn transmit(
    remote: SocketAddr,
    sockets: Vec<Udp>,
    secret: &Secret,
    peer: weirgate_spray::Public,
    len: Option<u64>,
    is_over: &AtomicBool,
    say: &std::sync::mpsc::Sender<Instant>,
) -> Result<Instant> {
    let paths: Vec<_> = sockets.iter().map(|socket| (socket.local(), remote)).collect();
    let mut near = Near { len, paths: paths.len(), up: 0, settled: None, object: None, began: None, is_over, say };
    let mut driver = Driver::new(sockets)?;
    let now = clock::monotonic();
    let id = (ConnectionId(now.as_nanos()), now.as_nanos());
    let mut connection = Connection::connect(now, Settings::default(), secret, peer, id, &paths)?;
    driver.run(&mut connection, &mut near)?;
    near.began.context("the uplinks did not all come up")
}

#[derive(Default)]
struct Far(Came);

impl Source for Far {
    fn read(&mut self, _: u64, _: u64, _: &mut [u8]) {}
}

impl Sink for Far {
    fn write(&mut self, _: u64, _: u64, bytes: &[u8]) {
        self.0.arrivals.push((clock::monotonic(), bytes.len() as u64));
    }
}

impl App for Far {
    type Error = io::Error;

    fn handle_event(&mut self, _: &mut Connection, event: Event) -> io::Result<()> {
        if let Event::Complete(_) = event {
            self.0.whole = Some(clock::monotonic());
        }
        Ok(())
    }

    fn advance(&mut self, _: &mut Connection) -> io::Result<()> {
        Ok(())
    }
}

fn receive(socket: Udp, secret: &Secret, is_over: &AtomicBool) -> Result<Came> {
    let mut driver = Driver::new(vec![socket])?;
    let mut far = Far::default();
    let mut called = None;
    while called.is_none() {
        ensure!(!is_over.load(Ordering::Relaxed), "nobody has called");
        let until = clock::monotonic() + Duration::from_millis(20);
        driver.receive(Some(until), |local, remote, datagram| {
            let now = clock::monotonic();
            if called.is_none()
                && let Ok(Datagram::Init { connection: id, message, .. }) = Datagram::parse(datagram)
                && let Ok(answer) =
                    crypto::answer(id, secret, message, &Connection::hello(&Settings::default()), |_| true)
            {
                called = Some(Connection::accept(now, Settings::default(), answer, (id, now.as_nanos())));
            }
            if let Some(connection) = &mut called {
                connection.handle_datagram(now, (local, remote), datagram, &mut far);
            }
        })?;
    }
    let mut connection = called.context("nobody has called")?;
    driver.run(&mut connection, &mut far)?;
    Ok(far.0)
}

impl Came {
    /// Seconds from the first datagram that was sent to the last byte that was written.
    pub(super) fn seconds(&self) -> Option<f64> {
        Some(self.whole?.saturating_since(self.began?).as_secs_f64())
    }

    /// New bytes that came in a window, in bit/s.
    fn rate(&self, from: Instant, len: Duration) -> f64 {
        let within = self.arrivals.iter().filter(|(at, _)| (from..from + len).contains(at));
        within.map(|(_, bytes)| *bytes).sum::<u64>() as f64 * 8.0 / len.as_secs_f64()
    }

    /// How long after `outage` it was until goodput, in windows of 50 ms that begin every 5 ms, was `wanted` bit/s and stayed so until
    /// `end`.
    pub(super) fn stall(&self, outage: Instant, end: Instant, wanted: f64) -> Duration {
        let (step, window) = (Duration::from_millis(5), Duration::from_millis(50));
        let mut good = outage;
        let mut at = outage;
        while at + window <= end {
            if self.rate(at, window) < wanted {
                good = at + step;
            }
            at += step;
        }
        good.saturating_since(outage)
    }
}
