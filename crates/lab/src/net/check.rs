//! The emulated link against its own settings, through the kernel: UDP, ICMP and TCP between two namespaces.
//!
//! What the scheduler would disturb is kept out of the figures: the measuring threads run in real time like the emulator's,
//! echoes are the kernel's own, a rate is measured while a full queue drains by itself, and delays and rates are medians.
//! (The strict bounds, in virtual time, are tests of `weirgate-port`.)

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::time::Duration as StdDuration;

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, ipproto, sockopt};
use weirgate_linux::clock;
use weirgate_linux::wait::{Promptness, run_promptly};
use weirgate_port::{Chance, Settings};
use weirgate_units::{BitRate, Bytes, Duration};

use super::{Counters, Emulator, LinkSettings, Namespace, Topology};

/// A link to be checked: the same in both directions, but for the loss, which is on the way to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case {
    /// IPv6 instead of IPv4.
    pub ipv6: bool,
    /// The link's rate.
    pub rate: BitRate,
    /// The propagation there and back together.
    pub rtt: Duration,
    /// The chance of a packet to be lost.
    pub loss: Chance,
}

/// How much is measured of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Effort {
    /// How long a full queue is watched draining.
    pub rate: Duration,
    /// Echoes.
    pub echoes: u32,
    /// Packets sent to count losses.
    pub packets: u32,
    /// How long a TCP connection is to fill the link.
    pub tcp: Duration,
}

impl Effort {
    /// About three seconds: for a test.
    pub const QUICK: Self =
        Self { rate: Duration::from_millis(500), echoes: 60, packets: 5_000, tcp: Duration::from_millis(500) };
    /// About twenty seconds: for a report.
    pub const FULL: Self =
        Self { rate: Duration::from_secs(5), echoes: 500, packets: 50_000, tcp: Duration::from_secs(5) };
}

/// What was measured.
#[derive(Clone, Debug)]
pub struct Checked {
    /// The link.
    pub case: Case,
    /// The rate at which IP bytes came through a full link: the median of tenths of the time.
    pub rate: BitRate,
    /// Its difference from the setting, in percent of it.
    pub rate_error_pct: f64,
    /// From sending at the edge to receiving at the client, the median, less what the settings make of it: in milliseconds.
    pub one_way_error_ms: f64,
    /// The same of an echo, there and back.
    pub round_trip_error_ms: f64,
    /// Packets sent to count losses, and how many of them were lost.
    pub lost: (u32, u32),
    /// The least and the most losses of 99 % of links with this setting.
    pub lost_interval: (u32, u32),
    /// A TCP connection's goodput, in percent of what the rate leaves after headers. Less than 100 for its start and its losses.
    pub tcp_goodput_pct: f64,
    /// What the emulator counted, over all of the above.
    pub counters: Counters,
    /// Whether the emulator ran in real time: where not, the machine's other load is in the figures.
    pub promptness: Promptness,
}

impl Checked {
    /// Whether the link does what its settings say: rate within 1 %, delay within 0.5 ms each way, losses within their interval,
    /// nothing dropped where nothing counts.
    pub fn holds(&self) -> bool {
        self.rate_error_pct.abs() <= 1.0
            && self.one_way_error_ms.abs() <= 0.5
            && self.round_trip_error_ms.abs() <= 1.0
            && (self.lost_interval.0..=self.lost_interval.1).contains(&self.lost.1)
            && self.counters.dropped_ring == 0
            && self.counters.dropped_write == 0
    }
}

/// The links of a report: slow and fast, near and far, clean and lossy, over both families.
pub fn cases() -> Vec<Case> {
    let links =
        [("5 Mbit/s", 100, 0), ("20 Mbit/s", 40, 10_000), ("50 Mbit/s", 150, 20_000), ("100 Mbit/s", 10, 5_000)];
    let case = |ipv6, (rate, rtt, ppm): (&str, u64, u32)| Case {
        ipv6,
        rate: rate.parse().expect("the table's rates are rates"),
        rtt: Duration::from_millis(rtt),
        loss: Chance::from_ppm(ppm),
    };
    [false, true].into_iter().flat_map(|ipv6| links.map(|link| case(ipv6, link))).collect()
}

/// Measures one link. Equal seeds lose the same packets.
///
/// # Errors
/// Without root's rights, TUN or iproute2.
pub fn check(case: Case, effort: Effort, seed: u64) -> Result<Checked> {
    // The measuring threads' priority is theirs alone, not the caller's.
    std::thread::scope(|scope| scope.spawn(|| run(case, effort, seed)).join())
        .map_err(|_| anyhow::anyhow!("the measuring thread panicked"))?
}

fn run(case: Case, effort: Effort, seed: u64) -> Result<Checked> {
    run_promptly();
    let bench = Bench::new(case, seed)?;
    let one_way =
        Settings { rate: Some(case.rate), delay: Duration::from_nanos(case.rtt.as_nanos() / 2), ..Settings::default() };
    let clean = LinkSettings { down: one_way, up: one_way };
    // Losses first: the emulator's draws then begin at the seed, and equal seeds give equal losses.
    bench.set(LinkSettings { down: Settings { loss: case.loss, ..one_way }, ..clean })?;
    let (lost, one_way_median) = bench.lost_and_delay(effort.packets)?;
    bench.set(clean)?;
    let round_trip_median = bench.echoes(effort.echoes)?;
    let rate = bench.drain_rate(effort.rate)?;
    // For TCP, a queue as long as the path.
    let queue = Bytes::new(case.rate.as_bytes_per_sec() * case.rtt.as_millis() / 1_000 + 30_000);
    let tcp = Settings { queue, ..one_way };
    bench.set(LinkSettings { down: Settings { loss: case.loss, ..tcp }, up: tcp })?;
    let tcp_goodput = bench.tcp_goodput(effort.tcp)?;

    let on_line = |payload: u64| case.rate.time_for(Bytes::new(payload + case.header(8)));
    let error_ms = |median: Duration, set: Duration| (median.as_nanos() as f64 - set.as_nanos() as f64) / 1e6;
    let half = one_way.delay;
    let attainable = case.rate.as_bits_per_sec() as f64 * case.tcp_payload() as f64 / 1_500.0;
    let promptness = bench.emulator.promptness();
    Ok(Checked {
        case,
        rate,
        rate_error_pct: (rate.as_bits_per_sec() as f64 / case.rate.as_bits_per_sec() as f64 - 1.0) * 100.0,
        one_way_error_ms: error_ms(one_way_median, half.saturating_add(on_line(PROBE as u64))),
        round_trip_error_ms: error_ms(round_trip_median, half.saturating_add(on_line(ECHO as u64)).saturating_mul(2)),
        lost: (effort.packets, lost),
        lost_interval: binomial_99(effort.packets, case.loss),
        tcp_goodput_pct: tcp_goodput.as_bits_per_sec() as f64 / attainable * 100.0,
        promptness,
        counters: bench.emulator.stop()?,
    })
}

/// Bytes of a packet that is to be lost or not: a number and the time of sending.
const PROBE: usize = 16;

/// Bytes of an echo behind its ICMP header.
const ECHO: usize = 8;

impl Case {
    /// The bytes before the payload: of IP, and `layer4`.
    const fn header(&self, layer4: u64) -> u64 {
        layer4 + if self.ipv6 { 40 } else { 20 }
    }

    /// TCP's payload in a packet of 1,500 B: with the time stamp option, 12 B.
    const fn tcp_payload(&self) -> u64 {
        1_500 - self.header(32)
    }

    fn addresses(&self) -> (IpAddr, IpAddr) {
        let (edge, client) = if self.ipv6 { ("2001:db8:ffff::1", "2001:db8:1::1") } else { ("10.255.0.1", "10.1.0.1") };
        (edge.parse().expect("an address"), client.parse().expect("an address"))
    }
}

/// One link, two hosts.
struct Bench {
    case: Case,
    emulator: Emulator,
    link: super::LinkId,
    edge: Namespace,
    client: Namespace,
}

impl Bench {
    fn new(case: Case, seed: u64) -> Result<Self> {
        let (edge, client) = (Namespace::create("edge")?, Namespace::create("client")?);
        let mut topology = Topology::new(seed);
        let hub = topology.edge(&edge, &[case.addresses().0]);
        let network = weirgate_units::Prefix::client_network(case.addresses().1);
        let link = topology.link(hub, &client, &[network], LinkSettings::default());
        let emulator = Emulator::start(topology)?;
        Ok(Self { case, emulator, link, edge, client })
    }

    fn set(&self, settings: LinkSettings) -> Result<()> {
        self.emulator.set(self.link, settings)
    }

    /// A pair of UDP sockets, the edge's connected to the client's, which holds `most` packets unread.
    fn udp(&self, most: u64) -> Result<(UdpSocket, UdpSocket)> {
        let (edge, client) = self.case.addresses();
        let from = self.edge.netns().within(|| UdpSocket::bind((edge, 0)))??;
        let to = self.client.netns().within(|| UdpSocket::bind((client, 0)))??;
        from.connect(to.local_addr()?)?;
        to.set_read_timeout(Some(self.patience()))?;
        // The kernel counts a packet of 1,500 B as 2,304 (and doubles what it is asked for).
        sockopt::set_socket_recv_buffer_size_force(&to, usize::try_from(most)? * 2_304)?;
        Ok((from, to))
    }

    /// Longer than any packet takes: then it is lost.
    fn patience(&self) -> StdDuration {
        self.case.rtt.to_std() + StdDuration::from_millis(500)
    }

    /// How many of `packets` numbered ones are lost on the way to the client, and the median delay of the others.
    fn lost_and_delay(&self, packets: u32) -> Result<(u32, Duration)> {
        let (from, to) = self.udp(packets.into())?;
        // Half of what the link carries, so that nothing waits.
        let size = Bytes::new(PROBE as u64 + self.case.header(8));
        let gap = self.case.rate.time_for(size).saturating_mul(2).to_std().max(StdDuration::from_micros(50));
        let sender = std::thread::spawn(move || -> Result<()> {
            run_promptly();
            for n in 0..packets {
                let mut probe = [0; PROBE];
                probe[..8].copy_from_slice(&u64::from(n).to_ne_bytes());
                probe[8..].copy_from_slice(&clock::monotonic().as_nanos().to_ne_bytes());
                from.send(&probe)?;
                std::thread::sleep(gap);
            }
            Ok(())
        });
        let (mut delays, mut probe) = (Vec::new(), [0; PROBE]);
        while delays.len() < packets as usize {
            match to.recv(&mut probe) {
                Ok(PROBE) => {
                    let sent = u64::from_ne_bytes(probe[8..].try_into().expect("eight bytes"));
                    delays.push(clock::monotonic().as_nanos().saturating_sub(sent));
                }
                Ok(len) => anyhow::bail!("{len} bytes came that nobody sent"),
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock && sender.is_finished() => break,
                Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e.into()),
            }
        }
        sender.join().map_err(|_| anyhow::anyhow!("the sending thread panicked"))??;
        let lost = packets - u32::try_from(delays.len())?;
        Ok((lost, median(delays)?))
    }

    /// The median round trip of echoes that the client sends and the edge's kernel answers.
    fn echoes(&self, count: u32) -> Result<Duration> {
        let (edge, _) = self.case.addresses();
        let (family, protocol) =
            if self.case.ipv6 { (AddressFamily::INET6, ipproto::ICMPV6) } else { (AddressFamily::INET, ipproto::ICMP) };
        let open = || rustix::net::socket(family, SocketType::RAW, Some(protocol));
        let socket: OwnedFd = self.client.netns().within(open)??;
        rustix::net::connect(&socket, &SocketAddr::new(edge, 0))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(self.patience()))?;
        let mut times = Vec::new();
        let mut buffer = [0; 256];
        for n in 0..count {
            let request = echo_request(self.case.ipv6, n as u16);
            let before = clock::monotonic();
            rustix::net::send(&socket, &request, SendFlags::empty())?;
            while let Ok((len, _)) = rustix::net::recv(&socket, &mut buffer, RecvFlags::empty()) {
                // An IPv4 raw socket gives the IP header too.
                let icmp = buffer.get(if self.case.ipv6 { 0 } else { 20 }..len).unwrap_or(&[]);
                let reply = if self.case.ipv6 { 129 } else { 0 };
                if icmp.first() == Some(&reply) && icmp.get(6..8) == Some(&(n as u16).to_be_bytes()) {
                    times.push(clock::monotonic().saturating_since(before).as_nanos());
                    break;
                }
            }
            std::thread::sleep(StdDuration::from_millis(1));
        }
        ensure!(times.len() * 2 > count as usize, "only {} of {count} echoes came back", times.len());
        median(times)
    }

    /// The rate at which a full queue drains for `time`: the median over tenths of it.
    fn drain_rate(&self, time: Duration) -> Result<BitRate> {
        const SIZE: u64 = 1_500;
        let count = (self.case.rate.as_bytes_per_sec() as f64 * time.as_secs_f64() / SIZE as f64) as usize;
        ensure!(count >= 100, "{count} packets are too few for a rate: measure for longer");
        let (from, to) = self.udp(count as u64)?;
        let payload = vec![0; usize::try_from(SIZE - self.case.header(8))?];
        let sender = std::thread::spawn(move || -> Result<()> {
            for n in 0..count {
                from.send(&payload)?;
                // The device's ring has no back-pressure: give the emulator its turn.
                if n % 256 == 255 {
                    std::thread::sleep(StdDuration::from_micros(500));
                }
            }
            Ok(())
        });
        let (mut arrivals, mut buffer) = (Vec::with_capacity(count), [0; 2_048]);
        for n in 0..count {
            to.recv(&mut buffer).with_context(|| format!("packet {n} of {count} did not come through"))?;
            arrivals.push(clock::monotonic().as_nanos());
        }
        sender.join().map_err(|_| anyhow::anyhow!("the sending thread panicked"))??;
        let part = (count - 1) / 10;
        let times = (0..10).map(|i| arrivals[(i + 1) * part] - arrivals[i * part]).collect();
        let bytes = Bytes::new(SIZE * part as u64);
        BitRate::of(bytes, median(times)?).context("a tenth of the packets came at once")
    }

    /// The goodput of one TCP connection that is to take `time`, from its first byte to its last at the client.
    fn tcp_goodput(&self, time: Duration) -> Result<BitRate> {
        use std::io::{Read as _, Write as _};
        let (edge, _) = self.case.addresses();
        let size = (self.case.rate.as_bytes_per_sec() as f64 * time.as_secs_f64()) as usize;
        let listener = self.edge.netns().within(|| TcpListener::bind((edge, 0)))??;
        let to = listener.local_addr()?;
        let server = std::thread::spawn(move || -> Result<()> {
            listener.accept()?.0.write_all(&vec![0; size])?;
            Ok(())
        });
        let mut stream = self.client.netns().within(|| TcpStream::connect(to))??;
        let (mut buffer, mut read, mut first) = (vec![0; 1 << 16], 0, None);
        stream.set_read_timeout(Some(StdDuration::from_secs(30)))?;
        loop {
            let len = stream.read(&mut buffer)?;
            if len == 0 {
                break;
            }
            // The first bytes start the clock and are not counted.
            match first {
                None => first = Some(clock::monotonic()),
                Some(_) => read += len,
            }
        }
        let took = clock::monotonic().saturating_since(first.context("nothing came")?);
        server.join().map_err(|_| anyhow::anyhow!("the serving thread panicked"))??;
        BitRate::of(Bytes::new(read as u64), took).context("all came at once")
    }
}

/// An ICMP or ICMPv6 echo request (RFC 792, RFC 4443). The checksum of the latter is the kernel's work.
fn echo_request(ipv6: bool, sequence: u16) -> [u8; 8 + ECHO] {
    let mut request = [0; 8 + ECHO];
    request[0] = if ipv6 { 128 } else { 8 };
    request[6..8].copy_from_slice(&sequence.to_be_bytes());
    if !ipv6 {
        // RFC 1071: all but two words are zero.
        let sum = 0x0800 + u32::from(sequence);
        let folded = (sum & 0xffff) + (sum >> 16);
        request[2..4].copy_from_slice(&(!(folded as u16)).to_be_bytes());
    }
    request
}

fn median(mut values: Vec<u64>) -> Result<Duration> {
    ensure!(!values.is_empty(), "nothing was measured");
    values.sort_unstable();
    Ok(Duration::from_nanos(values[values.len() / 2]))
}

/// The 0.5 % and 99.5 % points of how many of `n` are lost at a chance of `p`, from the distribution itself.
fn binomial_99(n: u32, p: Chance) -> (u32, u32) {
    let p = p.as_f64();
    if p == 0.0 || p == 1.0 {
        let all = if p == 1.0 { n } else { 0 };
        return (all, all);
    }
    // Each probability from the last by their ratio, in logarithms since the first may be below 1e-308.
    let (mut log, mut below) = (f64::from(n) * (1.0 - p).ln(), 0.0);
    let mut low = None;
    for k in 0..=n {
        below += log.exp();
        if below > 0.005 && low.is_none() {
            low = Some(k);
        }
        if below >= 0.995 {
            return (low.unwrap_or(k), k);
        }
        log += (f64::from(n - k) / f64::from(k + 1)).ln() + (p / (1.0 - p)).ln();
    }
    (low.unwrap_or(n), n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn binomial_points_are_those_of_the_tables() {
        assert_eq!(binomial_99(100, Chance::from_ppm(500_000)), (37, 63));
        assert_eq!(binomial_99(5_000, Chance::from_ppm(10_000)), (33, 69));
        assert_eq!(binomial_99(1_000, Chance::NEVER), (0, 0));
        assert_eq!(binomial_99(1_000, Chance::from_ppm(1_000_000)), (1_000, 1_000));
    }

    #[test]
    fn an_echo_request_sums_up() {
        for sequence in [0, 1, 0xf7ff, 0xf800, 0xffff] {
            let request = echo_request(false, sequence);
            let sum: u32 = request.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
            assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "sequence {sequence}");
        }
    }
}
