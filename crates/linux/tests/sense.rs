//! Sensing on the running kernel.
#![allow(clippy::disallowed_methods, reason = "real sockets on the real kernel")]

use std::net::{TcpListener, TcpStream};

use weirgate_linux::bpf::IterPoller;
use weirgate_linux::netns::Netns;
use weirgate_linux::poll::Filter;

#[test]
fn the_iterator_sees_a_connection() {
    let mut poller = match IterPoller::load() {
        Ok(poller) => poller,
        Err(e) => return println!("SKIPPED: {e}"),
    };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    let filter = Filter { local_ports: vec![port], ..Filter::default() };
    let mut seen = Vec::new();
    let stats = poller.poll(&Netns::current().unwrap(), &filter, &mut |s| seen.push(*s)).unwrap();
    assert_eq!((stats.sockets, stats.lost), (2, 0));
    assert_eq!(seen[1].remote(), client.local_addr().unwrap());
}
