//! The software switch in the daemon: two hosts that are namespaces, a limit between them, asked and changed while it runs.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use super::ground::{Daemon, PATIENCE, Space, ip, text, until};

#[test]
fn a_limit_holds_is_shown_and_is_changed_while_it_runs() {
    holds_is_shown_and_is_changed(1);
}

#[test]
fn a_limit_of_two_threads_holds_is_shown_and_is_changed_while_it_runs() {
    holds_is_shown_and_is_changed(2);
}

fn holds_is_shown_and_is_changed(threads: u16) {
    let (Some(a), Some(b)) = (Space::make(), Space::make()) else { return };
    let sections = format!(
        "[switch]\nthreads = {threads}\n[[port]]\nname = \"a\"\nkind = \"tap\"\ndevice = \"wg0\"\nnamespace = \"{}\"\n\
         [[port]]\nname = \"b\"\nkind = \"tap\"\ndevice = \"wg0\"\nnamespace = \"{}\"\n\
         [[limit]]\nname = \"tenant\"\nrate = \"8 Mbit/s\"\n[[limit]]\nname = \"udp\"\nrate = \"8 Mbit/s\"\n\
         [[class]]\nport = \"a\"\nprotocol = \"udp\"\nlimits = [\"udp\"]\ntarget = \"off\"\n\
         [[class]]\nport = \"a\"\nlimits = [\"tenant\"]\n",
        a.name, b.name
    );
    let mut daemon = Daemon::start(&a, &sections);
    for (space, address) in [(&a, "10.97.0.1/24"), (&b, "10.97.0.2/24")] {
        ip(&["-n", &space.name, "link", "set", "wg0", "up"]);
        ip(&["-n", &space.name, "addr", "add", address, "dev", "wg0"]);
        // BBR takes a limit for a policer, and remembers its rate for seconds after it was raised. Reno is everywhere.
        space.ns.within(|| std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").unwrap()).unwrap();
    }
    let listener = b.ns.within(|| TcpListener::bind("10.97.0.2:5000").unwrap()).unwrap();
    let mut client = a.ns.within(|| TcpStream::connect("10.97.0.2:5000").unwrap()).unwrap();
    let (mut server, _) = listener.accept().unwrap();

    // A megabyte at 8 Mbit/s takes a second, less the burst.
    let mut send = |bytes: usize| {
        let began = Instant::now();
        let data = vec![1; bytes];
        std::thread::scope(|scope| {
            scope.spawn(|| client.write_all(&data).unwrap());
            let mut left = vec![0; bytes];
            server.read_exact(&mut left).unwrap();
        });
        began.elapsed()
    };
    let took = send(1_000_000);
    assert!(took > Duration::from_millis(900), "{took:?}");

    let list = text(&daemon.run(&["limit", "list"]).stdout);
    assert!(list.contains("tenant") && list.contains("8 Mbit/s") && list.contains("pace"), "{list}");
    let limit = &daemon.json("/api/v1/limits")["limits"][0];
    assert!(limit["passed_bytes"].as_u64() > Some(1_000_000), "{limit}");
    assert!(limit["throttled_ms"].as_u64() > Some(400), "{limit}");
    let show = text(&daemon.run(&["limit", "show", "tenant"]).stdout);
    assert!(show.contains("8 Mbit/s of L3, by `pace`") && show.contains("waited     packets"), "{show}");

    let set = daemon.run(&["limit", "set", "tenant", "80 Mbit/s"]);
    assert_eq!(set.status.code(), Some(0), "{}", text(&set.stderr));
    // Half a second; six at the rate before.
    let took = send(6_000_000);
    assert!(took < Duration::from_secs(4), "{took:?}");

    nothing_is_lost_as_a_rate_is_changed(&daemon, &a, &b);

    for asked in [&["limit", "set", "tennant", "1 Mbit/s"][..], &["limit", "show", "tennant"]] {
        let near = daemon.run(asked);
        assert_eq!(near.status.code(), Some(2), "{asked:?}");
        let said = text(&near.stderr);
        assert!(said.contains("did you mean `tenant`? There are: tenant, udp"), "{said}");
    }
    assert_eq!(daemon.run(&["limit", "set", "tenant", "fast"]).status.code(), Some(2));
    let metrics = daemon.get("/metrics");
    assert!(
        metrics.contains("weirgate_limit_rate_bytes_per_second{limit=\"tenant\",mode=\"pace\"} 10000000"),
        "{metrics}"
    );
    assert!(metrics.contains("weirgate_limit_delay_seconds_bucket{limit=\"tenant\",le=\"+Inf\"}"), "{metrics}");
    assert_eq!(daemon.stop(), Some(0));
    assert!(
        !text(&std::process::Command::new("ip").args(["-n", &a.name, "link"]).output().unwrap().stdout).contains("wg0")
    );
}

/// Datagrams, which nobody sends again: they wait at a rate of zero, and all leave in order at the next one.
fn nothing_is_lost_as_a_rate_is_changed(daemon: &Daemon, a: &Space, b: &Space) {
    const DATAGRAMS: u32 = 40;
    let receiver = b.ns.within(|| UdpSocket::bind("10.97.0.2:6000").unwrap()).unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let sender = a.ns.within(|| UdpSocket::bind("10.97.0.1:0").unwrap()).unwrap();
    let limit = || daemon.json("/api/v1/limits")["limits"][1].clone();
    let set = |rate: &str| {
        let set = daemon.run(&["limit", "set", "udp", rate]);
        assert_eq!(set.status.code(), Some(0), "{}", text(&set.stderr));
    };
    set("0 bit/s");
    for n in 0..DATAGRAMS {
        let mut datagram = [0; 1_000];
        datagram[..4].copy_from_slice(&n.to_be_bytes());
        sender.send_to(&datagram, "10.97.0.2:6000").unwrap();
    }
    until("all of them passed or wait", || {
        let limit = limit();
        limit["passed_packets"].as_u64().unwrap() + limit["waiting"].as_u64().unwrap() == u64::from(DATAGRAMS)
    });
    // Two bursts at most, of two threads.
    assert!(limit()["waiting"].as_u64() > Some(u64::from(DATAGRAMS) - 10), "{}", limit());
    set("16 Mbit/s");
    let mut datagram = [0; 1_000];
    for n in 0..DATAGRAMS {
        assert_eq!(receiver.recv(&mut datagram).unwrap(), datagram.len());
        assert_eq!(datagram[..4], n.to_be_bytes());
    }
    let limit = limit();
    for (count, wanted) in
        [("passed_packets", DATAGRAMS), ("waiting", 0), ("dropped_rate", 0), ("dropped_room", 0), ("dropped_codel", 0)]
    {
        assert_eq!(limit[count].as_u64(), Some(wanted.into()), "{count}: {limit}");
    }
    assert!(limit["delayed"].as_u64() > Some(u64::from(DATAGRAMS) - 10), "those that waited: {limit}");
}
