//! `limit-10g`: a limit of as much as this machine carries, up to 10 Gbit/s, in both directions: gate against pace.
//!
//! The bounds are what an article says of pacing in place of its gate, the borrowing one: nearer to the limit, and steadier. They are
//! judged against that, and of pace as it comes. Our own gate, which is the better one, is beside them, and what the same bounds would be
//! against it is said. A gate leaves what waits in its sender's long queue, where nothing manages it; pace has CoDel. So pace without
//! it, which differs from our gate in nothing but how packets are let go, is there as well.

use anyhow::Result;
use serde_json::json;
use weirgate_switch::bridge::Direction;
use weirgate_switch::limits::{ClassSettings, CodelSettings, Mode};
use weirgate_units::{BitRate, Duration};

use super::TCP_PAYLOAD;
use super::ground::{Arm, CORES, Ground, Plan};
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};
use crate::stats::{Interval, bootstrap, deviation, mean};

const GBIT: u64 = 1_000_000_000;

/// Of what is carried without a limit, so much is the most that is asked for: the rest is what a limit and a busy moment take.
const HEADROOM: f64 = 0.75;

/// A second of one way and one of another, IP bit/s.
type Pair = (f64, f64);

/// A block of seconds in one arm.
struct Block {
    /// IP bit/s of each second, as the receiver has them.
    seconds: Vec<f64>,
    /// What was lost of the limit because the switch came too late, in bytes.
    missed: u64,
}

/// Who lets go, and what waits meanwhile.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Way {
    /// The article's gate.
    Borrow,
    Gate,
    /// Without queue management, as the gate.
    PaceWithoutCodel,
    /// As it comes.
    Pace,
}

const WAYS: [Way; 4] = [Way::Borrow, Way::Gate, Way::PaceWithoutCodel, Way::Pace];

/// One way in one direction.
struct Cell {
    direction: Direction,
    way: Way,
    ground: Ground,
    blocks: Vec<Block>,
    again: u64,
    rtt_ms: Vec<f64>,
    cores: Vec<[f64; 2]>,
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "limit-10g", "A limit of as much as this machine carries");
    let _allowed = AllowedCongestion::widen(&["reno", "cubic", "bbr"])?;
    let full = options.form == Form::Full;
    let (blocks, seconds) = if full { (10, 10) } else { (2, 3) };
    let mut carried = [0.0; 2];
    for (direction, carried) in [Direction::From, Direction::To].into_iter().zip(&mut carried) {
        options.say(format!("{}, no limit", name(direction)));
        let mut cell = Cell::new(direction, Way::PaceWithoutCodel, BitRate::from_bits_per_sec(100 * GBIT))?;
        cell.measure(if full { 10 } else { 2 })?;
        *carried = mean(cell.seconds());
    }
    let rate = step(carried[0].min(carried[1]) * HEADROOM);
    let mut cells = Vec::new();
    for direction in [Direction::From, Direction::To] {
        for way in WAYS {
            cells.push(Cell::new(direction, way, rate)?);
        }
    }
    for block in 0..blocks {
        options.say(format!("{rate}, block {} of {blocks}", block + 1));
        for cell in &mut cells {
            cell.measure(seconds)?;
        }
    }
    let [switch, all] = CORES;
    let heads = [
        "limit",
        "direction",
        "mean, Mbit/s",
        "deviation of seconds, Mbit/s",
        "seconds",
        "missed, MB",
        "sent again",
        "RTT, ms",
        switch,
        all,
    ];
    let mut table = Table::new(&format!("Four connections behind {rate}, second by second"), &heads);
    let mut seconds_of = Table::new("Each second, Mbit/s", &["limit", "direction", "in the order of the run"]);
    for cell in &cells {
        let cores = [0, 1].map(|which| mean(cell.cores.iter().map(|pair| pair[which])));
        let seconds: Vec<f64> = cell.seconds().collect();
        let (centre, spread) = (mean(cell.seconds()), deviation(&seconds));
        let rtt_ms = mean(cell.rtt_ms.iter().copied());
        let missed = cell.blocks.iter().map(|block| block.missed).sum::<u64>() as f64 / 1e6;
        let (length, again) = (seconds.len() as f64, cell.again as f64);
        let numbers = [centre / 1e6, spread / 1e6, length, missed, again, rtt_ms, cores[0], cores[1]];
        let who = [cell.way.name().to_owned(), name(cell.direction).to_owned()];
        let each: Vec<String> = seconds.iter().map(|bits| number(bits / 1e6)).collect();
        seconds_of.rows.push(who.iter().cloned().chain([each.join(" ")]).collect());
        table.rows.push(who.into_iter().chain(numbers.map(number)).collect());
    }
    let limit = rate.as_bits_per_sec() as f64;
    let nearer = |pairs: &[&Pair]| {
        let off = |values: Vec<f64>| (mean(values) - limit).abs() / 1e6;
        off(pairs.iter().map(|pair| pair.0).collect()) - off(pairs.iter().map(|pair| pair.1).collect())
    };
    let steadier = |pairs: &[&Pair]| {
        let spread = |of: fn(&&Pair) -> f64| deviation(&pairs.iter().map(of).collect::<Vec<_>>());
        spread(|pair| pair.1) / spread(|pair| pair.0)
    };
    let mut expectations = Expectations::of("limit-10g")?;
    let mut judge = |bound, direction, statistic: &dyn Fn(&[&Pair]) -> f64| -> Result<()> {
        let of = |gate, way, calm| estimate(&pairs(&cells, direction, [gate, way], calm), options.seed, statistic);
        let (value, interval) = of(Way::Borrow, Way::Pace, false);
        if !full {
            expectations.measured_roughly(bound, value, interval)?;
            return Ok(());
        }
        let [ours, calm, bare] = [(Way::Pace, false), (Way::Pace, true), (Way::PaceWithoutCodel, false)]
            .map(|(way, calm)| of_seconds(of(Way::Gate, way, calm)));
        let explanation = format!(
            "Against our own gate, which is not judged: {ours}; in blocks in which neither came too late for more than its burst: {calm}; \
             pace without CoDel: {bare}. What a switch comes too late for is decided by this machine: most of the receiving, and of the \
             sending again after an acknowledgement, is done by the kernel within the switch's own writes to the TAP devices, and once in \
             some tens of seconds that takes longer than the 5 ms that a limit makes up for.",
        );
        expectations.measured_explained(bound, (value, interval), &explanation)?;
        Ok(())
    };
    judge("pace_minus_gate_to_vm_mbit", Direction::To, &nearer)?;
    judge("pace_over_gate_stdev_from_vm", Direction::From, &steadier)?;
    report.finish(
        format!(
            "Four CUBIC connections (iperf3) between two namespaces of this machine, through TAP devices with TSO, the switch and a router: \
             from the one at the tenant's port, and to it. Without a limit {} and {} Mbit/s were carried; the limit is the highest \
             step that is at most {:.0} % of the lower one. The arms take turns, {blocks} times {seconds} s after one that is not counted, and before \
             the last, in which senders stop before the receiver does. \
             Numbers are payload with the headers put back, in each second, at the receiver. `gate` does not read the queue that the \
             traffic comes by: of the tenant's TAP, or of the uplink's, which is all this tenant's here; a TAP's sender is not held back by \
             that: as many packets wait as its senders' windows hold, which is in the round-trip time. `borrow` reads all that there is and then nothing \
             until that is repaid, and of what goes to the tenant it passes all or drops all. It is the gate of the article's claim, and of the \
             bounds. Compared with it is `pace` as it comes: with CoDel 5 ms wait, and a sender that stands still for longer, as happens where \
             senders, receivers and the switch share two processors, has nothing waiting. Beside it is pace where as many may wait as before our \
             gate: `target = \"off\"`. `pace_minus_gate_to_vm_mbit` is how far the gate's mean is from the limit, less how far pace's is; the \
             other bound is the ratio of the deviations.",
            number(carried[0] / 1e6),
            number(carried[1] / 1e6),
            HEADROOM * 100.0,
        ),
        json!({ "rate": rate.as_bits_per_sec(), "carried": carried, "blocks": blocks, "seconds": seconds }),
        expectations,
        vec![table, seconds_of],
    )
}

impl Way {
    const fn name(self) -> &'static str {
        match self {
            Self::Borrow => "borrow (the article's gate)",
            Self::Gate => "gate",
            Self::PaceWithoutCodel => "pace, no CoDel",
            Self::Pace => "pace",
        }
    }
}

impl Cell {
    fn new(direction: Direction, way: Way, rate: BitRate) -> Result<Self> {
        let mode = match way {
            Way::Borrow => Mode::Borrow,
            Way::Gate => Mode::Gate,
            Way::Pace | Way::PaceWithoutCodel => Mode::Pace,
        };
        let plan = Plan { arm: Arm::Switch(mode), rate, rtt: Duration::ZERO };
        let codel = (way == Way::Pace).then(CodelSettings::default);
        let queue = ClassSettings { codel, ..ClassSettings::default() };
        let ground = Ground::limited(plan, direction, queue)?;
        Ok(Self { direction, way, ground, blocks: Vec::new(), again: 0, rtt_ms: Vec::new(), cores: Vec::new() })
    }

    fn measure(&mut self, seconds: u64) -> Result<()> {
        let reverse = if self.direction == Direction::To { "-R" } else { "" };
        let before = self.missed()?;
        let iperf = self.ground.iperf(&format!("-P 4 -O 1 {reverse}"), Duration::from_secs(seconds + 1))?;
        let mut each = iperf.by_second();
        // The receiver's last second ends some milliseconds after the senders have stopped. A gate's long queue fills them, a short one
        // cannot; and one of the gate's was a tenth too small.
        each.truncate(usize::try_from(seconds)?);
        let seconds = each.into_iter().map(|payload| payload / TCP_PAYLOAD).collect();
        self.blocks.push(Block { seconds, missed: self.missed()? - before });
        self.again += iperf.retransmits();
        self.rtt_ms.push(iperf.rtt_ms());
        self.cores.push(iperf.cores_per_gbit());
        Ok(())
    }

    fn missed(&self) -> Result<u64> {
        Ok(self.ground.counters()?.map_or(0, |counters| counters.missed_bytes))
    }

    fn seconds(&self) -> impl Iterator<Item = f64> {
        self.blocks.iter().flat_map(|block| &block.seconds).copied()
    }
}

/// A statistic of the seconds, and its 95 % interval.
fn estimate(pairs: &[Pair], seed: u64, statistic: impl Fn(&[&Pair]) -> f64) -> (f64, Interval) {
    (statistic(&pairs.iter().collect::<Vec<_>>()), bootstrap(pairs, 2_000, seed, statistic))
}

/// How an explanation says it.
fn of_seconds((value, interval): (f64, Interval)) -> String {
    format!("{} (95 % interval over seconds {} to {})", number(value), number(interval.low), number(interval.high))
}

/// Seconds of one way beside seconds of the other, in one direction; where `calm`, of those blocks only in which neither missed
/// anything.
fn pairs(cells: &[Cell], direction: Direction, ways: [Way; 2], calm: bool) -> Vec<Pair> {
    let of = |way| {
        let cells = cells.iter().filter(move |cell| cell.direction == direction && cell.way == way);
        cells.flat_map(|cell| &cell.blocks)
    };
    let both = of(ways[0]).zip(of(ways[1])).filter(|(one, other)| !calm || one.missed + other.missed == 0);
    both.flat_map(|(one, other)| one.seconds.iter().copied().zip(other.seconds.iter().copied())).collect()
}

const fn name(direction: Direction) -> &'static str {
    match direction {
        Direction::From => "from the VM",
        Direction::To => "to the VM",
    }
}

/// The highest step of 1 Gbit/s, below that of 0.1, that is at most `bits` a second and 10 Gbit/s.
fn step(bits: f64) -> BitRate {
    let of = |step: u64| (bits / step as f64) as u64 * step;
    let rate = if bits >= GBIT as f64 { of(GBIT) } else { of(GBIT / 10).max(GBIT / 10) };
    BitRate::from_bits_per_sec(rate.min(10 * GBIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_a_step_below_what_is_carried() {
        let steps = [30e9, 9.99e9, 1.2e9, 0.77e9, 0.01e9].map(|bits| step(bits).as_bits_per_sec() / (GBIT / 10));
        assert_eq!(steps, [100, 90, 10, 7, 1]);
    }
}
