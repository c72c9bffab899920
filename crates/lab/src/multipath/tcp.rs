//! The kernel's TCP: connections that are pinned to uplinks, and one over all of them.

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU16, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weirgate_linux::tcp::{Options, connect, listen};

use super::SETTLES_MS;
use super::ground::Ground;

/// Each arm's server has a port of its own.
static PORT: AtomicU16 = AtomicU16::new(5_201);

/// What so many connections, each pinned to the uplink that it names, get together, in Mbit/s.
pub(super) fn pinned(ground: &Ground, pins: &[usize], congestion: &str, seconds: u64) -> Result<f64> {
    let devices: Vec<(SocketAddr, String)> =
        pins.iter().map(|at| (SocketAddr::new(ground.address(*at), 0), Ground::device(*at))).collect();
    let plans = devices.iter().map(|(local, device)| {
        (*local, Options { congestion: Some(congestion), device: Some(device), ..Options::default() })
    });
    run(ground, &plans.collect::<Vec<_>>(), 0, seconds)
}

/// What so many connections that nobody pins get together, in Mbit/s, after so many seconds and for so many.
pub(super) fn free(ground: &Ground, count: usize, congestion: &str, after: u64, seconds: u64) -> Result<f64> {
    let any = match ground.host() {
        IpAddr::V4(_) => SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0)),
        IpAddr::V6(_) => SocketAddr::from((Ipv6Addr::UNSPECIFIED, 0)),
    };
    let options = Options { congestion: Some(congestion), ..Options::default() };
    run(ground, &vec![(any, options); count], after, seconds)
}

/// What one connection of the kernel's MPTCP gets, in Mbit/s.
pub(super) fn multipath(ground: &Ground, congestion: &str, seconds: u64) -> Result<f64> {
    let options = Options { congestion: Some(congestion), multipath: true, ..Options::default() };
    run(ground, &[(SocketAddr::new(ground.address(0), 0), options)], 0, seconds)
}

fn run(ground: &Ground, plans: &[(SocketAddr, Options<'_>)], after: u64, seconds: u64) -> Result<f64> {
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let options = plans.first().map_or_else(Options::default, |(_, options)| Options { device: None, ..*options });
    let listener = ground.server.netns().within(|| listen(ground.at(port), &options))??;
    let streams = plans
        .iter()
        .map(|(local, options)| Ok(ground.client.netns().within(|| connect(*local, ground.at(port), options))??));
    let streams: Vec<TcpStream> = streams.collect::<Result<_>>()?;
    let servers = plans.iter().map(|_| accept(&listener)).collect::<Result<Vec<_>>>()?;
    carry(&streams, &servers, after, seconds)
}

/// The two ends of one connection, pinned to an uplink or of MPTCP over all, and who listens, which takes MPTCP's further paths.
pub(super) fn pair(
    ground: &Ground,
    pin: Option<usize>,
    congestion: &str,
) -> Result<(TcpListener, TcpStream, TcpStream)> {
    let device = pin.map(Ground::device);
    let local = SocketAddr::new(ground.address(pin.unwrap_or(0)), 0);
    let plan = Options {
        congestion: Some(congestion),
        device: device.as_deref(),
        multipath: pin.is_none(),
        ..Options::default()
    };
    let port = PORT.fetch_add(1, Ordering::Relaxed);
    let options = Options { device: None, ..plan };
    let listener = ground.server.netns().within(|| listen(ground.at(port), &options))??;
    let near = ground.client.netns().within(|| connect(local, ground.at(port), &plan))??;
    let far = accept(&listener)?;
    Ok((listener, near, far))
}

/// Seconds that an object of so many bytes takes, from its first byte's writing to its last one's reading, over a connection that has been
/// used, and has had time for all its paths.
pub(super) fn object(mut near: TcpStream, mut far: TcpStream, bytes: u64) -> Result<f64> {
    near.write_all(&[0])?;
    far.read_exact(&mut [0])?;
    far.write_all(&[0])?;
    near.read_exact(&mut [0])?;
    thread::sleep(Duration::from_millis(SETTLES_MS));
    thread::scope(|scope| {
        let began = Instant::now();
        scope.spawn(move || {
            let piece = vec![0x5a; 256 << 10];
            let mut left = bytes as usize;
            // One that fails ends here, and so at the reader's.
            while left > 0
                && let Ok(len) = near.write(&piece[..left.min(piece.len())])
            {
                left -= len;
            }
            // The end of what is open is not counted.
            let _waits = near.read(&mut [0]);
        });
        let mut room = vec![0; 256 << 10];
        let mut got = 0;
        while got < bytes {
            let len = far.read(&mut room)?;
            ensure!(len > 0, "the connection ended after {got} of {bytes} bytes");
            got += len as u64;
        }
        let took = began.elapsed();
        far.shutdown(Shutdown::Both)?;
        Ok(took.as_secs_f64())
    })
}

/// The longest time in which nothing arrived in order, of `lasts` after `then`, which happens when a connection has been used for `runs`.
pub(super) fn gap(
    near: TcpStream,
    mut far: TcpStream,
    runs: Duration,
    lasts: Duration,
    then: impl FnOnce() -> Result<()>,
) -> Result<Duration> {
    let until = Instant::now() + runs + lasts;
    thread::scope(|scope| {
        scope.spawn(|| write(&near, until));
        let read = scope.spawn(move || {
            let mut room = vec![0; 64 << 10];
            let mut times = Vec::new();
            while let Ok(len) = far.read(&mut room)
                && len > 0
            {
                times.push(Instant::now());
            }
            times
        });
        thread::sleep(runs);
        let outage = Instant::now();
        let done = then();
        thread::sleep(lasts);
        let end = Instant::now();
        near.shutdown(Shutdown::Both)?;
        let times = read.join().ok().context("the reader has panicked")?;
        done?;
        let within = times.into_iter().filter(|at| (outage..end).contains(at));
        let mut last = outage;
        let mut longest = Duration::ZERO;
        for at in within.chain([end]) {
            longest = longest.max(at - last);
            last = at;
        }
        Ok(longest)
    })
}

/// The next connection, if one comes within a while.
pub(super) fn accept(listener: &TcpListener) -> Result<TcpStream> {
    let mut fd = [PollFd::new(listener, PollFlags::IN)];
    let patience = Timespec { tv_sec: 20, tv_nsec: 0 };
    ensure!(poll(&mut fd, Some(&patience))? > 0, "no connection came to {} within 20 s", listener.local_addr()?);
    Ok(listener.accept()?.0)
}

/// What comes out of `servers` of what `streams` take, after so many seconds and for so many, in Mbit/s.
pub(super) fn carry(streams: &[TcpStream], servers: &[TcpStream], after: u64, seconds: u64) -> Result<f64> {
    let received = AtomicU64::new(0);
    let until = Instant::now() + Duration::from_secs(after + seconds);
    thread::scope(|scope| {
        for stream in servers {
            let received = &received;
            scope.spawn(move || read(stream, received));
        }
        for stream in streams {
            scope.spawn(move || write(stream, until));
        }
        thread::sleep(Duration::from_secs(after));
        let (before, counted) = (received.load(Ordering::Relaxed), Instant::now());
        thread::sleep(Duration::from_secs(seconds));
        let all = received.load(Ordering::Relaxed) - before;
        let took = counted.elapsed().as_secs_f64();
        for stream in streams.iter().chain(servers) {
            let _has_ended = stream.shutdown(Shutdown::Both);
        }
        Ok(all as f64 * 8.0 / 1e6 / took)
    })
}

fn read(mut stream: &TcpStream, received: &AtomicU64) {
    let mut room = vec![0; 256 << 10];
    while let Ok(len) = stream.read(&mut room)
        && len > 0
    {
        received.fetch_add(len as u64, Ordering::Relaxed);
    }
}

/// Writes as much as goes until then.
pub(super) fn write(mut stream: &TcpStream, until: Instant) {
    let bytes = vec![0x5a; 256 << 10];
    while Instant::now() < until {
        match stream.write(&bytes) {
            Ok(_) => {}
            Err(problem) if problem.kind() == ErrorKind::Interrupted => {}
            Err(_) => return,
        }
    }
}
