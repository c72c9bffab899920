//! `limit-cascade`: two close limits in a row, both dropping: what passes, with and without giving back what was taken in vain.
//!
//! In virtual time: frames of mixed sizes, six times as many as may pass, are handed to the switch's own pipeline ([`Bridge`]), without
//! devices. Tenants have a limit each, and one for all of them is behind these, in the same class or in the class of the port that all
//! leave by. The switch always gives back, so what passes without that is the library's: the same buckets, asked one after the other.

use anyhow::Result;
use rand_core::Rng;
use rand_pcg::Pcg64;
use serde_json::json;
use weirgate_linux::clock;
use weirgate_port::Packet;
use weirgate_shape::{Bucket, take_all};
use weirgate_switch::bridge::{Bridge, BridgeClass, BridgePort, ClassRef};
use weirgate_switch::class::Rule;
use weirgate_switch::frame::{Accounting, Mac};
use weirgate_switch::limits::{ClassSettings, LimitId, LimitSettings, Mode};
use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::report::{Report, Table, number};

/// The second limit's.
const ALL: BitRate = BitRate::from_bits_per_sec(100_000_000);

/// Two packets, the least that the daemon lets a limit have.
const BURST: Bytes = Bytes::new(2 * 1_514);

/// Between two packets, of 782 bytes on average: 626 Mbit/s.
const GAP: Duration = Duration::from_micros(10);

/// A frame of a protocol that nobody has: what is behind its header counts.
const HEADER: [u8; 14] = [2, 0, 0, 0, 0, 0xff, 2, 0, 0, 0, 0, 0, 0x88, 0xb5];

/// Tenants, and what their limits come to together.
#[derive(Clone, Copy, Debug)]
struct Plan {
    tenants: u8,
    own: BitRate,
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "limit-cascade", "Two limits in a row");
    let seconds = if options.form == Form::Full { 20 } else { 5 };
    let mut table = Table::new(
        "What passes both limits, percent of what the fuller of them allows",
        &[
            "tenants",
            "their limits together",
            "limit of all",
            "the switch, one class",
            "the switch, two classes",
            "library, with refund",
            "library, without",
            "the switch, core per Gbit/s",
        ],
    );
    let (mut worst, mut worst_without) = (0.0_f64, 0.0_f64);
    for tenants in [1, 10] {
        for mbit in [80, 95, 99, 100, 101, 105, 125] {
            let plan = Plan { tenants, own: BitRate::from_bits_per_sec(mbit * 1_000_000) };
            let offer = |passes: &mut dyn FnMut(Instant, u8, Bytes) -> bool| plan.offer(seconds, options.seed, passes);
            let mut switches = [Switch::new(plan, false)?, Switch::new(plan, true)?];
            let began = clock::thread_cpu();
            let by_switch =
                switches.each_mut().map(|switch| offer(&mut |now, who, size| switch.passes(now, who, size)));
            let cores = clock::thread_cpu().saturating_sub(began).as_secs_f64();
            let gbits = by_switch.iter().sum::<f64>() / 100.0 * plan.fuller(seconds) * 8.0 / 1e9;
            let [with, without] = [true, false].map(|refund| {
                let mut chain = Chain::new(plan, refund);
                offer(&mut |now, who, size| chain.passes(now, who, size))
            });
            worst = by_switch.iter().fold(worst, |worst, pct| worst.max((pct - 100.0).abs()));
            worst_without = worst_without.max((without - 100.0).abs());
            let numbers = [by_switch[0], by_switch[1], with, without, cores / gbits].map(number);
            let names = [tenants.to_string(), plan.own.to_string(), ALL.to_string()];
            table.rows.push(names.into_iter().chain(numbers).collect());
        }
    }
    let mut expectations = Expectations::of("limit-cascade")?;
    expectations.measured("refund_error_pct", worst)?.explanation =
        Some(format!("the switch's, the worse of both ways; without refund the worst error is {worst_without:.1} %"));
    report.finish(
        format!(
            "In virtual time, {seconds} s of it: no device and no clock, but the switch's own pipeline. Tenants with a limit each, evenly \
             divided, and a limit of all behind these, both of mode `drop` with a burst of {BURST}, by bytes. In one class the limits are a \
             chain; in two, the tenant's is of the class that looks at where a frame comes from and the other one of that which looks at \
             where it goes, and what the second refuses is given back to the first. Frames of 64 to 1,500 bytes come evenly, 100,000 in a \
             second, each from a tenant by chance: six times as much as may pass. The switch always gives back; the last two columns are \
             its buckets alone, with that and without. A single tenant loses next to nothing without: what its limit passes in a burst, \
             the next one passes too. Several do: what the second refuses to one, since another was there before, is lost to that one's own \
             limit. The cores are for making up the frames and deciding on all of them, refused ones included. Beside it what a bucket of \
             whole tokens loses that forgets their fractions, both with room for four packets."
        ),
        json!({ "all_bits_per_s": ALL.as_bits_per_sec(), "burst_bytes": BURST.as_u64(), "seconds": seconds }),
        expectations,
        vec![table, super::naive::table()],
    )
}

impl Plan {
    /// Each tenant's limit.
    fn each(&self) -> BitRate {
        BitRate::from_bits_per_sec(self.own.as_bits_per_sec() / u64::from(self.tenants))
    }

    /// What the fuller limit allows, in bytes.
    fn fuller(&self, seconds: u64) -> f64 {
        self.own.min(ALL).bytes_in(Duration::from_secs(seconds)).as_u64() as f64
    }

    /// What of the stream `passes`, in percent of that.
    fn offer(&self, seconds: u64, seed: u64, passes: &mut dyn FnMut(Instant, u8, Bytes) -> bool) -> f64 {
        let mut random = Pcg64::new(seed.into(), 1);
        let (mut now, mut passed) = (Instant::ZERO, 0);
        let end = now + Duration::from_secs(seconds);
        while now < end {
            let size = Bytes::new(64 + u64::from(random.next_u32()) % 1_437);
            let who = (random.next_u32() % u32::from(self.tenants)) as u8;
            passed += if passes(now, who, size) { size.as_u64() } else { 0 };
            now += GAP;
        }
        passed as f64 / self.fuller(seconds) * 100.0
    }
}

/// The switch's pipeline: a port for each tenant, and one that all leave by.
struct Switch {
    bridge: Bridge,
    tenants: Vec<BridgePort>,
    frame: Vec<u8>,
}

impl Switch {
    /// With the limit of all in the tenants' classes, or in a class of its own.
    fn new(plan: Plan, own_class: bool) -> Result<Self> {
        let now = Instant::ZERO;
        let mut bridge = Bridge::new(now, plan.each(), ALL, Bytes::new(1 << 20), 1);
        let tenants: Vec<BridgePort> = (0..plan.tenants).map(|_| bridge.add_port()).collect();
        let uplink = bridge.add_port();
        bridge.set_address(Mac([2, 0, 0, 0, 0, 0xff]), uplink)?;
        let limit = |rate| LimitSettings { rate, burst: BURST, mode: Mode::Drop };
        let all = bridge.add_limit(now, limit(ALL));
        let class = |bridge: &mut Bridge, limits: Vec<LimitId>| -> ClassRef {
            let (accounting, queue) = (Accounting::default(), ClassSettings::default());
            bridge.add_class(&BridgeClass { limits, accounting, queue })
        };
        let rule = |port: BridgePort, class| Rule { port: Some(port.index() as u16), ..Rule::any(0, class) };
        let mut from = Vec::new();
        for port in &tenants {
            let own = bridge.add_limit(now, limit(plan.each()));
            let chain = if own_class { vec![own] } else { vec![own, all] };
            from.push(rule(*port, class(&mut bridge, chain)));
        }
        let to = if own_class { vec![rule(uplink, class(&mut bridge, vec![all]))] } else { vec![] };
        bridge.set_rules(from, to)?;
        let frame = [&HEADER[..], &[0; 1_500]].concat();
        Ok(Self { bridge, tenants, frame })
    }

    fn passes(&mut self, now: Instant, who: u8, size: Bytes) -> bool {
        self.frame[11] = who;
        let packet = Packet::copy_of(&self.frame[..HEADER.len() + size.as_u64() as usize]);
        self.bridge.handle_frame(now, self.tenants[usize::from(who)], None, packet);
        self.bridge.poll_frame(now).is_some()
    }
}

/// Buckets without a switch.
struct Chain {
    own: Vec<Bucket>,
    all: Bucket,
    refund: bool,
}

impl Chain {
    fn new(plan: Plan, refund: bool) -> Self {
        let bucket = |rate| Bucket::new(Instant::ZERO, rate, BURST);
        Self { own: (0..plan.tenants).map(|_| bucket(plan.each())).collect(), all: bucket(ALL), refund }
    }

    fn passes(&mut self, now: Instant, who: u8, size: Bytes) -> bool {
        let (own, all) = (&mut self.own[usize::from(who)], &mut self.all);
        if self.refund {
            take_all(now, size, &mut [own, all], 0..2).is_ok()
        } else {
            own.take(now, size).is_ok() && all.take(now, size).is_ok()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_switch_passes_what_the_library_passes_with_refund() {
        let plan = Plan { tenants: 10, own: ALL };
        let [mut one, mut two] = [false, true].map(|own_class| Switch::new(plan, own_class).expect("a switch"));
        let [mut with, mut without] = [true, false].map(|refund| Chain::new(plan, refund));
        let one = plan.offer(1, 1, &mut |now, who, size| one.passes(now, who, size));
        let two = plan.offer(1, 1, &mut |now, who, size| two.passes(now, who, size));
        let with = plan.offer(1, 1, &mut |now, who, size| with.passes(now, who, size));
        let without = plan.offer(1, 1, &mut |now, who, size| without.passes(now, who, size));
        assert!((one - with).abs() < 1e-9 && (two - with).abs() < 1e-9, "{one} {two} {with}");
        assert!((with - 100.0).abs() < 0.5 && without < 98.5, "{with} {without}");
    }
}
