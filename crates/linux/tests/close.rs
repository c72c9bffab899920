//! Close records on the running kernel: every way in which a connection ends gives one, with its last numbers.
#![allow(clippy::disallowed_methods, reason = "real sockets on the real kernel")]

mod place;

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::buffer::spare_capacity;
use rustix::event::{Timespec, epoll};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
use weirgate_linux::bpf::close::ArmError;
use weirgate_linux::bpf::{Closes, IterPoller, LoadError};
use weirgate_linux::netns::Netns;
use weirgate_linux::poll::Filter;
use weirgate_sockets::sample::{Field, Kind, Sample, flag, state};
use weirgate_units::Bytes;

use place::{Place, run};

const V4: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
const V6: IpAddr = IpAddr::V6(Ipv6Addr::LOCALHOST);
const RING: Bytes = Bytes::new(1 << 20);

/// One test's place, its close programs and what they have recorded.
struct Scene {
    closes: Closes,
    records: Vec<Sample>,
    place: Place,
}

impl Scene {
    fn set() -> Option<Self> {
        Self::with_ring(RING)
    }

    fn with_ring(bytes: Bytes) -> Option<Self> {
        let place = Place::enter()?;
        match Closes::attach(place.group(), bytes, None) {
            Ok(closes) => Some(Self { closes, records: Vec::new(), place }),
            Err(e) => {
                println!("SKIPPED: {e}");
                None
            }
        }
    }

    fn drain(&mut self) {
        let records = &mut self.records;
        self.closes.drain(&mut |s| records.push(*s));
    }

    /// The close record of the socket with this cookie; waits for it.
    fn close_of(&mut self, cookie: u64) -> Sample {
        let until = Instant::now() + Duration::from_secs(30);
        loop {
            self.drain();
            if let Some(record) = self.records.iter().find(|s| s.cookie == cookie) {
                assert_eq!(record.kind(), Kind::Close);
                assert_eq!(record.netns, self.place.ns().inode());
                assert!(record.has(Field::TcpInfo));
                return *record;
            }
            assert!(Instant::now() < until, "no record of {cookie} among {:?}", self.records);
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Waits until so many closes were seen, since packets may be delivered late on a busy host.
    fn await_seen(&self, count: u64) {
        await_seen(&self.closes, count);
    }

    /// Every close seen is a record handed over or a counted failure.
    fn assert_adds_up(&mut self) {
        self.drain();
        let counters = self.closes.counters();
        assert_eq!(counters.seen, counters.ring_failures + self.records.len() as u64, "{counters:?}");
    }

    fn has_record_of(&mut self, cookie: u64) -> bool {
        self.drain();
        self.records.iter().any(|s| s.cookie == cookie)
    }
}

fn await_seen(closes: &Closes, count: u64) {
    let until = Instant::now() + Duration::from_secs(30);
    while closes.counters().seen < count && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(closes.counters().seen, count);
}

fn pair(to: IpAddr) -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("[::]:0").unwrap();
    let client = TcpStream::connect((to, listener.local_addr().unwrap().port())).unwrap();
    let (server, _) = listener.accept().unwrap();
    (client, server)
}

fn cookie(socket: impl AsFd) -> u64 {
    sockopt::socket_cookie(socket).unwrap()
}

/// Sends `bytes` one way and waits until they are there.
fn send(from: &mut TcpStream, to: &mut TcpStream, bytes: usize) {
    std::thread::scope(|scope| {
        scope.spawn(|| from.write_all(&vec![1; bytes]).unwrap());
        to.read_exact(&mut vec![0; bytes]).unwrap();
    });
}

fn ends_of(socket: &TcpStream) -> (SocketAddr, SocketAddr) {
    let canonical = |a: SocketAddr| SocketAddr::new(a.ip().to_canonical(), a.port());
    (canonical(socket.local_addr().unwrap()), canonical(socket.peer_addr().unwrap()))
}

#[test]
fn a_normal_close_gives_both_ends_last_numbers_whoever_closes_first() {
    let Some(mut scene) = Scene::set() else { return };
    for to in [V4, V6] {
        for client_first in [true, false] {
            let (mut client, mut server) = pair(to);
            send(&mut server, &mut client, 200_000);
            let (client_cookie, server_cookie) = (cookie(&client), cookie(&server));
            let (client_ends, server_ends) = (ends_of(&client), ends_of(&server));
            // The other end closes when it has seen the end of the stream.
            let (first, mut last) = if client_first { (client, server) } else { (server, client) };
            drop(first);
            assert_eq!(last.read(&mut [0; 1]).unwrap(), 0);
            drop(last);
            let client = scene.close_of(client_cookie);
            let server = scene.close_of(server_cookie);
            assert_eq!(
                ((client.local(), client.remote()), (server.local(), server.remote())),
                (client_ends, server_ends)
            );
            // A FIN counts as received, but who closed first is gone once its own FIN is acknowledged: the other's FIN is
            // there by then only if it came with that acknowledgement, which waits at most 40 ms for the other to close.
            let fins = client.bytes_received.checked_sub(200_000);
            assert!(fins == Some(1) || client_first && fins == Some(0), "{client:?}");
            assert_eq!(server.bytes_sent, 200_000);
            assert!(server.bytes_acked >= 200_000 && server.busy_us < 60_000_000, "{server:?}");
            assert!(client.is(flag::CONNECTED) && !client.is(flag::ACCEPTED));
            assert!(server.is(flag::ACCEPTED) && !server.is(flag::CONNECTED));
            // Who closes first ends in TIME-WAIT, to which it goes from FIN-WAIT-2; the other in LAST-ACK.
            let (first, last) = if client_first { (client, server) } else { (server, client) };
            assert_eq!((first.state, last.state), (state::FIN_WAIT2, state::LAST_ACK));
        }
    }
    scene.await_seen(8);
    scene.assert_adds_up();
}

#[test]
fn half_closed_connections_close_once() {
    let Some(mut scene) = Scene::set() else { return };
    let (client, mut server) = pair(V4);
    let both = [cookie(&client), cookie(&server)];
    client.shutdown(Shutdown::Write).unwrap();
    assert_eq!(server.read(&mut [0; 1]).unwrap(), 0);
    assert!(!both.iter().any(|c| scene.has_record_of(*c)), "nothing is over yet");
    server.write_all(b"the other direction is open").unwrap();
    drop(server);
    drop(client);
    for cookie in both {
        scene.close_of(cookie);
    }
    assert_eq!(scene.records.len(), 2);
}

#[test]
fn a_reset_gives_records_of_both_ends() {
    let Some(mut scene) = Scene::set() else { return };
    let (mut client, mut server) = pair(V4);
    send(&mut client, &mut server, 1000);
    let both = [cookie(&client), cookie(&server)];
    sockopt::set_socket_linger(&client, Some(Duration::ZERO)).unwrap();
    drop(client);
    for cookie in both {
        assert_eq!(scene.close_of(cookie).state, state::ESTABLISHED);
    }
    drop(server);
    assert_eq!(scene.closes.counters().seen, 2, "the reset socket's close() is not another");
    scene.assert_adds_up();
}

#[test]
fn a_killed_owner_leaves_a_record() {
    let Some(mut scene) = Scene::set() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let script = format!(
        "exec 3<>/dev/tcp/127.0.0.1/{}; echo from the victim >&3; exec sleep 1000",
        listener.local_addr().unwrap().port()
    );
    let mut owner = Command::new("bash").args(["-c", &script]).stdout(Stdio::null()).spawn().unwrap();
    let (mut server, from) = listener.accept().unwrap();
    server.read_exact(&mut [0; 16]).unwrap();
    owner.kill().unwrap();
    owner.wait().unwrap();
    let server_cookie = cookie(&server);
    drop(server);
    scene.close_of(server_cookie);
    scene.await_seen(2);
    scene.drain();
    let victim = scene.records.iter().find(|s| s.local() == from).expect("the killed process's record");
    assert!(victim.is(flag::CONNECTED));
    assert_eq!((victim.bytes_sent, scene.records.len()), (16, 2));
}

#[test]
fn an_orphan_in_fin_wait_2_leaves_a_record() {
    let Some(mut scene) = Scene::set() else { return };
    let (mut client, mut server) = pair(V4);
    send(&mut client, &mut server, 5000);
    let client_cookie = cookie(&client);
    drop(client);
    // The server never closes: the client's end waits in FIN-WAIT-2 without an owner.
    let record = scene.close_of(client_cookie);
    assert_eq!((record.state, record.bytes_sent), (state::FIN_WAIT2, 5000));
    assert_eq!(record.bytes_acked, 5000 + 2, "the SYN and the FIN count, as in tcp_info");
    assert_eq!(scene.records.len(), 1);
}

#[test]
fn a_connection_that_never_began_leaves_a_record() {
    let Some(mut scene) = Scene::set() else { return };
    // A neighbour that does not exist: SYNs go out and nothing comes back.
    run("ip link add hole type veth peer name deep");
    run("ip link set hole up");
    run("ip link set deep up");
    run("ip address add 198.51.100.1/24 dev hole");
    run("ip neighbour add 198.51.100.2 lladdr 02:00:00:00:00:02 dev hole");
    std::fs::write("/proc/sys/net/ipv4/tcp_syn_retries", "1").unwrap();
    let try_connect = || {
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).unwrap();
        let to: SocketAddr = "198.51.100.2:9".parse().unwrap();
        assert_eq!(rustix::net::connect(&socket, &to), Err(rustix::io::Errno::INPROGRESS));
        socket
    };
    let (given_up, timed_out): (OwnedFd, OwnedFd) = (try_connect(), try_connect());
    let (given_up_cookie, timed_out_cookie) = (cookie(&given_up), cookie(&timed_out));
    drop(given_up);
    for cookie in [given_up_cookie, timed_out_cookie] {
        let record = scene.close_of(cookie);
        assert_eq!((record.state, record.bytes_sent, record.segs_in), (state::SYN_SENT, 0, 0));
        assert_eq!(record.remote().to_string(), "198.51.100.2:9");
        assert!(record.is(flag::CONNECTED) && record.segs_out >= 1, "{record:?}");
    }
    drop(timed_out);
    assert_eq!(scene.closes.counters().seen, 2, "closing the socket that timed out is not another");
    scene.assert_adds_up();
}

#[test]
fn a_refused_connection_leaves_a_record() {
    let Some(mut scene) = Scene::set() else { return };
    assert!(TcpStream::connect("127.0.0.1:1").is_err());
    scene.await_seen(1);
    scene.drain();
    assert_eq!((scene.records[0].state, scene.records[0].remote_port), (state::SYN_SENT, 1));
}

#[test]
fn connections_too_short_to_be_polled_are_all_recorded() {
    let Some(mut scene) = Scene::set() else { return };
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..500 {
        let client = TcpStream::connect(address).unwrap();
        drop(listener.accept().unwrap());
        drop(client);
    }
    scene.await_seen(1000);
    scene.drain();
    assert_eq!((scene.records.len(), scene.closes.counters().ring_failures), (1000, 0));
    let mut cookies: Vec<u64> = scene.records.iter().map(|s| s.cookie).collect();
    cookies.sort_unstable();
    cookies.dedup();
    assert_eq!(cookies.len(), 1000);
    scene.assert_adds_up();
}

#[test]
fn what_a_full_ring_drops_is_counted() {
    let Some(mut scene) = Scene::with_ring(Bytes::new(4096)) else { return };
    for _ in 0..100 {
        drop(pair(V4));
    }
    scene.await_seen(200);
    let counters = scene.closes.counters();
    assert!(counters.ring_failures > 150, "{counters:?}");
    scene.assert_adds_up();
    assert!(!scene.records.is_empty());
    // Drained, it takes records again.
    let before = scene.records.len();
    drop(pair(V4));
    scene.await_seen(202);
    scene.assert_adds_up();
    assert_eq!(scene.records.len(), before + 2);
}

#[test]
fn sleepers_are_woken_by_a_quarter_of_the_ring_only() {
    let Some(mut scene) = Scene::with_ring(Bytes::new(1 << 16)) else { return };
    // epoll(7) looks at the ring when it is added, and then only when it was woken.
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC).unwrap();
    epoll::add(&epoll, scene.closes.fd(), epoll::EventData::new_u64(1), epoll::EventFlags::IN).unwrap();
    let woken = |seconds| {
        let mut events = Vec::with_capacity(1);
        let limit = Timespec { tv_sec: seconds, tv_nsec: 0 };
        epoll::wait(&epoll, spare_capacity(&mut events), Some(&limit)).unwrap()
    };
    drop(pair(V4));
    assert_eq!(woken(1), 0, "two closes wake nobody");
    (0..30).for_each(|_| drop(pair(V4)));
    assert_eq!(woken(30), 1, "sixty fill a quarter");
    scene.await_seen(62);
    scene.assert_adds_up();
}

#[test]
fn sockets_that_were_open_before_leave_a_record_once_armed() {
    let Some(place) = Place::enter() else { return };
    let (mut client, mut server) = pair(V4);
    let (other_client, other_server) = pair(V6);
    let mut closes = match Closes::attach(place.group(), RING, None) {
        Ok(closes) => closes,
        Err(e) => return println!("SKIPPED: {e}"),
    };
    drop((other_client, other_server));
    assert_eq!(closes.counters().seen, 0, "not armed, not seen");
    match closes.arm_open(place.ns()) {
        Ok(armed) => assert_eq!((armed.before, armed.failures), (0, 0), "{armed:?}"),
        Err(ArmError::KernelTooOld { sockets }) => return println!("SKIPPED: Linux 6.12 is needed; {sockets} sockets"),
        Err(e) => panic!("{e}"),
    }
    // Armed once is armed; what came after the attachment was from the start.
    let (new_client, new_server) = pair(V4);
    let again = closes.arm_open(place.ns()).unwrap();
    assert_eq!((again.armed, again.before, again.failures), (0, 4, 0));

    let mut scene = Scene { closes, records: Vec::new(), place };
    send(&mut client, &mut server, 10_000);
    let old = [cookie(&client), cookie(&server)];
    let new = [cookie(&new_client), cookie(&new_server)];
    drop((client, server, new_client, new_server));
    for cookie in old {
        let record = scene.close_of(cookie);
        assert_eq!(record.flags & (flag::ACCEPTED | flag::CONNECTED), 0, "nobody saw it begin");
        assert_eq!(record.bytes_sent + record.bytes_received, 10_000 + 1, "a FIN counts as received");
    }
    for cookie in new {
        scene.close_of(cookie);
    }
    scene.assert_adds_up();
}

#[test]
fn nothing_is_left_behind() {
    let Some(scene) = Scene::set() else { return };
    let Scene { closes, place, .. } = scene;
    drop(closes);
    // Attached to the same group again, and detached by the drop before: the programs see each close once.
    let closes = Closes::attach(place.group(), RING, None).unwrap();
    drop(pair(V4));
    await_seen(&closes, 2);
}

#[test]
fn two_observers_do_not_disturb_each_other() {
    let Some(mut scene) = Scene::set() else { return };
    let second = Closes::attach(scene.place.group(), RING, Some(scene.closes.conns())).unwrap();
    drop(pair(V4));
    scene.await_seen(2);
    await_seen(&second, 2);
    drop(second);
    drop(pair(V4));
    scene.await_seen(4);
    scene.assert_adds_up();
}

#[test]
fn only_wanted_closes_are_recorded_and_counted() {
    let Some(mut scene) = Scene::set() else { return };
    let listener = TcpListener::bind("[::]:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let close_one = |to| {
        let client = TcpStream::connect((to, port)).unwrap();
        drop(listener.accept().unwrap());
        drop(client);
    };
    let here = [Netns::current().unwrap()];
    // The initial namespace, or whichever the test began in, is another.
    let elsewhere = [Netns::open("/proc/self/ns/net".as_ref(), "").unwrap()];
    assert_ne!(here[0].inode(), elsewhere[0].inode());
    let ports = Filter { local_ports: vec![port], ..Filter::default() };
    let six = Filter { remote_not: vec!["127.0.0.0/8".parse().unwrap()], ..Filter::default() };
    let mut expected = 0;
    for (filter, namespaces, each_four, each_six) in [
        (&Filter::default(), None, 2, 2),
        (&Filter::default(), Some(&here[..]), 2, 2),
        (&Filter::default(), Some(&elsewhere[..]), 0, 0),
        (&Filter::default(), Some(&[][..]), 0, 0),
        (&ports, Some(&here[..]), 1, 1),
        (&six, None, 0, 2),
    ] {
        scene.closes.set_filter(filter, namespaces).unwrap();
        close_one(V4);
        close_one(V6);
        expected += each_four + each_six;
        scene.await_seen(expected);
    }
    // Late closes that should not be seen would be seen by now.
    scene.closes.set_filter(&Filter::default(), None).unwrap();
    close_one(V4);
    scene.await_seen(expected + 2);
    scene.assert_adds_up();
}

#[test]
fn without_privileges_the_error_says_which_are_needed() {
    let Some(place) = Place::enter() else { return };
    let mut sets = capabilities(None).unwrap();
    sets.effective = CapabilitySet::empty();
    // Of this thread only, which ends with the test.
    set_capabilities(None, sets).unwrap();
    let of_closes = Closes::attach(place.group(), RING, None).unwrap_err();
    let of_iterator = IterPoller::load().unwrap_err();
    sets.effective = sets.permitted;
    set_capabilities(None, sets).unwrap();
    for error in [of_closes, of_iterator] {
        assert!(matches!(error, LoadError::NotPermitted { .. }), "{error}");
        assert!(error.to_string().contains("CAP_BPF"), "{error}");
    }
}

#[test]
fn a_shared_map_of_another_layout_is_refused() {
    let Some(scene) = Scene::set() else { return };
    let error = Closes::attach(scene.place.group(), RING, Some(scene.closes.fd())).unwrap_err();
    assert!(matches!(error, LoadError::ForeignMap { .. }), "{error}");
}

#[test]
fn a_group_that_does_not_exist_is_named() {
    let error = Closes::attach("/no/such/group".as_ref(), RING, None).unwrap_err().to_string();
    assert!(error.contains("/no/such/group") && error.contains("cgroup v2"), "{error}");
}
