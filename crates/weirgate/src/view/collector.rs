//! The writing half of the view: records in, a published picture at each poll's end.
//!
//! Memory: [`NETWORKS_MAX`] networks of about 240 bytes here, 160 where they are published and 40 in the index, a dozen
//! histograms of 4.6 KB: below 5 MB in all. Work per record: one hash of 18 bytes and some additions.

use std::net::IpAddr;

use hashbrown::HashMap;
use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::{Direction, Record};
use weirgate_sockets::sample::{Arm, CcName, Field, Kind, Sample, flag, state};
use weirgate_units::{Duration, Prefix, UnixTime};

use super::api;
use super::histogram::Histogram;
use super::history::{self, Slot};
use super::shared::Shared;

/// Networks with a row of their own; the connections of others are summed in one row. An edge POP serves hundreds of
/// thousands of clients from fewer networks than this at a time; a scan or a flood of spoofed addresses must not grow us.
pub(crate) const NETWORKS_MAX: usize = 10_000;
/// A network without connections keeps its row for so many polls, so that it does not flicker.
const QUIET_POLLS_MAX: u8 = 6;
/// Congestion controls told apart, the last slot being for all others. The kernel has about fifteen, hosts use two.
pub(super) const CCS: usize = 8;
/// A connection that delivered less in a round says more about its handshake than about its path.
const VOTE_BYTES_MIN: u64 = 10_000;

/// Takes what the sense sees; one per daemon, owned by the thread that polls.
pub struct Collector {
    shared: Shared,
    index: HashMap<Key, u32>,
    networks: Vec<Network>,
    /// All networks for which the table had no room.
    other: Network,
    /// Whether `other` lost or gained networks since the poll before, so that its sums cannot be compared.
    other_changed: bool,
    all: Network,
    ccs: [CcName; CCS],
    by_cc: [Tally; CCS],
    slot: Slot,
    votes: Votes,
    totals: api::Totals,
    polls: u64,
    /// The end of the last complete poll.
    compared_to: Option<UnixTime>,
}

/// How a poll of all namespaces ended.
#[derive(Clone, Copy, Debug)]
pub struct PollEnd {
    /// When.
    pub now: UnixTime,
    /// How long it took.
    pub took: Duration,
    /// Bytes read from the kernel.
    pub bytes: u64,
    /// Whether every namespace was read to its end. Of a poll that was not, counts and sums are dropped and the last ones
    /// stay: half of the connections are not half of the host.
    pub complete: bool,
}

/// What a poll's end publishes. Reused from poll to poll, so that publishing allocates only where the table grows.
#[derive(Default)]
pub(super) struct Picture {
    pub(super) rows: Vec<Row>,
    pub(super) other: Option<Row>,
    pub(super) all: Row,
    pub(super) ccs: [CcName; CCS],
    pub(super) by_cc: [Tally; CCS],
    /// What is not in `all`.
    pub(super) totals: api::Totals,
    pub(super) poll: Option<api::Poll>,
}

/// One network at a poll's end.
#[derive(Clone, Copy)]
pub(super) struct Row {
    pub(super) prefix: Prefix,
    pub(super) tally: Tally,
    pub(super) closed: u32,
    /// bit/s since the poll before.
    pub(super) goodput: Option<u64>,
    pub(super) retransmit_share: Option<f64>,
}

/// Byte counters that only grow while a connection lives.
#[derive(Clone, Copy, Default)]
pub(super) struct Sums {
    pub(super) acked: u64,
    pub(super) sent: u64,
    pub(super) retransmitted: u64,
}

/// The connections of one group at one poll.
#[derive(Clone, Copy, Default)]
pub(super) struct Tally {
    pub(super) connections: u32,
    pub(super) accepted: u32,
    pub(super) connected: u32,
    pub(super) sending: u32,
    pub(super) treated: u32,
    pub(super) holdout: u32,
    rtts: u32,
    rates: u32,
    rtt_sum_us: u64,
    rate_sum: u64,
    min_rtt_us: u32,
    ccs: [u32; CCS],
    open: Sums,
}

/// One group from poll to poll.
struct Network {
    prefix: Prefix,
    /// The poll under way.
    now: Tally,
    /// The final counters of connections that closed since the last complete poll.
    closed: Sums,
    closes: u32,
    /// The open connections' counters at the last complete poll; `None` where that is not known.
    before: Option<Sums>,
    /// What the last difference fell short of zero: a connection was gone before its close was read. Made up for once.
    short: Sums,
    quiet_polls: u8,
}

/// The votes of a round under way.
struct Votes {
    goodput: Histogram,
    retransmit_ppm: Histogram,
    min_rtt: Histogram,
}

impl Collector {
    pub(super) fn new(shared: Shared) -> Self {
        Self {
            shared,
            index: HashMap::new(),
            networks: Vec::new(),
            other: Network::new(everywhere(), Some(Sums::default())),
            other_changed: false,
            all: Network::new(everywhere(), None),
            ccs: [CcName::default(); CCS],
            by_cc: [Tally::default(); CCS],
            slot: Slot::new(),
            votes: Votes { goodput: Histogram::new(), retransmit_ppm: Histogram::new(), min_rtt: Histogram::new() },
            totals: api::Totals::default(),
            polls: 0,
            compared_to: None,
        }
    }

    /// The reading half, for whoever needs it.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Counts one record, of a poll or of a close. Whatever is no connection is ignored. O(1), no lock.
    pub fn handle_record(&mut self, record: &Record<'_>) {
        let sample = record.sample;
        if sample.kind() == Kind::Close {
            self.handle_close(record);
            return;
        }
        self.totals.poll_records += 1;
        if !is_connection(sample) {
            return;
        }
        let cc = self.cc_slot(sample.cc);
        // Of an idle connection the last rate is as old as its last response, and would be counted at every poll.
        let fresh_rate = sample.unacked > 0 && !sample.is(flag::APP_LIMITED) && sample.delivery_rate > 0;
        if fresh_rate {
            self.slot.delivery_rate.add(sample.delivery_rate.saturating_mul(8));
        }
        if sample.rtt_us > 0 {
            self.slot.rtt.add(u64::from(sample.rtt_us));
        }
        if has_min_rtt(sample) {
            self.slot.min_rtt.add(u64::from(sample.min_rtt_us));
        }
        let add = |tally: &mut Tally| tally.add(sample, record.direction, cc, fresh_rate);
        add(&mut self.by_cc[cc]);
        add(&mut self.network(record.network).now);
    }

    /// Counts one connection's vote in the round under way. Back ends do not vote.
    pub fn handle_progress(&mut self, progress: &Progress) {
        let (acked, sent) = (progress.acked.as_u64(), progress.sent.as_u64());
        if progress.direction == Direction::Connected || acked < VOTE_BYTES_MIN {
            return;
        }
        if let Some(goodput) = history::rate(acked, progress.busy.as_nanos()) {
            self.votes.goodput.add(goodput);
        }
        if let Some(share) = history::share(progress.retransmitted.as_u64(), sent) {
            self.votes.retransmit_ppm.add((share * 1e6) as u64);
        }
        if progress.min_rtt > Duration::ZERO {
            self.votes.min_rtt.add(progress.min_rtt.as_micros());
        }
    }

    /// The round's votes are all in: publishes their percentiles and begins the next round.
    pub fn handle_round_end(&mut self, now: UnixTime) {
        self.shared.publish_round(api::RoundPoint {
            time_ms: now.as_nanos() / 1_000_000,
            goodput_bits_per_s: take(&mut self.votes.goodput),
            retransmit_ppm: take(&mut self.votes.retransmit_ppm),
            min_rtt_us: take(&mut self.votes.min_rtt),
        });
    }

    /// Publishes the poll that has ended. Call it once the closes that happened during the poll are handled as well.
    /// O(networks): about 1 ms for 10,000.
    pub fn handle_poll_end(&mut self, end: PollEnd) {
        if !end.complete {
            // The closes stay counted: they are compared with the next complete poll.
            self.begin_poll();
            return;
        }
        self.polls += 1;
        let interval = self.compared_to.map_or(Duration::ZERO, |before| end.now.saturating_since(before));
        for tally in &self.by_cc {
            self.all.now.add_all(tally);
        }
        let mut picture = self.shared.take_picture();
        picture.rows.clear();
        for network in &mut self.networks {
            let change = network.end_poll();
            if network.is_seen() {
                picture.rows.push(network.row(change, interval));
            }
        }
        if self.other_changed {
            self.other.before = None;
        }
        let change = self.other.end_poll();
        picture.other = self.other.is_seen().then(|| self.other.row(change, interval));
        let change = self.all.end_poll();
        if let Some(change) = change {
            self.slot.sums.add(change, interval);
            self.totals.acked_bytes += change.acked;
            self.totals.sent_bytes += change.sent;
            self.totals.retransmitted_bytes += change.retransmitted;
        }
        let connections = u64::from(self.all.now.connections);
        self.slot.sums.connections = self.slot.sums.connections.max(connections);
        picture.all = self.all.row(change, interval);
        picture.ccs = self.ccs;
        picture.by_cc = self.by_cc;
        picture.totals = api::Totals {
            networks: self.networks.iter().filter(|n| n.now.connections > 0).count() as u64,
            ..self.totals
        };
        picture.poll = Some(api::Poll {
            number: self.polls,
            time_ms: end.now.as_nanos() / 1_000_000,
            took_us: end.took.as_micros(),
            bytes: end.bytes,
            interval_ms: interval.as_millis(),
        });
        self.shared.publish(picture, &mut self.slot, end.now);
        self.compared_to = Some(end.now);
        self.forget_quiet_networks();
        self.begin_poll();
    }

    fn handle_close(&mut self, record: &Record<'_>) {
        self.totals.close_records += 1;
        self.slot.sums.closes += 1;
        let sample = record.sample;
        self.all.handle_close(sample);
        self.network(record.network).handle_close(sample);
    }

    /// Clears what a poll counts; what lasts from poll to poll stays.
    fn begin_poll(&mut self) {
        for network in self.networks.iter_mut().chain([&mut self.other, &mut self.all]) {
            network.now = Tally::default();
        }
        self.by_cc = [Tally::default(); CCS];
    }

    /// Frees the rows of networks without connections, so that the table holds those that have some. O(networks).
    fn forget_quiet_networks(&mut self) {
        let before = self.networks.len();
        self.networks.retain(|network| network.quiet_polls <= QUIET_POLLS_MAX);
        if self.networks.len() != before {
            self.index.clear();
            self.index.extend(self.networks.iter().zip(0..).map(|(network, at)| (key(network.prefix), at)));
        }
        self.other_changed = false;
    }

    /// The row of `prefix`: its own, or `other` where the table is full.
    fn network(&mut self, prefix: Prefix) -> &mut Network {
        let key = key(prefix);
        if let Some(at) = self.index.get(&key) {
            return &mut self.networks[*at as usize];
        }
        if self.networks.len() >= NETWORKS_MAX {
            return &mut self.other;
        }
        // A network that was in `other` before takes its past along, unmeasured: neither row can be compared this once.
        let from_other = self.other.before.is_some_and(|before| before.acked > 0 || before.sent > 0);
        self.other_changed |= from_other;
        let known = self.compared_to.is_some() && !from_other;
        self.index.insert(key, self.networks.len() as u32);
        self.networks.push(Network::new(prefix, known.then(Sums::default)));
        let last = self.networks.len() - 1;
        &mut self.networks[last]
    }

    /// The slot that counts connections with `cc`; the last one where more than [`CCS`] are in use.
    fn cc_slot(&mut self, cc: CcName) -> usize {
        for slot in 0..CCS - 1 {
            if self.ccs[slot] == cc {
                return slot;
            }
            if self.ccs[slot] == CcName::default() {
                self.ccs[slot] = cc;
                return slot;
            }
        }
        CCS - 1
    }
}

impl Tally {
    fn add(&mut self, sample: &Sample, direction: Direction, cc: usize, fresh_rate: bool) {
        self.connections += 1;
        self.accepted += u32::from(direction == Direction::Accepted);
        self.connected += u32::from(direction == Direction::Connected);
        self.sending += u32::from(sample.unacked > 0);
        self.treated += u32::from(sample.arm() == Arm::Treated);
        self.holdout += u32::from(sample.arm() == Arm::Holdout);
        self.ccs[cc] += 1;
        if sample.rtt_us > 0 {
            self.rtts += 1;
            self.rtt_sum_us += u64::from(sample.rtt_us);
        }
        if has_min_rtt(sample) && (self.min_rtt_us == 0 || sample.min_rtt_us < self.min_rtt_us) {
            self.min_rtt_us = sample.min_rtt_us;
        }
        if fresh_rate {
            self.rates += 1;
            self.rate_sum = self.rate_sum.saturating_add(sample.delivery_rate);
        }
        self.open = self.open.plus(Sums::of(sample));
    }

    fn add_all(&mut self, other: &Self) {
        self.connections += other.connections;
        self.accepted += other.accepted;
        self.connected += other.connected;
        self.sending += other.sending;
        self.treated += other.treated;
        self.holdout += other.holdout;
        self.rtts += other.rtts;
        self.rates += other.rates;
        self.rtt_sum_us += other.rtt_sum_us;
        self.rate_sum = self.rate_sum.saturating_add(other.rate_sum);
        if other.min_rtt_us > 0 && (self.min_rtt_us == 0 || other.min_rtt_us < self.min_rtt_us) {
            self.min_rtt_us = other.min_rtt_us;
        }
        self.ccs.iter_mut().zip(other.ccs).for_each(|(to, from)| *to += from);
        self.open = self.open.plus(other.open);
    }

    /// The mean of the smoothed round-trip times.
    pub(super) fn rtt_us(&self) -> Option<u64> {
        self.rtt_sum_us.checked_div(u64::from(self.rtts))
    }

    /// What is shown of it, under `name`.
    pub(super) fn describe(&self, name: String, ccs: &[CcName; CCS]) -> api::Network {
        let rate = self.rate_sum.checked_div(u64::from(self.rates));
        let mut shares: Vec<api::Share> = ccs
            .iter()
            .zip(self.ccs)
            .enumerate()
            .filter(|(_, (_, connections))| *connections > 0)
            .map(|(slot, (cc, connections))| api::Share { name: cc_label(slot, *cc), connections: connections.into() })
            .collect();
        shares.sort_by_key(|share| std::cmp::Reverse(share.connections));
        api::Network {
            name,
            connections: self.connections.into(),
            accepted: self.accepted.into(),
            connected: self.connected.into(),
            sending: self.sending.into(),
            treated: self.treated.into(),
            holdout: self.holdout.into(),
            rtt_us: self.rtt_us(),
            min_rtt_us: (self.min_rtt_us > 0).then_some(self.min_rtt_us.into()),
            delivery_rate_bits_per_s: rate.map(|bytes| bytes.saturating_mul(8)),
            congestion_controls: shares,
            ..api::Network::default()
        }
    }
}

impl Network {
    fn new(prefix: Prefix, before: Option<Sums>) -> Self {
        Self {
            prefix,
            now: Tally::default(),
            closed: Sums::default(),
            closes: 0,
            before,
            short: Sums::default(),
            quiet_polls: 0,
        }
    }

    fn handle_close(&mut self, sample: &Sample) {
        self.closes += 1;
        self.closed = self.closed.plus(Sums::of(sample));
    }

    fn is_seen(&self) -> bool {
        self.now.connections > 0 || self.closes > 0
    }

    /// What was sent and delivered since the last complete poll, `None` where that poll did not count this group.
    fn end_poll(&mut self) -> Option<Sums> {
        let open = self.now.open;
        self.quiet_polls = if self.is_seen() { 0 } else { self.quiet_polls.saturating_add(1) };
        let closed = std::mem::take(&mut self.closed);
        let before = self.before.replace(open)?;
        let gained = open.plus(closed);
        let short = std::mem::replace(&mut self.short, before.minus(gained));
        // A connection that vanished between two polls without a close would be owed for ever: only what the last poll
        // alone fell short of is carried on.
        Some(gained.minus(before.plus(short)))
    }

    fn row(&mut self, change: Option<Sums>, interval: Duration) -> Row {
        Row {
            prefix: self.prefix,
            tally: self.now,
            closed: std::mem::take(&mut self.closes),
            goodput: change.and_then(|change| history::rate(change.acked, interval.as_nanos())),
            retransmit_share: change.and_then(|change| history::share(change.retransmitted, change.sent)),
        }
    }
}

impl Default for Row {
    fn default() -> Self {
        Self { prefix: everywhere(), tally: Tally::default(), closed: 0, goodput: None, retransmit_share: None }
    }
}

impl Sums {
    fn of(sample: &Sample) -> Self {
        Self { acked: sample.bytes_acked, sent: sample.bytes_sent, retransmitted: sample.bytes_retrans }
    }

    /// The sums, saturating.
    fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// The differences, or zero.
    fn minus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_sub)
    }

    fn zip(self, other: Self, f: fn(u64, u64) -> u64) -> Self {
        Self {
            acked: f(self.acked, other.acked),
            sent: f(self.sent, other.sent),
            retransmitted: f(self.retransmitted, other.retransmitted),
        }
    }
}

/// A network as the index has it: its address in bits, and its length, to which IPv4 adds 129 so that the families stay
/// apart. Cheaper to hash than a [`Prefix`], and hashed for every record.
type Key = (u128, u8);

fn key(prefix: Prefix) -> Key {
    match prefix.address() {
        IpAddr::V4(address) => (u128::from(address.to_bits()), 129 + prefix.len()),
        IpAddr::V6(address) => (address.to_bits(), prefix.len()),
    }
}

fn everywhere() -> Prefix {
    Prefix::of([0, 0, 0, 0].into(), 0)
}

/// Whether it is open: established or being closed, with an account of its own. Handshakes and TIME-WAIT are not.
fn is_connection(sample: &Sample) -> bool {
    const NOT: [u8; 6] =
        [state::LISTEN, state::CLOSE, state::SYN_SENT, state::SYN_RECV, state::NEW_SYN_RECV, state::TIME_WAIT];
    sample.has(Field::TcpInfo) && !NOT.contains(&sample.state)
}

/// The kernel starts `min_rtt_us` at all ones.
fn has_min_rtt(sample: &Sample) -> bool {
    sample.has(Field::MinRttUs) && sample.min_rtt_us > 0 && sample.min_rtt_us != u32::MAX
}

fn take(votes: &mut Histogram) -> Option<api::Percentiles> {
    let percentiles = history::percentiles(votes);
    votes.clear();
    percentiles
}

/// The name that slot `slot` is shown under.
pub(super) fn cc_label(slot: usize, cc: CcName) -> String {
    match cc.as_str() {
        _ if slot == CCS - 1 => "other".to_owned(),
        "" => "unknown".to_owned(),
        name => name.to_owned(),
    }
}

#[cfg(test)]
mod tests;
