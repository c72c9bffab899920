//! The software switch in the daemon: two hosts that are namespaces, a limit between them, asked and changed while it runs.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::ground::{Daemon, PATIENCE, Space, ip, text, until};

#[test]
fn a_limit_holds_is_shown_and_is_changed_while_it_runs() {
    holds_is_shown_and_is_changed(1);
}

#[test]
fn a_limit_of_two_threads_holds_is_shown_and_is_changed_while_it_runs() {
    holds_is_shown_and_is_changed(2);
}

/// Two hosts, `10.97.0.1` and `10.97.0.2`, each with the TAP device of a port, `a` and `b`, and a daemon that switches between them.
fn hosts(threads: u16, limits: &str) -> Option<(Space, Space, Daemon)> {
    let (a, b) = (Space::make()?, Space::make()?);
    let sections = format!(
        "[switch]\nthreads = {threads}\n[[port]]\nname = \"a\"\nkind = \"tap\"\ndevice = \"wg0\"\nnamespace = \"{}\"\n\
         [[port]]\nname = \"b\"\nkind = \"tap\"\ndevice = \"wg0\"\nnamespace = \"{}\"\n{limits}",
        a.name, b.name
    );
    let daemon = Daemon::start(&a, &sections);
    for (space, address) in [(&a, "10.97.0.1/24"), (&b, "10.97.0.2/24")] {
        ip(&["-n", &space.name, "link", "set", "wg0", "up"]);
        ip(&["-n", &space.name, "addr", "add", address, "dev", "wg0"]);
        // BBR takes a limit for a policer, and remembers its rate for seconds after it was raised. Reno is everywhere.
        space.ns.within(|| std::fs::write("/proc/sys/net/ipv4/tcp_congestion_control", "reno").unwrap()).unwrap();
    }
    Some((a, b, daemon))
}

fn holds_is_shown_and_is_changed(threads: u16) {
    let limits = "[[limit]]\nname = \"tenant\"\nrate = \"8 Mbit/s\"\n[[limit]]\nname = \"udp\"\nrate = \"8 Mbit/s\"\n\
         [[class]]\nport = \"a\"\nprotocol = \"udp\"\nlimits = [\"udp\"]\ntarget = \"off\"\n\
         [[class]]\nport = \"a\"\nlimits = [\"tenant\"]\n";
    let Some((a, b, mut daemon)) = hosts(threads, limits) else { return };
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

/// Ends its threads, however the test does.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Sends UDP packets of `size` bytes from eight ports until it is told to stop, one of each every other millisecond.
fn load(space: &Space, source: &str, destination: &str, size: usize, stop: &AtomicBool) {
    let socket = || {
        let socket = UdpSocket::bind((source, 0)).unwrap();
        socket.connect((destination, 6000)).unwrap();
        socket
    };
    let sockets: Vec<UdpSocket> = space.ns.within(|| (0..8).map(|_| socket()).collect()).unwrap();
    let data = vec![1; size];
    while !stop.load(Ordering::Relaxed) {
        // The device may be full, or a port unreachable: whoever sends does not know what became of the last one.
        sockets.iter().for_each(|socket| _ = socket.send(&data));
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// The new row of a limit that was given another rate through the control socket.
fn set(daemon: &Daemon, name: &str, rate: &str) -> Value {
    let mut door = UnixStream::connect(daemon.dir.path().join("control.sock")).unwrap();
    door.set_read_timeout(Some(PATIENCE)).unwrap();
    writeln!(door, "{}", json!({ "command": "limit-set", "name": name, "rate": rate })).unwrap();
    let mut line = String::new();
    BufReader::new(door).read_line(&mut line).unwrap();
    let reply: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(reply["ok"]["name"], name, "{line}");
    reply["ok"].clone()
}

/// The sum of these counts over limits or ports.
fn sum(of: &Value, counts: &[&str]) -> u64 {
    let rows = of.as_array().unwrap();
    rows.iter().flat_map(|row| counts.iter().map(|count| row[count].as_u64().unwrap())).sum()
}

/// What was received, and what is known of it: sent, dropped by whom it may be, waiting. Once nothing moves any more.
fn books(daemon: &Daemon) -> (Value, u64, [u64; 3]) {
    let look = || daemon.json("/api/v1/limits");
    let mut last = look();
    until("nothing moves", || {
        std::thread::sleep(Duration::from_millis(400));
        let before = std::mem::replace(&mut last, look());
        last["ports"] == before["ports"] && sum(&last["limits"], &["waiting"]) == sum(&before["limits"], &["waiting"])
    });
    let dropped = sum(&last["ports"], &["malformed", "filtered", "refused", "unsent"])
        + sum(&last["limits"], &["dropped_rate", "dropped_room", "dropped_codel"]);
    let known = [sum(&last["ports"], &["sent"]), dropped, sum(&last["limits"], &["waiting"])];
    let received = sum(&last["ports"], &["received"]);
    (last, received, known)
}

/// Two threads, UDP from both sides, limits that pace, drop and stand behind each other, and a thousand changes through the control socket,
/// among them to nothing at all.
#[test]
fn a_thousand_changes_under_load_lose_nothing_uncounted() {
    const NAMES: [&str; 3] = ["a-out", "b-out", "a-in"];
    const RATES: [&str; 5] = ["0 bit/s", "1 Mbit/s", "8 Mbit/s", "100 Mbit/s", "1 Gbit/s"];
    let limits = "[[limit]]\nname = \"a-out\"\nrate = \"8 Mbit/s\"\n[[limit]]\nname = \"b-out\"\nrate = \"8 Mbit/s\"\nmode = \"drop\"\n\
         [[limit]]\nname = \"a-in\"\nrate = \"8 Mbit/s\"\n[[class]]\nport = \"a\"\nlimits = [\"a-out\"]\n\
         [[class]]\nport = \"b\"\nlimits = [\"b-out\"]\n[[class]]\nport = \"a\"\ndirection = \"to\"\nlimits = [\"a-in\"]\n";
    let Some((a, b, daemon)) = hosts(2, limits) else { return };
    keeps_to_processors(&daemon);
    let _answers = [(&a, "10.97.0.1:6000"), (&b, "10.97.0.2:6000")]
        .map(|(space, address)| space.ns.within(|| UdpSocket::bind(address).unwrap()).unwrap());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| load(&a, "10.97.0.1", "10.97.0.2", 1_000, &stop));
        scope.spawn(|| load(&b, "10.97.0.2", "10.97.0.1", 1_000, &stop));
        for n in 0..1_000 {
            let (name, rate) = (NAMES[n % 3], RATES[n * 7 / 3 % 5]);
            let row = set(&daemon, name, rate);
            assert_eq!(
                row["rate_bits_per_s"].as_u64(),
                Some([0, 1, 8, 100, 1_000][n * 7 / 3 % 5] * 1_000_000),
                "{row}"
            );
        }
        NAMES.iter().for_each(|name| _ = set(&daemon, name, "8 Mbit/s"));
        // What is dropped for its rate, for want of room, and by CoDel.
        let grows = |name: usize, count: &str| {
            let looked = || daemon.json("/api/v1/limits")["limits"][name][count].as_u64().unwrap();
            let before = looked();
            until(count, || looked() > before + 10);
        };
        grows(1, "dropped_rate");
        grows(0, "dropped_codel");
        set(&daemon, "a-out", "0 bit/s");
        grows(0, "dropped_room");
    });
    let (look, received, known) = books(&daemon);
    assert_eq!(received, known.iter().sum::<u64>(), "{known:?}: {look}");
    assert!(known[0] > 1_000 && known[1] > 100 && known[2] > 10, "{known:?}: {look}");
    // What waits leaves, and is not lost either.
    NAMES.iter().for_each(|name| _ = set(&daemon, name, "1 Gbit/s"));
    until("nothing waits", || sum(&daemon.json("/api/v1/limits")["limits"], &["waiting"]) == 0);
    let (look, received, known) = books(&daemon);
    assert_eq!((received, known[2]), (known.iter().sum::<u64>(), 0), "{known:?}: {look}");
}

/// Each of the two threads runs on a processor of its own, where there are two.
fn keeps_to_processors(daemon: &Daemon) {
    let tasks = std::fs::read_dir(format!("/proc/{}/task", daemon.child.id())).unwrap();
    let allowed = |task: std::fs::DirEntry| {
        let read = |file: &str| std::fs::read_to_string(task.path().join(file)).unwrap_or_default();
        let status = read("status");
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?.trim().to_owned();
        read("comm").starts_with("switch-").then_some(list)
    };
    let kept: Vec<String> = tasks.filter_map(|task| allowed(task.unwrap())).collect();
    assert_eq!(kept.len(), 2, "{kept:?}");
    let processors = std::thread::available_parallelism().unwrap().get();
    let alone = kept.iter().all(|list| list.parse::<u32>().is_ok()) && kept[0] != kept[1];
    assert!(alone || processors < 2, "{kept:?}");
}

/// What goes to a port by the article's limiter can come by any other, and is held back by none: until what passed is repaid it is
/// dropped.
#[test]
fn the_article_s_limiter_of_what_goes_to_a_port_passes_all_or_drops_all() {
    let limits = "[[limit]]\nname = \"b-in\"\nrate = \"8 Mbit/s\"\nmode = \"borrow\"\n\
         [[class]]\nport = \"b\"\ndirection = \"to\"\nlimits = [\"b-in\"]\n";
    let Some((a, b, daemon)) = hosts(1, limits) else { return };
    let _answers = b.ns.within(|| UdpSocket::bind("10.97.0.2:6000").unwrap()).unwrap();
    let limit = || daemon.json("/api/v1/limits")["limits"][0].clone();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        scope.spawn(|| load(&a, "10.97.0.1", "10.97.0.2", 1_000, &stop));
        let count = |of: &Value, count: &str| of[count].as_u64().unwrap();
        // The first ones wait for an answer to who has the address.
        until("something passes and something is dropped", || {
            let limit = limit();
            count(&limit, "passed_packets") > 100 && count(&limit, "dropped_rate") > 100
        });
        let (began, before) = (Instant::now(), limit());
        std::thread::sleep(Duration::from_secs(1));
        let passed = |now: &Value| count(now, "passed_bytes") - count(&before, "passed_bytes");
        until("as much passes as the rate gives in a tenth of a second", || passed(&limit()) > 100_000);
        let (after, time) = (limit(), began.elapsed().as_secs_f64());
        let passed = passed(&after);
        // No burst, and a packet more than the rate at most; what comes while it is closed is no reason to stay open for longer.
        assert!(passed as f64 <= 1e6 * (time + 0.1), "{passed} B in {time} s");
        let said = (after["mode"].as_str(), count(&after, "waiting"), count(&after, "dropped_room"));
        assert_eq!(said, (Some("borrow"), 0, 0), "{after}");
    });
}
