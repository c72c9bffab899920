//! The page and the numbers of `edge`.

use anyhow::Result;
use serde_json::{Value, json};
use weirgate_units::Duration;

use super::Raw;
use super::findings::{Class, Findings, Gain, is_large, measured};
use super::table::{EDGE_TOML, Table as Settings};
use crate::expectation::Expectations;
use crate::experiment::Form;
use crate::net::Counters;
use crate::plot;
use crate::report::{Report, Table, number};
use crate::stats::{median, quantile, sorted};

pub(super) fn finish(
    report: Report,
    form: Form,
    table: &Settings,
    raw: &Raw,
    findings: &Findings,
    expectations: Expectations,
) -> Result<Report> {
    let tables = vec![
        gains(findings),
        classes("Goodput of responses over 100 KB, Mbit/s at the client", raw, findings, |c| &c.large),
        classes("Goodput of all responses, Mbit/s at the client", raw, findings, |c| &c.all),
        classes("Goodput of responses of at most 100 KB, Mbit/s at the client", raw, findings, |c| &c.small),
        arms(table, raw, findings),
        selections(table, raw),
        links(table),
    ];
    let settings = json!({ "table": toml::from_str::<Value>(EDGE_TOML)?, "form": form.name() });
    let mut report = report.finish(method(table, raw, findings), settings, expectations, tables)?;
    report.add_numbers([
        ("responses", json!(raw.outcome.responses.len())),
        ("responses_finished", json!(raw.outcome.responses.iter().filter(|r| r.finished).count())),
        ("requests_never_sent", json!(raw.outcome.unsent)),
        ("connections_failed", json!(raw.outcome.failures)),
        ("nginx_alerts", json!(raw.nginx_alerts)),
        ("processors_idle_pct", json!(raw.idle_pct)),
        ("small_responses", json!(findings.small_objects)),
        ("lossy_delivery_rate", json!(findings.lossy_delivery_rate)),
        ("emulator", emulator(raw)),
    ]);
    report.plots = vec![(
        "Goodput of responses over 100 KB, all networks: share of responses below a value".into(),
        plot::cumulative("goodput, Mbit/s", &distributions(table, raw))?,
    )];
    Ok(report)
}

fn method(table: &Settings, raw: &Raw, findings: &Findings) -> String {
    let headroom =
        if raw.idle_pct >= 30.0 { "so the machine was not the limit" } else { "LESS than the 30 % this needs" };
    format!(
        "Every arm has an edge of its own (nginx with keep-alive, one Weirgate daemon, which only observes where one algorithm \
         serves all) and {} client networks behind emulated links with equal seeds and the same \
         requests at the same times; two arms run at a time, those that a bound compares together ({} clients per network, {:.0} s between a client's requests on average). Goodput is body \
         bytes over the time from the request to the client's last byte. The first {:.0} s are warm-up and not counted, then \
         {:.0} s are. A response unfinished {:.0} s after that counts with the rate it had. A \
         connection's delivery rate is the highest of its close record that the application did not limit (`delivery_rate_max`); its \
         last sample is mostly that of a small response, which says how small it was (the lossy networks' ratio of these is {:.2}). \
         Intervals are 95 %, bootstrapped over network x 20 s blocks, those of the delivery rate over clients. \
         The processors were idle for {:.0} % of the measured time, {headroom}. {}Not measured: real access networks, cross traffic, \
         TLS and HTTP/2 (tests have those), more than one edge. bpftune, which decides per gateway, is in no registry \
         that this project builds from, so it is not an arm; all 20 networks here are behind one gateway, for which it \
         would have one decision.",
        table.networks.len(),
        table.clients_per_network,
        table.gap_mean.as_secs_f64(),
        table.phases.warm_up.as_secs_f64(),
        table.phases.measured.as_secs_f64(),
        table.phases.drain_max.as_secs_f64(),
        findings.lossy_delivery_rate.of_last_samples,
        raw.idle_pct,
        disturbed(raw),
    )
}

/// Which arms the machine's other load disturbed: the emulator was late, or lost what no link loses.
fn disturbed(raw: &Raw) -> String {
    let arms = raw.treatments.len() / raw.emulators.len().max(1);
    let pairs = raw.treatments.chunks(arms.max(1)).zip(&raw.emulators);
    let bad =
        pairs.filter(|(_, c)| c.dropped_ring + c.dropped_write > 0 || c.lateness.mean >= Duration::from_millis(1));
    bad.map(|(treatments, c)| {
        let names: Vec<&str> = treatments.iter().map(|treatment| treatment.name()).collect();
        format!(
            "The figures of {} say little: the machine was taken away meanwhile (the emulator was late by {} in the mean, and lost {} \
             packets that no link loses). ",
            names.join(" and "),
            c.lateness.mean,
            c.dropped_ring + c.dropped_write,
        )
    })
    .collect()
}

fn gains(findings: &Findings) -> Table {
    let mut out = Table::new(
        "10th percentile of goodput against CUBIC for all, percent",
        &["arm", "over 100 KB", "from (95 %)", "to (95 %)", "all responses", "all from (95 %)", "all to (95 %)"],
    );
    let cells = |g: &Gain| [g.pct, g.interval.low, g.interval.high].map(|v| format!("{v:.1}"));
    for (name, large, all) in &findings.gains_of_arms {
        out.rows.push([(*name).to_owned()].into_iter().chain(cells(large)).chain(cells(all)).collect());
    }
    out
}

fn classes(caption: &str, raw: &Raw, findings: &Findings, of: impl Fn(&Class) -> &Vec<[f64; 4]>) -> Table {
    let mut out = Table::new(caption, &["class", "arm", "responses", "p5", "p10", "p50", "p90", "delivery rate p50"]);
    for class in &findings.classes {
        for (arm, treatment) in raw.treatments.iter().enumerate() {
            let mut row = vec![class.name.clone(), treatment.name().into(), class.responses[arm].to_string()];
            row.extend(of(class)[arm].map(number));
            row.push(number(class.delivery_rate_mbit[arm]));
            out.rows.push(row);
        }
    }
    out
}

fn arms(table: &Settings, raw: &Raw, findings: &Findings) -> Table {
    let mut out = Table::new(
        "The arms",
        &[
            "arm",
            "retransmitted, %",
            "... in networks that Weirgate left alone, %",
            "time to first byte p50, s",
            "time to last byte p50, s",
            "time to hand over p50 (nginx), s",
            "segments on another cc",
            "close records",
        ],
    );
    for (arm, treatment) in raw.treatments.iter().enumerate() {
        let large = raw
            .outcome
            .responses
            .iter()
            .filter(|r| usize::from(r.arm) == arm && measured(table, r) && is_large(table, r));
        let first = median(large.clone().map(|r| r.first.saturating_sub(r.sent).as_secs_f64()));
        let delivered = median(large.map(|r| r.done.saturating_sub(r.sent).as_secs_f64()));
        let handed = median(raw.logs[arm].iter().filter(|l| l.body > 100_000).map(|l| l.handed_over_s));
        out.rows.push(vec![
            treatment.name().into(),
            number(findings.retransmit_pct[arm]),
            number(findings.retransmit_untreated_pct[arm]),
            number(first),
            number(delivered),
            number(handed),
            raw.segments[arm].len().to_string(),
            raw.records[arm].closes.len().to_string(),
        ]);
    }
    out
}

fn selections(table: &Settings, raw: &Raw) -> Table {
    let mut out =
        Table::new("Networks newly selected, round by round", &["network", "class", "arm", "round", "after, s"]);
    let class = |network: &str| {
        let found = table.networks.iter().find(|n| n.prefix.to_string() == network);
        found.map_or("?".to_owned(), |n| n.class.clone())
    };
    for (arm, records) in raw.records.iter().enumerate() {
        for selected in &records.selected {
            let round = (selected.after_s / table.round.as_secs_f64()).floor();
            out.rows.push(vec![
                selected.network.clone(),
                class(&selected.network),
                raw.treatments[arm].name().into(),
                number(round),
                format!("{:.0}", selected.after_s),
            ]);
        }
    }
    out
}

fn links(table: &Settings) -> Table {
    let mut out = Table::new("The links", &["network", "class", "rate", "round trip", "loss, %", "queue, KB"]);
    for network in &table.networks {
        for (suffix, link) in [("", Some(&network.link)), (" (lossy phase)", network.lossy_phase.as_ref())] {
            let Some(link) = link else { continue };
            out.rows.push(vec![
                network.prefix.to_string(),
                format!("{}{suffix}", network.class),
                link.rate.to_string(),
                link.rtt.to_string(),
                number(f64::from(link.loss_ppm) / 1e4),
                number(link.queue.as_u64() as f64 / 1e3),
            ]);
        }
    }
    out
}

fn distributions(table: &Settings, raw: &Raw) -> Vec<(String, Vec<f64>)> {
    let of = |arm: usize| {
        let large = raw
            .outcome
            .responses
            .iter()
            .filter(move |r| usize::from(r.arm) == arm && measured(table, r) && is_large(table, r));
        sorted(large.map(|r| r.goodput_bps() / 1e6))
    };
    raw.treatments.iter().enumerate().map(|(arm, t)| (t.name().to_owned(), of(arm))).collect()
}

fn emulator(raw: &Raw) -> Value {
    let one = |counters: &Counters| {
        let late = counters.lateness;
        json!({
            "cpu_s": counters.cpu.as_secs_f64(),
            "packets": late.packets,
            "late_packets": late.late,
            "late_mean_us": late.mean.as_micros(),
            "late_max_us": late.max.as_micros(),
            "dropped_ring": counters.dropped_ring,
            "dropped_write": counters.dropped_write,
            "queue_p90_bytes": quantile(&sorted(counters.links.iter().map(|l| l.down.queue_max.as_u64() as f64)), 0.9),
        })
    };
    raw.emulators.iter().map(one).collect()
}
