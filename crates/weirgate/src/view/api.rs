//! What the page, `sockets` and anybody else reads: the documents of `/api/v1`, described for their readers in `docs/api.md`.
//!
//! Times are Unix time in milliseconds, rates bit/s, round-trip times microseconds, shares 0 to 1. `null` is "not known",
//! never zero. Fields are added, not changed, while the path says `v1`.

use serde::{Deserialize, Serialize};
use weirgate_sockets::ledger::Counts;

/// `/api/v1/status`: this daemon, this host, everything that there is one of.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The server's clock as it answered.
    pub now_ms: u64,
    /// What does not change while the daemon runs, or seldom.
    pub facts: Facts,
    /// The last poll that was finished; `null` before the first.
    pub poll: Option<Poll>,
    /// Sums over all networks.
    pub totals: Totals,
    /// Whatever was lost, by where.
    pub losses: Losses,
    /// Records sent to Kafka; `null` where none are.
    #[serde(default)]
    pub exports: Vec<Export>,
    /// What became of the fleet's snapshots; `null` where this host decides itself.
    #[serde(default)]
    pub fleet: Option<Fleet>,
    /// The policy in force; of version 0 and without networks until one is decided.
    pub policy: Option<Policy>,
    /// The last round of decisions; `null` before the first.
    pub round: Option<Round>,
    /// What is wrong now, in sentences that say what to do; empty is good.
    pub problems: Vec<String>,
    /// What is to be known though nothing is wrong, in sentences.
    #[serde(default)]
    pub notices: Vec<String>,
}

/// The host, the daemon and how it sees.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Weirgate's version.
    pub version: String,
    /// The host's name.
    pub host: String,
    /// The point of presence; empty where none is configured.
    pub pop: String,
    /// The kernel's release, as `uname -r` has it.
    pub kernel: String,
    /// When the daemon started.
    pub started_ms: u64,
    /// `observe` (decisions are shown, nothing is changed) or `apply`.
    pub mode: String,
    /// How open sockets are polled, and why in this way.
    pub polls: Source,
    /// Where closes are learnt from, and why from there.
    pub closes: Source,
    /// How the policy reaches connections, and why in this way.
    pub steering: Source,
    /// Time between polls.
    pub poll_interval_ms: u64,
    /// Time between rounds of decisions.
    pub round_interval_ms: u64,
    /// Rounds in which a network has to be judged before it can be selected.
    #[serde(default)]
    pub known_rounds_min: u64,
    /// What connections use where nothing is decided.
    pub default_cc: String,
    /// The names of the rules that select networks, in the order of the configuration.
    pub rules: Vec<String>,
    /// The directory of the recorded telemetry; empty where nothing is recorded.
    pub store: String,
}

/// One way of doing something, of several.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// Which way, in two or three words.
    pub name: String,
    /// Why this one.
    pub why: String,
    /// Whether the source itself counts what it loses. Where not, zero losses means "none that we know of".
    pub counted: bool,
}

/// One finished poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Poll {
    /// Counts polls, from 1.
    pub number: u64,
    /// When it ended.
    pub time_ms: u64,
    /// How long it took, all namespaces together.
    pub took_us: u64,
    /// Bytes read from the kernel.
    pub bytes: u64,
    /// Time since the poll before it that goodput and retransmit shares are taken over; 0 in the first.
    pub interval_ms: u64,
}

/// Sums over all connections at the last poll.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Totals {
    /// Connections that are open: established or being closed, without TIME-WAIT.
    pub connections: u64,
    /// Of them, those that a client opened.
    pub accepted: u64,
    /// Of them, those that this host opened.
    pub connected: u64,
    /// Of them, those with data in flight.
    pub sending: u64,
    /// Of them, those that the policy treats.
    pub treated: u64,
    /// Of them, those kept on the default for comparison.
    pub holdout: u64,
    /// Bytes acknowledged for the first time, per second, between the last two polls.
    pub goodput_bits_per_s: Option<u64>,
    /// Bytes sent again of all bytes sent, between the last two polls.
    pub retransmit_share: Option<f64>,
    /// Client networks with open connections.
    pub networks: u64,
    /// Records since the start, of polls.
    pub poll_records: u64,
    /// Records since the start, of closes.
    pub close_records: u64,
    /// Bytes acknowledged since the daemon's second poll.
    pub acked_bytes: u64,
    /// Bytes sent since the daemon's second poll.
    pub sent_bytes: u64,
    /// Bytes sent again since the daemon's second poll.
    pub retransmitted_bytes: u64,
}

/// Totals since the start of whatever was lost. Each is its own place: they are not summed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Losses {
    /// Closes that the kernel program saw; 0 where the source of closes does not count (see `facts.closes.counted`).
    pub closes_seen: u64,
    /// Of them, those for which its ring buffer had no room.
    pub close_ring_failures: u64,
    /// Close records kept, each the last of its connection.
    pub closes_kept: u64,
    /// Connections that were gone between polls without a close record. What they did last is unknown.
    pub vanished: u64,
    /// Of them, those found after all. `vanished - recovered` is what is lost.
    pub recovered: u64,
    /// Samples of connections that there was no room to follow.
    pub untracked: u64,
    /// Samples without an identity, dropped.
    pub without_identity: u64,
    /// Records from the kernel that could not be read, or that it said it skipped.
    pub poll_lost: u64,
    /// Polls that failed or were cut short.
    pub poll_failures: u64,
    /// Records that the store could not keep.
    pub store_lost: u64,
    /// Records that were to be sent to Kafka and could not be kept until then.
    #[serde(default)]
    pub export_lost: u64,
}

/// What became of the records, or of the tallies, for one topic of Kafka's since the start. Those handed over and `found` together are
/// those `acknowledged`, `sampled_out`, `waiting` and [lost](Losses::export_lost).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Export {
    /// The topic.
    pub topic: String,
    /// Records that an earlier daemon had left to be sent.
    pub found: u64,
    /// Records that all brokers in sync have written.
    pub acknowledged: u64,
    /// Records left out because what waits takes more than half of the room.
    pub sampled_out: u64,
    /// Records not acknowledged yet.
    pub waiting: u64,
    /// Messages acknowledged.
    pub messages: u64,
    /// Bytes of their keys and payloads, before compression.
    pub bytes: u64,
    /// Files in the spool.
    pub spool_files: u64,
    /// Their bytes.
    pub spool_bytes: u64,
    /// How many records one stands for that is handed over now.
    pub weight: u32,
}

impl Losses {
    /// What the ledger counted; the rest is zero, for others to fill in.
    pub fn of_ledger(counts: Counts) -> Self {
        Self {
            closes_kept: counts.closes,
            vanished: counts.vanished,
            recovered: counts.recovered,
            untracked: counts.untracked,
            without_identity: counts.without_identity,
            ..Self::default()
        }
    }
}

/// Snapshots of the fleet's policy, since the daemon started.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    /// Obeyed.
    pub obeyed: u64,
    /// Refused, by why: `damaged`, `signature`, `other_pop`, `older`, `expired`, `future`.
    pub refused: std::collections::BTreeMap<String, u64>,
    /// That expired before a newer one came.
    pub expired: u64,
    /// Times that none could be had.
    pub failed: u64,
    /// 1 where it could not be read which was obeyed before this daemon was started: an older one could be obeyed.
    #[serde(default)]
    pub forgotten: u64,
}

/// The policy in force.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    /// Its number; grows with each that differs from the one before.
    pub version: u32,
    /// Networks selected.
    pub networks: u64,
    /// Whether the kernel has it. `false` in observe mode.
    pub applied: bool,
    /// Since when it is in force.
    pub since_ms: u64,
    /// When the kernel drops it unless it is renewed; `null` where nothing is applied.
    pub expires_ms: Option<u64>,
    /// Share of a selected network's clients that stay on the default.
    pub holdout_share: f64,
    /// A response is switched only once this much of it was acknowledged.
    pub switch_after_bytes: u64,
    /// The version of the fleet's snapshot that is obeyed; `null` where this host decides itself or none is alive.
    #[serde(default)]
    pub fleet_version: Option<u64>,
    /// Until when that may be obeyed.
    #[serde(default)]
    pub fleet_until_ms: Option<u64>,
}

/// One round of decisions.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Round {
    /// Its number; rounds in which the daemon was down are counted as well.
    pub number: u64,
    /// When it ended.
    pub time_ms: u64,
    /// Connections heard of.
    pub connections: u64,
    /// Of them, those that voted.
    pub votes: u64,
    /// Those that did not, by the reason.
    #[serde(default)]
    pub ignored: Ignored,
    /// Networks with enough votes to be judged.
    pub networks_known: u64,
    /// Whether they were: `[tune] networks_min` of them are needed.
    #[serde(default)]
    pub judged: bool,
    /// Rounds more that have to be judged before any network can be selected; 0 where one can be already.
    #[serde(default)]
    pub rounds_missing: u64,
    /// Networks selected after it.
    pub selected: u64,
    /// Networks selected that were not before it.
    pub new: u64,
    /// Networks released or rolled back.
    pub gone: u64,
    /// Why its policy was refused; `null` where it was not.
    pub refusal: Option<String>,
    /// Why nothing was changed though nothing is wrong: nobody voted; `null` where that held nothing up.
    #[serde(default)]
    pub quiet: Option<String>,
    /// Bytes sent again of all bytes sent in it.
    #[serde(default)]
    pub resent: Resent,
    /// Goodput of treated clients over that of held-out ones, all selected networks together; `null` where there is too
    /// little to compare.
    pub effect: Option<Effect>,
}

/// Connections without a vote on their network in a round, each under the first reason that holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ignored {
    /// Opened by this host, or by nobody knows whom.
    pub direction: u64,
    /// Not on `[tune] server_ports`.
    pub port: u64,
    /// Delivered less than `vote_bytes_min`.
    pub small: u64,
    /// Without busy time, or without a sample of the delivery rate.
    pub no_metric: u64,
    /// Not on the default: its application chose its congestion control.
    pub own_cc: u64,
    /// Held back by the receiver's window or the send buffer for longer than `limited_share_max`. They are in `votes`, since
    /// they count where treated clients are compared with those held out.
    pub limited: u64,
    /// In the rounds after a new draw or a turn.
    pub washout: u64,
}

/// Shares of bytes sent again, by what was done to who sent them; `null` where nothing was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Resent {
    /// Treated connections.
    pub treated: Option<f64>,
    /// Those held out in selected networks.
    pub holdout: Option<f64>,
    /// Those of untreated networks that share a /16 (IPv6: /40) with a selected one: what the treatment does to others
    /// shows here.
    pub neighbours: Option<f64>,
    /// Those of all other untreated networks.
    pub others: Option<f64>,
}

/// A ratio and how sure it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Effect {
    /// Treated over held out; 1 is no difference.
    pub ratio: f64,
    /// The interval's lower end.
    pub low: f64,
    /// The interval's upper end.
    pub high: f64,
    /// The interval's level: 0.95 means that 95 of 100 such intervals hold the truth.
    pub level: f64,
}

/// `/api/v1/limits`: the software switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Switch {
    /// The server's clock as it answered.
    #[serde(default)]
    pub now_ms: u64,
    /// What it did with frames beside limiting them.
    #[serde(default)]
    pub frames: Frames,
    /// Its limits.
    pub limits: Vec<Limit>,
    /// Its ports.
    pub ports: Vec<Port>,
}

/// `/api/v1/deflate`: processes that compress by `libweirgate_z.so`, of all that ran while this daemon or an earlier one did.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Deflate {
    /// The server's clock as it answered.
    #[serde(default)]
    pub now_ms: u64,
    /// How many there are now.
    pub processes: u64,
    /// Instances of an accelerator that are theirs now.
    #[serde(default)]
    pub instances: u64,
    /// What each engine did.
    pub engines: Vec<Engine>,
    /// How often another engine had a body in place of the chosen one, by why.
    pub fallbacks: Vec<Fallback>,
}

/// A row of `/api/v1/deflate`: an engine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Engine {
    /// `zlib`, `libdeflate`, `igzip`, `qatzip` and `accelerator` compress whole bodies, `zlib_rs` long ones part by part, `zlib_stream`
    /// piece by piece.
    pub name: String,
    /// Bodies; of streams, those that began.
    pub bodies: u64,
    /// Bytes that were compressed.
    pub bytes_in: u64,
    /// What they became, without gzip's frame.
    pub bytes_out: u64,
    /// How long that took, by the clock.
    pub us: u64,
}

/// Bodies that the chosen engine did not have.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fallback {
    /// `flush`, `slow`, `long` and `asked`: stock zlib had it. `failed`, `gone`, `exhausted`, `late`, `wrong` and `paused`: another engine.
    pub reason: String,
    /// How many.
    pub count: u64,
}

/// `/api/v1/uplinks`: the uplinks that new connections are steered over.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Uplinks {
    /// The server's clock as it answered.
    #[serde(default)]
    pub now_ms: u64,
    /// Each of them, in the order of the configuration.
    pub uplinks: Vec<Uplink>,
    /// Why they are not steered as they are to be; `null` where they are.
    #[serde(default)]
    pub problem: Option<String>,
}

/// A row of `/api/v1/uplinks`. A flow is counted where connection tracking knows it; what passed is that to and from beyond the gateway.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Uplink {
    /// Its name in the configuration.
    pub name: String,
    /// Its device.
    pub device: String,
    /// `up`, `suspect` (being asked, takes no new flow while another one works), `silent`, `returning` (answers, and has to go on for a
    /// while) or `down`: that of the family that does best.
    pub state: String,
    /// Why.
    pub why: String,
    /// Since when.
    pub since_ms: u64,
    /// Those that there is a way for.
    #[serde(default)]
    pub families: Vec<UplinkFamily>,
    /// Whether it takes no new flow because somebody said so.
    pub drained: bool,
    /// Whether it takes new flows only while none of the others works.
    pub backup: bool,
    /// Whether what it carries costs money.
    pub metered: bool,
    /// Its share of the new flows beside the others', in bit/s, or a number where weights are configured as such.
    pub weight: u64,
    /// Where that comes from.
    pub weight_why: String,
    /// Uplinks of one class are alike.
    pub class: u32,
    /// TCP connections that it carries.
    pub flows_tcp: u64,
    /// Other flows, but for ICMP.
    pub flows_other: u64,
    /// Packets that left by it.
    pub sent_packets: u64,
    /// Their bytes, IP headers included.
    pub sent_bytes: u64,
    /// Packets that came by it, of those who were spoken with before.
    pub received_packets: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// What left in the last second.
    pub rate_up_bits_per_s: u64,
    /// What came in the last second.
    pub rate_down_bits_per_s: u64,
    /// The most that was seen to leave; `null` where too little did.
    pub capacity_up_bits_per_s: Option<u64>,
    /// The most that was seen to come.
    pub capacity_down_bits_per_s: Option<u64>,
    /// Smoothed, of its targets.
    pub rtt_us: Option<u64>,
    /// The smallest of the last minute, of its targets and the host's own connections.
    pub min_rtt_us: Option<u64>,
    /// Questions to its targets whose time is over.
    pub asked: u64,
    /// Those of them that were not answered in time.
    pub missed: u64,
    /// The host's own TCP connections by it.
    pub own_connections: u64,
    /// Of the bytes that these have sent, those that they sent again.
    pub resent_share: Option<f64>,
    /// Its addresses.
    pub addresses: Vec<String>,
    /// Who forwards what leaves by it.
    pub gateways: Vec<String>,
}

/// How an uplink stands for a family of protocols.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UplinkFamily {
    /// `IPv4` or `IPv6`.
    pub family: String,
    /// As [`Uplink::state`].
    pub state: String,
    /// Why.
    pub why: String,
    /// Since when.
    pub since_ms: u64,
    /// Smoothed, of its targets.
    pub rtt_us: Option<u64>,
}

/// Frames of the software switch, counted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Frames {
    /// Super-packets that were cut.
    pub cut: u64,
    /// Marked with congestion (ECN CE).
    pub marked: u64,
}

/// A port of the software switch. A super-packet is one frame.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Port {
    /// Its name in the configuration.
    pub name: String,
    /// `tap`, `interface`, `interface by AF_XDP` or `vhost-user`.
    pub kind: String,
    /// Why it has no device now; `null` where it has.
    pub failed: Option<String>,
    /// Times that its device went; it is opened again when it is back.
    #[serde(default)]
    pub gone: u64,
    /// Frames that came in by it.
    pub received: u64,
    /// Frames that went out by it.
    pub sent: u64,
    /// Dropped before they were read, for want of room; counted by interfaces only.
    pub lost: u64,
    /// Came in by it and were dropped because they, or what is said of them, contradict themselves.
    pub malformed: u64,
    /// Came in by it and were dropped because their receiver is where they came from, or their sender cannot be.
    #[serde(default)]
    pub filtered: u64,
    /// Dropped because the device refused them, or is gone.
    pub refused: u64,
    /// Dropped because the device had no room for long.
    pub unsent: u64,
}

/// A row of `/api/v1/limits`: a rate limit of the software switch.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limit {
    /// Its name in the configuration.
    pub name: String,
    /// `pace`, `gate`, `borrow` or `drop`.
    pub mode: String,
    /// What its rate counts: `L1`, `L2` or `L3`.
    pub layer: String,
    /// Bytes more that it counts for each packet.
    pub overhead: u16,
    /// The rate in force.
    pub rate_bits_per_s: u64,
    /// What may pass at once after idling, as the limit counts.
    pub burst_bytes: u64,
    /// Packets that passed, super-packets as one.
    pub passed_packets: u64,
    /// What they held, as the limit counts.
    pub passed_bytes: u64,
    /// Packets of these that had waited for it.
    pub delayed: u64,
    /// Packets that wait for it: of several limits of a class, for the one that holds them up now.
    pub waiting: u64,
    /// How long something waited or was held back, since the start, summed over the switch's threads.
    pub throttled_ms: u64,
    /// What could have passed beside that while something waited, had the switch not been away for longer than the burst lasts.
    pub missed_bytes: u64,
    /// Packets marked with congestion (ECN CE).
    pub marked: u64,
    /// Dropped because they came too early, by a limit that drops.
    pub dropped_rate: u64,
    /// Dropped because there was no room to wait in.
    pub dropped_room: u64,
    /// Dropped because their flow's queue was too long for too long.
    pub dropped_codel: u64,
    /// Half of those that passed had waited less: the bound of a slot of `delays`; `null` where none passed
    /// that may wait.
    pub delay_p50_us: Option<u64>,
    /// 99 of 100 had waited less.
    pub delay_p99_us: Option<u64>,
    /// How long those that passed had waited for it.
    pub delays: Vec<Delay>,
}

/// A slot of a histogram of delays.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Delay {
    /// Its bound; `null`: none. The slot before ends where it begins.
    pub below_us: Option<u64>,
    /// How many.
    pub packets: u64,
}

/// `/api/v1/networks`: connections by client network.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Networks {
    /// The server's clock as it answered.
    pub now_ms: u64,
    /// The number of the poll that this is of.
    pub poll: u64,
    /// Networks with connections or closes, before `limit`; those in `other` are not counted.
    pub total: u64,
    /// The rows, in the order asked for.
    pub networks: Vec<Network>,
    /// All that is in no row of its own because the table is full; `null` where nothing is.
    pub other: Option<Network>,
    /// Connections by congestion control; the rest of the columns as for networks.
    pub congestion_controls: Vec<Network>,
}

/// One row: the connections of one client network, or with one congestion control.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Network {
    /// The network (`192.0.2.0/24`), the congestion control, or `other`.
    pub name: String,
    /// Open connections.
    pub connections: u64,
    /// Of them, those that a client opened.
    pub accepted: u64,
    /// Of them, those that this host opened.
    pub connected: u64,
    /// Of them, those with data in flight.
    pub sending: u64,
    /// Of them, those that the policy treats.
    pub treated: u64,
    /// Of them, those kept on the default for comparison.
    pub holdout: u64,
    /// Connections that closed between the last two polls.
    pub closed: u64,
    /// Bytes acknowledged for the first time, per second, between the last two polls. `null` by congestion control, since
    /// a connection can change it, and before the second poll.
    pub goodput_bits_per_s: Option<u64>,
    /// Bytes sent again of all bytes sent, between the last two polls; `null` where nothing was sent.
    pub retransmit_share: Option<f64>,
    /// Mean of the smoothed round-trip times.
    pub rtt_us: Option<u64>,
    /// The smallest round-trip time of any.
    pub min_rtt_us: Option<u64>,
    /// Mean delivery rate of connections with data in flight that the application does not limit.
    pub delivery_rate_bits_per_s: Option<u64>,
    /// Congestion controls in use, the most frequent first.
    pub congestion_controls: Vec<Share>,
    /// The last decision on this network, in a word or two; `null` where there was none.
    pub decision: Option<String>,
}

/// So many of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Which kind.
    pub name: String,
    /// How many connections.
    pub connections: u64,
}

/// `/api/v1/decisions`: what was decided, newest first, and why.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decisions {
    /// The server's clock as it answered.
    pub now_ms: u64,
    /// Decisions since the start; the last 1,000 are kept.
    pub total: u64,
    /// Newest first.
    pub decisions: Vec<Decision>,
}

/// One decision.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Decision {
    /// When.
    pub time_ms: u64,
    /// In which round.
    pub round: u64,
    /// On which network; `null` where it is about the whole host.
    pub network: Option<String>,
    /// What, in a word or two.
    pub what: String,
    /// Why, in a sentence with the numbers.
    pub why: String,
}

/// `/api/v1/history`: percentiles over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct History {
    /// The server's clock as it answered.
    pub now_ms: u64,
    /// Slots of at least 10 s (`range=hour`) or a minute (`range=day`), oldest first.
    pub points: Vec<Point>,
    /// Rounds of decisions, oldest first.
    pub rounds: Vec<RoundPoint>,
}

/// What the polls of one slot saw.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// The slot's end.
    pub time_ms: u64,
    /// The largest number of open connections that one poll saw.
    pub connections: u64,
    /// Connections that closed.
    pub closes: u64,
    /// Bytes acknowledged for the first time, per second.
    pub goodput_bits_per_s: Option<u64>,
    /// Bytes sent again of all bytes sent.
    pub retransmit_share: Option<f64>,
    /// Of connections with data in flight that the application did not limit, one value per poll.
    pub delivery_rate_bits_per_s: Option<Percentiles>,
    /// Smoothed round-trip times, one value per connection and poll.
    pub rtt_us: Option<Percentiles>,
    /// Smallest round-trip times, one value per connection and poll.
    pub min_rtt_us: Option<Percentiles>,
}

/// What the connections of one round did, one vote each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RoundPoint {
    /// The round's end.
    pub time_ms: u64,
    /// Bytes acknowledged over the time with data outstanding, of connections that delivered at least 10 KB.
    pub goodput_bits_per_s: Option<Percentiles>,
    /// Bytes sent again of a million sent, of the same connections.
    pub retransmit_ppm: Option<Percentiles>,
    /// Smallest round-trip times of the same connections.
    pub min_rtt_us: Option<Percentiles>,
}

/// Percentiles by nearest rank, to 1.6 %.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Percentiles {
    /// Values counted.
    pub count: u64,
    /// 5 % of the values are no larger.
    pub p5: u64,
    /// 10 % are no larger.
    pub p10: u64,
    /// The median.
    pub p50: u64,
    /// 90 % are no larger.
    pub p90: u64,
}
