//! The multipath transport as a library: one object over two paths, from one thread to another, over the loopback interface.
//!
//! `cargo run --release --example object`

#![allow(clippy::disallowed_methods, reason = "a program has threads and clocks")]

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use weirgate_linux::clock;
use weirgate_linux::transport::{App, Driver};
use weirgate_linux::udp::Udp;
use weirgate_spray::wire::{ConnectionId, Datagram};
use weirgate_spray::{Connection, Event, Secret, Settings, Sink, Source, crypto};

const LEN: u64 = 100_000_000;

/// Sends the object when the other side is there, and ends the connection when that has it.
#[derive(Default)]
struct Sender(Option<u64>);

impl Source for Sender {
    fn read(&mut self, _object: u64, offset: u64, out: &mut [u8]) {
        out.iter_mut().zip(offset..).for_each(|(byte, at)| *byte = at as u8);
    }
}

impl Sink for Sender {
    fn write(&mut self, _object: u64, _offset: u64, _bytes: &[u8]) {}
}

impl App for Sender {
    type Error = io::Error;

    fn handle_event(&mut self, connection: &mut Connection, event: Event) -> io::Result<()> {
        match event {
            Event::Connected => {
                let object = connection.open();
                connection.provide(object, LEN, true);
                self.0 = Some(object);
            }
            Event::Delivered(object) if self.0 == Some(object) => {
                connection.close(clock::monotonic(), 0, "it is there")
            }
            _ => {}
        }
        Ok(())
    }

    fn advance(&mut self, _connection: &mut Connection) -> io::Result<()> {
        Ok(())
    }
}

/// Counts what comes, which may be in any order.
#[derive(Default)]
struct Receiver(u64);

impl Source for Receiver {
    fn read(&mut self, _object: u64, _offset: u64, _out: &mut [u8]) {}
}

impl Sink for Receiver {
    fn write(&mut self, _object: u64, offset: u64, bytes: &[u8]) {
        assert!(bytes.iter().zip(offset..).all(|(byte, at)| *byte == at as u8), "a byte is where it belongs");
        self.0 += bytes.len() as u64;
    }
}

impl App for Receiver {
    type Error = io::Error;

    fn handle_event(&mut self, _connection: &mut Connection, _event: Event) -> io::Result<()> {
        Ok(())
    }

    fn advance(&mut self, _connection: &mut Connection) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error + Send + Sync>> {
    let (mine, theirs) = (Secret::generate(), Secret::generate());
    let public = theirs.public();
    let socket = Udp::bind("127.0.0.1:0".parse()?, None)?;
    let remote = socket.local();
    let receiving = thread::spawn(move || receive(socket, &theirs));

    let sockets = ["127.0.0.2:0", "127.0.0.3:0"].map(|local| Udp::bind(local.parse().expect("an address"), None));
    let sockets: Vec<Udp> = sockets.into_iter().collect::<io::Result<_>>()?;
    let paths: Vec<(SocketAddr, SocketAddr)> = sockets.iter().map(|socket| (socket.local(), remote)).collect();
    let mut driver = Driver::new(sockets)?;
    let now = clock::monotonic();
    // To be drawn at random: its name, and what tokens are made of.
    let id = (ConnectionId(now.as_nanos()), now.as_nanos());
    let mut connection = Connection::connect(now, Settings::default(), &mine, public, id, &paths)?;
    let began = Instant::now();
    driver.run(&mut connection, &mut Sender::default())?;
    let seconds = began.elapsed().as_secs_f64();
    let received = receiving.join().expect("the receiver does not panic")?;
    println!("{received} bytes over {} paths, {:.1} Gbit/s", paths.len(), LEN as f64 * 8.0 / 1e9 / seconds);
    assert_eq!(received, LEN, "all of it came");
    Ok(())
}

fn receive(socket: Udp, secret: &Secret) -> io::Result<u64> {
    let mut driver = Driver::new(vec![socket])?;
    let mut receiver = Receiver::default();
    let mut answered = None;
    while answered.is_none() {
        driver.receive(None, |local, remote, datagram| {
            let now = clock::monotonic();
            if answered.is_none()
                && let Ok(Datagram::Init { connection, message, .. }) = Datagram::parse(datagram)
                // Whoever calls may call.
                && let Ok(called) = crypto::answer(connection, secret, message, &Connection::hello(&Settings::default()), |_| true)
            {
                answered = Some(Connection::accept(now, Settings::default(), called, (connection, now.as_nanos())));
            }
            if let Some(connection) = &mut answered {
                connection.handle_datagram(now, (local, remote), datagram, &mut receiver);
            }
        })?;
    }
    if let Some(connection) = &mut answered {
        driver.run(connection, &mut receiver)?;
    }
    Ok(receiver.0)
}
