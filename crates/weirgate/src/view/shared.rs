//! The reading half of the view, and the door for events that are rarer than records.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hashbrown::HashMap;
use weirgate_tune::decision as tune;
use weirgate_units::UnixTime;

use super::api;
use super::collector::{CCS, Picture, Row, cc_label};
use super::history::{History, Slot};

/// Decisions kept; the newest push out the oldest.
pub(crate) const DECISIONS_MAX: usize = 1_000;
/// Problems shown at once, and notices.
const PROBLEMS_MAX: usize = 20;

/// The daemon's view, for any thread; cloning it is cloning a pointer. Every call takes one lock for at most a
/// millisecond (10,000 rows copied), and nothing that a reader does is longer than that for the thread that polls.
#[derive(Clone)]
pub struct Shared {
    state: Arc<Mutex<State>>,
}

/// What rows are sorted by, the largest first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Bytes delivered since the poll before.
    #[default]
    Goodput,
    /// Open connections.
    Connections,
    /// The mean round-trip time.
    Rtt,
    /// The share sent again.
    Retransmits,
    /// By name, ascending.
    Name,
}

impl Order {
    /// As the API's `sort` has it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Goodput => "goodput",
            Self::Connections => "connections",
            Self::Rtt => "rtt",
            Self::Retransmits => "retransmits",
            Self::Name => "name",
        }
    }
}

/// Says what the switch did, when asked.
pub type SwitchSource = Arc<dyn Fn() -> api::Switch + Send + Sync>;

/// Says what processes compress, when asked.
pub type DeflateSource = Arc<dyn Fn() -> api::Deflate + Send + Sync>;

/// Says how the uplinks stand, when asked.
pub type UplinksSource = Arc<dyn Fn() -> api::Uplinks + Send + Sync>;

struct State {
    switch: Option<SwitchSource>,
    uplinks: Option<UplinksSource>,
    deflate: Option<DeflateSource>,
    facts: api::Facts,
    picture: Picture,
    /// The picture before, whose memory the next one reuses.
    spare: Picture,
    history: History,
    losses: api::Losses,
    exports: Vec<api::Export>,
    fleet: Option<api::Fleet>,
    policy: Option<api::Policy>,
    round: Option<api::Round>,
    decisions: VecDeque<api::Decision>,
    decisions_total: u64,
    problems: Vec<(String, String)>,
    notices: Vec<(String, String)>,
}

impl Shared {
    pub(super) fn new(facts: api::Facts) -> Self {
        let state = State {
            switch: None,
            uplinks: None,
            deflate: None,
            facts,
            picture: Picture::default(),
            spare: Picture::default(),
            history: History::new(),
            losses: api::Losses::default(),
            exports: Vec::new(),
            fleet: None,
            policy: None,
            round: None,
            decisions: VecDeque::new(),
            decisions_total: 0,
            problems: Vec::new(),
            notices: Vec::new(),
        };
        Self { state: Arc::new(Mutex::new(state)) }
    }

    /// Replaces the facts: a source was changed, a mode was set.
    pub fn set_facts(&self, facts: api::Facts) {
        self.lock().facts = facts;
    }

    /// Changes some of the facts.
    pub fn update_facts(&self, change: impl FnOnce(&mut api::Facts)) {
        change(&mut self.lock().facts);
    }

    /// Replaces the totals of what was lost.
    pub fn handle_losses(&self, losses: api::Losses) {
        self.lock().losses = losses;
    }

    /// Says what became of the records for Kafka.
    pub fn handle_exports(&self, exports: Vec<api::Export>) {
        self.lock().exports = exports;
    }

    /// Says what became of the fleet's snapshots.
    pub fn handle_fleet(&self, fleet: api::Fleet) {
        self.lock().fleet = Some(fleet);
    }

    /// Changes some of the totals of what was lost, where several threads count their own.
    pub fn update_losses(&self, change: impl FnOnce(&mut api::Losses)) {
        change(&mut self.lock().losses);
    }

    /// Says which policy is in force, and until when.
    pub fn handle_policy(&self, policy: Option<api::Policy>) {
        self.lock().policy = policy;
    }

    /// Changes the policy's description, where there is one: renewed, refused.
    pub fn update_policy(&self, change: impl FnOnce(&mut api::Policy)) {
        if let Some(policy) = &mut self.lock().policy {
            change(policy);
        }
    }

    /// Reports a round and the decisions that it came to. Decisions are shown newest first, the first of a round before
    /// the others.
    pub fn handle_round(&self, round: &tune::Round) {
        let mut state = self.lock();
        let state = &mut *state;
        state.round = Some(describe(round));
        state.decisions_total += round.decisions.len() as u64;
        let rules = &state.facts.rules;
        let decisions = round.decisions.iter().rev().map(|decision| api::Decision {
            time_ms: ms(round.time),
            round: round.number.into(),
            network: Some(decision.network.to_string()),
            what: decision.what.to_string(),
            why: decision.why.in_words(rules),
        });
        state.decisions.extend(decisions);
        let excess = state.decisions.len().saturating_sub(DECISIONS_MAX);
        state.decisions.drain(..excess);
    }

    /// Says what is wrong (`Some`, a sentence with what to do) or no longer wrong (`None`) in the matter named `about`.
    /// Returns what was wrong until now.
    pub fn set_problem(&self, about: &str, problem: Option<String>) -> Option<String> {
        set(&mut self.lock().problems, about, problem)
    }

    /// Says what is to be known (`Some`, a sentence), though nothing is wrong, in the matter named `about`. Returns what was
    /// said until now.
    pub fn set_notice(&self, about: &str, notice: Option<String>) -> Option<String> {
        set(&mut self.lock().notices, about, notice)
    }

    /// `/api/v1/status`.
    pub fn status(&self, now: UnixTime) -> api::Status {
        let state = self.lock();
        api::Status {
            now_ms: ms(now),
            facts: state.facts.clone(),
            poll: state.picture.poll,
            totals: state.totals(),
            losses: state.losses,
            exports: state.exports.clone(),
            fleet: state.fleet.clone(),
            policy: state.policy.clone(),
            round: state.round.clone(),
            problems: state.problems.iter().map(|(_, text)| text.clone()).collect(),
            notices: state.notices.iter().map(|(_, text)| text.clone()).collect(),
        }
    }

    /// `/api/v1/networks`: the first `limit` rows in the `order` asked for.
    pub fn networks(&self, now: UnixTime, order: Order, limit: usize) -> api::Networks {
        let state = self.lock();
        let picture = &state.picture;
        let mut rows: Vec<&Row> = picture.rows.iter().collect();
        // By name first, so that equal rows stand still from poll to poll.
        rows.sort_unstable_by_key(|row| row.prefix);
        let down = |key: fn(&Row) -> u64| move |row: &&Row| std::cmp::Reverse(key(row));
        match order {
            Order::Goodput => rows.sort_by_key(down(|row| row.goodput.unwrap_or(0))),
            Order::Connections => rows.sort_by_key(down(|row| row.tally.connections.into())),
            Order::Rtt => rows.sort_by_key(down(|row| row.tally.rtt_us().unwrap_or(0))),
            Order::Retransmits => rows.sort_by_key(down(|row| (row.retransmit_share.unwrap_or(0.0) * 1e9) as u64)),
            Order::Name => {}
        }
        rows.truncate(limit);
        let decided = state.last_decisions();
        let network = |row: &Row, name: String| api::Network {
            closed: row.closed.into(),
            goodput_bits_per_s: row.goodput,
            retransmit_share: row.retransmit_share,
            decision: decided.get(name.as_str()).map(|what| (*what).to_owned()),
            ..row.tally.describe(name, &picture.ccs)
        };
        let mut congestion_controls: Vec<api::Network> = (0..CCS)
            .filter(|slot| picture.by_cc[*slot].connections > 0)
            .map(|slot| picture.by_cc[slot].describe(cc_label(slot, picture.ccs[slot]), &picture.ccs))
            .collect();
        congestion_controls.sort_by_key(|cc| std::cmp::Reverse(cc.connections));
        api::Networks {
            now_ms: ms(now),
            poll: picture.poll.map_or(0, |poll| poll.number),
            total: picture.rows.len() as u64,
            networks: rows.iter().map(|row| network(row, row.prefix.to_string())).collect(),
            other: picture.other.as_ref().map(|row| network(row, "other".to_owned())),
            congestion_controls,
        }
    }

    /// Says who knows what the switch did.
    pub fn set_switch(&self, source: SwitchSource) {
        self.lock().switch = Some(source);
    }

    /// `/api/v1/limits`: every limit and port of the software switch. Asks the switch's thread, which answers between two frames.
    pub fn switch(&self, now: UnixTime) -> api::Switch {
        let source = self.lock().switch.clone();
        let switch = source.map_or_else(api::Switch::default, |source| source());
        api::Switch { now_ms: ms(now), ..switch }
    }

    /// Says who knows what processes compress.
    pub fn set_deflate(&self, source: DeflateSource) {
        self.lock().deflate = Some(source);
    }

    /// `/api/v1/deflate`: what processes compress by `libweirgate_z.so`. Reads a file for each.
    pub fn deflate(&self, now: UnixTime) -> api::Deflate {
        let source = self.lock().deflate.clone();
        let deflate = source.map_or_else(api::Deflate::default, |source| source());
        api::Deflate { now_ms: ms(now), ..deflate }
    }

    /// Says who knows how the uplinks stand.
    pub fn set_uplinks(&self, source: UplinksSource) {
        self.lock().uplinks = Some(source);
    }

    /// `/api/v1/uplinks`: each uplink, as it stood half a second ago at the most.
    pub fn uplinks(&self, now: UnixTime) -> api::Uplinks {
        let source = self.lock().uplinks.clone();
        let uplinks = source.map_or_else(api::Uplinks::default, |source| source());
        api::Uplinks { now_ms: ms(now), ..uplinks }
    }

    /// `/api/v1/decisions`: the newest `limit`.
    pub fn decisions(&self, now: UnixTime, limit: usize) -> api::Decisions {
        let state = self.lock();
        api::Decisions {
            now_ms: ms(now),
            total: state.decisions_total,
            decisions: state.decisions.iter().rev().take(limit).cloned().collect(),
        }
    }

    /// `/api/v1/history`: an hour finely, or a day coarsely.
    pub fn history(&self, now: UnixTime, day: bool) -> api::History {
        let state = self.lock();
        let history = &state.history;
        let points = if day { history.coarse() } else { history.fine() };
        api::History { now_ms: ms(now), points, rounds: history.rounds() }
    }

    /// The last slot of the fine history.
    pub fn latest_point(&self) -> Option<api::Point> {
        self.lock().history.latest()
    }

    /// The memory of the picture before last, to be filled and published.
    pub(super) fn take_picture(&self) -> Picture {
        std::mem::take(&mut self.lock().spare)
    }

    pub(super) fn publish(&self, picture: Picture, slot: &mut Slot, now: UnixTime) {
        let mut state = self.lock();
        state.spare = std::mem::replace(&mut state.picture, picture);
        state.history.handle_poll_end(slot, now);
    }

    pub(super) fn publish_round(&self, point: api::RoundPoint) {
        self.lock().history.handle_round(point);
    }

    /// A thread that panicked while it held the lock left whole values behind: there is no half-done change in here.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn totals(&self) -> api::Totals {
        let all = &self.picture.all;
        let tally = &all.tally;
        api::Totals {
            connections: tally.connections.into(),
            accepted: tally.accepted.into(),
            connected: tally.connected.into(),
            sending: tally.sending.into(),
            treated: tally.treated.into(),
            holdout: tally.holdout.into(),
            goodput_bits_per_s: all.goodput,
            retransmit_share: all.retransmit_share,
            ..self.picture.totals
        }
    }

    /// The newest decision on each network, of those kept.
    fn last_decisions(&self) -> HashMap<&str, &str> {
        self.decisions.iter().filter_map(|d| Some((d.network.as_deref()?, d.what.as_str()))).collect()
    }
}

/// Replaces what is said about one matter; returns what was.
fn set(said: &mut Vec<(String, String)>, about: &str, text: Option<String>) -> Option<String> {
    let at = said.iter().position(|(name, _)| name == about);
    let before = at.map(|at| said.remove(at).1);
    if let Some(text) = text
        && said.len() < PROBLEMS_MAX
    {
        said.push((about.to_owned(), text));
    }
    before
}

fn ms(time: UnixTime) -> u64 {
    time.as_nanos() / 1_000_000
}

fn describe(round: &tune::Round) -> api::Round {
    let stats = &round.stats;
    api::Round {
        number: round.number.into(),
        time_ms: ms(round.time),
        connections: stats.connections,
        votes: stats.votes(),
        ignored: api::Ignored {
            direction: stats.ignored.direction,
            port: stats.ignored.port,
            small: stats.ignored.small,
            no_metric: stats.ignored.no_metric,
            own_cc: stats.ignored.own_cc,
            limited: stats.ignored.limited,
            washout: stats.ignored.washout,
        },
        networks_known: stats.networks_known.into(),
        judged: stats.judged,
        rounds_missing: stats.rounds_missing.into(),
        selected: stats.selected.into(),
        new: stats.new.into(),
        gone: stats.gone.into(),
        refusal: round.refusal.as_ref().map(ToString::to_string),
        quiet: round.quiet.as_ref().map(ToString::to_string),
        resent: api::Resent {
            treated: round.effects.treated.share(),
            holdout: round.effects.holdout.share(),
            neighbours: round.effects.neighbours.share(),
            others: round.effects.others.share(),
        },
        effect: round.effects.pooled.map(|effect| api::Effect {
            ratio: effect.ratio.into(),
            low: effect.low.into(),
            high: effect.high.into(),
            level: effect.level.into(),
        }),
    }
}
