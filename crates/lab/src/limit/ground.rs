//! What the limit experiments stand on: a sender, the switch, a router with the kernel's own limiters, and a receiver.
//!
//! `a -- TAP -- switch -- TAP -- m -- veth -- b`: namespaces with the real TCP of this kernel. Every arm has the same path; the limit is
//! in the switch, or a qdisc on the router's way to `b`. Where the round trip is to take time, a second switch on a thread of its own,
//! which only delays, is in place of the veth, half of it in each direction.

use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration as StdDuration, Instant};
use std::{fs, thread};

use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use weirgate_linux::clock;
use weirgate_linux::dataplane::{self, Dataplane, Handle, Impaired, MEMORY_MAX};
use weirgate_linux::link::ip_batch;
use weirgate_linux::tap::Tap;
use weirgate_port::{Impair, Settings, Wire};
use weirgate_switch::bridge::{Bridge, BridgeClass, BridgePort, Direction};
use weirgate_switch::class::Rule;
use weirgate_switch::frame::Accounting;
use weirgate_switch::limits::{ClassSettings, LimitCounters, LimitId, LimitSettings, Mode, queue_max};
use weirgate_units::{BitRate, Bytes, Duration};

use super::ovs::Ovs;
use crate::machine::CpuTimes;
use crate::net::Namespace;
use crate::recorder::{Record, Recorder};
use crate::stats::mean;

/// The sender.
pub(super) const A: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
/// The receiver.
pub(super) const B: Ipv4Addr = Ipv4Addr::new(10, 77, 1, 2);

/// How long a server may take until it listens.
const SERVER_PATIENCE: StdDuration = StdDuration::from_secs(20);

/// Who limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arm {
    /// The switch.
    Switch(Mode),
    /// The kernel's token bucket filter on the router.
    Tbf,
    /// The kernel's hierarchical token bucket on the router; what waits does so in a FIFO.
    Htb,
    /// The same, and what waits does so in fq_codel (RFC 8290), where [the kernel has it](has_fq_codel).
    HtbFqCodel,
    /// Open vSwitch in the switch's place, its policer with a burst of this much time at the rate, or without any limit.
    Ovs { burst_ms: Option<u64> },
}

impl Arm {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Switch(Mode::Pace) => "pace",
            Self::Switch(Mode::Gate) => "gate",
            Self::Switch(Mode::Borrow) => "borrow (the article's gate)",
            Self::Switch(Mode::Drop) => "drop",
            Self::Tbf => "kernel tbf",
            Self::Htb => "kernel htb",
            Self::HtbFqCodel => "kernel htb, fq_codel",
            Self::Ovs { burst_ms: Some(_) } => "Open vSwitch, its policer",
            Self::Ovs { burst_ms: None } => "Open vSwitch, no limit",
        }
    }
}

/// How a ground is made.
#[derive(Clone, Copy, Debug)]
pub(super) struct Plan {
    pub(super) arm: Arm,
    pub(super) rate: BitRate,
    /// Of the path, beside what the machine takes.
    pub(super) rtt: Duration,
}

/// Processor time since some origin: of whoever switches, its kernel work included, and of all processors, sender, receiver and whoever
/// else runs included. What a qdisc takes is charged to whoever runs: only the second has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cpu {
    switch: Duration,
    machine: Duration,
}

/// Heads of the columns of [`Cpu::per_gbit`].
pub(super) const CORES: [&str; 2] = ["switch, core per Gbit/s", "whole machine, core per Gbit/s"];

impl Cpu {
    /// Now, where whoever switches has used so much.
    pub(super) fn now(switch: Duration) -> Self {
        Self { switch, machine: CpuTimes::now().busy() }
    }

    /// Seconds of both until `later`, for each Gbit of the payload that came through meanwhile.
    pub(super) fn per_gbit(&self, later: &Self, bytes: u64) -> [f64; 2] {
        [later.switch.saturating_sub(self.switch), later.machine.saturating_sub(self.machine)]
            .map(|time| time.as_secs_f64() / (bytes as f64 * 8.0 / 1e9).max(1e-9))
    }
}

/// Who carries the frames between the sender and the router.
enum Carrier {
    Switch(Handle),
    Ovs(Ovs),
}

/// The namespaces, the switch and the limit. All of it goes on drop.
pub(super) struct Ground {
    pub(super) a: Namespace,
    pub(super) b: Namespace,
    m: Namespace,
    carrier: Carrier,
    _delay: Option<Handle>,
    limit: Option<LimitId>,
    /// What left the switch towards the receiver.
    pub(super) released: Record,
    port: AtomicU16,
}

impl Ground {
    /// What comes from the sender is limited.
    pub(super) fn new(plan: Plan) -> Result<Self> {
        Self::limited(plan, Direction::From, ClassSettings::default())
    }

    /// What comes from `a`'s port is limited, or what goes to it; `queue` is the switch's, but for its length. The kernel's limits and
    /// Open vSwitch's know only the first. A gate does not read the queue that this comes by; the article's does so only for what comes
    /// from `a`.
    pub(super) fn limited(plan: Plan, direction: Direction, queue: ClassSettings) -> Result<Self> {
        let [a, m, b] = ["a", "m", "b"].map(Namespace::create);
        let (a, m, b) = (a?, m?, b?);
        let (carrier, limit, released) = match plan.arm {
            Arm::Ovs { burst_ms } => {
                let policer = burst_ms.map(|ms| (plan.rate, Duration::from_millis(ms)));
                (Carrier::Ovs(Ovs::start(&a, &m, policer)?), None, Record::default())
            }
            _ => {
                let (switch, limit, released) = switch(plan, direction, queue, &a, &m)?;
                (Carrier::Switch(switch), limit, released)
            }
        };
        let delay = (plan.rtt > Duration::ZERO).then(|| delay(&m, &b, plan.rtt)).transpose()?;
        for ns in [&a, &m, &b] {
            ns.set_congestion_control("cubic")?;
            for key in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
                ns.set_sysctl(key, "4096 131072 67108864")?;
            }
        }
        m.set_sysctl("net.ipv4.ip_forward", "1")?;
        let (an, mn, bn) = (a.name(), m.name(), b.name());
        let veth = match &delay {
            None => format!("ip -n {mn} link add vb type veth peer name vm netns {bn}"),
            Some(_) => String::new(),
        };
        sh(&format!(
            "for n in {an} {mn} {bn}; do ip -n $n link set lo up; done
             {veth}
             ip -n {an} link set wg0 up txqueuelen 10000; ip -n {mn} link set wg0 up txqueuelen 10000
             ip -n {mn} link set vb up txqueuelen 10000; ip -n {bn} link set vm up txqueuelen 10000
             ip -n {an} addr add 10.77.0.1/24 dev wg0; ip -n {mn} addr add 10.77.0.2/24 dev wg0
             ip -n {mn} addr add 10.77.1.1/24 dev vb; ip -n {bn} addr add 10.77.1.2/24 dev vm
             ip -n {an} route add default via 10.77.0.2; ip -n {bn} route add default via 10.77.1.1"
        ))?;
        let bits = plan.rate.as_bits_per_sec();
        match plan.arm {
            // The burst is what a timer's jiffy lets through at the rate, as tc-tbf(8) asks; the queue 100 ms.
            Arm::Tbf => {
                let burst = (bits / 8 / 250).max(5_000);
                sh(&format!("tc -n {mn} qdisc add dev vb root tbf rate {bits}bit burst {burst} latency 100ms"))?;
            }
            Arm::Htb | Arm::HtbFqCodel => {
                // The FIFO of its class is what an Ethernet device's would be.
                let queue = if plan.arm == Arm::Htb { "pfifo limit 1000" } else { "fq_codel" };
                sh(&format!(
                    "tc -n {mn} qdisc add dev vb root handle 1: htb default 1
                     tc -n {mn} class add dev vb parent 1: classid 1:1 htb rate {bits}bit
                     tc -n {mn} qdisc add dev vb parent 1:1 {queue}"
                ))?;
            }
            Arm::Switch(_) | Arm::Ovs { .. } => {}
        }
        Ok(Self { a, b, m, carrier, _delay: delay, limit, released, port: AtomicU16::new(5_201) })
    }

    /// Where the next server of `b` listens.
    pub(super) fn next_server(&self) -> SocketAddr {
        SocketAddr::new(B.into(), self.port.fetch_add(1, Ordering::Relaxed))
    }

    /// Gives the sender more addresses, of its own network.
    pub(super) fn add_addresses(&self, addresses: &[Ipv4Addr]) -> Result<()> {
        let lines: String = addresses.iter().map(|a| format!("addr add {a}/24 dev wg0\n")).collect();
        Ok(ip_batch(self.a.netns(), &lines)?)
    }

    /// Has every device take packets of so many bytes.
    pub(super) fn set_mtu(&self, mtu: u32) -> Result<()> {
        for (ns, devices) in [(&self.a, &["wg0"][..]), (&self.m, &["wg0", "vb"]), (&self.b, &["vm"])] {
            let lines: String = devices.iter().map(|device| format!("link set {device} mtu {mtu}\n")).collect();
            ip_batch(ns.netns(), &lines)?;
        }
        Ok(())
    }

    /// What the limit did; `None`: it is not the switch's.
    pub(super) fn counters(&self) -> Result<Option<LimitCounters>> {
        let (Some(limit), Carrier::Switch(switch)) = (self.limit, &self.carrier) else { return Ok(None) };
        Ok(Some(switch.call(move |d| d.bridge().limit_counters(limit, clock::boottime()))?))
    }

    /// How exactly the switch releases what waits.
    pub(super) fn slot(&self) -> Result<Duration> {
        match &self.carrier {
            Carrier::Switch(switch) => Ok(switch.call(|d| d.bridge().tick())?),
            Carrier::Ovs(_) => bail!("Open vSwitch lets nothing wait"),
        }
    }

    /// The other switch, where that is what carries.
    pub(super) const fn ovs(&self) -> Option<&Ovs> {
        match &self.carrier {
            Carrier::Ovs(ovs) => Some(ovs),
            Carrier::Switch(_) => None,
        }
    }

    /// Processor time used so far.
    pub(super) fn cpu(&self) -> Result<Cpu> {
        let switch = match &self.carrier {
            Carrier::Switch(switch) => switch.call(|_| clock::thread_cpu())?,
            Carrier::Ovs(ovs) => ovs.cpu()?,
        };
        Ok(Cpu::now(switch))
    }

    /// Runs iperf3 from `a` to `b`, with `-R` among the `arguments` from `b` to `a`, for `time` after what these omit.
    pub(super) fn iperf(&self, arguments: &str, time: Duration) -> Result<Iperf> {
        let server = self.next_server();
        let mut listener = serve(&self.b, "-J", server.port())?;
        let seconds = time.as_secs_f64().ceil();
        let command = format!("iperf3 -J -c {} -p {} -t {seconds} {arguments}", server.ip(), server.port());
        let before = self.cpu()?;
        let client = answer(spawn(&self.a, &command)?).with_context(|| format!("iperf3 {arguments}"));
        let after = self.cpu()?;
        if client.is_err() {
            let _ = listener.kill();
        }
        // Reaped, whatever the client said.
        let server = answer(listener);
        let (client, server) = (client?, server?);
        Ok(Iperf { client, server, reverse: arguments.contains("-R"), before, after })
    }
}

/// Whether this kernel has the qdisc fq_codel.
pub(super) fn has_fq_codel() -> Result<bool> {
    let ns = Namespace::create("fq")?;
    Ok(sh(&format!("tc -n {} qdisc add dev lo root fq_codel", ns.name())).is_ok())
}

/// Starts a program in a namespace.
fn spawn(ns: &Namespace, command: &str) -> Result<Child> {
    let mut shell = Command::new("ip");
    shell.args(["netns", "exec", ns.name()]).args(command.split_whitespace());
    shell.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    shell.spawn().with_context(|| format!("`{command}` cannot be run"))
}

/// Starts an iperf3 server for one client; it listens when this returns.
pub(super) fn serve(ns: &Namespace, arguments: &str, port: u16) -> Result<Child> {
    let mut server = spawn(ns, &format!("iperf3 -s -1 -p {port} {arguments}"))?;
    let deadline = Instant::now() + SERVER_PATIENCE;
    while !listens(server.id(), port) {
        let ended = server.try_wait()?;
        if ended.is_some() || Instant::now() > deadline {
            let _ = server.kill();
            let _ = server.wait();
            bail!("iperf3 does not listen on port {port} of {}: {ended:?}", ns.name());
        }
        thread::sleep(StdDuration::from_millis(5));
    }
    Ok(server)
}

/// Whether somebody listens on a TCP port in the network namespace of a process: proc_pid_net(5).
fn listens(pid: u32, port: u16) -> bool {
    const LISTEN: &str = "0A";
    let port = format!(":{port:04X}");
    ["tcp", "tcp6"].iter().any(|table| {
        let sockets = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
        sockets.lines().any(|line| {
            let fields: Vec<_> = line.split_whitespace().collect();
            matches!(fields[..], [_, local, _, LISTEN, ..] if local.ends_with(&port))
        })
    })
}

fn answer(iperf: Child) -> Result<Value> {
    read_answer(&iperf.wait_with_output()?.stdout)
}

/// What iperf3 printed at its end, with `-J`.
pub(super) fn read_answer(said: &[u8]) -> Result<Value> {
    let value: Value = serde_json::from_slice(said).context("iperf3's answer is no JSON")?;
    match value["error"].as_str() {
        Some(error) => bail!("{error}"),
        None => Ok(value),
    }
}

/// Payload that came to the receiver, bit/s, as iperf3's client says.
pub(super) fn received(client: &Value) -> f64 {
    let end = &client["end"];
    // UDP has no `sum_received` in old versions; `sum` is the receiver's there, with what was lost.
    let udp = end["sum"]["lost_packets"].is_number();
    if udp && !end["sum_received"]["bits_per_second"].is_number() {
        let lost = end["sum"]["lost_percent"].as_f64().unwrap_or(100.0);
        return end["sum"]["bits_per_second"].as_f64().unwrap_or(0.0) * (1.0 - lost / 100.0);
    }
    end["sum_received"]["bits_per_second"].as_f64().unwrap_or(0.0)
}

/// What iperf3 says at its end.
pub(super) struct Iperf {
    client: Value,
    server: Value,
    /// Whether the server sends.
    reverse: bool,
    before: Cpu,
    after: Cpu,
}

impl Iperf {
    /// Processor time for each Gbit: see [`Cpu`].
    pub(super) fn cores_per_gbit(&self) -> [f64; 2] {
        let bytes = self.intervals().filter_map(|second| second["bytes"].as_u64()).sum();
        self.before.per_gbit(&self.after, bytes)
    }

    /// Payload that came to the receiver in each second that was not omitted, bit/s.
    pub(super) fn by_second(&self) -> Vec<f64> {
        let whole = |second: &&Value| second["omitted"] != true && second["seconds"].as_f64() > Some(0.9);
        self.intervals().filter(whole).filter_map(|second| second["bits_per_second"].as_f64()).collect()
    }

    /// The receiver's intervals, the omitted ones as well.
    fn intervals(&self) -> impl Iterator<Item = &Value> {
        let receiver = if self.reverse { &self.client } else { &self.server };
        receiver["intervals"].as_array().into_iter().flatten().map(|interval| &interval["sum"])
    }

    /// Payload that came to the receiver, bit/s.
    pub(super) fn received(&self) -> f64 {
        received(&self.client)
    }

    /// The mean of the connections' smoothed round-trip times, in milliseconds: what waits anywhere is in it.
    pub(super) fn rtt_ms(&self) -> f64 {
        let sender = if self.reverse { &self.server } else { &self.client };
        let streams = sender["end"]["streams"].as_array().into_iter().flatten();
        mean(streams.filter_map(|stream| stream["sender"]["mean_rtt"].as_f64())) / 1e3
    }

    /// Segments sent again.
    pub(super) fn retransmits(&self) -> u64 {
        self.client["end"]["sum_sent"]["retransmits"].as_u64().unwrap_or(0)
    }
}

/// What passes at once: five milliseconds, the daemon's default; for a limit that drops what its users are told to give it, 50 ms.
pub(super) fn burst(rate: BitRate, mode: Mode) -> Bytes {
    rate.bytes_in(Duration::from_millis(burst_ms(mode))).max(Bytes::new(2 * 1_514))
}

pub(super) const fn burst_ms(mode: Mode) -> u64 {
    if matches!(mode, Mode::Drop) { 50 } else { 5 }
}

/// The switch between `a` and `m`, devices `wg0`, with the plan's limit if it is the switch's.
fn switch(
    plan: Plan,
    direction: Direction,
    queue: ClassSettings,
    a: &Namespace,
    m: &Namespace,
) -> Result<(Handle, Option<LimitId>, Record)> {
    let now = clock::boottime();
    let mut bridge = Bridge::new(now, plan.rate, plan.rate, MEMORY_MAX, 1);
    let limit = match plan.arm {
        Arm::Switch(mode) => {
            let settings = LimitSettings { rate: plan.rate, burst: burst(plan.rate, mode), mode };
            let id = bridge.add_limit(now, settings);
            let queue = ClassSettings { queue_max: queue_max(plan.rate), ..queue };
            let class = bridge.add_class(&BridgeClass { limits: vec![id], accounting: Accounting::default(), queue });
            // The first port is the sender's.
            let rules = vec![Rule { port: Some(0), ..Rule::any(0, class) }];
            let (from, to) = if direction == Direction::From { (rules, vec![]) } else { (vec![], rules) };
            bridge.set_rules(from, to)?;
            Some(id)
        }
        _ => None,
    };
    let gates = match plan.arm {
        Arm::Switch(Mode::Gate) => true,
        // The article's cannot hold back what goes to its tenant: it passes all or drops all.
        Arm::Switch(Mode::Borrow) => direction == Direction::From,
        _ => false,
    };
    let gate = limit.filter(|_| gates);
    let mut dataplane = Dataplane::new(bridge)?;
    let near = Tap::create(a.netns(), "wg0", 1)?;
    let far = Recorder::new(Tap::create(m.netns(), "wg0", 1)?, now);
    let released = far.sent();
    let gate_of = |side| gate.filter(|_| side == direction);
    let near = dataplane.add_port(Box::new(near), gate_of(Direction::From), Bytes::new(1 << 20))?;
    let far = dataplane.add_port(Box::new(far), gate_of(Direction::To), Bytes::new(1 << 20))?;
    dataplane.bridge_mut().join(near, far);
    Ok((dataplane::spawn("switch", dataplane)?, limit, released))
}

/// What carries frames between `m` (device `vb`) and `b` (`vm`), each way half of `rtt` late.
fn delay(m: &Namespace, b: &Namespace, rtt: Duration) -> Result<Handle> {
    let now = clock::boottime();
    let half = Duration::from_nanos(rtt.as_nanos() / 2);
    let settings = Settings { delay: half, queue: Bytes::new(1 << 30), ..Settings::default() };
    // Of rates it knows nothing.
    let rate = BitRate::from_bits_per_sec(1_000_000_000);
    let bridge = Bridge::new(now, rate, rate, Bytes::new(1 << 30), 1);
    // A path's delay is to be exact.
    let mut dataplane = Dataplane::new(bridge)?.coalescing(Duration::ZERO);
    let mut add = |ns: &Namespace, name| -> Result<BridgePort> {
        let device = Impaired::new(Tap::create(ns.netns(), name, 1)?, Impair::new(now, settings, 1, Wire::new()));
        Ok(dataplane.add_port(Box::new(device), None, Bytes::new(1 << 20))?)
    };
    let (near, far) = (add(m, "vb")?, add(b, "vm")?);
    dataplane.bridge_mut().join(near, far);
    Ok(dataplane::spawn("delay", dataplane)?)
}

fn sh(script: &str) -> Result<()> {
    let done = Command::new("sh").args(["-ec", script]).output()?;
    ensure!(done.status.success(), "{script}\n{}", String::from_utf8_lossy(&done.stderr));
    Ok(())
}
