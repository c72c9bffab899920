//! The benchmark `bench-shape`: what a bucket, a wheel and an aggregate cost, beside what else one could take, in one run.
//!
//! Arms are interleaved and repeated, medians are reported, but for punctuality and 20 million packets, which are run once; the rivals do
//! the same work on the same stream of packets.

mod buckets;
mod wheels;

use anyhow::Result;
use serde_json::json;

use self::buckets::{Scaling, Shared};
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::report::{Report, Table, number};

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "bench-shape", "What a limit costs");
    let repeats = if options.form == Form::Full { 9 } else { 5 };
    options.say("buckets and meters");
    let buckets = buckets::checks(repeats);
    options.say("one limit, one thread and two");
    let shared = buckets::SHARED.map(|of| (of, buckets::scaling(of, repeats)));
    options.say("wheels with 1,000 and 100,000 waiting");
    let small = wheels::with_flows(1_000, repeats, options.seed);
    let large = wheels::with_flows(100_000, repeats, options.seed);
    options.say("punctuality");
    let punctual = wheels::punctual_pct(if options.form == Form::Full { 20_000_000 } else { 4_000_000 }, options.seed);
    options.say("wheels with 20 million waiting");
    let ordered = wheels::with_millions(wheels::MILLIONS, true, options.seed);
    let random = wheels::with_millions(wheels::MILLIONS, false, options.seed);

    let mut expectations = Expectations::of("bench-shape")?;
    expectations.measured("wheel_ns_1k", small.wheel)?;
    expectations.measured("wheel_ns_100k", large.wheel)?;
    // How much dearer a packet is among 20 million in no order than among a thousand.
    let dearer = [random.wheel / small.wheel, random.heap / small.heap];
    expectations.measured("wheel_ns_20m_random_over_heap", dearer[0] / dearer[1])?.explanation = Some(format!(
        "a packet among 20 million takes the wheel {} times what it takes among 1,000, and the heap {} times",
        number(dearer[0]),
        number(dearer[1])
    ));
    expectations.measured("wheel_within_one_slot_pct", punctual)?.explanation =
        Some("by the real clock, 2 million packets a second, whoever polls does nothing else".into());
    expectations.measured("bucket_ns", buckets.bucket)?;
    let judged = shared.iter().filter(|(of, _)| of.is_judged).map(|(_, scaling)| scaling.two_over_one);
    let rows = shared.each_ref().map(|(of, scaling)| {
        let judged = if of.is_judged {
            ""
        } else {
            " (not judged: the decisions of a lease take about as long as its word from one processor to another)"
        };
        format!("{:.2} at {}, {:.0} % granted{judged}", scaling.two_over_one, limit(of), scaling.granted_pct)
    });
    expectations.measured("aggregate_scaling_2_threads", judged.fold(f64::INFINITY, f64::min))?.explanation =
        Some(format!("the least of {}", rows.join("; ")));

    let mut wheels = Table::new(
        "A packet into the wheel and out of it, ns",
        &["waiting", "stamps", "wheel", "binary heap", "hierarchical hash wheel", "whole path, flow lookup included"],
    );
    for (waiting, stamps, measured) in [
        ("1,000", "per flow", &small),
        ("100,000", "per flow", &large),
        ("20 million", "in order", &ordered),
        ("20 million", "random", &random),
    ] {
        let cells = [measured.wheel, measured.heap, measured.hash_wheel, measured.path];
        wheels.rows.push([waiting.into(), stamps.into()].into_iter().chain(cells.map(number)).collect());
    }
    let mut checks = Table::new("One check of a packet against a rate, ns", &["what", "ns"]);
    for (what, ns) in [
        ("token bucket, exact", buckets.bucket),
        ("srTCM (RFC 2697), exact", buckets.srtcm),
        ("the method of DPDK's rte_meter, srTCM", buckets.rte_meter),
        ("governor, one packet a cell", buckets.governor),
    ] {
        checks.rows.push(vec![what.into(), number(ns)]);
    }
    let mut threads = Table::new(
        "One limit shared by threads, million decisions per second",
        &["limit", "lease, B", "granted, %", "one thread", "two threads", "two over one", "the same of one bare word"],
    );
    for (of, scaling) in &shared {
        let Scaling { lease, granted_pct, one_mps, two_mps, two_over_one, bare_two_over_one } = *scaling;
        let numbers = [granted_pct, one_mps, two_mps, two_over_one, bare_two_over_one].map(number);
        threads.rows.push([limit(of), lease.to_string()].into_iter().chain(numbers).collect());
    }
    report.finish(
        format!(
            "Median of {repeats} interleaved runs; one run with 20 million waiting, and one for punctuality. The wheel has ticks of 2 us and {} slots, 8.6 s; {} flows with rates log-uniform over \
             1:1000 (where 1,000 packets wait, they are of 1,000 flows), each packet refilled on release with its flow's next instant, \
             taken out in batches of 32, in virtual time: what is measured is the processor's work. Punctuality is of another run, by \
             the real clock. The hash wheel is the crate hierarchical_hash_wheel_timer, a tick of ours as its millisecond; it is not \
             asked at 20 million. The whole path is the pacer: a flow queue, its turn, CoDel, a chain of two limits, and the wheel. rte_meter's method is written down here \
             again, at a clock of 10^9; governor counts packets, since its cells are whole nanoseconds apart. The threads that share a limit ask as \
             fast as they can, for far more than there is: most decisions are refusals. In the last two rows time runs faster to them, so that nearly \
             all are granted: with the smallest packets a lease is some thousand of them, and with the largest 41. The least row is judged but for \
             the last, where the decisions of a lease, 50 us of a time that runs 1,000 times as fast, take about as long as the word that it comes \
             from takes from one processor to the other, 0.1 us.",
            wheels::SLOTS,
            wheels::FLOWS
        ),
        json!({ "repeats": repeats }),
        expectations,
        vec![wheels, checks, threads],
    )
}

/// A limit's name in the table.
fn limit(of: &Shared) -> String {
    let Shared { rate, packet, fast, .. } = of;
    let time = if *fast == 1 { String::new() } else { format!(", time {fast} times as fast") };
    format!("{rate}, packets of {packet}{time}")
}
