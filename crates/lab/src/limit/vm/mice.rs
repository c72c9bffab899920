//! Small transfers, each a connection of its own, to or from a web server (busybox's) in the guest.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::guest::{GUEST, Guest, Way};
use crate::net::Namespace;

/// How many at once.
pub(super) const MICE: u32 = 20;

/// Bytes of each.
pub(super) const SIZE: usize = 20_000;

/// From one transfer of a mouse to its next: all of them are a third of 5 Mbit/s.
const EVERY: Duration = Duration::from_secs(2);

/// Who has to wait longer than this counts with it.
const PATIENCE: Duration = Duration::from_secs(10);

const PORT: u16 = 80;

/// Starts the web server.
pub(super) fn serve(guest: &mut Guest) -> Result<()> {
    let files = format!("mkdir /tmp/www && head -c {SIZE} /dev/zero > /tmp/www/all && : > /tmp/www/none");
    guest.expect(&format!("{files} && httpd -p {PORT} -h /tmp/www"))?;
    Ok(())
}

/// Has all of them run for `time`, from `host`; how long each transfer took, in milliseconds.
pub(super) fn run(host: &Namespace, way: Way, time: Duration) -> Result<Vec<f64>> {
    let began = Instant::now();
    let took = thread::scope(|scope| {
        let mice: Vec<_> = (0..MICE).map(|mouse| scope.spawn(move || one(host, way, began, time, mouse))).collect();
        mice.into_iter().map(|mouse| mouse.join().expect("a mouse does not panic")).collect::<Result<Vec<_>>>()
    })?;
    Ok(took.concat())
}

fn one(host: &Namespace, way: Way, began: Instant, time: Duration, mouse: u32) -> Result<Vec<f64>> {
    let mut took = Vec::new();
    let mut due = EVERY * mouse / MICE;
    while due < time {
        thread::sleep(due.saturating_sub(began.elapsed()));
        let start = Instant::now();
        // Who comes late does not make the next one late.
        due = (due + EVERY).max(began.elapsed());
        let time_taken = loop {
            match host.netns().within(|| transfer(way))? {
                Ok(()) => break start.elapsed(),
                Err(e) if matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock) => break PATIENCE,
                // It begins again: where its request is dropped and sent again, parts of it can come when the server is done.
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {}
                Err(e) => return Err(e).context("the guest's web server does not answer"),
            }
            if start.elapsed() >= PATIENCE {
                break PATIENCE;
            }
        };
        took.push(time_taken.as_secs_f64() * 1e3);
    }
    Ok(took)
}

/// The request and its whole answer, one of which is of [`SIZE`].
fn transfer(way: Way) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&SocketAddr::new(GUEST.into(), PORT), PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let request = match way {
        Way::FromGuest => "GET /all HTTP/1.0\r\n\r\n".to_owned(),
        // Lines that the server reads and forgets; it takes 8 KB in one and 32 KB in all.
        Way::ToGuest => {
            format!("GET /none HTTP/1.0\r\n{}\r\n", format!("X: {}\r\n", "x".repeat(995)).repeat(SIZE / 1_000))
        }
    };
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer)?;
    let enough = if way == Way::FromGuest { SIZE } else { 1 };
    if answer.len() < enough || !answer.starts_with(b"HTTP/1.") {
        return Err(io::Error::other(format!("{} bytes came", answer.len())));
    }
    Ok(())
}
