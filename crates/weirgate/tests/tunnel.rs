//! The tunnel, as people run it: TCP connections over several addresses of the loopback, and packets between two namespaces.
#![allow(clippy::disallowed_methods, reason = "the command on the real system")]

mod keys;

use std::io::{BufRead as _, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use keys::{key, text, weirgate};
use weirgate_linux::netns::Netns;

const PATIENCE: Duration = Duration::from_secs(30);

/// One side; ended with this value.
struct Side {
    child: Child,
    said: BufReader<std::process::ChildStdout>,
}

impl Side {
    fn start(command: &mut Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut said = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        said.read_line(&mut line).unwrap();
        if line.is_empty() {
            let mut why = String::new();
            child.stderr.take().unwrap().read_to_string(&mut why).unwrap();
            panic!("{command:?}: {why}");
        }
        Self { child, said }
    }

    fn end(mut self) -> String {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
        let mut rest = String::new();
        self.said.read_to_string(&mut rest).unwrap();
        assert!(self.child.wait().unwrap().success());
        rest
    }
}

impl Drop for Side {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Keys of both sides.
struct Keys {
    dir: tempfile::TempDir,
    near: String,
    far: String,
}

impl Keys {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let [near, far] = ["near", "far"].map(|name| key(&dir.path().join(name)));
        Self { dir, near, far }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn serve(&self, more: &[&str]) -> Command {
        let mut command = weirgate(&["tunnel", "serve", "--allow", &self.near]);
        command.args(more).arg("--key").arg(self.path("far"));
        command
    }

    fn open(&self, more: &[&str]) -> Command {
        let mut command = weirgate(&["tunnel", "open", "--peer", &self.far]);
        command.args(more).arg("--key").arg(self.path("near"));
        command
    }
}

/// A tunnel over three addresses of the loopback, to a listener.
struct Bench {
    keys: Keys,
    serving: Option<Side>,
    opening: Side,
    server: String,
    entry: SocketAddr,
    listener: TcpListener,
}

fn free() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap()
}

impl Bench {
    fn new(reach: &str) -> Self {
        let (keys, listener) = (Keys::new(), TcpListener::bind("127.0.0.1:0").unwrap());
        let server = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let (entry, to) = (free(), listener.local_addr().unwrap().to_string());
        let serving = Side::start(&mut keys.serve(&["--listen", &server, "--reach", reach]));
        let listen = entry.to_string();
        let paths = ["--from", "127.0.0.2", "--from", "127.0.0.3", "--from", "127.0.0.4"];
        let opening = Side::start(keys.open(&["--to", &to, "--listen", &listen, &server]).args(paths));
        Self { keys, serving: Some(serving), opening, server, entry, listener }
    }

    fn connect(&self) -> (TcpStream, TcpStream) {
        let near = self.knock();
        let (far, _) = self.listener.accept().unwrap();
        far.set_read_timeout(Some(PATIENCE)).unwrap();
        (near, far)
    }

    fn knock(&self) -> TcpStream {
        let near = TcpStream::connect(self.entry).unwrap();
        near.set_read_timeout(Some(PATIENCE)).unwrap();
        near
    }
}

fn bytes(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|at| (at as u32).wrapping_mul(2_654_435_761).to_be_bytes()[0] ^ seed).collect()
}

#[test]
fn what_each_side_says_comes_to_the_other_whole_and_in_order() {
    let bench = Bench::new("127.0.0.0/8");
    thread::scope(|scope| {
        for connection in 0..8 {
            let (near, far) = bench.connect();
            for (from, to, seed) in [(near.try_clone().unwrap(), far.try_clone().unwrap(), 1), (far, near, 2)] {
                let len = 2_000_000 + connection * 70_001;
                let all = bytes(len, seed);
                scope.spawn(move || {
                    (&from).write_all(&bytes(len, seed)).unwrap();
                    from.shutdown(Shutdown::Write).unwrap();
                });
                scope.spawn(move || {
                    let mut came = Vec::new();
                    (&to).read_to_end(&mut came).unwrap();
                    assert!(came == all, "connection {connection}: {} of {len} bytes, or others", came.len());
                });
            }
        }
    });
    bench.opening.end();
    let mut said = String::new();
    bench.serving.unwrap().said.read_line(&mut said).unwrap();
    assert!(said.starts_with("8 connections, 0 broken off, in "), "{said}");
}

#[test]
fn a_connection_that_breaks_is_broken_off_at_the_other_end() {
    let bench = Bench::new("127.0.0.0/8");
    let (near, mut far) = bench.connect();
    (&near).write_all(b"half a").unwrap();
    far.read_exact(&mut [0; 6]).unwrap();
    rustix::net::sockopt::set_socket_linger(&near, Some(Duration::ZERO)).unwrap();
    drop(near);
    let error = far.read(&mut [0; 6]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset, "no end that looks like one");
}

#[test]
fn where_nothing_may_be_reached_or_nobody_listens_the_program_is_told() {
    let bench = Bench::new("192.0.2.0/24");
    let told = |mut near: TcpStream| near.read(&mut [0]).map_err(|error| error.kind());
    assert_eq!(told(bench.knock()), Err(ErrorKind::ConnectionReset));
    drop(bench);
    let bench = Bench::new("127.0.0.0/8");
    let nobody = free().to_string();
    let entry = free();
    let _opening = Side::start(&mut bench.keys.open(&["--to", &nobody, "--listen", &entry.to_string(), &bench.server]));
    let near = TcpStream::connect(entry).unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(told(near), Err(ErrorKind::ConnectionReset));
}

#[test]
fn when_the_far_side_comes_back_new_connections_go_on() {
    let mut bench = Bench::new("127.0.0.0/8");
    let (mut near, far) = bench.connect();
    let said = bench.serving.take().unwrap().end();
    assert!(said.is_empty(), "it was open to the end: {said}");
    assert_eq!(near.read(&mut [0]).map_err(|error| error.kind()), Err(ErrorKind::ConnectionReset));
    drop(far);
    let serve = ["--listen", &bench.server, "--reach", "127.0.0.0/8"];
    bench.serving = Some(Side::start(&mut bench.keys.serve(&serve)));
    let (mut near, far) = bench.connect();
    (&far).write_all(b"back").unwrap();
    near.read_exact(&mut [0; 4]).unwrap();
    assert_eq!(bench.opening.child.try_wait().unwrap(), None);
}

#[test]
fn a_far_side_that_does_not_answer_is_called_again_and_it_is_said_what_may_be_wrong() {
    let keys = Keys::new();
    let server = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let _serving = Side::start(&mut keys.serve(&["--listen", &server]));
    // By another key than it has.
    let mut open = weirgate(&["tunnel", "open", "--peer", &keys.near, "--from", "127.0.0.2", &server]);
    open.args(["--listen", &free().to_string(), "--key"]).arg(keys.path("near"));
    let mut opening = Side::start(&mut open);
    let mut said = String::new();
    BufReader::new(opening.child.stderr.take().unwrap()).read_line(&mut said).unwrap();
    let wanted = format!("nobody listens at {server}, or does not know this host's key (--allow {})", keys.near);
    assert!(said.contains(&wanted) && said.contains("is called again"), "{said}");
    assert_eq!(opening.child.try_wait().unwrap(), None);
}

#[test]
fn what_was_typed_wrong_is_said() {
    let keys = Keys::new();
    let refused = |command: &mut Command| {
        let output = command.output().unwrap();
        assert!(!output.status.success());
        text(&output.stderr)
    };
    let said = refused(&mut keys.serve(&["--tun-address", "10.0.0.1/24"]));
    assert!(said.contains("--tun"), "{said}");
    let said = refused(&mut keys.serve(&["--tun", "t", "--tun-address", "10.0.0.1"]));
    assert!(said.contains("ADDRESS/LENGTH"), "{said}");
    let there = ["--listen", "127.0.0.1:0", "--tun-address", "10.0.0.1/24", "--tun", "much-too-long-a-name"];
    let said = refused(&mut keys.serve(&there));
    assert!(said.contains("1 to 15 bytes"), "{said}");
    let said = refused(&mut keys.serve(&["--listen", "127.0.0.1:0", "--tun", "t"]));
    assert!(said.contains("--within"), "{said}");
    let said = refused(&mut keys.serve(&["--mark", "x"]));
    assert!(said.contains("no mark"), "{said}");
}

/// Two namespaces with two links between them.
struct Two {
    names: [String; 2],
    near: Netns,
    far: Netns,
}

impl Two {
    fn make(what: &str) -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: namespaces and devices need root");
            return None;
        }
        let names = ["near", "far"].map(|side| format!("wgt-{}-{what}-{side}", std::process::id()));
        for name in &names {
            ip(&format!("netns add {name}"));
            ip(&format!("-n {name} link set lo up"));
        }
        let [near, far] = &names;
        for link in 0..2 {
            ip(&format!("-n {near} link add up{link} type veth peer name up{link} netns {far}"));
            for (name, host) in [(near, 1), (far, 2)] {
                ip(&format!("-n {name} addr add 10.1.{link}.{host}/24 dev up{link}"));
                ip(&format!("-n {name} link set up{link} up"));
            }
        }
        // The far side has one address, by either link.
        ip(&format!("-n {far} addr add 10.255.0.1/32 dev lo"));
        for link in 0..2 {
            ip(&format!("-n {near} route add 10.255.0.1/32 via 10.1.{link}.2 dev up{link} metric {}", link + 1));
        }
        let of = |name: &str| Netns::by_name(name).unwrap();
        Some(Self { near: of(near), far: of(far), names: names.clone() })
    }

    fn start(&self, at_near: bool, command: &mut Command) -> Side {
        let ns = if at_near { &self.near } else { &self.far };
        ns.within(|| Side::start(command)).unwrap()
    }
}

impl Drop for Two {
    fn drop(&mut self) {
        for name in &self.names {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

fn ip(line: &str) {
    assert!(Command::new("ip").args(line.split(' ')).status().unwrap().success(), "ip {line}");
}

/// As soon as the namespace has the address: a tunnel's device has it some time after its program began.
fn udp(ns: &Netns, address: &str) -> UdpSocket {
    let began = Instant::now();
    let socket = loop {
        match ns.within(|| UdpSocket::bind(address)).unwrap() {
            Ok(socket) => break socket,
            Err(error) => assert!(began.elapsed() < PATIENCE, "{address}: {error}"),
        }
        std::thread::sleep(Duration::from_millis(50));
    };
    socket.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
    socket
}

/// Sends until something comes.
fn heard(from: &UdpSocket, to: SocketAddr, at: &UdpSocket, packet: &[u8]) -> SocketAddr {
    let began = Instant::now();
    let mut buffer = vec![0; 2_000];
    loop {
        from.send_to(packet, to).unwrap();
        match at.recv_from(&mut buffer) {
            Ok((len, peer)) if buffer[..len] == *packet => return peer,
            _ => assert!(began.elapsed() < PATIENCE, "nothing comes to {to}"),
        }
    }
}

#[test]
fn packets_go_there_and_back_and_by_the_other_path_when_one_fails() {
    let Some(two) = Two::make("p") else { return };
    let keys = Keys::new();
    let inside = ["--tun", "wgt0", "--tun-address"];
    let serve = ["10.9.0.1/24", "--tun-address", "fd00:9::1/64", "--reach", "10.9.0.1/32", "--reach", "fd00:9::1/128"];
    let serving = two.start(false, &mut keys.serve(&[&inside[..], &serve].concat()));
    let open = ["10.9.0.2/24", "--tun-address", "fd00:9::2/64", "--from", "up0", "--from", "up1", "10.255.0.1"];
    let _opening = two.start(true, &mut keys.open(&[&inside[..], &open].concat()));
    for (server, client) in [("10.9.0.1:7000", "10.9.0.2:0"), ("[fd00:9::1]:7000", "[fd00:9::2]:0")] {
        let (far, near) = (udp(&two.far, server), udp(&two.near, client));
        let peer = heard(&near, server.parse().unwrap(), &far, b"there");
        assert_eq!(peer, near.local_addr().unwrap());
        // As long as the device takes, without its headers.
        let header = if peer.is_ipv4() { 28 } else { 48 };
        heard(&far, peer, &near, &bytes(1_280 - header, 3));
        // Longer ones are cut by the kernel.
        heard(&far, peer, &near, &bytes(1_900, 4));
    }
    // Nobody else is reached, not even the same host by its other address.
    let other = udp(&two.far, "10.255.0.1:7001");
    ip(&format!("-n {} route add 10.255.0.1/32 dev wgt0 table 77", two.names[0]));
    ip(&format!("-n {} rule add from 10.9.0.2 to 10.255.0.1 table 77", two.names[0]));
    let near = udp(&two.near, "10.9.0.2:0");
    near.send_to(b"no", "10.255.0.1:7001").unwrap();
    assert!(other.recv_from(&mut [0; 8]).is_err());
    // Twelve flows, over both paths; then one is gone, and all go by the other.
    let far = udp(&two.far, "10.9.0.1:7002");
    let flows: Vec<UdpSocket> = (0..12).map(|_| udp(&two.near, "10.9.0.2:0")).collect();
    let to = "10.9.0.1:7002".parse().unwrap();
    let through = |link: usize| -> u64 {
        // Of the namespace that the reading thread is in.
        let read = || std::fs::read_to_string("/proc/thread-self/net/dev").unwrap();
        let all = two.near.within(read).unwrap();
        let line =
            all.lines().find_map(|line| line.trim().strip_prefix(&format!("up{link}:")).map(str::to_owned)).unwrap();
        line.split_whitespace().nth(8).unwrap().parse().unwrap()
    };
    let before = [through(0), through(1)];
    for _ in 0..20 {
        for flow in &flows {
            heard(flow, to, &far, &bytes(1_000, 4));
        }
    }
    let used = [through(0) - before[0], through(1) - before[1]];
    assert!(used.iter().all(|bytes| *bytes > 20_000), "both links carry flows: {used:?}");
    ip(&format!("-n {} link set up0 down", two.names[1]));
    thread::sleep(Duration::from_secs(1));
    for flow in &flows {
        heard(flow, to, &far, b"still");
    }
    drop(serving);
}

#[test]
fn an_address_within_is_of_who_had_it_first() {
    let Some(two) = Two::make("a") else { return };
    let keys = Keys::new();
    let other = key(&keys.path("other"));
    let serve = ["--allow", &other, "--tun", "wgt0", "--tun-address", "10.9.0.1/24", "--reach", "10.9.0.1/32"];
    let _serving = two.start(false, &mut keys.serve(&serve));
    let open = ["--tun", "wgt0", "--tun-address", "10.9.0.2/24", "--from", "up0", "10.255.0.1"];
    let _opening = two.start(true, &mut keys.open(&open));
    let (far, near) = (udp(&two.far, "10.9.0.1:7000"), udp(&two.near, "10.9.0.2:0"));
    heard(&near, "10.9.0.1:7000".parse().unwrap(), &far, b"first");
    // Another one, with the same address and one of its own.
    let more =
        ["--tun", "wgt1", "--tun-address", "10.9.0.3/24", "--listen", "127.0.0.1:4749", "--from", "up1", "10.255.0.1"];
    let mut second = weirgate(&["tunnel", "open", "--peer", &keys.far]);
    let _second = two.start(true, second.args(more).arg("--key").arg(keys.path("other")));
    ip(&format!("-n {} route add 10.9.0.1/32 dev wgt1 table 78", two.names[0]));
    ip(&format!("-n {} rule add from 10.9.0.3 table 78", two.names[0]));
    ip(&format!("-n {} rule add sport 7777 table 78", two.names[0]));
    let own = udp(&two.near, "10.9.0.3:0");
    let peer = heard(&own, "10.9.0.1:7000".parse().unwrap(), &far, b"second");
    assert_eq!(peer.ip(), "10.9.0.3".parse::<IpAddr>().unwrap());
    let stolen = udp(&two.near, "10.9.0.2:7777");
    stolen.send_to(b"stolen", "10.9.0.1:7000").unwrap();
    let mut came = vec![0; 100];
    while let Ok((len, _)) = far.recv_from(&mut came) {
        assert_ne!(&came[..len], b"stolen", "by the second one");
    }
    heard(&far, near.local_addr().unwrap(), &near, b"to the first");
}

#[test]
fn what_is_redirected_goes_on_from_the_far_side_to_where_it_was_meant_to_go() {
    let Some(two) = Two::make("r") else { return };
    let (keys, [near, far]) = (Keys::new(), &two.names);
    // Networks that are beyond the tunnel. Routes there are by one link, and would do without it, but for the redirection.
    ip(&format!("-n {far} addr add 198.51.100.7/32 dev lo"));
    ip(&format!("-n {far} addr add 2001:db8::7/128 dev lo nodad"));
    ip(&format!("-n {near} route add 198.51.100.0/24 via 10.1.0.2"));
    ip(&format!("-n {near} addr add fd00:1::1/64 dev up0 nodad"));
    ip(&format!("-n {near} route add 2001:db8::/32 via fd00:1::2 dev up0"));
    let reach = ["--reach", "198.51.100.0/24", "--reach", "2001:db8::/32"];
    let mut serving = two.start(false, &mut keys.serve(&reach));
    let opening = two.start(true, &mut keys.open(&["--from", "up0", "--from", "up1", "10.255.0.1"]));
    let rules = "table inet weirgate_tunnel { chain out { type nat hook output priority -100; \
                 ip daddr 198.51.100.0/24 tcp dport { 80, 443 } redirect to :4748; \
                 ip6 daddr 2001:db8::/32 tcp dport { 80, 443 } redirect to :4748; }; }";
    nft(&two.near, rules);
    for to in ["198.51.100.7:80", "[2001:db8::7]:443"] {
        let to: SocketAddr = to.parse().unwrap();
        goes_on(&two.near, &two.far, to);
        // Another port is not redirected.
        let other = SocketAddr::new(to.ip(), 81);
        let direct = two.near.within(|| TcpStream::connect_timeout(&other, Duration::from_millis(500))).unwrap();
        assert!(direct.is_err(), "nobody listens there");
    }
    // Who comes to the tunnel itself was not redirected, and goes nowhere.
    let mut lost = two.near.within(|| TcpStream::connect("[::1]:4748").unwrap()).unwrap();
    lost.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(lost.read(&mut [0]).unwrap(), 0);
    drop(lost);
    opening.end();
    let mut said = String::new();
    serving.said.read_line(&mut said).unwrap();
    assert!(said.starts_with("2 connections, 0 broken off, in "), "{said}");
}

/// A connection from a namespace to an address of the far one goes on from there, and carries both ways what it is given.
fn goes_on(from: &Netns, far: &Netns, to: SocketAddr) {
    let listener = far.within(|| TcpListener::bind(to).unwrap()).unwrap();
    let mut near = from.within(|| TcpStream::connect(to).unwrap()).unwrap();
    near.set_read_timeout(Some(PATIENCE)).unwrap();
    // One that was broken off is not waited for.
    listener.set_nonblocking(true).unwrap();
    let began = Instant::now();
    let (mut far, from) = loop {
        match listener.accept() {
            Ok(accepted) => break accepted,
            Err(error) => assert!(began.elapsed() < PATIENCE, "nothing comes to {to}: {error}"),
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(from.ip(), to.ip(), "the far side's own, by which it reaches itself");
    far.set_read_timeout(Some(PATIENCE)).unwrap();
    near.write_all(&bytes(100_000, 1)).unwrap();
    let mut came = vec![0; 100_000];
    far.read_exact(&mut came).unwrap();
    assert!(came == bytes(100_000, 1), "to {to}");
    far.write_all(b"and back").unwrap();
    near.read_exact(&mut came[..8]).unwrap();
    assert_eq!(&came[..8], b"and back");
}

fn nft(ns: &Netns, rules: &str) {
    assert!(ns.within(|| Command::new("nft").arg(rules).status().unwrap().success()).unwrap(), "nft {rules}");
}

#[test]
fn what_a_router_forwards_is_taken_by_redirect_and_by_tproxy_and_marked_where_it_goes_on() {
    let Some(two) = Two::make("f") else { return };
    let (keys, [near, far]) = (Keys::new(), &two.names);
    // A host behind the near one.
    let behind = Behind::new(near);
    ip(&format!("-n {far} addr add 198.51.100.7/32 dev lo"));
    ip(&format!("-n {near} route add 198.51.100.0/24 via 10.1.0.2"));
    // A tunnel of the far site's own, the other way: only what is marked passes it by.
    let loops = "table ip other { chain out { type nat hook output priority -100; \
                 ip daddr 198.51.100.0/24 tcp dport 80 meta mark != 7 redirect to :9; }; }";
    nft(&two.far, loops);
    let serve = ["--reach", "198.51.100.0/24", "--mark", "7"];
    let _serving = two.start(false, &mut keys.serve(&serve));
    let to = "198.51.100.7:80".parse().unwrap();
    let paths = ["--from", "up0", "--from", "up1", "10.255.0.1"];
    let opening = two.start(true, &mut keys.open(&[&["--listen", "0.0.0.0:4748"], &paths[..]].concat()));
    let redirect = "table inet weirgate_tunnel { chain in { type nat hook prerouting priority dstnat; \
                    ip daddr 198.51.100.0/24 tcp dport { 80, 443 } redirect to :4748; }; }";
    nft(&two.near, redirect);
    goes_on(&behind.ns, &two.far, to);
    opening.end();
    nft(&two.near, "delete table inet weirgate_tunnel");
    let opening = two.start(true, &mut keys.open(&paths));
    ip(&format!("-n {near} rule add fwmark 1 lookup 100"));
    ip(&format!("-n {near} route add local default dev lo table 100"));
    let tproxy = "table inet weirgate_tproxy { chain in { type filter hook prerouting priority mangle; \
                  ip daddr 198.51.100.0/24 tcp dport { 80, 443 } tproxy ip to 127.0.0.1:4748 meta mark set 1 accept; }; }";
    nft(&two.near, tproxy);
    goes_on(&behind.ns, &two.far, to);
    opening.end();
}

/// A namespace behind another one, which forwards for it.
struct Behind {
    name: String,
    ns: Netns,
}

impl Behind {
    fn new(router: &str) -> Self {
        let name = format!("{router}-b");
        ip(&format!("netns add {name}"));
        ip(&format!("-n {name} link set lo up"));
        ip(&format!("-n {router} link add lan type veth peer name lan netns {name}"));
        for (of, host) in [(router, 1), (name.as_str(), 2)] {
            ip(&format!("-n {of} addr add 10.2.0.{host}/24 dev lan"));
            ip(&format!("-n {of} link set lan up"));
        }
        ip(&format!("-n {name} route add default via 10.2.0.1"));
        ip(&format!("netns exec {router} sysctl -qw net.ipv4.ip_forward=1"));
        Self { ns: Netns::by_name(&name).unwrap(), name }
    }
}

impl Drop for Behind {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

/// Sends now and then, and says whether anything of it comes.
fn comes(from: &UdpSocket, to: &str, at: &UdpSocket, packet: &[u8]) -> bool {
    let mut buffer = vec![0; 100];
    (0..3).any(|_| {
        from.send_to(packet, to).unwrap();
        std::iter::from_fn(|| at.recv_from(&mut buffer).ok().map(|(len, _)| buffer[..len].to_vec()))
            .any(|came| came == packet)
    })
}

#[test]
fn only_what_belongs_there_passes_and_the_far_side_may_speak_first() {
    let Some(two) = Two::make("b") else { return };
    let keys = Keys::new();
    let serve = ["--tun", "wgt0", "--tun-address", "10.9.0.1/24"];
    let serving = two.start(false, &mut keys.serve(&serve));
    // Another address of the far host's own.
    ip(&format!("-n {} addr add 10.255.0.9/32 dev lo", two.names[1]));
    let open = ["--tun", "wgt0", "--tun-address", "10.9.0.2/24", "--from", "up0", "--from", "gone", "10.255.0.1"];
    let opening = two.start(true, &mut keys.open(&open));
    // Nothing has been sent from within yet.
    let (far, near) = (udp(&two.far, "10.9.0.1:0"), udp(&two.near, "10.9.0.2:7000"));
    heard(&far, "10.9.0.2:7000".parse().unwrap(), &near, b"first");
    // Nobody has said that the far host's own addresses may be reached.
    ip(&format!("-n {} route add 10.255.0.9/32 dev wgt0", two.names[0]));
    let listening = udp(&two.far, "0.0.0.0:7001");
    assert!(!comes(&near, "10.255.0.9:7001", &listening, b"own"));
    assert!(!comes(&near, "10.9.0.1:7001", &listening, b"own"));
    // The one that opens takes nothing that is not for it.
    ip(&format!("-n {} addr add 10.8.0.2/32 dev lo", two.names[0]));
    ip(&format!("-n {} route add 10.8.0.2/32 dev wgt0", two.names[1]));
    let other = udp(&two.near, "10.8.0.2:7002");
    assert!(!comes(&far, "10.8.0.2:7002", &other, b"other"));
    // Killed, and there again: it has its address at once.
    drop((opening, near));
    let _opening = two.start(true, &mut keys.open(&open));
    let near = udp(&two.near, "10.9.0.2:7000");
    let began = Instant::now();
    heard(&far, "10.9.0.2:7000".parse().unwrap(), &near, b"again");
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    drop(serving);
}
