//! Short connections, counted by the client that makes them, against what the daemon recorded.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde::Deserialize;
use weirgate_linux::netns::Netns;

/// A run of short connections.
pub(super) struct Burst {
    /// The server's port.
    pub(super) port: u16,
    /// Connections made, by the client's own count.
    pub(super) made: u64,
    /// How long it took.
    pub(super) took: Duration,
}

/// Makes `count` connections in `ns`, each of which carries a few bytes and closes; at `rate` a second, or as fast as one thread can.
pub(super) fn burst(ns: &Netns, count: u64, rate: Option<u64>) -> Result<Burst> {
    ns.within(|| {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("cannot listen")?;
        let port = listener.local_addr()?.port();
        let start = Instant::now();
        for made in 0..count {
            if let Some(rate) = rate {
                let due = Duration::from_nanos(made * 1_000_000_000 / rate);
                std::thread::sleep(due.saturating_sub(start.elapsed()));
            }
            // Eight addresses have ports enough for all of them in TIME_WAIT.
            let to = SocketAddr::new(Ipv4Addr::new(127, 0, 2, (made % 8) as u8 + 1).into(), port);
            let mut client = TcpStream::connect(to).with_context(|| format!("connection {made}"))?;
            let (mut server, _) = listener.accept()?;
            server.write_all(b"short")?;
            client.read_exact(&mut [0; 5])?;
        }
        Ok(Burst { port, made: count, took: start.elapsed() })
    })?
}

/// Connections that the store has a close record of, for a server's port.
pub(super) fn recorded(store: &Path, port: u16) -> Result<u64> {
    #[derive(Deserialize)]
    struct Row {
        n: u64,
    }
    let sql = format!(
        "SELECT COUNT(*) AS n FROM (SELECT DISTINCT netns, cookie FROM sockets WHERE kind = 'close' AND local_port = {port})"
    );
    let mut lines = Vec::new();
    weirgate_store::query(store, &sql)?.write_json_lines(&mut lines)?;
    Ok(serde_json::from_slice::<Row>(&lines)?.n)
}
