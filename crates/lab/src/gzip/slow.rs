//! A page that comes slowly from behind the server: how long its first byte is held back.

use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow, ensure};

use super::fetch;
use super::pause;
use super::server::{Library, Server};
use crate::report::{Table, number};
use crate::stats::median;

/// 64 KB in as many parts, over two seconds.
const PARTS: usize = 16;
const PART: usize = 4 << 10;
const APART_MS: u64 = 125;

/// Before then zlib itself has sent something of what it collects: what holds a page back for longer would not be seen beside one that does.
const STOCK_MAX_MS: f64 = 1_500.0;

/// What came of it.
pub(super) struct Slow {
    /// Milliseconds to the first byte of the body, by library: where the server collects the page, and where it does not.
    first_ms: Vec<[f64; 2]>,
    /// The most that one of ours is later than zlib.
    pub(super) over_stock_ms: f64,
    pub(super) failed: u64,
    /// In each server's log.
    pub(super) alerts: Vec<usize>,
}

/// The page's origin; it ends with this value.
struct Origin {
    port: u16,
    ended: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Origin {
    fn start(page: Vec<u8>) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let port = listener.local_addr()?.port();
        let ended = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&ended);
        let thread = thread::Builder::new().name("slow page".into()).spawn(move || {
            for stream in listener.incoming().flatten() {
                if seen.load(Ordering::Relaxed) {
                    return;
                }
                // A client that goes away is no fault.
                let _ = answer(stream, &page);
            }
        })?;
        Ok(Self { port, ended, thread: Some(thread) })
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        // Wakes it up.
        let _ = TcpStream::connect(("127.0.0.1", self.port));
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn answer(mut stream: TcpStream, page: &[u8]) -> std::io::Result<()> {
    let mut request = [0; 4_096];
    let _read = stream.read(&mut request)?;
    stream.write_all(b"HTTP/1.0 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n")?;
    for part in page.chunks(PART) {
        stream.write_all(part)?;
        pause(APART_MS);
    }
    Ok(())
}

/// Signs by chance, in which there is little to find again: zlib ends its first block after a third of them, and that of a page of text
/// with the page.
fn page() -> Vec<u8> {
    super::chance().map(|byte| b' ' + (byte >> 2)).take(PARTS * PART).collect()
}

/// Asks each library's server for the page, `rounds` times.
pub(super) fn run(dir: &Path, libraries: &[Library], rounds: usize) -> Result<Slow> {
    let page = page();
    let origin = Origin::start(page.clone())?;
    let servers = libraries
        .iter()
        .map(|library| Server::proxy(&dir.join(library.folder("slow")), library, origin.port))
        .collect::<Result<Vec<_>>>()?;
    let (mut times, mut failed) = (vec![[Vec::new(), Vec::new()]; libraries.len()], 0);
    for _ in 0..rounds {
        for (server, times) in servers.iter().zip(&mut times) {
            for (times, path) in times.iter_mut().zip(["", "at-once"]) {
                let answer = fetch::get(server.port, path)?;
                let plain = weirgate_deflate::gunzip(&answer.body, page.len());
                failed += u64::from(plain.as_deref() != Some(&page[..]));
                times.push(answer.first_byte.as_secs_f64() * 1e3);
            }
        }
    }
    let first_ms: Vec<[f64; 2]> = times.into_iter().map(|both| both.map(median)).collect();
    let pairs = || libraries.iter().zip(&first_ms);
    let stock = pairs().find(|(library, _)| library.is_stock()).map(|(_, ms)| *ms);
    let stock = stock.ok_or_else(|| anyhow!("zlib is not among the libraries"))?;
    ensure!(stock[0] < STOCK_MAX_MS, "zlib holds the page back for {} ms itself", number(stock[0]));
    let ours = pairs().filter(|(library, _)| library.is_ours());
    let ours = ours.flat_map(|(_, [collected, at_once])| [collected - stock[0], at_once - stock[1]]);
    let over_stock_ms = ours.fold(f64::NEG_INFINITY, f64::max);
    let alerts = servers.iter().map(Server::alerts).collect();
    Ok(Slow { first_ms, over_stock_ms, failed, alerts })
}

impl Slow {
    /// In a table.
    pub(super) fn table(&self, libraries: &[Library]) -> Table {
        let mut table = Table::new(
            "A page of 64 KB of signs by chance that comes over 2 s, proxied",
            &["library", "first byte of the body after, ms", "with proxy_buffering off"],
        );
        let row = |(of, ms): (&Library, &[f64; 2])| [vec![of.name.to_owned()], ms.map(number).to_vec()].concat();
        table.rows = libraries.iter().zip(&self.first_ms).map(row).collect();
        table
    }
}
