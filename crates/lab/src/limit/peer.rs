//! `limit-peer`: Open vSwitch's user-space datapath with its policer, in the switch's place.

use anyhow::{Result, ensure};
use serde_json::json;
use weirgate_switch::limits::Mode;
use weirgate_units::{BitRate, Duration};

use super::TCP_PAYLOAD;
use super::ground::{Arm, CORES, Ground, Plan};
use super::ovs::Ovs;
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};
use crate::stats::mean;

const RTT: Duration = Duration::from_millis(10);

/// Of `limit-rtt`, and what leaves Open vSwitch much of a processor.
const RATES: [BitRate; 2] = [BitRate::from_bits_per_sec(1_000_000_000), BitRate::from_bits_per_sec(200_000_000)];

/// One arm behind one limit, an entry for each round.
struct Cell {
    arm: Arm,
    rate: BitRate,
    goodput: Vec<f64>,
    again: u64,
    policed: Option<u64>,
    cores: Vec<[f64; 2]>,
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "limit-peer", "Beside Open vSwitch");
    let _allowed = AllowedCongestion::widen(&["reno", "cubic", "bbr"])?;
    let full = options.form == Form::Full;
    // Not counted is what a bucket that begins full lets through beside the rate: 0.8 s of it.
    let (rounds, omit, seconds) = if full { (3, 10, 20) } else { (1, 4, 4) };
    let (peer, ours) = (Arm::Ovs { policed: true }, Arm::Switch(Mode::Pace));
    let limited: &[Arm] = if full { &[peer, Arm::Switch(Mode::Drop), ours] } else { &[peer, ours] };
    let mut cells = Vec::new();
    for rate in RATES {
        cells.extend(limited.iter().map(|arm| Cell::new(*arm, rate)));
    }
    for _ in 0..rounds {
        for cell in &mut cells {
            options.say(format!("{}, {}", cell.arm.name(), cell.rate));
            cell.measure(omit, seconds)?;
        }
    }
    let mut unlimited = Cell::new(Arm::Ovs { policed: false }, RATES[0]);
    unlimited.measure(1, if full { seconds } else { 2 })?;
    let [switch, all] = CORES;
    let heads =
        ["who", "limit", "payload, Mbit/s", "of the limit, %", "sent again", "dropped by its policer", switch, all];
    let mut table = Table::new("One connection at a round trip of 10 ms", &heads);
    table.rows = cells.iter().chain([&unlimited]).map(Cell::row).collect();
    let of = |arm, rate| cells.iter().find(|cell| cell.arm == arm && cell.rate == rate);
    let mut ratios = Vec::new();
    for rate in RATES {
        let (Some(peer), Some(ours)) = (of(peer, rate), of(ours, rate)) else { continue };
        ratios.push((ours.payload() / peer.payload(), ours.cores(0) / peer.cores(0)));
    }
    let [(goodput, cpu), (slow_goodput, slow_cpu)] = ratios[..] else { unreachable!("two rates") };
    // A policer that does not police is no rival.
    let policed = of(peer, RATES[1]).and_then(|cell| cell.policed).unwrap_or(0);
    ensure!(policed > 0, "Open vSwitch's meter dropped nothing at {}: it does not police here", RATES[1]);
    let mut expectations = Expectations::of("limit-peer")?;
    expectations.measured("goodput_over_ovs", goodput)?.explanation = Some(format!(
        "at {}; {} at {}. Without any limit Open vSwitch carried {} Mbit/s here: where that is less than the limit, it is its datapath \
         and not its policer that holds it back",
        RATES[0],
        number(slow_goodput),
        RATES[1],
        number(unlimited.payload() / 1e6)
    ));
    expectations.measured("cpu_per_gbit_over_ovs", cpu.max(slow_cpu))?.explanation = Some(format!(
        "the worse of both limits: {} at {}, {} at {}",
        number(cpu),
        RATES[0],
        number(slow_cpu),
        RATES[1]
    ));
    report.finish(
        format!(
            "One CUBIC connection (iperf3, buffers of up to 64 MB) from one namespace of this machine to another, through {} or \
             the switch and then a router, behind which a thread of its own delays both directions by half of {RTT}: the same \
             path for all. Both have one TAP device in the sender's namespace and one in the router's. Open vSwitch runs its \
             user-space datapath (`datapath_type=netdev`, ports of type `tap`, no DPDK, and so without TSO) at nice -10, as \
             Debian's service does, and polices what comes from the sender by an OpenFlow meter (kbps, one band that drops) \
             with a burst of {} % of the rate, as ovs-vswitchd.conf.db(5) advises for TCP; `ingress_policing_rate` would go by \
             tc's police action in the kernel. `drop` is the switch's own policer, with a burst of 50 ms. Payload is what came \
             to the receiver in {seconds} s after the first {omit}; percent of the limit are with headers put back. The \
             switch's processor time is that of its thread, Open vSwitch's that of all threads of ovs-vswitchd, with the \
             kernel's work for their own system calls: handing a frame to a TAP device takes it as far as the delaying thread's \
             device. {rounds} rounds, in turns; means.",
            Ovs::version()?,
            Ovs::BURST_PCT,
        ),
        json!({
            "rates": RATES.map(BitRate::as_bits_per_sec), "rtt_ms": RTT.as_nanos() / 1_000_000, "rounds": rounds,
            "omitted": omit, "seconds": seconds, "ovs_burst_pct_of_rate": Ovs::BURST_PCT,
        }),
        expectations,
        vec![table],
    )
}

impl Cell {
    const fn new(arm: Arm, rate: BitRate) -> Self {
        Self { arm, rate, goodput: Vec::new(), again: 0, policed: None, cores: Vec::new() }
    }

    fn measure(&mut self, omit: u64, seconds: u64) -> Result<()> {
        let mut ground = Ground::new(Plan { arm: self.arm, rate: self.rate, rtt: RTT })?;
        let iperf = ground.iperf(&format!("-O {omit}"), Duration::from_secs(seconds))?;
        self.goodput.push(iperf.received());
        self.again += iperf.retransmits();
        self.cores.push(iperf.cores_per_gbit());
        if let Some(ovs) = ground.ovs().filter(|_| self.is_limited()) {
            self.policed = Some(self.policed.unwrap_or(0) + ovs.policed()?);
        }
        Ok(())
    }

    fn is_limited(&self) -> bool {
        self.arm != Arm::Ovs { policed: false }
    }

    /// Payload that arrived, bit/s.
    fn payload(&self) -> f64 {
        mean(self.goodput.iter().copied())
    }

    fn cores(&self, which: usize) -> f64 {
        mean(self.cores.iter().map(|pair| pair[which]))
    }

    fn row(&self) -> Vec<String> {
        let of_the_limit = self.payload() / TCP_PAYLOAD / self.rate.as_bits_per_sec() as f64 * 100.0;
        let limited = |text: String| if self.is_limited() { text } else { "-".into() };
        vec![
            self.arm.name().into(),
            limited(self.rate.to_string()),
            number(self.payload() / 1e6),
            limited(number(of_the_limit)),
            self.again.to_string(),
            self.policed.map_or("-".into(), |packets| packets.to_string()),
            number(self.cores(0)),
            number(self.cores(1)),
        ]
    }
}
