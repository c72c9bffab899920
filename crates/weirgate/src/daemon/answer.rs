//! Answers to `weirgate tune status` and `explain`, as JSON documents; the command line makes text of them.

use serde_json::{Value, json};
use weirgate_linux::bpf::steer::SteerCounters;
use weirgate_tune::decision::{Design, NetworkEffect};
use weirgate_tune::effect::Effect;
use weirgate_tune::{Controller, Explanation};
use weirgate_units::Prefix;

use crate::control::Reply;
use crate::view::api;

pub(crate) fn status(status: &api::Status, controller: &Controller, counters: Option<SteerCounters>) -> Value {
    let baseline = controller.baseline();
    let coinciding: Vec<&str> = baseline
        .as_ref()
        .map(|cc| controller.config().coinciding(cc).map(|rule| rule.name.as_str()).collect())
        .unwrap_or_default();
    json!({
        "mode": status.facts.mode,
        "steering": { "by": status.facts.steering.name, "why": status.facts.steering.why },
        "default_cc": baseline.map(|cc| cc.to_string()),
        "rules_that_choose_the_default": coinciding,
        "policy": status.policy,
        "round": status.round,
        "networks": controller.network_effects().map(|effect| network(&effect)).collect::<Vec<_>>(),
        "kernel": counters.map(kernel),
        "problems": status.problems,
    })
}

/// The answer to `tune explain`; also given from the saved state, without a daemon.
pub(crate) fn explain(controller: &Controller, text: &str) -> Reply {
    let prefix: Prefix = match text.parse() {
        Ok(prefix) => prefix,
        Err(error) => return Reply::Error(format!("{error}")),
    };
    Reply::Ok(explanation(&controller.explain(prefix)))
}

fn explanation(explanation: &Explanation) -> Value {
    json!({
        "network": explanation.network.to_string(),
        "tracked": explanation.tracked,
        "selected": explanation.selected.map(|cc| cc.to_string()),
        "since_round": explanation.since,
        "barred_until_round": explanation.barred_until,
        "known_rounds": explanation.known,
        "window_rounds": explanation.window,
        "rules": explanation.rules.iter().map(|rule| json!({
            "name": rule.name, "duty": rule.duty, "flaps": rule.flaps,
        })).collect::<Vec<_>>(),
        "rounds": explanation.rounds.iter().map(|round| json!({
            "round": round.round,
            "time_s": round.time.as_secs(),
            "known": round.known,
            "in_group": round.groups,
            "votes": round.votes.map(|(votes, _)| votes),
            "median_bits_per_s": round.votes.map(|(_, median)| median.as_bits_per_sec()),
            "threshold_bits_per_s": round.threshold.map(|rate| rate.as_bits_per_sec()),
        })).collect::<Vec<_>>(),
        "last_decision": explanation.last.map(|(round, decision)| json!({
            "round": round, "what": decision.what.to_string(), "why": decision.why.in_words(&explanation.rule_names()),
        })),
        "effect": explanation.effect.as_ref().map(network),
        "standing": explanation.standing,
        "text": explanation.to_string(),
    })
}

fn network(one: &NetworkEffect) -> Value {
    json!({
        "network": one.network.to_string(),
        "cc": one.cc.to_string(),
        "compared": match one.design { Design::Holdout => "with a holdout", Design::Switchback => "in time" },
        "goodput": one.goodput.as_ref().map(effect),
        "retransmit_treated": one.retransmit_treated,
        "retransmit_holdout": one.retransmit_holdout,
        "blocks": one.blocks,
    })
}

fn effect(effect: &Effect) -> Value {
    json!({ "ratio": effect.ratio, "low": effect.low, "high": effect.high, "level": effect.level })
}

fn kernel(counters: SteerCounters) -> Value {
    json!({
        "matched": counters.matched,
        "treated": counters.treated,
        "held_out": counters.held_out,
        "left_alone": counters.exempt,
        "responses_switched": counters.switched,
        "responses_returned": counters.returned,
        "starts_capped": counters.capped,
        "connections_unpaced": counters.unpaced,
        "expired": counters.expired,
        "failed": counters.failed,
        "below_threshold_while_switched": counters.violations,
    })
}
