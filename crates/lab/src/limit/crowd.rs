//! A crowd behind one limit: senders that always have something, and short requests. Kernel TCP, on threads of this process.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{JoinHandle, sleep, spawn};
use std::time::{Duration, Instant};
use std::{io, thread};

use anyhow::{Context, Result};
use rand_core::Rng;
use rand_pcg::Pcg64;
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, shutdown, socket_with};

use crate::net::Namespace;

/// What a request asks for, bytes.
pub(super) const RESPONSE: usize = 20_000;

/// A request that takes longer is given up, and counts as having taken so long.
const PATIENCE: Duration = Duration::from_secs(10);

/// Connections whose senders always have something; ended on drop.
pub(super) struct Senders {
    streams: Vec<TcpStream>,
    received: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<()>>,
}

impl Senders {
    /// One connection from each of `sources`, addresses of `from`, to `server` in `to`.
    pub(super) fn start(from: &Namespace, sources: &[Ipv4Addr], to: &Namespace, server: SocketAddr) -> Result<Self> {
        let listener = to.netns().within(|| TcpListener::bind(server))??;
        let mut senders = Self { streams: Vec::new(), received: Vec::new(), threads: Vec::new() };
        let mut pairs = Vec::new();
        for source in sources {
            let sender = from.netns().within(|| open(*source, server))?;
            let sender = sender.with_context(|| format!("connecting from {source}"))?;
            let receiver = listener.accept()?.0;
            senders.streams.extend([sender.try_clone()?, receiver.try_clone()?]);
            pairs.push((sender, receiver));
        }
        for (mut sender, mut receiver) in pairs {
            let count = Arc::new(AtomicU64::new(0));
            senders.received.push(count.clone());
            senders.threads.push(spawn(move || {
                let block = [0; 64 << 10];
                while sender.write_all(&block).is_ok() {}
            }));
            senders.threads.push(spawn(move || {
                let mut block = vec![0; 256 << 10];
                while let Ok(read @ 1..) = receiver.read(&mut block) {
                    count.fetch_add(read as u64, Ordering::Relaxed);
                }
            }));
        }
        Ok(senders)
    }

    /// Payload that came from each of them so far, bytes.
    pub(super) fn received(&self) -> Vec<u64> {
        self.received.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Senders {
    fn drop(&mut self) {
        for stream in &self.streams {
            // Who writes or reads there ends.
            let _ = stream.shutdown(Shutdown::Both);
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn open(source: Ipv4Addr, server: SocketAddr) -> Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, Some(ipproto::TCP))?;
    bind(&socket, &SocketAddr::new(source.into(), 0))?;
    connect(&socket, &server)?;
    Ok(socket.into())
}

/// Short requests, each on a connection of its own.
#[derive(Clone, Copy, Debug)]
pub(super) struct Mice {
    /// Clients, each of which makes one request at a time.
    pub(super) clients: u64,
    /// Between the end of one and the next, exponentially distributed.
    pub(super) wait_mean: Duration,
    /// None begins after this.
    pub(super) time: Duration,
    pub(super) seed: u64,
}

impl Mice {
    /// Seconds from each request's SYN to the last byte of its response, at clients in `from` that ask `server` in `to`.
    pub(super) fn run(self, from: &Namespace, to: &Namespace, server: SocketAddr) -> Result<Vec<f64>> {
        let listener = to.netns().within(|| TcpListener::bind(server))??;
        let end = Instant::now() + self.time;
        thread::scope(|scope| {
            scope.spawn(|| serve(scope, &listener));
            let client = |number| {
                let random = Pcg64::new(self.seed.into(), number);
                move || from.netns().within(|| ask_until(end, self.wait_mean, random, server))
            };
            let clients: Vec<_> = (0..self.clients).map(|number| scope.spawn(client(number.into()))).collect();
            let answers: Vec<_> = clients.into_iter().map(thread::ScopedJoinHandle::join).collect();
            // Its accept(2) fails then, and the thread ends.
            shutdown(&listener, rustix::net::Shutdown::Both)?;
            let mut latencies = Vec::new();
            for answer in answers {
                latencies.extend(answer.map_err(|_| io::Error::other("a client panicked"))??.context("a request")?);
            }
            Ok(latencies)
        })
    }
}

/// Answers each request on a thread of its own: one whose request was lost keeps nobody else waiting.
fn serve<'scope>(scope: &'scope thread::Scope<'scope, '_>, listener: &TcpListener) {
    while let Ok((connection, _)) = listener.accept() {
        scope.spawn(move || answer(connection));
    }
}

/// Waits for longer than any client does, so that it is the client who gives up.
fn answer(mut connection: TcpStream) -> io::Result<()> {
    connection.set_read_timeout(Some(2 * PATIENCE))?;
    connection.read_exact(&mut [0])?;
    connection.write_all(&[0; RESPONSE])
}

fn ask_until(end: Instant, wait_mean: Duration, mut random: Pcg64, server: SocketAddr) -> io::Result<Vec<f64>> {
    let mut latencies = Vec::new();
    loop {
        // In (0, 1].
        let uniform = (f64::from(random.next_u32()) + 1.0) / 4_294_967_296.0;
        sleep(wait_mean.mul_f64(-uniform.ln()));
        let began = Instant::now();
        if began >= end {
            return Ok(latencies);
        }
        match ask(server) {
            Err(error) if !matches!(error.kind(), ErrorKind::TimedOut | ErrorKind::WouldBlock) => return Err(error),
            _ => latencies.push(began.elapsed().as_secs_f64()),
        }
    }
}

fn ask(server: SocketAddr) -> io::Result<()> {
    let until = Instant::now() + PATIENCE;
    let mut connection = TcpStream::connect_timeout(&server, PATIENCE)?;
    connection.write_all(&[0])?;
    let (mut response, mut came) = ([0; RESPONSE], 0);
    while came < RESPONSE {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        connection.set_read_timeout(Some(left))?;
        match connection.read(&mut response[came..])? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            more => came += more,
        }
    }
    Ok(())
}
