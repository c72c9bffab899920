//! Policies: whom they select, how they change, and that they reach connections that are open.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use weirgate_linux::bpf::Closes;
use weirgate_sockets::sample::{Arm, CcName, flag};
use weirgate_tune::holdout::Holdout;
use weirgate_units::{Bytes, Prefix};

use super::ground::{CHOSEN, Client, EVERYBODY, Ground, OWN, PORT, policy};
use super::witness::Witness;

#[test]
fn a_policy_reaches_open_connections_both_ways() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    // Open before anything was attached; one on a dual-stack listener's IPv4, one on IPv6.
    let mut four = ground.connect("10.99.0.1");
    let mut six = ground.connect("fd99::1");
    four.fetch(500_000);
    let mut steering = ground.attach();
    let here = [ground.server_again()];
    let witness = Witness::attach(&ground);
    let applied = steering.apply(&policy(1, &["10.99.0.0/24"]), &here).unwrap();
    assert_eq!((applied.added, applied.sockets_set, applied.sockets_unreached), (1, 1, 0));
    assert!(applied.unwalked.is_empty());
    // What they sent before does not count.
    four.fetch(90_000);
    assert_eq!(witness.span(four.port()), None);
    four.fetch(1_000_000);
    six.fetch(1_000_000);
    assert!(witness.span(four.port()).is_some());
    assert_eq!(witness.span(six.port()), None);
    // The other way round: one goes, one comes.
    let applied = steering.apply(&policy(2, &["fd99::/56"]), &here).unwrap();
    assert_eq!((applied.added, applied.removed, applied.sockets_set, applied.sockets_reset), (1, 1, 1, 1));
    four.fetch(1_000_000);
    six.fetch(1_000_000);
    assert_eq!(witness.span(four.port()), None);
    assert!(witness.span(six.port()).is_some());
    // In the middle of a response.
    six.send("send 3000000");
    six.read(1_500_000);
    let applied = steering.apply(&policy(3, &[]), &here).unwrap();
    assert_eq!((applied.removed, applied.sockets_reset), (1, 1));
    assert!(ground.algorithms().iter().all(|name| name == OWN));
    six.read(1_500_000);
    assert!(witness.span(six.port()).unwrap().1 < 5_000_000);
}

#[test]
fn idle_connections_settle() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let mut steering = ground.attach();
    let here = [ground.server_again()];
    steering.apply(&policy(1, EVERYBODY), &here).unwrap();
    let mut clients: Vec<Client> = (0..5).map(|_| ground.connect("10.99.0.1")).collect();
    for client in &mut clients {
        client.fetch(500_000);
    }
    // The last acknowledgement may be delayed by the client, for 40 ms and more.
    std::thread::sleep(Duration::from_millis(300));
    assert!(steering.settle(&here).is_empty());
    assert_eq!(ground.algorithms(), [OWN; 5]);
    let counters = steering.counters().unwrap();
    assert!(counters.returned == counters.switched && counters.returned >= 5, "{counters:?}");
}

#[test]
fn only_the_cgroup_and_its_ports_are_looked_at() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let mut client = ground.connect("10.99.0.1");
    let here = [ground.server_again()];
    let elsewhere = ground.attach_with(|options| options.server_ports = vec![PORT + 1]);
    let mut steering = elsewhere;
    let applied = steering.apply(&policy(1, EVERYBODY), &here).unwrap();
    assert_eq!(applied.sockets_set, 0);
    client.fetch(1_000_000);
    drop(steering);
    // Attached beside it: a sibling's sockets are not ours, nor does the iterator take them.
    let sibling = ground.cgroup.with_extension("sibling");
    std::fs::create_dir(&sibling).unwrap();
    let mut steering = ground.attach_with(|options| options.cgroup.clone_from(&sibling));
    let applied = steering.apply(&policy(1, EVERYBODY), &here).unwrap();
    assert_eq!(applied.sockets_set, 0);
    ground.connect("10.99.0.1").fetch(1_000_000);
    assert_eq!(steering.counters().unwrap().matched, 0);
    drop(steering.detach(&here));
    std::fs::remove_dir(&sibling).unwrap();
}

#[test]
fn connections_of_other_namespaces_are_never_touched_and_come_and_go_with_theirs() {
    let Some(mut ground) = Ground::new(50) else { return };
    let mut steering = ground.attach_in(&[], |_| {});
    ground.serve();
    let mut policy = policy(1, EVERYBODY);
    policy.default_cc = CcName::new("cubic");
    let elsewhere = [ground.client_again()];
    steering.apply(&policy, &elsewhere).unwrap();
    let mut client = ground.connect("10.99.0.1");
    client.fetch(1_000_000);
    assert_eq!(client.cc(), OWN);
    let counters = steering.counters().unwrap();
    assert_eq!((counters.matched, counters.open_set), (0, 0), "{counters:?}");
    // The namespace is taken up: its connections are, new ones too.
    let here = [ground.server_again()];
    assert!(steering.settle(&here).is_empty());
    let mut new = ground.connect("10.99.0.1");
    assert_eq!((client.cc(), new.cc()), ("cubic".into(), "cubic".into()));
    // And is let go: they go back when next active, new ones are not looked at.
    assert!(steering.settle(&elsewhere).is_empty());
    client.fetch(1_000_000);
    new.fetch(1_000_000);
    let mut newer = ground.connect("10.99.0.1");
    assert_eq!((client.cc(), new.cc(), newer.cc()), (OWN.into(), OWN.into(), OWN.into()));
    assert_eq!(steering.counters().unwrap().violations, 0);
}

#[test]
fn the_default_is_applied_and_taken_back() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let mut open = ground.connect("10.99.0.1");
    let mut steering = ground.attach();
    let here = [ground.server_again()];
    let mut policy = policy(1, &["10.99.0.0/24"]);
    policy.default_cc = CcName::new("cubic");
    steering.apply(&policy, &here).unwrap();
    let mut new = ground.connect("10.99.0.1");
    let mut unselected = ground.connect("fd99::1");
    assert_eq!((open.cc(), new.cc(), unselected.cc()), ("cubic".into(), "cubic".into(), "cubic".into()));
    new.fetch(1_000_000);
    assert_eq!(new.cc(), "cubic", "back to the default, not to its own");
    assert_eq!(steering.counters().unwrap().switched, 1);
    policy.default_cc = None;
    policy.version = 2;
    steering.apply(&policy, &here).unwrap();
    assert_eq!((open.cc(), new.cc(), unselected.cc()), (OWN.into(), OWN.into(), OWN.into()));
}

#[test]
fn the_holdout_is_the_one_that_the_controller_computes() {
    let Some(mut ground) = Ground::new(300) else { return };
    let mut addresses: Vec<IpAddr> = Vec::new();
    let mut batch = String::new();
    for host in 1..=24 {
        addresses.push(IpAddr::from([10, 99, 7, host]));
        addresses.push(format!("fd99::7:{host:x}").parse().unwrap());
        batch += &format!("addr add 10.99.7.{host}/16 dev veth0\naddr add fd99::7:{host:x}/64 dev veth0 nodad\n");
    }
    std::fs::write(ground.dir.path().join("addresses"), batch).unwrap();
    ground.run('c', "ip -batch addresses");
    ground.serve();
    let mut steering = ground.attach();
    let here = [ground.server_again()];
    let mut policy = policy(1, &["10.99.7.0/24", "fd99::/56"]);
    policy.holdout = Holdout { seed: 0x5eed, epoch: 7, share_ppm: 500_000 };
    steering.apply(&policy, &here).unwrap();
    let mut clients: Vec<(IpAddr, Client)> = addresses.iter().map(|a| (*a, ground.connect_from(*a))).collect();
    // An epoch later the draw is another, also for connections that are open.
    for epoch in [7, 8] {
        policy.holdout.epoch = epoch;
        policy.version += 1;
        policy.stay = true;
        steering.apply(&policy, &here).unwrap();
        let (mut treated, mut held_out) = (0, 0);
        for (address, client) in &mut clients {
            // Many round trips past the threshold, also on a busy machine.
            client.fetch(1_000_000);
            let expected = if policy.holdout.holds(*address) { OWN } else { CHOSEN };
            assert_eq!(client.cc(), expected, "{address} in epoch {epoch}");
            *if expected == OWN { &mut held_out } else { &mut treated } += 1;
        }
        assert!(treated > 8 && held_out > 8, "{treated} treated, {held_out} held out");
    }
    // Clients outside the selected networks belong to neither.
    let before = steering.counters().unwrap();
    ground.connect("10.99.0.1").fetch(1_000);
    assert_eq!(steering.counters().unwrap().matched, before.matched);
}

#[test]
fn a_hundred_thousand_networks_are_loaded_and_updated_by_the_difference() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let mut steering = ground.attach();
    let mut policy = policy(1, &[]);
    let bbr = CcName::new(CHOSEN).unwrap();
    let four = (0..50_000u32).map(|n| Prefix::of(IpAddr::from((0x0b00_0000 + (n << 8)).to_be_bytes()), 24));
    let six = (0..50_000u128).map(|n| Prefix::of(IpAddr::from(((0x2001_0db8 << 96) + (n << 72)).to_be_bytes()), 56));
    policy.networks = four.chain(six).map(|network| (network, bbr)).collect();
    let start = Instant::now();
    let applied = steering.apply(&policy, &[ground.server_again()]).unwrap();
    println!("100,000 networks in {:?}", start.elapsed());
    assert_eq!((applied.added, applied.removed, applied.changed), (100_000, 0, 0));
    // One too many.
    let mut larger = policy.clone();
    larger.networks.push(("fd99::/56".parse().unwrap(), bbr));
    assert!(steering.apply(&larger, &[ground.server_again()]).is_err());
    // At the bound: out first, then in. Three changes are three.
    policy.networks.remove(0);
    policy.networks[10].1 = CcName::new("cubic").unwrap();
    policy.networks.push(("fd99::/56".parse().unwrap(), bbr));
    let start = Instant::now();
    let applied = steering.apply(&policy, &[ground.server_again()]).unwrap();
    println!("3 of them changed in {:?}", start.elapsed());
    assert_eq!((applied.added, applied.removed, applied.changed), (1, 1, 1));
    let mut client = ground.connect("fd99::1");
    client.fetch(300_000);
    assert_eq!(steering.counters().unwrap().matched, 1);
    // Unknown algorithms and disorder change nothing.
    let mut unknown = policy.clone();
    unknown.networks[5].1 = CcName::new("nosuch").unwrap();
    let error = steering.apply(&unknown, &[ground.server_again()]).unwrap_err().to_string();
    assert!(error.contains("nosuch") && error.contains(OWN), "{error}");
    policy.networks.swap(3, 4);
    assert!(steering.apply(&policy, &[ground.server_again()]).unwrap_err().to_string().contains("ascending"));
    assert_eq!(steering.counters().unwrap().matched, 1);
}

#[test]
fn ipv6_networks_around_the_mapped_addresses_select_no_ipv4_client() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let mut steering = ground.attach();
    steering.apply(&policy(1, &["::/0"]), &[ground.server_again()]).unwrap();
    ground.connect("10.99.0.1").fetch(300_000);
    assert_eq!(steering.counters().unwrap().matched, 0);
    ground.connect("fd99::1").fetch(300_000);
    assert_eq!(steering.counters().unwrap().matched, 1);
    steering.apply(&policy(2, &["0.0.0.0/0"]), &[ground.server_again()]).unwrap();
    ground.connect("fd99::1").fetch(300_000);
    assert_eq!(steering.counters().unwrap().matched, 1);
    // A client of a dual-stack listener is an IPv4 client.
    ground.connect("10.99.0.1").fetch(300_000);
    assert_eq!(steering.counters().unwrap().matched, 2);
}

#[test]
fn the_record_of_a_close_says_what_steering_did() {
    let Some(mut ground) = Ground::new(50) else { return };
    ground.serve();
    let mut steering = ground.attach();
    let mut policy = policy(7, &["10.99.0.0/24"]);
    steering.apply(&policy, &[ground.server_again()]).unwrap();
    // Beside it on the same cgroup, with the same memory of connections, and callbacks of its own.
    let mut closes = Closes::attach(&ground.cgroup, Bytes::new(1 << 20), Some(steering.conns())).unwrap();
    let mut close = |client: Client| {
        let port = client.port();
        drop(client);
        let mut found = None;
        let deadline = Instant::now() + Duration::from_secs(10);
        while found.is_none() && Instant::now() < deadline {
            closes.drain(&mut |sample| {
                if sample.remote_port == port {
                    found = Some(*sample);
                }
            });
            std::thread::sleep(Duration::from_millis(5));
        }
        found.expect("every close is recorded")
    };
    let mut large = ground.connect("10.99.0.1");
    large.fetch(500_000);
    let mut small = ground.connect("10.99.0.1");
    small.fetch(50_000);
    let mut other = ground.connect("fd99::1");
    other.fetch(500_000);
    let large = close(large);
    assert_eq!((large.arm(), large.policy_version, large.is(flag::ACCEPTED | flag::SWITCHED)), (Arm::Treated, 7, true));
    let small = close(small);
    assert_eq!((small.arm(), small.policy_version, small.is(flag::SWITCHED)), (Arm::Treated, 7, false));
    let other = close(other);
    assert_eq!((other.arm(), other.is(flag::ACCEPTED), other.is(flag::SWITCHED)), (Arm::None, true, false));
    policy.holdout.share_ppm = 1_000_000;
    policy.version = 8;
    steering.apply(&policy, &[ground.server_again()]).unwrap();
    let mut held_out = ground.connect("10.99.0.1");
    held_out.fetch(500_000);
    let held_out = close(held_out);
    assert_eq!((held_out.arm(), held_out.policy_version, held_out.is(flag::SWITCHED)), (Arm::Holdout, 8, false));
}

impl Ground {
    /// A connection from one of the client's addresses.
    fn connect_from(&self, from: IpAddr) -> Client {
        let to = if from.is_ipv4() { "10.99.0.1" } else { "fd99::1" };
        let to = SocketAddr::new(to.parse().unwrap(), PORT);
        Client { stream: self.client.within(|| connect_from(from, to)).unwrap() }
    }
}

fn connect_from(from: IpAddr, to: SocketAddr) -> std::net::TcpStream {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let family = if from.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::STREAM, None).unwrap();
    bind(&socket, &SocketAddr::new(from, 0)).unwrap();
    connect(&socket, &to).unwrap();
    socket.into()
}
