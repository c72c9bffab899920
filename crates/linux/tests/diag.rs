//! Netlink polling and destroy announcements on the running kernel.
#![allow(clippy::disallowed_methods, reason = "real sockets on the real kernel")]

mod namespace;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::sockopt::set_socket_linger;
use rustix::net::{AddressFamily, SocketAddrV6, SocketFlags, SocketType, bind, connect, listen, socket_with};
use weirgate_linux::diag::{DestroyListener, DiagPoller, PollError};
use weirgate_linux::netns::Netns;
use weirgate_linux::poll::Filter;
use weirgate_sockets::sample::{Field, Kind, Sample, state};

use namespace::in_own_namespace;

fn polled(poller: &mut DiagPoller, filter: &Filter) -> Vec<Sample> {
    let mut samples = Vec::new();
    let stats = poller.poll(&Netns::current().unwrap(), filter, &mut |s| samples.push(*s)).unwrap();
    assert_eq!((stats.sockets, stats.lost), (samples.len() as u64, 0));
    samples
}

fn established() -> Filter {
    Filter { states: 1 << state::ESTABLISHED, ..Filter::default() }
}

/// Both ends of a connection to `address`.
fn connection(listener: &TcpListener, address: IpAddr) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect((address, listener.local_addr().unwrap().port())).unwrap();
    (client, listener.accept().unwrap().0)
}

/// Reads what is sent to its end, so that the sender's last byte is acknowledged.
fn transfer(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    let data = vec![7; 64 << 10];
    let mut sink = vec![0; 64 << 10];
    for _ in 0..bytes / data.len() {
        from.write_all(&data).unwrap();
        to.read_exact(&mut sink).unwrap();
    }
}

#[test]
fn a_sample_says_what_the_socket_did() {
    in_own_namespace(|| {
        for (listen, connect) in [("127.0.0.1:0", "127.0.0.1"), ("[::1]:0", "::1"), ("[::]:0", "127.0.0.1")] {
            let listener = TcpListener::bind(listen).unwrap();
            let (mut client, mut server) = connection(&listener, connect.parse().unwrap());
            transfer(&mut server, &mut client, 1 << 20);

            let samples = polled(&mut DiagPoller::new(), &established());
            let port = listener.local_addr().unwrap().port();
            let sample = samples.iter().find(|s| s.local_port == port).unwrap();
            let expected: SocketAddr = (connect.parse::<IpAddr>().unwrap(), port).into();
            assert_eq!(sample.local(), expected);
            assert_eq!(sample.remote(), client.local_addr().unwrap());
            assert_eq!(sample.family, if connect == "::1" { 6 } else { 4 }, "a mapped address is IPv4");
            assert_eq!((sample.kind(), sample.state), (Kind::Poll, state::ESTABLISHED));
            assert_eq!(sample.netns, Netns::current().unwrap().inode());
            assert!(sample.bytes_acked >= 1 << 20 && sample.bytes_sent >= sample.bytes_acked, "{sample:?}");
            assert!(sample.has(Field::TcpInfo) && sample.has(Field::Cc) && sample.has(Field::Memory));
            assert!(sample.rtt_us > 0 && sample.snd_cwnd > 0 && sample.sndbuf > 0 && sample.cookie != 0);
            assert_eq!(sample.has(Field::Bbr), sample.cc.as_str() == "bbr", "{}", sample.cc);
        }
    });
}

#[test]
fn listeners_come_before_their_connections() {
    in_own_namespace(|| {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let _v4 = connection(&listener, "127.0.0.1".parse().unwrap());
        let _v6 = connection(&listener, "::1".parse().unwrap());
        let samples = polled(&mut DiagPoller::new(), &Filter::default());
        let port = listener.local_addr().unwrap().port();
        let own: Vec<_> = samples.iter().filter(|s| s.local_port == port).map(|s| s.state).collect();
        assert_eq!(own, [state::LISTEN, state::ESTABLISHED, state::ESTABLISHED]);
    });
}

#[test]
fn the_kernel_applies_the_filter() {
    in_own_namespace(|| {
        let listeners = [TcpListener::bind("127.0.0.1:0").unwrap(), TcpListener::bind("[::]:0").unwrap()];
        let mut open = Vec::new();
        for _ in 0..20 {
            open.push(connection(&listeners[0], "127.0.0.1".parse().unwrap()));
            open.push(connection(&listeners[1], "127.0.0.2".parse().unwrap()));
            open.push(connection(&listeners[1], "::1".parse().unwrap()));
        }
        let mut poller = DiagPoller::new();
        let ns = Netns::current().unwrap();
        let mut count = |filter: Filter| {
            let stats = poller.poll(&ns, &filter, &mut |_| {}).unwrap();
            (stats.sockets, stats.bytes)
        };
        let port = listeners[0].local_addr().unwrap().port();
        let (all, all_bytes) = count(Filter::default());
        assert_eq!(all, 2 + 2 * 60);
        let networks = |list: &[&str]| list.iter().map(|p| p.parse().unwrap()).collect::<Vec<_>>();
        for (filter, expected) in [
            (Filter { states: 1 << state::LISTEN, ..Filter::default() }, 2),
            (established(), 120),
            (Filter { local_ports: vec![port], ..Filter::default() }, 1 + 20),
            (Filter { local_ports: vec![port, 1], ..established() }, 20),
            // Both ends of the IPv6 connections are at ::1.
            (Filter { remote: networks(&["::1/128"]), ..Filter::default() }, 2 + 40),
            (Filter { remote: networks(&["::/0"]), ..established() }, 40),
            // The mapped ones' server sees 127.0.0.1, their client 127.0.0.2, in an IPv4 socket.
            (Filter { remote: networks(&["127.0.0.2/32"]), ..established() }, 20),
            (Filter { remote: networks(&["127.0.0.0/8"]), ..established() }, 80),
            (Filter { remote_not: networks(&["127.0.0.0/8"]), ..Filter::default() }, 2 + 40),
            (
                Filter {
                    remote: networks(&["127.0.0.0/8", "::1/128"]),
                    remote_not: networks(&["127.0.0.1/32"]),
                    ..established()
                },
                20 + 40,
            ),
        ] {
            let (sockets, bytes) = count(filter.clone());
            assert_eq!(sockets, expected, "{filter:?}");
            assert!(bytes < all_bytes, "{filter:?}: {bytes} of {all_bytes}");
        }
    });
}

#[test]
fn a_filter_that_is_too_long_is_named_and_the_next_poll_works() {
    in_own_namespace(|| {
        let mut poller = DiagPoller::new();
        let ns = Netns::current().unwrap();
        let filter = Filter { local_ports: (0..65).collect(), ..Filter::default() };
        let error = poller.poll(&ns, &filter, &mut |_| {}).unwrap_err();
        assert!(matches!(error, PollError::Filter(_)), "{error}");
        assert!(polled(&mut poller, &Filter::default()).is_empty());
    });
}

#[test]
fn many_sockets_come_whole_through_a_small_buffer() {
    in_own_namespace(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open: Vec<_> = (0..500).map(|_| connection(&listener, "127.0.0.1".parse().unwrap())).collect();
        let mut poller = DiagPoller::new();
        for _ in 0..2 {
            let samples = polled(&mut poller, &established());
            let mut cookies: Vec<_> = samples.iter().map(|s| s.cookie).collect();
            cookies.sort_unstable();
            cookies.dedup();
            assert_eq!((samples.len(), cookies.len()), (1000, 1000));
        }
        drop(open);
    });
}

#[test]
fn another_namespace_is_polled_from_outside() {
    in_own_namespace(|| {
        let inner = Netns::current().unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let _open = connection(&listener, "127.0.0.1".parse().unwrap());
        std::thread::scope(|scope| {
            // Not a spawned thread of this one: it would begin in this namespace as well, so it leaves it first.
            scope.spawn(|| {
                in_own_namespace(|| {
                    let mut poller = DiagPoller::new();
                    assert!(polled(&mut poller, &Filter::default()).is_empty());
                    let mut seen = Vec::new();
                    poller.poll(&inner, &Filter::default(), &mut |s| seen.push(s.netns)).unwrap();
                    assert_eq!(seen, [inner.inode(); 3]);
                    poller.forget(inner.inode());
                    assert!(polled(&mut poller, &Filter::default()).is_empty());
                });
            });
        });
    });
}

/// What the listener hears until `enough`, or for ten seconds.
fn heard(closes: &mut DestroyListener, enough: impl Fn(&[Sample]) -> bool) -> Vec<Sample> {
    let mut samples = Vec::new();
    let deadline = Instant::now() + Duration::from_secs(10);
    while !enough(&samples) && Instant::now() < deadline {
        let wait = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
        poll(&mut [PollFd::new(&closes.as_fd(), PollFlags::IN)], Some(&wait)).unwrap();
        closes.drain(&mut |s| samples.push(*s)).unwrap();
    }
    assert_eq!((closes.stats().overruns, closes.stats().malformed), (0, 0));
    samples
}

#[test]
fn closes_are_heard_however_they_come() {
    in_own_namespace(|| {
        let mut closes = DestroyListener::open(&Netns::current().unwrap()).unwrap();
        for address in ["127.0.0.1", "::1"] {
            let listener = TcpListener::bind((address, 0)).unwrap();
            let port = listener.local_addr().unwrap().port();
            let address: IpAddr = address.parse().unwrap();
            let is_server = |s: &Sample| s.local_port == port && s.remote_port != 0;
            let is_client = |s: &Sample| s.remote_port == port;

            // An orderly close: the end that closes first waits in TIME-WAIT, and is announced all the same.
            let (mut client, mut server) = connection(&listener, address);
            let server_end = client.local_addr().unwrap();
            transfer(&mut server, &mut client, 1 << 20);
            let cookies: Vec<_> =
                polled(&mut DiagPoller::new(), &established()).iter().map(|s| (s.local_port, s.cookie)).collect();
            drop(server);
            drop(client);
            let samples = heard(&mut closes, |s| s.iter().any(is_server) && s.iter().any(is_client));
            let sample = samples.iter().copied().find(is_server).unwrap();
            assert_eq!((sample.kind(), sample.remote()), (Kind::Close, server_end));
            assert!(sample.has(Field::TcpInfo) && sample.bytes_acked >= 1 << 20, "{sample:?}");
            assert!(cookies.contains(&(port, sample.cookie)), "a close is matched to its polls by the cookie");

            // A reset. The end that sends it has forgotten its peer by the time it is announced; its cookie tells.
            let (client, server) = connection(&listener, address);
            let waiting = polled(&mut DiagPoller::new(), &established());
            assert_eq!(waiting.len(), 2);
            set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
            drop(client);
            drop(server);
            let both = |s: &[Sample]| waiting.iter().all(|w| s.iter().any(|s| s.cookie == w.cookie));
            let samples = heard(&mut closes, both);
            assert!(both(&samples) && samples.iter().any(is_server), "{samples:?}");
            assert!(!samples.iter().any(is_client), "this kernel remembers the peer: say so in destroy.rs");
        }
    });
}

#[test]
fn closes_that_were_not_read_in_time_are_known_to_be_missing() {
    in_own_namespace(|| {
        let mut closes = DestroyListener::with_buffer(&Netns::current().unwrap(), 16 << 10).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            let (client, server) = connection(&listener, "127.0.0.1".parse().unwrap());
            set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
            drop(client);
            drop(server);
        }
        // The announcements are made by a work queue: wait until the buffer must have overflowed.
        let deadline = Instant::now() + Duration::from_secs(10);
        while closes.stats().overruns == 0 && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(100));
            closes.drain(&mut |_| {}).unwrap();
        }
        let stats = closes.stats();
        assert!(stats.overruns >= 1 && stats.closes < 200, "{stats:?}");
    });
}

#[test]
fn the_close_of_a_killed_owner_is_heard() {
    in_own_namespace(|| {
        let mut closes = DestroyListener::open(&Netns::current().unwrap()).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (client, server) = connection(&listener, "127.0.0.1".parse().unwrap());
        let end = OwnedFd::from(client);
        // The child holds the only descriptor of the client's end.
        let mut owner = Command::new("sleep").arg("600").stdin(Stdio::from(end)).spawn().unwrap();
        owner.kill().unwrap();
        owner.wait().unwrap();
        let mut byte = [0];
        server.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        assert_eq!((&server).read(&mut byte).unwrap(), 0, "the kernel closed for the owner");
        server.shutdown(Shutdown::Both).unwrap();
        drop(server);
        let both = |s: &[Sample]| s.iter().any(|s| s.remote_port == port) && s.iter().any(|s| s.local_port == port);
        assert!(both(&heard(&mut closes, both)));
    });
}

#[test]
fn a_connection_that_never_was_is_heard_without_counters() {
    in_own_namespace(|| {
        let mut closes = DestroyListener::open(&Netns::current().unwrap()).unwrap();
        // A listener that accepts nothing and whose queue is full answers no SYN: the client stays in SYN-SENT.
        let listening = socket_with(AddressFamily::INET6, SocketType::STREAM, SocketFlags::CLOEXEC, None).unwrap();
        bind(&listening, &SocketAddrV6::new(Ipv6Addr::LOCALHOST, 0, 0, 0)).unwrap();
        listen(&listening, 0).unwrap();
        let address: SocketAddr = rustix::net::getsockname(&listening).unwrap().try_into().unwrap();
        let clients: Vec<_> = (0..8)
            .map(|_| {
                let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
                let client = socket_with(AddressFamily::INET6, SocketType::STREAM, flags, None).unwrap();
                let _ = connect(&client, &address);
                client
            })
            .collect();
        let filter = Filter { states: 1 << state::SYN_SENT, ..Filter::default() };
        let waiting = polled(&mut DiagPoller::new(), &filter);
        assert!(!waiting.is_empty() && waiting.iter().all(|s| s.bytes_acked == 0), "{waiting:?}");
        drop(clients);
        let cookies = |s: &[Sample]| waiting.iter().all(|w| s.iter().any(|s| s.cookie == w.cookie));
        assert!(cookies(&heard(&mut closes, cookies)));
    });
}
