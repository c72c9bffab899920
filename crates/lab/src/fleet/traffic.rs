//! Real TCP connections: active ones over emulated links, to be recorded, and short ones whose cookies are noted.

use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, Result};
use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;
use rustix::net::sockopt;
use weirgate_linux::bpf::IterPoller;
use weirgate_linux::clock;
use weirgate_linux::netns::Netns;
use weirgate_linux::poll::Filter;
use weirgate_port::{Chance, Settings};
use weirgate_sockets::ledger::{Ledger, Options};
use weirgate_sockets::record::Direction;
use weirgate_sockets::sample::{Sample, state};
use weirgate_units::{BitRate, Bytes, UnixTime};

use crate::net::{Emulator, LinkSettings, Namespace, Topology};

const PORT: u16 = 443;
const SERVER: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 62, 0, 1));
/// Rate in Mbit/s, round trip in ms, losses per million, of each client network.
const LINKS: [(u64, u64, u32); 10] = [
    (100, 8, 0),
    (50, 15, 0),
    (20, 30, 1_000),
    (12, 60, 5_000),
    (5, 90, 20_000),
    (40, 120, 2_000),
    (8, 45, 0),
    (25, 180, 10_000),
    (60, 12, 500),
    (3, 70, 0),
];

/// What a look at a connection gave.
pub(super) struct Recorded {
    pub(super) sample: Sample,
    pub(super) sequence: u32,
    pub(super) delivery_rate_max: u64,
}

/// Looks every second, for so many, at the server's sockets while `clients` of each of ten networks fetch responses of 2 KB to 2 MB.
pub(super) fn record(seed: u64, clients: u8, seconds: u64) -> Result<Vec<Recorded>> {
    let edge = Namespace::create("fleet-edge")?;
    let places: Vec<Namespace> =
        (0..LINKS.len()).map(|n| Namespace::create(&format!("fleet-{n}"))).collect::<Result<_>>()?;
    let mut topology = Topology::new(seed);
    let id = topology.edge(&edge, &[SERVER]);
    for (n, (place, (rate, rtt, loss))) in places.iter().zip(LINKS).enumerate() {
        let delay = weirgate_units::Duration::from_micros(rtt * 500);
        let rate = Some(BitRate::from_bits_per_sec(rate * 1_000_000));
        let one = Settings { rate, queue: Bytes::new(200_000), delay, ..Settings::default() };
        let settings = LinkSettings { down: Settings { loss: Chance::from_ppm(loss), ..one }, up: one };
        topology.link(id, place, &[format!("10.63.{n}.0/24").parse()?], settings);
    }
    let emulator = Emulator::start(topology)?;
    let is_over = Arc::new(AtomicBool::new(false));
    let listener = edge.netns().within(|| TcpListener::bind(SocketAddr::new(SERVER, PORT)))??;
    let server = serve(listener, seed, Arc::clone(&is_over));
    let mut threads = Vec::new();
    for (n, place) in places.iter().enumerate() {
        for client in 1..=clients {
            let source = Ipv4Addr::new(10, 63, n as u8, client);
            let random = Pcg64Mcg::new(u128::from(seed) << 32 | u128::from(u32::from(source)));
            let socket = place.netns().within(|| connect(source))??;
            let is_over = Arc::clone(&is_over);
            threads.push(std::thread::spawn(move || fetch(socket, random, &is_over)));
        }
    }
    let recorded = look(edge.netns(), seconds);
    is_over.store(true, Ordering::Relaxed);
    // Whoever waits for an answer waits for nothing any more.
    emulator.stop()?;
    threads.into_iter().for_each(|thread| drop(thread.join()));
    let _ = server.join();
    recorded
}

fn look(ns: &Netns, seconds: u64) -> Result<Vec<Recorded>> {
    let (mut poller, mut ledger) = (IterPoller::load()?, Ledger::new(Options::default()));
    let filter = Filter { states: 1 << state::ESTABLISHED, ..Filter::default() };
    let mut recorded = Vec::new();
    for second in 0..seconds {
        std::thread::sleep(Duration::from_secs(1));
        poller.poll(ns, &filter, &mut |sample| {
            let Some(seen) = ledger.handle_sample(sample) else { return };
            // Its first second is the start of all of them at once.
            if second > 1 && seen.direction != Direction::Connected {
                let (sequence, delivery_rate_max) = (seen.sequence, seen.delivery_rate_max);
                recorded.push(Recorded { sample: *sample, sequence, delivery_rate_max });
            }
        })?;
        ledger.handle_poll_end(ns.inode(), clock::boottime(), &mut |_| {});
    }
    Ok(recorded)
}

/// From an address of a network that is the client's own.
fn connect(source: Ipv4Addr) -> Result<TcpStream> {
    let socket = rustix::net::socket(
        rustix::net::AddressFamily::INET,
        rustix::net::SocketType::STREAM,
        Some(rustix::net::ipproto::TCP),
    )?;
    rustix::net::bind(&socket, &SocketAddr::new(source.into(), 0))?;
    rustix::net::connect(&socket, &SocketAddr::new(SERVER, PORT))?;
    let stream = TcpStream::from(socket);
    stream.set_read_timeout(Some(Duration::from_secs(3)))?;
    Ok(stream)
}

/// Asks again and again, with pauses.
fn fetch(mut stream: TcpStream, mut random: Pcg64Mcg, is_over: &AtomicBool) {
    let mut buffer = vec![0; 1 << 16];
    while !is_over.load(Ordering::Relaxed) {
        // 2 KB to 2 MB, all orders of magnitude alike.
        let size = (2_048.0 * 1_000f64.powf(f64::from(random.next_u32()) / f64::from(u32::MAX))) as u32;
        if stream.write_all(&size.to_be_bytes()).is_err() {
            return;
        }
        let mut left = size as usize;
        while left > 0 && !is_over.load(Ordering::Relaxed) {
            match stream.read(&mut buffer) {
                Ok(0) | Err(_) => return,
                Ok(n) => left = left.saturating_sub(n),
            }
        }
        std::thread::sleep(Duration::from_millis(u64::from(random.next_u32() % 1_500)));
    }
}

/// Answers a request of four bytes with as many bytes as they say.
fn serve(listener: TcpListener, seed: u64, is_over: Arc<AtomicBool>) -> JoinHandle<()> {
    let _ = listener.set_nonblocking(true);
    std::thread::spawn(move || {
        let mut random = Pcg64Mcg::new(u128::from(seed) << 64 | 0x5e4e);
        let mut block = vec![0; 1 << 16];
        random.fill_bytes(&mut block);
        let block = Arc::new(block);
        while !is_over.load(Ordering::Relaxed) {
            let Ok((mut stream, _)) = listener.accept() else {
                std::thread::sleep(Duration::from_millis(20));
                continue;
            };
            let block = Arc::clone(&block);
            std::thread::spawn(move || {
                let _ = stream.set_nonblocking(false);
                let _ = stream.set_write_timeout(Some(Duration::from_secs(3)));
                let mut request = [0; 4];
                while stream.read_exact(&mut request).is_ok() {
                    let mut left = u32::from_be_bytes(request) as usize;
                    while left > 0 {
                        let Ok(n) = stream.write(&block[..left.min(block.len())]) else { return };
                        left -= n;
                    }
                }
            });
        }
    })
}

/// Short connections in a namespace, some each second until the end, and the cookies of those that were accepted.
pub(super) struct Closes {
    is_over: Arc<AtomicBool>,
    made: Arc<Mutex<Vec<(UnixTime, u64)>>>,
    thread: Option<JoinHandle<Result<()>>>,
    /// Nobody makes one while this is not 0.
    paused: Arc<AtomicU64>,
}

impl Closes {
    pub(super) fn start(ns: &Netns, per_s: u64) -> Result<Self> {
        let (listener, to) = ns.within(|| -> Result<_> {
            let listener = TcpListener::bind("127.0.0.1:443")?;
            let to = listener.local_addr()?;
            Ok((listener, to))
        })??;
        let is_over = Arc::new(AtomicBool::new(false));
        let paused = Arc::new(AtomicU64::new(0));
        let made = Arc::new(Mutex::new(Vec::new()));
        let (over, kept, pause) = (Arc::clone(&is_over), Arc::clone(&made), Arc::clone(&paused));
        let ns = Netns::by_name(ns.name()).context("the namespace is there")?;
        let thread = std::thread::spawn(move || -> Result<()> {
            ns.within(|| -> Result<()> {
                let gap = Duration::from_nanos(1_000_000_000 / per_s.max(1));
                while !over.load(Ordering::Relaxed) {
                    std::thread::sleep(gap);
                    if pause.load(Ordering::Relaxed) > 0 {
                        continue;
                    }
                    let mut client = TcpStream::connect(to)?;
                    let (mut server, _) = listener.accept()?;
                    let cookie = sockopt::socket_cookie(&server)?;
                    server.write_all(b"weirgate")?;
                    client.read_exact(&mut [0; 8])?;
                    drop(server);
                    drop(client);
                    kept.lock().unwrap_or_else(PoisonError::into_inner).push((clock::unix(), cookie));
                }
                Ok(())
            })?
        });
        Ok(Self { is_over, made, thread: Some(thread), paused })
    }

    /// Makes no more for now, or goes on.
    pub(super) fn pause(&self, is_paused: bool) {
        self.paused.store(u64::from(is_paused), Ordering::Relaxed);
    }

    /// When each connection had closed, and its cookie.
    pub(super) fn made(&self) -> Vec<(UnixTime, u64)> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Closes {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(Ok(Err(error))) = self.thread.take().map(JoinHandle::join) {
            tracing::warn!("short connections: {error:#}");
        }
    }
}
