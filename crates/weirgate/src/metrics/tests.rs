use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::process::{Command, Stdio};

use weirgate_sockets::record::{Direction, Record};
use weirgate_sockets::sample::{CcName, Field, Sample, mapped, state};
use weirgate_units::{Duration, Prefix};

use super::*;
use crate::view::{self, PollEnd};

/// A host with everything that can have a metric.
fn filled(with_switch: bool) -> String {
    let facts = api::Facts {
        version: "0.1.0".to_owned(),
        polls: api::Source { name: "a \"quoted\" \\ name\nof two lines".to_owned(), ..api::Source::default() },
        ..api::Facts::default()
    };
    let (mut collector, shared) = view::new(facts);
    for second in [0, 30] {
        for n in 0..200u8 {
            let mut sample = Sample {
                state: state::ESTABLISHED,
                remote: mapped([10, n, 0, 1].into()),
                cc: CcName::new(["cubic", "bbr"][usize::from(n % 2)]).unwrap(),
                bytes_acked: second * 1_000,
                bytes_sent: second * 1_100,
                bytes_retrans: second * 100,
                unacked: 1,
                delivery_rate: 1_250_000,
                rtt_us: 20_000,
                min_rtt_us: 10_000,
                ..Sample::default()
            };
            sample.set_given(Field::TcpInfo);
            sample.set_given(Field::MinRttUs);
            collector.handle_record(&Record {
                sample: &sample,
                time: UnixTime::default(),
                sequence: 0,
                direction: Direction::Accepted,
                listener_port: 443,
                delivery_rate_max: 0,
                network: Prefix::client_network(sample.remote().ip()),
                asn: 0,
                country: [0; 2],
            });
        }
        let now = UnixTime::from_nanos(1_700_000_000_000_000_000 + second * 1_000_000_000);
        collector.handle_poll_end(PollEnd { now, took: Duration::from_millis(2), bytes: 9, complete: true });
    }
    shared.handle_policy(Some(api::Policy { expires_ms: Some(1), applied: true, ..api::Policy::default() }));
    if with_switch {
        shared.set_switch(std::sync::Arc::new(|| api::Switch {
            frames: api::Frames { cut: 3, ..api::Frames::default() },
            limits: vec![limit()],
            ports: vec![port()],
            ..Default::default()
        }));
        shared.set_uplinks(std::sync::Arc::new(|| api::Uplinks { uplinks: vec![uplink()], ..Default::default() }));
        let engine = |maker: Maker| api::Engine { name: maker.name().to_owned(), bodies: 1, ..api::Engine::default() };
        let fallback = |why: Reason| api::Fallback { reason: why.name().to_owned(), count: 1 };
        shared.set_deflate(std::sync::Arc::new(move || api::Deflate {
            engines: Maker::ALL.map(engine).to_vec(),
            fallbacks: Reason::ALL.map(fallback).to_vec(),
            ..Default::default()
        }));
    }
    text(&shared, UnixTime::default())
}

fn limit() -> api::Limit {
    let delays = weirgate_switch::limits::Delays::default();
    let slot = |below: Option<Duration>| api::Delay { below_us: below.map(|d| d.as_nanos() / 1_000), packets: 2 };
    api::Limit {
        name: "tenant".to_owned(),
        mode: "pace".to_owned(),
        rate_bits_per_s: 8_000,
        throttled_ms: 1_500,
        delayed: 54,
        missed_bytes: 1_514,
        delays: delays.slots().map(|(below, _)| slot(below)).collect(),
        ..api::Limit::default()
    }
}

fn uplink() -> api::Uplink {
    api::Uplink {
        name: "fiber".to_owned(),
        state: "suspect".to_owned(),
        families: ["IPv4", "IPv6"]
            .map(|family| api::UplinkFamily { family: family.to_owned(), ..api::UplinkFamily::default() })
            .to_vec(),
        weight: 50_000_000,
        flows_tcp: 3,
        sent_bytes: 700,
        rtt_us: Some(20_000),
        asked: 10,
        missed: 1,
        resent_share: Some(0.25),
        ..api::Uplink::default()
    }
}

fn port() -> api::Port {
    api::Port { name: "uplink".to_owned(), kind: "tap".to_owned(), received: 7, filtered: 2, ..api::Port::default() }
}

/// The format's grammar, strictly: returns the samples by name and labels.
fn parse(text: &str) -> BTreeMap<String, f64> {
    let name_ok = |name: &str| {
        let mut chars = name.chars();
        chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && chars.all(|c| c.is_ascii_alphanumeric() || c == '_')
    };
    let mut seen = BTreeSet::new();
    let mut samples = BTreeMap::new();
    let mut lines = text.lines().peekable();
    assert!(text.ends_with('\n'), "the last line ends");
    while let Some(help) = lines.next() {
        let (name, about) = help.strip_prefix("# HELP ").expect(help).split_once(' ').unwrap();
        assert!(name_ok(name) && name.starts_with("weirgate_") && !about.is_empty(), "{help}");
        assert!(about.ends_with('.') || about.contains("; "), "{help}");
        assert!(seen.insert(name.to_owned()), "{name} is described twice");
        let kind = lines.next().unwrap().strip_prefix(&format!("# TYPE {name} ")).expect(name);
        assert!(matches!(kind, "gauge" | "counter" | "summary" | "histogram"));
        assert_eq!(kind == "counter", name.ends_with("_total"), "{name}");
        assert!(!["bits", "milliseconds", "percent"].iter().any(|unit| name.contains(unit)), "{name}: no base unit");
        let mut any = false;
        while let Some(line) = lines.next_if(|line| !line.starts_with('#')) {
            any = true;
            let (series, value) = line.rsplit_once(' ').unwrap();
            let (base, labels) = series.split_once('{').unwrap_or((series, "}"));
            let parts: &[&str] = if kind == "histogram" { &["_bucket", "_sum", "_count"] } else { &[""] };
            assert!(parts.iter().any(|part| base.strip_suffix(part) == Some(name)), "{line}");
            let mut rest = labels.strip_suffix('}').expect(line);
            while !rest.is_empty() {
                let (label, after) = rest.split_once("=\"").expect(line);
                assert_eq!(label == "quantile", kind == "summary", "{line}: reserved for summaries");
                assert!(label != "le" || kind == "histogram", "{line}: reserved for histograms");
                assert!(name_ok(label) && !label.starts_with("__"), "{line}");
                let mut escaped = false;
                let end = after.find(|c| {
                    let end = c == '"' && !escaped;
                    escaped = c == '\\' && !escaped;
                    end
                });
                rest = &after[end.expect(line) + 1..];
                rest = rest.strip_prefix(',').unwrap_or(rest);
            }
            assert!(samples.insert(series.to_owned(), value.parse().expect(line)).is_none(), "{series} twice");
        }
        assert!(any, "{name} has no sample");
    }
    samples
}

#[test]
fn the_text_is_well_formed_and_its_numbers_are_the_views() {
    let samples = parse(&filled(true));
    assert_eq!(samples["weirgate_connections{direction=\"accepted\"}"], 200.0);
    assert_eq!(samples["weirgate_congestion_control_connections{congestion_control=\"bbr\"}"], 100.0);
    assert_eq!(samples["weirgate_acked_bytes_total"], 200.0 * 30_000.0);
    assert_eq!(samples["weirgate_retransmitted_bytes_total"], 200.0 * 3_000.0);
    assert_eq!(samples["weirgate_polls_total"], 2.0);
    assert_eq!(samples["weirgate_last_poll_duration_seconds"], 0.002);
    let rtt = samples["weirgate_rtt_seconds{quantile=\"0.5\"}"];
    assert!((rtt - 0.02).abs() <= 0.02 / 64.0, "{rtt}");
    let rate = samples["weirgate_delivery_rate_bytes_per_second{quantile=\"0.1\"}"];
    assert!((rate - 1_250_000.0).abs() <= 1_250_000.0 / 64.0, "{rate}");
    assert_eq!(samples["weirgate_limit_rate_bytes_per_second{limit=\"tenant\",mode=\"pace\"}"], 1_000.0);
    assert_eq!(samples["weirgate_limit_throttled_seconds_total{limit=\"tenant\"}"], 1.5);
    let all = samples["weirgate_limit_delay_seconds_bucket{limit=\"tenant\",le=\"+Inf\"}"];
    assert_eq!(samples["weirgate_limit_delay_seconds_count{limit=\"tenant\"}"], all);
    assert_eq!(samples["weirgate_port_frames_total{port=\"uplink\",direction=\"from\"}"], 7.0);
    assert_eq!(samples["weirgate_port_dropped_frames_total{port=\"uplink\",why=\"filtered\"}"], 2.0);
    assert_eq!(samples["weirgate_uplink_state{uplink=\"fiber\",state=\"suspect\"}"], 1.0);
    assert_eq!(samples["weirgate_uplink_rtt_seconds{uplink=\"fiber\"}"], 0.02);
    assert_eq!(samples["weirgate_uplink_bytes_total{uplink=\"fiber\",direction=\"up\"}"], 700.0);
    assert_eq!(samples["weirgate_uplink_questions_total{uplink=\"fiber\",answer=\"heard\"}"], 9.0);
    assert_eq!(samples["weirgate_switch_cut_super_packets_total"], 3.0);
    assert_eq!(samples["weirgate_limit_missed_bytes_total{limit=\"tenant\"}"], 1_514.0);
    assert_eq!(samples["weirgate_limit_delayed_packets_total{limit=\"tenant\"}"], 54.0);
}

#[test]
fn series_are_of_the_host_the_limits_and_the_ports_and_of_no_network() {
    let host = parse(&filled(false)).len();
    assert!(host < 120, "{host}");
    assert_eq!(
        parse(&filled(true)).len(),
        host + SWITCH_SERIES + LIMIT_SERIES + PORT_SERIES + UPLINK_SERIES + DEFLATE_SERIES
    );
}

#[test]
fn an_empty_view_has_metrics_too() {
    let (_, shared) = view::new(api::Facts::default());
    let samples = parse(&text(&shared, UnixTime::default()));
    assert_eq!(samples["weirgate_polls_total"], 0.0);
    assert!(!samples.contains_key("weirgate_last_poll_timestamp_seconds"), "unknown is absent, not zero");
}

#[test]
fn prometheus_own_checker_accepts_it() {
    let child = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = match child {
        Ok(child) => child,
        Err(error) => {
            println!("SKIPPED: promtool (Debian's package prometheus) cannot be run: {error}");
            return;
        }
    };
    child.stdin.take().unwrap().write_all(filled(true).as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}
