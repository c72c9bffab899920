//! `limit-cascade`: two close limits in a row, both dropping: what passes, with and without giving back what was taken in vain.
//!
//! In virtual time, with the buckets that the switch has; the traffic is packets of mixed sizes, six times as many as may pass.

use anyhow::Result;
use rand_core::Rng;
use rand_pcg::Pcg64;
use serde_json::json;
use weirgate_linux::clock;
use weirgate_shape::{Bucket, Limit, take_all};
use weirgate_units::{BitRate, Bytes, Duration, Instant, PacketRate, Packets};

use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::report::{Report, Table, number};

/// Packets per second of the first limit. With packets of 782 bytes on average that is 100 Mbit/s.
const NEAR: PacketRate = PacketRate::from_packets_per_sec(16_000);

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "limit-cascade", "Two limits in a row");
    let seconds = if options.form == Form::Full { 60 } else { 10 };
    let mut table = Table::new(
        "What passes both limits, percent of what the fuller of them allows",
        &[
            "first limit",
            "second limit",
            "with refund",
            "without",
            "core per Gbit/s, with refund",
            "core per Gbit/s, without",
        ],
    );
    let (mut worst, mut worst_without) = (0.0_f64, 0.0_f64);
    for second in [80, 95, 99, 100, 101, 105, 125] {
        let far = BitRate::from_bits_per_sec(second * 1_000_000);
        let offer = |refund| offer(far, refund, seconds, options.seed);
        let ([with, with_cores], [without, without_cores]) = (offer(true), offer(false));
        worst = worst.max((with - 100.0).abs());
        worst_without = worst_without.max((without - 100.0).abs());
        let numbers = [with, without, with_cores, without_cores].map(number);
        table.rows.push(["16,000 packets/s".into(), far.to_string()].into_iter().chain(numbers).collect());
    }
    let mut expectations = Expectations::of("limit-cascade")?;
    expectations.measured("refund_error_pct", worst)?.explanation =
        Some(format!("without refund the worst error is {worst_without:.1} %"));
    report.finish(
        format!(
            "A limit of packets (burst 4), then one of bytes (burst 3,000); a packet that the second one refuses is lost. With refund \
             the first one is given back what it took for that packet. Packets of 64 to 1,500 bytes come evenly, 100,000 in a second \
             of virtual time, for {seconds} s. Limits of the same kind lose nothing by each other: what the first passes in a burst, the \
             second passes too. The cores are for making up the packets and deciding on all of them, refused ones included. Beside it \
             what a bucket of whole tokens loses that forgets their fractions, both with room for four packets."
        ),
        json!({ "first_packets_per_s": NEAR.as_packets_per_sec(), "burst_packets": 4, "burst_bytes": 3_000 }),
        expectations,
        vec![table, super::naive::table()],
    )
}

/// What passes, in percent of what the fuller of the two limits allows, and the processor seconds for each Gbit of it.
fn offer(far: BitRate, refund: bool, seconds: u64, seed: u64) -> [f64; 2] {
    let began = clock::thread_cpu();
    let start = Instant::from_nanos(0);
    let mut packets = Bucket::new(start, NEAR, Packets::new(4));
    let mut bytes = Bucket::new(start, far, Bytes::new(3_000));
    let mut random = Pcg64::new(seed.into(), 1);
    let (mut passed, mut passed_bytes) = (0_u64, 0_u64);
    for step in 0..seconds * 100_000 {
        let now = start + Duration::from_nanos(step * 10_000);
        let size = Bytes::new(64 + u64::from(random.next_u32()) % 1_437);
        let passes = if refund {
            take_all(now, size, &mut [&mut packets as &mut dyn Limit, &mut bytes]).is_ok()
        } else {
            packets.take(now, Packets::new(1)).is_ok() && bytes.take(now, size).is_ok()
        };
        passed += u64::from(passes);
        passed_bytes += if passes { size.as_u64() } else { 0 };
    }
    let time = Duration::from_secs(seconds);
    let share = passed as f64 / (NEAR.as_packets_per_sec() * seconds) as f64;
    let cpu = clock::thread_cpu().saturating_sub(began).as_secs_f64();
    [
        share.max(passed_bytes as f64 / far.bytes_in(time).as_u64() as f64) * 100.0,
        cpu / (passed_bytes as f64 * 8.0 / 1e9),
    ]
}
