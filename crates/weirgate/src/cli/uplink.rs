//! `weirgate uplink`: the uplinks that the running daemon steers new connections over.

use clap::{Args, Subcommand};
use serde_json::Value;
use weirgate_units::BitRate;

use super::output::{Output, share};
use super::{Common, Failure, ask};
use crate::config::unknown;
use crate::control::Request;
use crate::view::api;

#[derive(Debug, Args)]
pub(super) struct Uplink {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// Each uplink: how it stands and why, its weight, flows, bytes, loss and round-trip time
    Status(Plain),
    /// Let an uplink take no new connections, until it is resumed or the daemon ends; those that it has stay
    Drain {
        /// Its name in the configuration
        name: String,
        #[command(flatten)]
        plain: Plain,
    },
    /// Let a drained uplink take new connections again
    Resume {
        /// Its name in the configuration
        name: String,
        #[command(flatten)]
        plain: Plain,
    },
}

#[derive(Debug, Args)]
struct Plain {
    #[command(flatten)]
    common: Common,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Uplink {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let (plain, request) = match self.what {
            What::Status(plain) => (plain, Request::UplinkStatus),
            What::Drain { name, plain } => (plain, Request::UplinkDrain { name }),
            What::Resume { name, plain } => (plain, Request::UplinkResume { name }),
        };
        let config = plain.common.load()?;
        let wanted = match &request {
            Request::UplinkDrain { name } | Request::UplinkResume { name } => Some(name.clone()),
            _ => None,
        };
        if let Some(name) = &wanted {
            known(&ask(&config, &Request::UplinkStatus)?, name)?;
        }
        let answer = ask(&config, &request)?;
        let mut all: api::Uplinks = serde_json::from_value(answer)?;
        if let Some(name) = &wanted {
            all.uplinks.retain(|uplink| uplink.name == *name);
        }
        if plain.json {
            return Ok(out.json(&all)?);
        }
        show(&all, out)
    }
}

/// Whether the daemon has an uplink of this name.
fn known(answer: &Value, name: &str) -> Result<(), Failure> {
    let uplinks = answer["uplinks"].as_array().map_or(&[][..], Vec::as_slice);
    let known: Vec<&str> = uplinks.iter().filter_map(|uplink| uplink["name"].as_str()).collect();
    if known.contains(&name) {
        return Ok(());
    }
    Err(Failure::Usage(anyhow::anyhow!(unknown("uplink", name, &known))))
}

fn show(all: &api::Uplinks, out: &mut Output) -> Result<(), Failure> {
    if let Some(problem) = &all.problem {
        out.line(&format!("something is wrong: {problem}"))?;
    }
    if all.uplinks.is_empty() {
        return Ok(out.line("no uplinks: write [[uplink]] into the configuration")?);
    }
    let heads = ["uplink", "state", "weight", "class", "tcp", "other", "sent", "received", "missed", "resent", "rtt"];
    let rows: Vec<Vec<String>> = all.uplinks.iter().map(row).collect();
    out.table(&heads, &rows)?;
    out.line("")?;
    for uplink in &all.uplinks {
        let api::Uplink { name, why, weight_why, gateways, .. } = uplink;
        let since = all.now_ms.saturating_sub(uplink.since_ms) / 1_000;
        let state = if uplink.drained { "drained; " } else { "" };
        out.line(&format!("{name}: {state}{} for {since} s: {why}", uplink.state))?;
        for other in worse(uplink) {
            let since = all.now_ms.saturating_sub(other.since_ms) / 1_000;
            out.line(&format!("  {}: {} for {since} s: {}", other.family, other.state, other.why))?;
        }
        let by = if gateways.is_empty() { "no way".to_owned() } else { gateways.join(", ") };
        let more = [(uplink.backup, "; a backup"), (uplink.metered, "; metered")];
        let more: String = more.iter().filter(|(is, _)| *is).map(|(_, said)| *said).collect();
        out.line(&format!("  weight: {weight_why}; {} by {by}{more}", uplink.device))?;
    }
    Ok(())
}

/// Families that do not stand as well as the uplink does.
fn worse(uplink: &api::Uplink) -> impl Iterator<Item = &api::UplinkFamily> {
    uplink.families.iter().filter(|family| family.state != uplink.state)
}

/// In the table: `up, IPv6 silent`.
fn state(uplink: &api::Uplink) -> String {
    if uplink.drained {
        return "drained".to_owned();
    }
    worse(uplink).fold(uplink.state.clone(), |state, other| format!("{state}, {} {}", other.family, other.state))
}

fn row(uplink: &api::Uplink) -> Vec<String> {
    let share_of = |part: u64, whole: u64| share((whole > 0).then(|| part as f64 / whole as f64));
    vec![
        uplink.name.clone(),
        state(uplink),
        weight(uplink.weight),
        uplink.class.to_string(),
        uplink.flows_tcp.to_string(),
        uplink.flows_other.to_string(),
        megabytes(uplink.sent_bytes),
        megabytes(uplink.received_bytes),
        share_of(uplink.missed, uplink.asked),
        share(uplink.resent_share),
        uplink.rtt_us.map_or_else(|| "-".to_owned(), |us| format!("{:.1} ms", us as f64 / 1e3)),
    ]
}

/// A rate, or a plain number: nobody's uplink is slower than 1 kbit/s.
fn weight(weight: u64) -> String {
    if weight < 1_000 {
        return weight.to_string();
    }
    // To three digits: what is measured is no more certain than that.
    let digits = weight.ilog10().saturating_sub(2);
    let step = 10_u64.pow(digits);
    BitRate::from_bits_per_sec(weight / step * step).to_string()
}

fn megabytes(bytes: u64) -> String {
    format!("{:.1} MB", bytes as f64 / 1e6)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uplink_is_explained() {
        let fiber = api::Uplink {
            name: "fiber".into(),
            device: "eth1".into(),
            state: "up".into(),
            why: "something came back".into(),
            since_ms: 1_000,
            families: [
                ("IPv4", "up", "something came back"),
                ("IPv6", "silent", "none of 3 targets answered within 200 ms"),
            ]
            .map(|(family, state, why)| api::UplinkFamily {
                family: family.into(),
                state: state.into(),
                why: why.into(),
                since_ms: 58_000,
                rtt_us: None,
            })
            .to_vec(),
            weight: 48_765_432,
            weight_why: "the most that passed in a second lately".into(),
            flows_tcp: 12,
            sent_bytes: 1_250_000,
            asked: 200,
            missed: 1,
            rtt_us: Some(20_140),
            gateways: vec!["192.0.2.1".into()],
            ..api::Uplink::default()
        };
        let lte = api::Uplink { name: "lte".into(), drained: true, metered: true, weight: 3, ..api::Uplink::default() };
        let all = api::Uplinks { now_ms: 61_000, uplinks: vec![fiber, lte], problem: None };
        let mut out = Output::memory();
        show(&all, &mut out).unwrap();
        let text = out.into_text();
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("fiber   up, IPv6 silent") && lines[1].contains("48.7 Mbit/s"), "{text}");
        assert!(lines[1].contains("1.2 MB") && lines[1].contains("0.50 %") && lines[1].contains("20.1 ms"), "{text}");
        assert!(lines[2].contains("drained"), "{text}");
        assert_eq!(lines[4], "fiber: up for 60 s: something came back");
        assert_eq!(lines[5], "  IPv6: silent for 3 s: none of 3 targets answered within 200 ms");
        assert_eq!(lines[6], "  weight: the most that passed in a second lately; eth1 by 192.0.2.1");
        assert!(lines[8].ends_with("by no way; metered"), "{text}");
    }

    #[test]
    fn weights_are_rates_or_numbers() {
        assert_eq!([0, 3, 999].map(weight), ["0", "3", "999"]);
        assert_eq!([1_000, 48_765_432, 1_000_000_000].map(weight), ["1 kbit/s", "48.7 Mbit/s", "1 Gbit/s"]);
    }
}
