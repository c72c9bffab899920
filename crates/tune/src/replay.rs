//! The whole decision process over telemetry that was recorded, or made up, as fast as it can be read.

use weirgate_sockets::progress::Progress;
use weirgate_units::UnixTime;

use crate::controller::Controller;
use crate::decision::{Ignored, Loss, Round};
use crate::policy::Policy;

/// Rounds of telemetry, one after the other.
pub trait Telemetry {
    /// Hands over what each connection did in the next round, once per connection, and returns when the round ended;
    /// `None` after the last. `policy` is what the controller has in force, for worlds that answer to it; a record has
    /// its arms in it and does not look.
    fn next_round(&mut self, policy: &Policy, each: &mut dyn FnMut(&Progress)) -> Option<UnixTime>;
}

/// A record: rounds that happened.
#[derive(Debug)]
pub struct Recorded<I>(pub I);

impl<I: Iterator<Item = (UnixTime, Vec<Progress>)>> Telemetry for Recorded<I> {
    fn next_round(&mut self, _: &Policy, each: &mut dyn FnMut(&Progress)) -> Option<UnixTime> {
        let (end, connections) = self.0.next()?;
        connections.iter().for_each(each);
        Some(end)
    }
}

/// What a replay came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// Rounds.
    pub rounds: u32,
    /// Connections handed over.
    pub connections: u64,
    /// Of them, those that voted, counted once a round.
    pub votes: u64,
    /// Those that did not, by the reason.
    pub ignored: Ignored,
    /// Networks selected, each time one was.
    pub selections: u64,
    /// Networks released or rolled back.
    pub departures: u64,
    /// Policies refused.
    pub refusals: u32,
    /// Networks selected at the end.
    pub selected: u32,
}

/// Runs `telemetry` to its end, or until `each` returns false, which sees every round.
pub fn replay(
    controller: &mut Controller,
    telemetry: &mut dyn Telemetry,
    each: &mut dyn FnMut(&Controller, &Round) -> bool,
) -> Summary {
    let mut summary = Summary::default();
    let mut policy = controller.policy().clone();
    while let Some(end) = telemetry.next_round(&policy, &mut |progress| controller.handle_progress(progress)) {
        let round = controller.end_round(end, Some(end));
        summary.add(&round);
        if let Some(new) = &round.policy {
            policy.clone_from(new);
        }
        if !each(controller, &round) {
            break;
        }
    }
    summary
}

impl Summary {
    /// Adds a round to the sums.
    pub fn add(&mut self, round: &Round) {
        let stats = &round.stats;
        self.rounds += 1;
        self.connections += stats.connections;
        self.votes += stats.votes();
        self.ignored += stats.ignored;
        self.selections += u64::from(stats.new);
        self.departures += u64::from(stats.gone);
        self.refusals += u32::from(round.refusal.is_some());
        self.selected = stats.selected;
    }
}

/// The columns of [`csv_line`]. Times are seconds since 1970, rates bit/s, shares 0..1; an empty field is not known.
pub const CSV_HEADER: &str = "round,time,connections,votes,networks_seen,networks_known,networks_tracked,threshold,\
    members,new,gone,selected,refused,effect,effect_low,effect_high,retransmit_treated,retransmit_holdout,\
    retransmit_neighbours,retransmit_others";

/// One round as a line of CSV without its end. `new` over `round` is the article's figure 2; threshold and members are
/// those of the first rule.
pub fn csv_line(round: &Round) -> String {
    let s = &round.stats;
    let e = &round.effects;
    let votes = s.votes();
    let threshold = s.thresholds.first().copied().flatten().map_or(String::new(), |t| t.as_bits_per_sec().to_string());
    let effect = e.pooled.map_or(",,".to_owned(), |p| format!("{:.4},{:.4},{:.4}", p.ratio, p.low, p.high));
    let loss = |l: Loss| l.share().map_or(String::new(), |s| format!("{s:.6}"));
    format!(
        "{},{},{},{votes},{},{},{},{threshold},{},{},{},{},{},{effect},{},{},{},{}",
        round.number,
        round.time.as_secs(),
        s.connections,
        s.networks_seen,
        s.networks_known,
        s.networks_tracked,
        s.members.first().copied().unwrap_or(0),
        s.new,
        s.gone,
        s.selected,
        u8::from(round.refusal.is_some()),
        loss(e.treated),
        loss(e.holdout),
        loss(e.neighbours),
        loss(e.others),
    )
}
