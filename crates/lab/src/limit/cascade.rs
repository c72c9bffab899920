//! `limit-cascade`: two close limits in a row, both dropping: what passes, with and without giving back what was taken in vain.
//!
//! In virtual time, with the limits that the switch has; the traffic is packets of mixed sizes, offered evenly at six times what may pass.

use anyhow::Result;
use rand_core::Rng;
use rand_pcg::Pcg64;
use serde_json::{Map, json};
use weirgate_shape::{Bucket, Limit, take_all};
use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::expectation::Expectations;
use crate::experiment::{Form, Options, date};
use crate::machine::Machine;
use crate::report::{Report, Table, number};

const NEAR: BitRate = BitRate::from_bits_per_sec(100_000_000);

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let machine = Machine::look();
    let started = date();
    let seconds = if options.form == Form::Full { 60 } else { 10 };
    let mut table = Table::new(
        "What passes both limits, percent of the lower one",
        &["first limit", "second limit", "with refund", "without"],
    );
    let (mut worst, mut worst_without) = (0.0_f64, 0.0_f64);
    for second in [80, 95, 99, 100, 101, 105, 125] {
        let far = BitRate::from_bits_per_sec(second * 1_000_000);
        let lower = NEAR.min(far);
        let share = |refund| {
            100.0 * offer(far, refund, seconds, options.seed) as f64
                / lower.bytes_in(Duration::from_secs(seconds)).as_u64() as f64
        };
        let (with, without) = (share(true), share(false));
        worst = worst.max((with - 100.0).abs());
        worst_without = worst_without.max((without - 100.0).abs());
        table.rows.push(vec![NEAR.to_string(), far.to_string(), number(with), number(without)]);
    }
    let mut expectations = Expectations::of("limit-cascade")?;
    expectations.measured("refund_error_pct", worst)?.explanation =
        Some(format!("without refund the worst error is {worst_without:.1} %"));
    let tables = vec![table];
    let numbers: Map<_, _> = tables.iter().map(|t| (t.caption.clone(), t.json())).collect();
    Ok(Report {
        name: "limit-cascade".into(),
        title: "Two limits in a row".into(),
        date: started,
        quick: options.form != Form::Full,
        seed: options.seed,
        machine,
        method: format!(
            "Two token buckets (bursts of 15 KB), one after the other; a packet that the second one refuses is lost. With refund the \
             first one is given back what it took for that packet. Packets of 64 to 1,500 bytes come at random at 600 Mbit/s for \
             {seconds} s of virtual time."
        ),
        settings: json!({ "first": NEAR.as_bits_per_sec(), "burst": 15_000 }),
        numbers,
        expectations: expectations.finish()?,
        tables,
        plots: Vec::new(),
    })
}

/// The bytes that pass.
fn offer(far: BitRate, refund: bool, seconds: u64, seed: u64) -> u64 {
    let start = Instant::from_nanos(0);
    let burst = Bytes::new(15_000);
    let (mut near, mut far) = (Bucket::new(start, NEAR, burst), Bucket::new(start, far, burst));
    let mut random = Pcg64::new(seed.into(), 1);
    let (mut now, mut passed) = (start, 0);
    let end = start + Duration::from_secs(seconds);
    while now < end {
        let size = Bytes::new(64 + u64::from(random.next_u32()) % 1_437);
        // 600 Mbit/s on average, at random instants.
        let mean = size.as_u64() * 8 * 1_000 / 600;
        now += Duration::from_nanos(u64::from(random.next_u32()) % (2 * mean + 1));
        let passes = if refund {
            take_all(now, size, &mut [&mut near as &mut dyn Limit, &mut far]).is_ok()
        } else {
            near.take(now, size).is_ok() && far.take(now, size).is_ok()
        };
        passed += if passes { size.as_u64() } else { 0 };
    }
    passed
}
