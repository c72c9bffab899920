//! `limit-peer`: Open vSwitch's user-space datapath with its policer, in the switch's place.

use anyhow::{Context, Result, ensure};
use serde_json::json;
use weirgate_switch::limits::Mode;
use weirgate_units::{BitRate, Duration};

use super::TCP_PAYLOAD;
use super::ground::{Arm, CORES, Ground, Plan, burst_ms};
use super::ovs::Ovs;
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};
use crate::stats::{mean, mean_of_runs};

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
    // Not counted is what a bucket that begins full lets through beside the rate: up to 0.8 s of it.
    let (rounds, omit, seconds) = if full { (3, 10, 20) } else { (2, 4, 4) };
    let ours = Arm::Switch(Mode::Pace);
    // Who promises the same: the rate and this burst, in any window. And as its manual advises for TCP.
    let peer = Arm::Ovs { burst_ms: Some(burst_ms(Mode::Pace)) };
    let advised = Arm::Ovs { burst_ms: Some(Ovs::ADVISED_BURST_MS) };
    let limited: &[Arm] = if full { &[peer, advised, Arm::Switch(Mode::Drop), ours] } else { &[peer, advised, ours] };
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
    let mut unlimited = Cell::new(Arm::Ovs { burst_ms: None }, RATES[0]);
    unlimited.measure(1, if full { seconds } else { 2 })?;
    let [switch, all] = CORES;
    let heads = [
        "who",
        "limit",
        "burst, ms",
        "payload, Mbit/s",
        "of the limit, %",
        "sent again",
        "dropped by its policer",
        switch,
        all,
    ];
    let mut table = Table::new("One connection at a round trip of 10 ms", &heads);
    table.rows = cells.iter().chain([&unlimited]).map(Cell::row).collect();
    let of = |arm, rate| cells.iter().find(|cell| cell.arm == arm && cell.rate == rate);
    // Ours over an arm of Open vSwitch: payload, and processor time for a Gbit of it.
    let over = |peer, rate| -> Result<(f64, f64)> {
        let (peer, ours) = of(peer, rate).zip(of(ours, rate)).context("each arm is measured at each rate")?;
        Ok((ours.payload() / peer.payload(), ours.cores(0) / peer.cores(0)))
    };
    let [fast, slow] = RATES;
    // A policer that does not police is no rival.
    let policed = of(peer, slow).and_then(|cell| cell.policed).unwrap_or(0);
    ensure!(policed > 0, "Open vSwitch's meter dropped nothing at {slow}: it does not police here");
    let mut expectations = Expectations::of("limit-peer")?;
    let (theirs, own) = of(peer, fast).zip(of(ours, fast)).context("each arm is measured at each rate")?;
    let by_round: Vec<f64> = own.goodput.iter().zip(&theirs.goodput).map(|(own, theirs)| own / theirs).collect();
    let (_, interval) = mean_of_runs(&by_round);
    let goodput = over(peer, fast)?.0;
    // One of Open vSwitch's short rounds is not like the other.
    let noted = if full {
        expectations.measured("goodput_over_ovs", goodput)?
    } else {
        expectations.measured_roughly("goodput_over_ovs", goodput, interval)?
    };
    noted.explanation = Some(format!(
        "rounds {}, 95 % interval {} to {}; at {fast}, both with a burst of {} ms, and so with the same promise of what passes in any window; {} at {slow}. Over Open \
         vSwitch with a burst of {} ms, which lets that much through at once beside the rate: {} at {fast}, {} at {slow}. Without any \
         limit it carried {} Mbit/s here: where that is less than the limit, it is its datapath and not its policer that holds it back",
        by_round.iter().map(|ratio| number(*ratio)).collect::<Vec<_>>().join(", "),
        number(interval.low),
        number(interval.high),
        burst_ms(Mode::Pace),
        number(over(peer, slow)?.0),
        Ovs::ADVISED_BURST_MS,
        number(over(advised, fast)?.0),
        number(over(advised, slow)?.0),
        number(unlimited.payload() / 1e6)
    ));
    let mut cpu = Vec::new();
    for (peer, rate) in [(peer, fast), (peer, slow), (advised, fast), (advised, slow)] {
        cpu.push(over(peer, rate)?.1);
    }
    expectations.measured("cpu_per_gbit_over_ovs", cpu.iter().copied().fold(0.0, f64::max))?.explanation = Some(
        format!(
            "the worst of these: {} at {fast} and {} at {slow} over Open vSwitch with our burst, {} and {} over it with the advised one",
            number(cpu[0]),
            number(cpu[1]),
            number(cpu[2]),
            number(cpu[3])
        ),
    );
    report.finish(
        format!(
            "One CUBIC connection (iperf3, buffers of up to 64 MB) from one namespace of this machine to another, through {} or \
             the switch and then a router, behind which a thread of its own delays both directions by half of {RTT}: the same \
             path for all. Both have one TAP device in the sender's namespace and one in the router's. Open vSwitch runs its \
             user-space datapath (`datapath_type=netdev`, ports of type `tap`, no DPDK, and so without TSO) at nice -20, as the \
             switch's own thread, which has the shortest slice beside that (Debian's service has -10), and polices what comes from the sender by an OpenFlow meter (kbps, one band that drops) \
             with the burst that `pace` has, and with one of {} ms (80 % of the rate), as ovs-vswitchd.conf.db(5) advises for TCP; \
             `ingress_policing_rate` would go by tc's police action in the kernel. `drop` is the switch's own policer. Payload is what came \
             to the receiver in {seconds} s after the first {omit}; percent of the limit are with headers put back. The \
             switch's processor time is that of its thread, Open vSwitch's that of all threads of ovs-vswitchd, with the \
             kernel's work for their own system calls: handing a frame to a TAP device takes it as far as the delaying thread's \
             device. {rounds} rounds, in turns; means.",
            Ovs::version()?,
            Ovs::ADVISED_BURST_MS,
        ),
        json!({
            "rates": RATES.map(BitRate::as_bits_per_sec), "rtt_ms": RTT.as_nanos() / 1_000_000, "rounds": rounds,
            "omitted": omit, "seconds": seconds, "ovs_bursts_ms": [burst_ms(Mode::Pace), Ovs::ADVISED_BURST_MS],
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
        let ground = Ground::new(Plan { arm: self.arm, rate: self.rate, rtt: RTT })?;
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
        self.arm != Arm::Ovs { burst_ms: None }
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
            match self.arm {
                Arm::Ovs { burst_ms } => burst_ms.map_or("-".into(), |ms| ms.to_string()),
                Arm::Switch(mode) => burst_ms(mode).to_string(),
                Arm::Tbf | Arm::Htb | Arm::HtbFqCodel => "-".into(),
            },
            number(self.payload() / 1e6),
            limited(number(of_the_limit)),
            self.again.to_string(),
            self.policed.map_or("-".into(), |packets| packets.to_string()),
            number(self.cores(0)),
            number(self.cores(1)),
        ]
    }
}
