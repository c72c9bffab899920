//! An outcome, for people.

use std::io;

use crate::cli::output::Output;
use crate::fabric::outcome::{Distribution, DupAcks, Ended, Outcome, Times};
use crate::fabric::statistics::Estimate;

/// What is not known, or would be a matter of chance.
pub(super) const NOT_KNOWN: &str = "n/a";

/// The most classes that have lines of their own: collectives have one for each step.
const CLASSES_MAX: usize = 4;

/// A network whose flows get slower by more than this fills up. Medians of 500 flows each differ by less, by chance.
const DRIFT_MAX: f64 = 1.25;

/// A link that is used for so much of the time has something to send all the time.
const FULL: f64 = 0.995;

pub(super) fn outcome(outcome: &Outcome, out: &mut Output) -> io::Result<()> {
    let flows = &outcome.flows;
    let ended = match outcome.ended {
        Ended::Finished => "",
        Ended::TimeLimit => ", PARTIAL (out of time)",
        Ended::Interrupted => ", PARTIAL (interrupted)",
    };
    // Who stops early does not see the slow ones.
    let biased = if outcome.ended != Ended::Finished && flows.under_way > 0 {
        ": flows that wait for a timer have not ended and are missing, so means and quantiles are too low"
    } else {
        ""
    };
    out.line(&format!(
        "{}, seed {}: {} of {} flows that began have ended{ended}{biased}\n",
        outcome.scheme, outcome.seed, flows.finished, flows.started
    ))?;
    let mut rows = Vec::new();
    times("", &outcome.times, &mut rows);
    for (class, of) in outcome.classes.iter().filter(|_| outcome.classes.len() <= CLASSES_MAX) {
        times(&format!("class {class}: "), of, &mut rows);
    }
    out.table(&["completion time", "us", "95 % from", "to", "slowdown", "95 % from", "to"], &rows)?;
    out.line("")?;
    let hops: Vec<Vec<String>> = outcome
        .hops
        .iter()
        .map(|hop| {
            let counts = [hop.packets, hop.dropped, hop.lost, hop.marked].map(|count| count.to_string());
            let used = hop.used.map(|used| [used.mean_share, used.max_share].map(percent));
            let used = used.unwrap_or_else(|| [(); 2].map(|()| NOT_KNOWN.to_owned()));
            let rest = [&used[..], &counts].concat();
            [vec![hop.hop.clone(), hop.lines.to_string(), number(hop.wait_mean_us)], rest].concat()
        })
        .collect();
    out.table(&["hop", "lines", "mean wait us", "used", "most", "packets", "dropped", "lost", "marked"], &hops)?;
    out.line("")?;
    let queues = [("up", outcome.queues_up), ("down", outcome.queues_down)];
    let queues = queues.into_iter().filter_map(|(name, queues)| {
        let queues = queues?;
        let deviation = queues.deviation_bytes.map_or(NOT_KNOWN.to_owned(), number);
        Some(vec![name.to_owned(), deviation, percent(queues.below_packet_share)])
    });
    let queues: Vec<Vec<String>> = queues.collect();
    if !queues.is_empty() {
        out.table(&["queues", "STDV bytes", "below a packet"], &queues)?;
        out.line("")?;
    }
    let dup_acks = [("1 or more", outcome.dup_acks_1), ("3 or more", outcome.dup_acks_3)];
    let dup_acks = dup_acks.map(|(name, of)| counts(name, of, flows.finished));
    out.table(&["duplicate ACKs", "flows", "share", "with a loss", "short last segment", "re-ordered"], &dup_acks)?;
    out.line("")?;
    rest(outcome, out)
}

fn times(of: &str, times: &Times, rows: &mut Vec<Vec<String>>) {
    let cells = |estimate: Option<Estimate>| match estimate {
        None => [NOT_KNOWN; 3].map(String::from),
        Some(Estimate { value, interval: None }) => [number(value), NOT_KNOWN.into(), NOT_KNOWN.into()],
        Some(Estimate { value, interval: Some([from, to]) }) => [value, from, to].map(number),
    };
    let all = |of: &Distribution| [("mean", of.mean)].into_iter().chain(of.quantiles());
    for ((name, fct), (_, slowdown)) in all(&times.fct_us).zip(all(&times.slowdown)) {
        rows.push([&[format!("{of}{name}")][..], &cells(fct), &cells(slowdown)].concat());
    }
}

fn counts(name: &str, of: DupAcks, flows: u64) -> Vec<String> {
    let share = percent(of.flows as f64 / flows.max(1) as f64);
    let counts = [of.lossy, of.short_last, of.reordered].map(|count| count.to_string());
    [&[name.to_owned(), of.flows.to_string(), share][..], &counts].concat()
}

fn rest(outcome: &Outcome, out: &mut Output) -> io::Result<()> {
    out.line(&format!("sent again   {} segments, {} timeouts", outcome.sent_again, outcome.timeouts))?;
    out.line(&format!("GRO          {} batches of {} bytes", outcome.batches, number(outcome.batch_bytes_mean)))?;
    out.line(&format!("goodput      {} Gbit/s", number(outcome.goodput_bits_per_s / 1e9)))?;
    if let Some(used) = outcome.uplinks {
        let [mean, min, max] = [used.mean_share, used.min_share, used.max_share].map(percent);
        out.line(&format!("uplinks      {mean} used, from {min} to {max}"))?;
        if outcome.drift.is_some() && used.max_share >= FULL {
            out.line("FULL         an uplink was hardly ever idle: what its leaf is asked to send by it may be more than it carries, and does not drain while flows come. Lower the load, or mend what has failed")?;
        }
    }
    if let Some(drift) = outcome.drift.filter(|drift| *drift > DRIFT_MAX) {
        out.line(&format!(
            "NOT STEADY   the half of the flows that began later took {} times as long (median): what is measured depends on when. Lower the load, or lengthen [run] warm_up",
            number(drift)
        ))?;
    }
    if outcome.no_route > 0 {
        out.line(&format!("no way       for {} packets", outcome.no_route))?;
    }
    if let Some(at) = outcome.complete_s {
        out.line(&format!("complete     after {} ms: all flows have arrived", number(at * 1e3)))?;
    }
    let speed = &outcome.speed;
    out.line(&format!(
        "simulated    {} ms ({} under load) in {:.1} s, {:.2} million packet-hops per second",
        number(speed.simulated_s * 1e3),
        number(speed.loaded_s * 1e3),
        speed.wall_s,
        speed.packet_hops_per_s / 1e6
    ))?;
    out.line(&format!("digest       {}", outcome.digest))
}

fn percent(share: f64) -> String {
    format!("{:.2} %", share * 100.0)
}

/// To four digits.
pub(super) fn number(value: f64) -> String {
    if value == 0.0 {
        return "0".to_owned();
    }
    let before = value.abs().log10().floor() as i32 + 1;
    format!("{value:.0$}", (4 - before).clamp(0, 6) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_four_digits() {
        let said = [0.0, 0.000_123_4, 0.123_456, 1.234_56, 99.999, 1_234.56, 1_234_567.8].map(number);
        assert_eq!(said, ["0", "0.000123", "0.1235", "1.235", "100.00", "1235", "1234568"]);
        assert_eq!(percent(0.123_45), "12.35 %");
    }
}
