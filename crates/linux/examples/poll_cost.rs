//! What one poll costs: user + system CPU of this process for every way of polling, interleaved with `ss -tinem`, over
//! established loopback sockets in a network namespace of its own. At the end all are closed at once: whether the ring
//! of close records holds, drained each 200 ms, and what a record costs its reader.
//!
//! `cargo run --release -p weirgate-linux --example poll_cost -- [SOCKETS] [ROUNDS]`, as root. The bar that counts is
//! measured by `weirgate lab run sockets-scale`; this is for looking at one change quickly.
#![allow(clippy::disallowed_methods, reason = "a measurement")]

use std::io::{BufRead, BufReader, Read};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::time::{ClockId, clock_gettime};
use weirgate_linux::bpf::close::RING_BYTES;
use weirgate_linux::bpf::{Closes, IterPoller};
use weirgate_linux::cgroup;
use weirgate_linux::diag::DiagPoller;
use weirgate_linux::netns::Netns;
use weirgate_linux::poll::Filter;
use weirgate_sockets::sample::{Sample, state};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args.first().is_some_and(|a| a == "--hold") {
        return hold(args[1].parse().expect("a number of pairs"), args[2].parse().expect("an address"));
    }
    let sockets: u64 = args.first().map_or(100_000, |a| a.parse().expect("SOCKETS is a number"));
    let rounds: usize = args.get(1).map_or(10, |a| a.parse().expect("ROUNDS is a number"));
    // SAFETY: no pointers; affects this process's namespaces only, before any thread is started.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_NEWNET) }, 0, "needs root: {}", std::io::Error::last_os_error());
    assert!(Command::new("ip").args(["link", "set", "lo", "up"]).status().expect("`ip` runs").success());
    // Attached before the sockets, so that each has what the close program remembers of it, as under the daemon.
    let mut closes = Closes::attach(&cgroup::root().expect("cgroup v2"), RING_BYTES, None).expect("attaches");
    let holders = open(sockets);

    let here = Netns::current().expect("a namespace");
    let filter = Filter { states: 1 << state::ESTABLISHED, ..Filter::default() };
    let mut iterators = [IterPoller::load().expect("loads"), IterPoller::load_sharing(closes.conns()).expect("loads")];
    let mut netlink = DiagPoller::new();
    let mut costs: [Vec<Cost>; 4] = Default::default();
    let mut sum = 0;
    for _ in 0..rounds {
        for (iterator, costs) in iterators.iter_mut().zip(&mut costs) {
            costs.push(cost(libc::RUSAGE_SELF, || {
                let stats = iterator.poll(&here, &filter, &mut |s| sum ^= s.bytes_acked).expect("polls");
                assert_eq!((stats.sockets, stats.lost), (sockets, 0));
            }));
        }
        costs[2].push(cost(libc::RUSAGE_SELF, || {
            let stats = netlink.poll(&here, &filter, &mut |s| sum ^= s.bytes_acked).expect("polls");
            assert_eq!(stats.sockets, sockets);
        }));
        costs[3].push(cost(libc::RUSAGE_CHILDREN, || {
            let ss = Command::new("ss").args(["-tinem", "state", "established"]).stdout(Stdio::null()).status();
            assert!(ss.expect("`ss` runs").success());
        }));
    }
    std::hint::black_box(sum);
    let burst = close(holders, &mut closes, here.inode(), sockets);
    let medians = costs.map(median);
    println!("{sockets} established sockets, median of {rounds}: ms");
    println!("{:10} {:>8} {:>8} {:>8} {:>8} {:>8}", "", "user", "system", "CPU", "wall", "/ ss");
    for (name, cost) in ["iterator", "+ memory", "netlink", "ss -tinem"].into_iter().zip(medians) {
        let ms = |d: Duration| d.as_secs_f64() * 1e3;
        let cpu = cost.user + cost.system;
        let ratio = cpu.as_secs_f64() / (medians[3].user + medians[3].system).as_secs_f64();
        let Cost { user, system, wall } = cost;
        println!("{name:10} {:8.1} {:8.1} {:8.1} {:8.1} {ratio:8.3}", ms(user), ms(system), ms(cpu), ms(wall));
    }
    println!("{burst}");
}

/// Closes everything and drains by a timer until every record is there or counted as lost.
fn close(holders: Vec<Holder>, closes: &mut Closes, netns: u32, sockets: u64) -> String {
    closes.drain(&mut |_| {});
    let before = closes.counters();
    let start = Instant::now();
    let ending = std::thread::spawn(move || drop(holders));
    let (mut records, mut others, mut spent, mut longest) = (0, 0, Duration::ZERO, 0);
    let lost = loop {
        std::thread::sleep(Duration::from_millis(200));
        let mut each = |s: &Sample| *(if s.netns == netns { &mut records } else { &mut others }) += 1;
        // Less than a tick, which is as finely as rusage is kept.
        let began = thread_cpu();
        longest = longest.max(closes.drain(&mut each));
        spent += thread_cpu() - began;
        let lost = closes.counters().ring_failures - before.ring_failures;
        if records + lost >= sockets || start.elapsed() > Duration::from_secs(60) {
            break lost;
        }
    };
    let seen = closes.counters().seen - before.seen;
    ending.join().expect("holders end");
    format!(
        "closed in {:.1} s: {seen} closes seen, {records} records here and {others} elsewhere, {lost} lost in the ring; \
         at most {longest} waited; {:.2} us of the reader's CPU each",
        start.elapsed().as_secs_f64(),
        spent.as_secs_f64() * 1e6 / (records + others) as f64
    )
}

#[derive(Clone, Copy, Default)]
struct Cost {
    user: Duration,
    system: Duration,
    wall: Duration,
}

fn cost(who: libc::c_int, f: impl FnOnce()) -> Cost {
    let (before, start) = (usage(who), Instant::now());
    f();
    let after = usage(who);
    Cost { user: after.user - before.user, system: after.system - before.system, wall: start.elapsed() }
}

fn thread_cpu() -> Duration {
    let spent = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(spent.tv_sec as u64, spent.tv_nsec as u32)
}

fn usage(who: libc::c_int) -> Cost {
    // SAFETY: all zeroes are a valid rusage, which getrusage(2) fills.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(who, &raw mut usage), 0);
        usage
    };
    let time = |t: libc::timeval| Duration::from_micros(t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64);
    Cost { user: time(usage.ru_utime), system: time(usage.ru_stime), wall: Duration::ZERO }
}

/// Each column by itself.
fn median(costs: Vec<Cost>) -> Cost {
    let middle = |of: fn(&Cost) -> Duration| {
        let mut column: Vec<Duration> = costs.iter().map(of).collect();
        column.sort_unstable();
        column.get(column.len() / 2).copied().unwrap_or_default()
    };
    Cost { user: middle(|c| c.user), system: middle(|c| c.system), wall: middle(|c| c.wall) }
}

/// As many processes as the limit of open files asks for, each holding both ends of its connections on an address of its
/// own. They end when their standard input does.
fn open(sockets: u64) -> Vec<Holder> {
    let limit = getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20).min(1 << 20);
    let each = (limit - 64) / 2;
    let mut left = sockets / 2;
    let mut holders = Vec::new();
    while left > 0 {
        let pairs = left.min(each);
        let address = Ipv4Addr::new(127, 0, 1, holders.len() as u8 + 1).to_string();
        let mut child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--hold", &pairs.to_string(), &address])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("starts");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("piped")).read_line(&mut line).expect("answers");
        assert_eq!(line, "ready\n");
        holders.push(Holder(child));
        left -= pairs;
    }
    holders
}

struct Holder(Child);

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

fn hold(pairs: usize, address: Ipv4Addr) {
    let limit = getrlimit(Resource::Nofile).maximum;
    setrlimit(Resource::Nofile, Rlimit { current: limit, maximum: limit }).expect("the soft limit can be raised");
    let listener = TcpListener::bind((address, 0)).expect("binds");
    let to = listener.local_addr().expect("bound");
    let held: Vec<_> =
        (0..pairs).map(|_| (TcpStream::connect(to).expect("connects"), listener.accept().expect("accepts"))).collect();
    println!("ready");
    let _ = std::io::stdin().read(&mut [0; 1]);
    drop(held);
}
