//! `/metrics`: the view in Prometheus' text format, version 0.0.4 ("Exposition formats" in Prometheus' documentation).
//!
//! Names follow Prometheus' conventions: base units (seconds, bytes, ratios), `_total` on what only grows. There are no
//! client networks among the labels: thousands of them, coming and going, are what the store and the page are for, and
//! would cost the scraper more than the daemon. Fewer than 120 series, whatever the host sees; where there is a software switch,
//! [`SWITCH_SERIES`], and [`LIMIT_SERIES`] for each limit and [`PORT_SERIES`] for each port; where processes compress,
//! [`DEFLATE_SERIES`]; [`UPLINK_SERIES`] for each uplink; [`EXPORT_SERIES`] where records are sent to Kafka; and [`FLEET_SERIES`] where the
//! fleet's controller is obeyed.

use std::fmt::{Display, Write};

use weirgate_deflate::count::{Maker, Reason};
use weirgate_switch::limits::Delays;
use weirgate_units::UnixTime;

use crate::view::{Order, Shared, api};

/// What the text is served as.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Series of a limit: a quarter of them what it did, the others its histogram.
pub const LIMIT_SERIES: usize = 11 + Delays::SLOTS + 2;

/// Series of the software switch itself, where there is one.
pub const SWITCH_SERIES: usize = 1;

/// Series of a port of the software switch.
pub const PORT_SERIES: usize = 9;

/// Series of an uplink, while all is known of it.
pub const UPLINK_SERIES: usize = 3 * STATES.len() + 5 + 6;

/// Series of the export to Kafka.
pub const EXPORT_SERIES: usize = 9;

/// Series of an edge that obeys the fleet's controller.
pub const FLEET_SERIES: usize = 11;

/// Series of processes that compress, once there was one.
pub const DEFLATE_SERIES: usize = 2 + 4 * Maker::ALL.len() + Reason::ALL.len();

/// All metrics: at most 20 KB, and 4 KB for each limit and 1 KB for each port.
pub fn text(view: &Shared, now: UnixTime) -> String {
    let status = view.status(now);
    let networks = view.networks(now, Order::Name, 0);
    let decisions = view.decisions(now, 0).total;
    let mut out = Text::new();
    daemon(&mut out, &status);
    connections(&mut out, &status.totals, &networks.congestion_controls);
    losses(&mut out, &status.losses);
    exports(&mut out, &status.exports);
    fleet(&mut out, status.fleet.as_ref());
    policy(&mut out, &status, decisions);
    let switch = view.switch(now);
    limits(&mut out, &switch.limits);
    ports(&mut out, switch.frames, &switch.ports);
    uplinks(&mut out, &view.uplinks(now).uplinks);
    deflate(&mut out, &view.deflate(now));
    if let Some(point) = view.latest_point() {
        distributions(&mut out, &point);
    }
    out.0
}

fn daemon(out: &mut Text, status: &api::Status) {
    let facts = &status.facts;
    let info = [("version", facts.version.as_str()), ("mode", &facts.mode), ("source", &facts.polls.name)];
    out.gauge("build_info", "Version, mode (observe or apply) and source of polls of this daemon; always 1.");
    out.sample("build_info", &info, 1);
    out.gauge("start_time_seconds", "When the daemon started, Unix time.");
    out.sample("start_time_seconds", &[], seconds_of_ms(facts.started_ms));
    out.gauge("problems", "Things that are wrong now, each named on the page.");
    out.sample("problems", &[], status.problems.len());
    out.counter("polls_total", "Polls of all open sockets that came to their end.");
    out.sample("polls_total", &[], status.poll.map_or(0, |poll| poll.number));
    if let Some(poll) = status.poll {
        out.gauge("last_poll_timestamp_seconds", "When the last complete poll ended, Unix time.");
        out.sample("last_poll_timestamp_seconds", &[], seconds_of_ms(poll.time_ms));
        out.gauge("last_poll_duration_seconds", "How long the last complete poll took.");
        out.sample("last_poll_duration_seconds", &[], poll.took_us as f64 / 1e6);
        out.gauge("last_poll_bytes", "Bytes that the last complete poll read from the kernel.");
        out.sample("last_poll_bytes", &[], poll.bytes);
    }
}

fn connections(out: &mut Text, totals: &api::Totals, by_cc: &[api::Network]) {
    out.gauge("connections", "Open connections at the last poll, by which end opened them.");
    let unknown = totals.connections.saturating_sub(totals.accepted + totals.connected);
    let by_direction = [("accepted", totals.accepted), ("connected", totals.connected), ("unknown", unknown)];
    for (direction, count) in by_direction {
        out.sample("connections", &[("direction", direction)], count);
    }
    out.gauge("sending_connections", "Open connections with data in flight at the last poll.");
    out.sample("sending_connections", &[], totals.sending);
    for (at, cc) in by_cc.iter().enumerate() {
        if at == 0 {
            out.gauge("congestion_control_connections", "Open connections at the last poll, by congestion control.");
        }
        out.sample("congestion_control_connections", &[("congestion_control", &cc.name)], cc.connections);
    }
    out.gauge("arm_connections", "Open connections of selected networks at the last poll, treated or held out.");
    out.sample("arm_connections", &[("arm", "treated")], totals.treated);
    out.sample("arm_connections", &[("arm", "holdout")], totals.holdout);
    out.gauge("client_networks", "Client networks with open connections at the last poll.");
    out.sample("client_networks", &[], totals.networks);
    out.counter("records_total", "Records of connections, by what made them.");
    out.sample("records_total", &[("kind", "poll")], totals.poll_records);
    out.sample("records_total", &[("kind", "close")], totals.close_records);
    out.counter("acked_bytes_total", "Bytes acknowledged for the first time, since the second poll.");
    out.sample("acked_bytes_total", &[], totals.acked_bytes);
    out.counter("sent_bytes_total", "Bytes sent, retransmissions included, since the second poll.");
    out.sample("sent_bytes_total", &[], totals.sent_bytes);
    out.counter("retransmitted_bytes_total", "Bytes sent again, since the second poll.");
    out.sample("retransmitted_bytes_total", &[], totals.retransmitted_bytes);
}

fn losses(out: &mut Text, losses: &api::Losses) {
    let counters = [
        ("closes_seen_total", "Closes that the kernel program saw.", losses.closes_seen),
        ("closes_kept_total", "Close records kept, each the last of its connection.", losses.closes_kept),
        ("close_ring_failures_total", "Closes for which the kernel's ring had no room.", losses.close_ring_failures),
        ("vanished_total", "Connections gone between polls without a close record.", losses.vanished),
        ("recovered_total", "Of the vanished, those found after all.", losses.recovered),
        ("untracked_samples_total", "Samples of connections there was no room to follow.", losses.untracked),
        ("anonymous_samples_total", "Samples without an identity, dropped.", losses.without_identity),
        ("poll_lost_samples_total", "Samples the kernel skipped or that could not be read.", losses.poll_lost),
        ("poll_failures_total", "Polls that failed or were cut short.", losses.poll_failures),
        ("store_lost_records_total", "Records that the store could not keep.", losses.store_lost),
        (
            "export_lost_records_total",
            "Records for Kafka that could not be kept until they were sent.",
            losses.export_lost,
        ),
    ];
    for (name, help, value) in counters {
        out.counter(name, help);
        out.sample(name, &[], value);
    }
}

fn exports(out: &mut Text, exports: &[api::Export]) {
    if exports.is_empty() {
        return;
    }
    out.counter("export_records_total", "Records or tallies for Kafka, by topic and what became of them.");
    for export in exports {
        let states =
            [("acknowledged", export.acknowledged), ("sampled_out", export.sampled_out), ("found", export.found)];
        for (state, records) in states {
            out.sample("export_records_total", &[("topic", &export.topic), ("state", state)], records);
        }
    }
    type Value = fn(&api::Export) -> u64;
    let counters: [(&str, &str, Value); 2] = [
        ("export_messages_total", "Messages that brokers have acknowledged.", |export| export.messages),
        ("export_bytes_total", "Bytes of their keys and payloads, before compression.", |export| export.bytes),
    ];
    for (name, help, value) in counters {
        out.counter(name, help);
        exports.iter().for_each(|export| out.sample(name, &[("topic", &export.topic)], value(export)));
    }
    let gauges: [(&str, &str, Value); 4] = [
        ("export_waiting_records", "Records that no broker has acknowledged yet.", |export| export.waiting),
        ("export_spool_files", "Files of records in the spool.", |export| export.spool_files),
        ("export_spool_bytes", "Bytes of the files in the spool.", |export| export.spool_bytes),
        ("export_weight", "How many records one stands for that is handed over now.", |export| export.weight.into()),
    ];
    for (name, help, value) in gauges {
        out.gauge(name, help);
        exports.iter().for_each(|export| out.sample(name, &[("topic", &export.topic)], value(export)));
    }
}

/// How an uplink can stand.
const STATES: [&str; 5] = ["up", "suspect", "silent", "returning", "down"];

fn uplinks(out: &mut Text, uplinks: &[api::Uplink]) {
    if uplinks.is_empty() {
        return;
    }
    out.gauge("uplink_state", "1 for the state that an uplink is in, 0 for the others.");
    for uplink in uplinks {
        for state in STATES {
            let is_in = u8::from(uplink.state == state);
            out.sample("uplink_state", &[("uplink", &uplink.name), ("state", state)], is_in);
        }
    }
    out.gauge("uplink_family_state", "The same for each family that there is a way for.");
    for (uplink, family) in uplinks.iter().flat_map(|uplink| uplink.families.iter().map(move |family| (uplink, family)))
    {
        for state in STATES {
            let labels = [("uplink", uplink.name.as_str()), ("family", &family.family), ("state", state)];
            out.sample("uplink_family_state", &labels, u8::from(family.state == state));
        }
    }
    type Value = fn(&api::Uplink) -> Option<f64>;
    let gauges: [(&str, &str, Value); 5] = [
        ("uplink_drained", "1 where an uplink takes no new flow because somebody said so.", |u| {
            Some(f64::from(u8::from(u.drained)))
        }),
        ("uplink_weight", "Share of the new flows beside the others', bit/s or a number.", |u| Some(u.weight as f64)),
        ("uplink_class", "Uplinks of one class are alike.", |u| Some(f64::from(u.class))),
        ("uplink_rtt_seconds", "Smoothed round-trip time of an uplink's targets.", |u| Some(u.rtt_us? as f64 / 1e6)),
        (
            "uplink_resent_ratio",
            "Of what open connections of this host sent by an uplink, what they sent again.",
            |u| u.resent_share,
        ),
    ];
    for (name, help, value) in gauges {
        out.gauge(name, help);
        for uplink in uplinks {
            if let Some(value) = value(uplink) {
                out.sample(name, &[("uplink", &uplink.name)], value);
            }
        }
    }
    out.gauge("uplink_flows", "Flows that an uplink carries, ICMP left aside.");
    for uplink in uplinks {
        for (transport, flows) in [("tcp", uplink.flows_tcp), ("other", uplink.flows_other)] {
            out.sample("uplink_flows", &[("uplink", &uplink.name), ("transport", transport)], flows);
        }
    }
    out.counter("uplink_bytes_total", "Bytes to and from beyond an uplink's gateway.");
    for uplink in uplinks {
        for (way, bytes) in [("up", uplink.sent_bytes), ("down", uplink.received_bytes)] {
            out.sample("uplink_bytes_total", &[("uplink", &uplink.name), ("direction", way)], bytes);
        }
    }
    out.counter("uplink_questions_total", "Questions to an uplink's targets, by whether they were answered in time.");
    for uplink in uplinks {
        let heard = uplink.asked.saturating_sub(uplink.missed);
        for (answer, count) in [("heard", heard), ("missed", uplink.missed)] {
            out.sample("uplink_questions_total", &[("uplink", &uplink.name), ("answer", answer)], count);
        }
    }
}

fn deflate(out: &mut Text, deflate: &api::Deflate) {
    let api::Deflate { processes, instances, engines, fallbacks, .. } = deflate;
    if *processes == 0 && engines.iter().all(|engine| engine.bodies == 0) {
        return;
    }
    out.gauge("deflate_processes", "Processes that compress by libweirgate_z.so.");
    out.sample("deflate_processes", &[], processes);
    out.gauge("deflate_instances", "Instances of an accelerator that are theirs.");
    out.sample("deflate_instances", &[], instances);
    out.counter("deflate_bodies_total", "Bodies that an engine compressed; by zlib_stream, that it began to.");
    for engine in engines {
        out.sample("deflate_bodies_total", &[("engine", &engine.name)], engine.bodies);
    }
    out.counter("deflate_bytes_total", "Bytes that an engine took and made, without the frame around them.");
    for engine in engines {
        for (way, bytes) in [("in", engine.bytes_in), ("out", engine.bytes_out)] {
            out.sample("deflate_bytes_total", &[("engine", &engine.name), ("direction", way)], bytes);
        }
    }
    out.counter("deflate_seconds_total", "How long an engine compressed, by the clock.");
    for engine in engines {
        out.sample("deflate_seconds_total", &[("engine", &engine.name)], engine.us as f64 / 1e6);
    }
    out.counter("deflate_fallbacks_total", "Bodies that another engine had in place of the chosen one, by why.");
    for fallback in fallbacks {
        out.sample("deflate_fallbacks_total", &[("reason", &fallback.reason)], fallback.count);
    }
}

fn ports(out: &mut Text, frames: api::Frames, ports: &[api::Port]) {
    if ports.is_empty() {
        return;
    }
    out.counter(
        "switch_cut_super_packets_total",
        "Super-packets that were cut, since they would have taken long at a limit.",
    );
    out.sample("switch_cut_super_packets_total", &[], frames.cut);
    out.gauge("port_up", "Whether a port of the software switch has its device.");
    for port in ports {
        out.sample("port_up", &[("port", &port.name), ("kind", &port.kind)], u8::from(port.failed.is_none()));
    }
    out.counter("port_gone_total", "Times that a port's device went.");
    for port in ports {
        out.sample("port_gone_total", &[("port", &port.name)], port.gone);
    }
    out.counter("port_frames_total", "Frames that went through a port, super-packets as one.");
    for port in ports {
        for (way, count) in [("from", port.received), ("to", port.sent)] {
            out.sample("port_frames_total", &[("port", &port.name), ("direction", way)], count);
        }
    }
    out.counter(
        "port_dropped_frames_total",
        "Frames dropped at a port, by why: read from it and refused by the switch, or sent to it.",
    );
    for port in ports {
        let api::Port { lost, malformed, filtered, refused, unsent, .. } = port;
        let counts = [
            ("lost", lost),
            ("malformed", malformed),
            ("filtered", filtered),
            ("refused", refused),
            ("unsent", unsent),
        ];
        for (why, count) in counts {
            out.sample("port_dropped_frames_total", &[("port", &port.name), ("why", why)], count);
        }
    }
}

fn limits(out: &mut Text, limits: &[api::Limit]) {
    if limits.is_empty() {
        return;
    }
    out.gauge("limit_rate_bytes_per_second", "The rate of each limit of the software switch.");
    for limit in limits {
        let labels = [("limit", limit.name.as_str()), ("mode", &limit.mode)];
        out.sample("limit_rate_bytes_per_second", &labels, limit.rate_bits_per_s as f64 / 8.0);
    }
    out.counter(
        "limit_throttled_seconds_total",
        "Time during which something waited, summed over the switch's threads.",
    );
    for limit in limits {
        out.sample("limit_throttled_seconds_total", &[("limit", &limit.name)], seconds_of_ms(limit.throttled_ms));
    }
    type Value = fn(&api::Limit) -> u64;
    let counters: [(&str, &str, Value); 5] = [
        ("limit_passed_packets_total", "Packets that passed a limit.", |limit| limit.passed_packets),
        ("limit_passed_bytes_total", "Bytes that passed a limit, as it counts them.", |limit| limit.passed_bytes),
        ("limit_delayed_packets_total", "Packets that waited for a limit and passed.", |limit| limit.delayed),
        (
            "limit_missed_bytes_total",
            "Bytes that waited though they could have passed: the switch came too late.",
            |limit| limit.missed_bytes,
        ),
        ("limit_marked_packets_total", "Packets marked with congestion (ECN CE).", |limit| limit.marked),
    ];
    for (name, help, value) in counters {
        out.counter(name, help);
        for limit in limits {
            out.sample(name, &[("limit", &limit.name)], value(limit));
        }
    }
    out.gauge("limit_waiting_packets", "Packets that wait for a limit.");
    for limit in limits {
        out.sample("limit_waiting_packets", &[("limit", &limit.name)], limit.waiting);
    }
    out.counter("limit_dropped_packets_total", "Packets dropped by a limit, by why.");
    for limit in limits {
        for (why, count) in [("rate", limit.dropped_rate), ("room", limit.dropped_room), ("codel", limit.dropped_codel)]
        {
            out.sample("limit_dropped_packets_total", &[("limit", &limit.name), ("why", why)], count);
        }
    }
    out.histogram("limit_delay_seconds", "How long packets that passed a limit had waited for it; the sum is an estimate, by the middles of the buckets.");
    for limit in limits {
        let (mut sum, mut total) = (0.0, 0);
        for slot in &limit.delays {
            total += slot.packets;
            let below = slot.below_us.map_or("+Inf".to_owned(), |us| (us as f64 / 1e6).to_string());
            // The slots' middles: a histogram's sum is only as fine as its slots.
            sum += slot.packets as f64 * slot.below_us.unwrap_or(1 << 26) as f64 * 0.75e-6;
            out.sample("limit_delay_seconds_bucket", &[("limit", &limit.name), ("le", &below)], total);
        }
        out.sample("limit_delay_seconds_sum", &[("limit", &limit.name)], sum);
        out.sample("limit_delay_seconds_count", &[("limit", &limit.name)], total);
    }
}

fn fleet(out: &mut Text, fleet: Option<&api::Fleet>) {
    let Some(fleet) = fleet else { return };
    out.counter("fleet_policies_total", "Policies of the fleet's that came, by what became of them.");
    out.sample("fleet_policies_total", &[("outcome", "obeyed")], fleet.obeyed);
    for (why, count) in &fleet.refused {
        out.sample("fleet_policies_total", &[("outcome", why)], count);
    }
    out.counter("fleet_expired_total", "Policies that expired before a newer one came; nothing is treated then.");
    out.sample("fleet_expired_total", &[], fleet.expired);
    out.gauge(
        "fleet_forgotten",
        "1 where it could not be read which policy was obeyed before this daemon was started: an older one could be obeyed.",
    );
    out.sample("fleet_forgotten", &[], fleet.forgotten);
    out.counter("fleet_failures_total", "Times that no policy could be had: no file, or no controller that answers.");
    out.sample("fleet_failures_total", &[], fleet.failed);
}

fn policy(out: &mut Text, status: &api::Status, decisions: u64) {
    out.counter("decisions_total", "Decisions taken since the daemon started.");
    out.sample("decisions_total", &[], decisions);
    if let Some(policy) = &status.policy {
        out.gauge("policy_version", "Number of the policy in force.");
        out.sample("policy_version", &[], policy.version);
        out.gauge("policy_networks", "Client networks that the policy in force selects.");
        out.sample("policy_networks", &[], policy.networks);
        out.gauge("policy_applied", "1 where the kernel has the policy, 0 where it is only shown.");
        out.sample("policy_applied", &[], u8::from(policy.applied));
        if let Some((version, until)) = policy.fleet_version.zip(policy.fleet_until_ms) {
            out.gauge("fleet_policy_version", "Version of the fleet's snapshot that is obeyed.");
            out.sample("fleet_policy_version", &[], version);
            out.gauge("fleet_policy_expiry_timestamp_seconds", "Until when it may be obeyed, Unix time.");
            out.sample("fleet_policy_expiry_timestamp_seconds", &[], seconds_of_ms(until));
        }
        if let Some(expires) = policy.expires_ms {
            out.gauge("policy_expiry_timestamp_seconds", "When the kernel drops the policy unless renewed, Unix time.");
            out.sample("policy_expiry_timestamp_seconds", &[], seconds_of_ms(expires));
        }
    }
    let Some(round) = &status.round else { return };
    out.gauge("last_round_timestamp_seconds", "When the last round of decisions ended, Unix time.");
    out.sample("last_round_timestamp_seconds", &[], seconds_of_ms(round.time_ms));
    out.gauge("last_round_votes", "Connections that voted in the last round.");
    out.sample("last_round_votes", &[], round.votes);
    out.gauge("last_round_known_networks", "Client networks with enough votes in the last round to be judged.");
    out.sample("last_round_known_networks", &[], round.networks_known);
    out.gauge("last_round_refused", "1 where the last round's policy was refused.");
    out.sample("last_round_refused", &[], u8::from(round.refusal.is_some()));
    if let Some(effect) = &round.effect {
        out.gauge("effect_ratio", "Goodput of treated clients over held-out ones: estimate and the interval's ends.");
        for (bound, value) in [("estimate", effect.ratio), ("low", effect.low), ("high", effect.high)] {
            out.sample("effect_ratio", &[("bound", bound)], value);
        }
    }
}

fn distributions(out: &mut Text, point: &api::Point) {
    let each = [
        (
            "delivery_rate_bytes_per_second",
            "Delivery rate of connections with data in flight that the application did not limit, last slot.",
            point.delivery_rate_bits_per_s,
            1.0 / 8.0,
        ),
        ("rtt_seconds", "Smoothed round-trip times, last slot.", point.rtt_us, 1e-6),
        ("min_rtt_seconds", "Smallest round-trip times, last slot.", point.min_rtt_us, 1e-6),
    ];
    for (name, help, percentiles, unit) in each {
        let Some(p) = percentiles else { continue };
        // Without sum and count: those of a summary only grow, and a slot's are forgotten with it.
        out.summary(name, help);
        for (quantile, value) in [("0.05", p.p5), ("0.1", p.p10), ("0.5", p.p50), ("0.9", p.p90)] {
            out.sample(name, &[("quantile", quantile)], value as f64 * unit);
        }
    }
}

fn seconds_of_ms(ms: u64) -> f64 {
    ms as f64 / 1e3
}

/// The text under construction. Every name gets `weirgate_` before it.
pub(crate) struct Text(pub(crate) String);

impl Text {
    pub(crate) fn new() -> Self {
        Self(String::with_capacity(16_384))
    }

    pub(crate) fn gauge(&mut self, name: &str, help: &str) {
        self.family(name, help, "gauge");
    }

    pub(crate) fn counter(&mut self, name: &str, help: &str) {
        self.family(name, help, "counter");
    }

    fn summary(&mut self, name: &str, help: &str) {
        self.family(name, help, "summary");
    }

    fn histogram(&mut self, name: &str, help: &str) {
        self.family(name, help, "histogram");
    }

    pub(crate) fn family(&mut self, name: &str, help: &str, kind: &str) {
        // Writing to a String does not fail.
        let _ = writeln!(self.0, "# HELP weirgate_{name} {help}\n# TYPE weirgate_{name} {kind}");
    }

    pub(crate) fn sample(&mut self, name: &str, labels: &[(&str, &str)], value: impl Display) {
        let _ = write!(self.0, "weirgate_{name}");
        for (at, (label, value)) in labels.iter().enumerate() {
            let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let _ = write!(self.0, "{}{label}=\"{value}\"", if at == 0 { '{' } else { ',' });
        }
        let _ = writeln!(self.0, "{} {value}", if labels.is_empty() { "" } else { "}" });
    }
}

#[cfg(test)]
mod tests;
