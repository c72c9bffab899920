//! Polling on the running kernel by the iterator: what it sees, what it filters, and that its numbers are the kernel's.
#![allow(clippy::disallowed_methods, reason = "real sockets on the real kernel")]

mod place;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd};

use rustix::net::sockopt;
use weirgate_linux::bpf::{Closes, IterPoller};
use weirgate_linux::diag::DiagPoller;
use weirgate_linux::poll::Filter;
use weirgate_sockets::sample::{Field, Sample, flag, state};
use weirgate_units::Bytes;

use place::Place;

const ALL: u32 = u32::MAX;

fn load() -> Option<IterPoller> {
    IterPoller::load().map_err(|e| println!("SKIPPED: {e}")).ok()
}

fn poll(poller: &mut IterPoller, place: &Place, filter: &Filter) -> Vec<Sample> {
    let mut samples = Vec::new();
    let stats = poller.poll(place.ns(), filter, &mut |s| samples.push(*s)).unwrap();
    assert_eq!((stats.sockets, stats.lost), (samples.len() as u64, 0));
    samples
}

fn pair(listener: &TcpListener, to: IpAddr) -> (TcpStream, TcpStream) {
    let client = TcpStream::connect((to, listener.local_addr().unwrap().port())).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

fn cookie(socket: impl AsFd) -> u64 {
    sockopt::socket_cookie(socket).unwrap()
}

fn of(samples: &[Sample], socket: impl AsFd) -> &Sample {
    let cookie = cookie(socket);
    samples.iter().find(|s| s.cookie == cookie).unwrap_or_else(|| panic!("no sample of {cookie} in {samples:?}"))
}

const V4: IpAddr = IpAddr::V4(std::net::Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);

#[test]
fn both_families_and_mapped_addresses_are_seen() {
    let (Some(place), Some(mut poller)) = (Place::enter(), load()) else { return };
    let dual = TcpListener::bind("[::]:0").unwrap();
    let (mapped, mapped_server) = pair(&dual, V4);
    let (six, six_server) = pair(&dual, V6);
    let only_four = TcpListener::bind("127.0.0.1:0").unwrap();
    let (four, four_server) = pair(&only_four, V4);
    let samples = poll(&mut poller, &place, &Filter::default());
    assert_eq!(samples.len(), 8, "{samples:?}");

    for (socket, family) in
        [(&mapped, 4), (&mapped_server, 4), (&six, 6), (&six_server, 6), (&four, 4), (&four_server, 4)]
    {
        let sample = of(&samples, socket);
        let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
        assert_eq!(sample.family, family);
        assert_eq!(sample.state, state::ESTABLISHED);
        assert_eq!(sample.local(), canonical(socket.local_addr().unwrap()));
        assert_eq!(sample.remote(), canonical(socket.peer_addr().unwrap()));
        assert_eq!(sample.netns, place.ns().inode());
        assert_eq!(sample.cgroup_id, weirgate_linux::cgroup::id(place.group()).unwrap());
        assert_eq!(sample.cc.as_str(), sockopt::tcp_congestion(socket).unwrap());
        assert!(sample.has(Field::TcpInfo) && sample.has(Field::BytesAcked) && sample.has(Field::CgroupId));
    }
    for listener in [&dual, &only_four] {
        let sample = of(&samples, listener);
        assert_eq!((sample.state, sample.local_port), (state::LISTEN, listener.local_addr().unwrap().port()));
    }
    // Listeners come first, so that their ports are known when the connections come.
    assert!(samples[..2].iter().all(|s| s.state == state::LISTEN));
}

#[test]
fn only_what_the_filter_wants_comes() {
    let (Some(place), Some(mut poller)) = (Place::enter(), load()) else { return };
    let first = TcpListener::bind("[::]:0").unwrap();
    let second = TcpListener::bind("[::]:0").unwrap();
    let port = first.local_addr().unwrap().port();
    let _four = pair(&first, V4);
    let _six = pair(&first, V6);
    let _other = pair(&second, V4);
    let mut count = |filter: Filter| poll(&mut poller, &place, &filter).len();
    let established = Filter { states: 1 << state::ESTABLISHED, ..Filter::default() };

    assert_eq!(count(Filter { states: 1 << state::LISTEN, ..Filter::default() }), 2);
    assert_eq!(count(established.clone()), 6);
    assert_eq!(count(Filter { local_ports: vec![port], ..established.clone() }), 2);
    assert_eq!(count(Filter { local_ports: vec![1, port, 65535], ..Filter::default() }), 3);
    assert_eq!(count(Filter { remote: vec!["127.0.0.0/8".parse().unwrap()], ..established.clone() }), 4);
    assert_eq!(count(Filter { remote: vec!["::1/128".parse().unwrap()], ..established.clone() }), 2);
    assert_eq!(count(Filter { remote: vec!["0.0.0.0/0".parse().unwrap()], ..established.clone() }), 4);
    assert_eq!(count(Filter { remote: vec!["10.0.0.0/8".parse().unwrap()], ..established.clone() }), 0);
    assert_eq!(count(Filter { remote_not: vec!["127.0.0.1".parse().unwrap()], ..established.clone() }), 2);
    let both = Filter {
        remote: vec!["::/0".parse().unwrap()],
        remote_not: vec!["127.0.0.0/8".parse().unwrap()],
        ..Filter::default()
    };
    // `::/0` holds mapped addresses, too; listeners have no remote end.
    assert_eq!(count(both), 4);
    assert_eq!(count(Filter::default()), 8);
}

#[test]
fn too_long_a_filter_is_refused_by_name() {
    let (Some(place), Some(mut poller)) = (Place::enter(), load()) else { return };
    let filter = Filter { remote: vec!["10.0.0.0/8".parse().unwrap(); 65], ..Filter::default() };
    let error = poller.poll(place.ns(), &filter, &mut |_| {}).unwrap_err();
    assert_eq!(error.to_string(), "the filter names 65 remote networks; at most 64 are possible");
    assert!(poll(&mut poller, &place, &Filter::default()).is_empty());
}

#[test]
fn other_namespaces_are_polled_from_here() {
    let (Some(place), Some(mut poller)) = (Place::enter(), load()) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let cookie = cookie(&listener);
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let other = Place::enter().unwrap();
            assert!(poll(&mut poller, &other, &Filter::default()).is_empty());
            poll(&mut poller, &place, &Filter::default())
        });
        let samples = there.join().unwrap();
        assert!(samples.len() == 1 && samples[0].cookie == cookie, "{samples:?}");
    });
}

#[test]
fn requests_and_mini_sockets_have_ends_and_no_numbers() {
    let (Some(place), Some(mut poller)) = (Place::enter(), load()) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (client, server) = pair(&listener, V4);
    let gone = client.local_addr().unwrap();
    drop(client);
    drop(server);
    // A listener that waits for data keeps the connection a request until some comes.
    let seconds: libc::c_int = 30;
    // SAFETY: the pointer is to a live integer of the length given.
    let set = unsafe {
        libc::setsockopt(
            listener.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_DEFER_ACCEPT,
            (&raw const seconds).cast(),
            size_of_val(&seconds) as u32,
        )
    };
    assert_eq!(set, 0);
    let waiting = TcpStream::connect((V4, port)).unwrap();
    let samples = poll(&mut poller, &place, &Filter { states: ALL, ..Filter::default() });
    let of_state = |wanted| samples.iter().find(move |s| s.state == wanted);

    let request = of_state(state::SYN_RECV).expect("a request");
    assert_eq!((request.local_port, request.remote()), (port, waiting.local_addr().unwrap()));
    let mini = of_state(state::TIME_WAIT).expect("a mini-socket");
    assert_eq!(mini.local(), gone);
    for sample in [request, mini] {
        assert!(!sample.has(Field::TcpInfo) && !sample.has(Field::BytesAcked) && sample.has(Field::Netns));
        assert_ne!(sample.cookie, 0);
    }
    // The default filter leaves both out.
    assert_eq!(poll(&mut poller, &place, &Filter::default()).len(), 2);
}

#[test]
fn numbers_are_those_of_the_kernels_own_tcp_info() {
    let (Some(place), Some(mut poller)) = (Place::enter(), load()) else { return };
    let listener = TcpListener::bind("[::]:0").unwrap();
    let (mut client, mut server) = pair(&listener, V4);
    let (_idle, _idle_server) = pair(&listener, V6);
    // A transfer in which the sender waits for the receiver, over many ticks; then quiet: nothing changes between the two
    // looks.
    let sent = vec![7u8; 16 << 20];
    let mut received = vec![0; sent.len()];
    std::thread::scope(|scope| {
        scope.spawn(|| client.write_all(&sent).unwrap());
        std::thread::sleep(std::time::Duration::from_millis(100));
        server.read_exact(&mut received).unwrap();
    });
    wait_until_quiet(&client);

    let by_iterator = poll(&mut poller, &place, &Filter::default());
    let mut by_netlink = Vec::new();
    DiagPoller::new().poll(place.ns(), &Filter::default(), &mut |s| by_netlink.push(*s)).unwrap();
    assert_eq!(by_iterator.len(), 5);
    assert_eq!(by_netlink.len(), 5);
    for netlink in &by_netlink {
        let cookie = netlink.cookie;
        let iterator = by_iterator.iter().find(|s| s.cookie == cookie).unwrap();
        assert_same(iterator, netlink);
    }
    let sender = of(&by_iterator, &client);
    assert_eq!(sender.bytes_acked, sent.len() as u64 + 1, "the SYN counts, as in tcp_info");
    assert_eq!(of(&by_iterator, &server).bytes_received, sent.len() as u64);
    assert!(
        sender.busy_us > 20_000
            && sender.rwnd_limited_us + sender.sndbuf_limited_us > 0
            && sender.delivery_rate > 0
            && sender.min_rtt_us > 0,
        "{sender:?}"
    );
    assert_eq!(sender.has(Field::Bbr), sender.cc.as_str() == "bbr", "{sender:?}");
}

/// Everything that both sources give must be equal.
fn assert_same(iterator: &Sample, netlink: &Sample) {
    let listens = iterator.state == state::LISTEN;
    macro_rules! same {
        ($($field:ident)*) => { $(assert_eq!(iterator.$field, netlink.$field, concat!(stringify!($field), " of {:?}"), iterator);)* };
    }
    same!(state family local_port remote_port mark local remote cookie cgroup_id cc);
    same!(rmem_alloc rcvbuf wmem_queued sndbuf backlog_drops unacked);
    if listens {
        return;
    }
    same!(ca_state bytes_sent bytes_acked bytes_retrans bytes_received delivery_rate pacing_rate busy_us);
    same!(rwnd_limited_us sndbuf_limited_us rtt_us rttvar_us min_rtt_us rto_us snd_mss snd_cwnd snd_ssthresh);
    same!(segs_out segs_in data_segs_out data_segs_in total_retrans lost retrans_out reordering reord_seen);
    same!(dsack_dups delivered delivered_ce notsent_bytes bbr_bw bbr_min_rtt_us bbr_pacing_gain bbr_cwnd_gain);
    let bits = flag::APP_LIMITED | flag::TIMESTAMPS | flag::SACK | flag::ECN | flag::ECN_SEEN;
    assert_eq!(iterator.flags & bits, netlink.flags & bits, "flags of {iterator:?}");
    let both = iterator.given & netlink.given;
    assert_eq!(both | 1 << Field::Netns as u8, iterator.given | 1 << Field::Netns as u8, "netlink lacks a field");
}

/// Until nothing is unacknowledged and the delayed acknowledgements are out.
fn wait_until_quiet(socket: &TcpStream) {
    for _ in 0..100 {
        std::thread::sleep(std::time::Duration::from_millis(60));
        let mut unsent: libc::c_int = -1;
        // SAFETY: SIOCOUTQ writes one integer, to which the pointer is.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), libc::TIOCOUTQ, &raw mut unsent) };
        if result == 0 && unsent == 0 {
            return std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }
    panic!("the transfer does not end");
}

#[test]
fn the_end_that_opened_is_known_where_the_memory_is_shared() {
    let Some(place) = Place::enter() else { return };
    let closes = match Closes::attach(place.group(), Bytes::new(4096), None) {
        Ok(closes) => closes,
        Err(e) => return println!("SKIPPED: {e}"),
    };
    let mut knowing = IterPoller::load_sharing(closes.conns()).unwrap();
    let mut ignorant = IterPoller::load().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (client, server) = pair(&listener, V4);
    let samples = poll(&mut knowing, &place, &Filter::default());
    let both = flag::ACCEPTED | flag::CONNECTED;
    assert_eq!(of(&samples, &client).flags & both, flag::CONNECTED);
    assert_eq!(of(&samples, &server).flags & both, flag::ACCEPTED);
    assert_eq!(of(&samples, &listener).flags & both, 0);
    assert!(poll(&mut ignorant, &place, &Filter::default()).iter().all(|s| s.flags & both == 0));
}

#[test]
fn records_cut_by_the_kernels_buffer_are_whole_again() {
    let (Some(place), Some(mut poller)) = (Place::enter(), load()) else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let pairs: Vec<_> = (0..300).map(|_| pair(&listener, V4)).collect();
    // Short records among the long ones, so that every alignment of the cut occurs.
    for _ in 0..100 {
        let (client, server) = pair(&listener, V4);
        drop(client);
        drop(server);
    }
    let samples = poll(&mut poller, &place, &Filter { states: ALL, ..Filter::default() });
    let established = samples.iter().filter(|s| s.state == state::ESTABLISHED).count();
    assert_eq!(established, 2 * pairs.len());
    let mut cookies: Vec<u64> = samples.iter().map(|s| s.cookie).collect();
    cookies.sort_unstable();
    cookies.dedup();
    assert_eq!(cookies.len(), samples.len(), "seen twice");
    for (client, server) in &pairs {
        assert_eq!(of(&samples, client).local(), client.local_addr().unwrap());
        assert_eq!(of(&samples, server).remote(), client.local_addr().unwrap());
    }
}
