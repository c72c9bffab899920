//! Answers to `weirgate tune status` and `explain`, as JSON documents; the command line makes text of them.

use serde_json::{Value, json};
use weirgate_linux::bpf::steer::SteerCounters;
use weirgate_sockets::sample::CcName;
use weirgate_tune::decision::{Design, NetworkEffect};
use weirgate_tune::effect::Effect;
use weirgate_tune::{Config, Controller, Explanation};
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
        "fleet": status.fleet,
        "round": status.round,
        "round_interval_ms": status.facts.round_interval_ms,
        "known_rounds_min": status.facts.known_rounds_min,
        "without_a_vote": controller.ignored().to_string(),
        "networks": controller.network_effects().map(|effect| network(&effect)).collect::<Vec<_>>(),
        "kernel": counters.map(kernel),
        "problems": status.problems,
    })
}

/// What is to be known of rules that choose what connections start on anyway, where there are any.
pub(crate) fn idle_rules(settings: &Config, baseline: &CcName) -> Option<String> {
    let names: Vec<String> = settings.coinciding(baseline).map(|rule| format!("`{}`", rule.name)).collect();
    let (subject, object) = match names.len() {
        0 => return None,
        1 => ("rule", "chooses"),
        _ => ("rules", "choose"),
    };
    let all = names.len() == settings.rules.len();
    let end = if all { "nothing is decided" } else { "no network is selected by it" };
    Some(format!(
        "{subject} {} {object} {baseline}, which is the default here already: {end}; name another `cc` in [[tune.rules]], or \
         another [tune] default_cc",
        names.join(", ")
    ))
}

/// The answer to `tune explain`; also given from the saved state, without a daemon.
pub(crate) fn explain(controller: &Controller, text: &str) -> Reply {
    let prefix: Prefix = match text.parse() {
        Ok(prefix) => prefix,
        Err(error) => return Reply::Error(format!("{error}")),
    };
    let config = controller.config();
    let (v4, v6) = (config.network_len_v4, config.network_len_v6);
    let len = if prefix.address().is_ipv4() { v4 } else { v6 };
    if prefix.len() < len {
        return Reply::Error(format!(
            "{prefix} holds many client networks, which are /{v4} (IPv4) and /{v6} (IPv6) here: name one, as {}, or an address",
            Prefix::of(prefix.address(), len)
        ));
    }
    Reply::Ok(explanation(&controller.explain(Prefix::of(prefix.address(), len))))
}

fn explanation(explanation: &Explanation) -> Value {
    json!({
        "network": explanation.network.to_string(),
        "tracked": explanation.tracked,
        "selected": explanation.selected.map(|cc| cc.to_string()),
        "applied": explanation.applied,
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

#[cfg(test)]
mod tests {
    use weirgate_tune::{Host, Rule};

    use super::*;

    fn explained(text: &str) -> Result<String, String> {
        let controller = Controller::new(Config::default(), Host::default()).unwrap();
        match explain(&controller, text) {
            Reply::Ok(answer) => Ok(answer["network"].as_str().unwrap().to_owned()),
            Reply::Error(why) => Err(why),
        }
    }

    #[test]
    fn rules_that_choose_the_default_are_said_to_decide_nothing() {
        let [bbr, cubic] = ["bbr", "cubic"].map(|name| CcName::new(name).unwrap());
        let mut settings = Config::default();
        assert_eq!(idle_rules(&settings, &cubic), None);
        let said = idle_rules(&settings, &bbr).unwrap();
        assert!(
            said.starts_with("rule `worst` chooses bbr, which is the default here already: nothing is decided"),
            "{said}"
        );
        settings.rules.push(Rule::clean_and_short(cubic));
        assert!(idle_rules(&settings, &cubic).unwrap().contains("no network is selected by it"));
    }

    #[test]
    fn an_address_is_explained_as_its_network_and_a_larger_range_is_refused() {
        assert_eq!(explained("10.0.0.1").unwrap(), "10.0.0.0/24");
        assert_eq!(explained("2001:db8:0:1::7").unwrap(), "2001:db8::/56");
        assert_eq!(explained("10.0.0.0/24").unwrap(), "10.0.0.0/24");
        let why = explained("127.0.0.0/16").unwrap_err();
        assert!(why.contains("/24") && why.contains("as 127.0.0.0/24"), "{why}");
        assert!(explained("2001:db8::/32").unwrap_err().contains("as 2001:db8::/56"));
    }
}
