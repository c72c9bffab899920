//! `weirgate tune`: asks the running daemon, or the state it saved.

use anyhow::anyhow;
use clap::{Args, Subcommand};
use serde_json::Value;
use weirgate_linux::clock;
use weirgate_tune::Host;
use weirgate_units::Duration;

use super::output::{self, Output};
use super::replay::Replay;
use super::{Common, Failure, ask};
use crate::control::{CallError, Reply, Request, call};
use crate::daemon::{answer, books};

#[derive(Debug, Args)]
pub(super) struct Tune {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// The policy in force, the last round, and what the treatment does
    Status(Plain),
    /// One client network: its history, votes, duty, flaps, the decision and the reason
    Explain {
        /// The network, as 192.0.2.0/24, or an address in it
        #[arg(value_name = "PREFIX")]
        network: String,
        #[command(flatten)]
        plain: Plain,
    },
    /// The whole decision process over recorded or made-up telemetry, as fast as it can be read
    Replay(Box<Replay>),
    /// Apply decisions from now on, until the daemon ends
    Apply(Plain),
    /// Take everything applied back now, and only show decisions from now on
    Clear(Plain),
}

#[derive(Debug, Args)]
struct Plain {
    #[command(flatten)]
    common: Common,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Tune {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self.what {
            What::Status(plain) => {
                let answer = ask(&plain.common.load()?, &Request::TuneStatus)?;
                if plain.json { Ok(out.json(&answer)?) } else { status(&answer, out) }
            }
            What::Explain { network, plain } => {
                let answer = explain(&plain.common, network)?;
                if plain.json { Ok(out.json(&answer)?) } else { Ok(out.line(text(&answer["text"]).trim_end())?) }
            }
            What::Replay(replay) => replay.run(out),
            What::Apply(plain) => change(&plain, &Request::TuneApply, out),
            What::Clear(plain) => change(&plain, &Request::TuneClear, out),
        }
    }
}

fn change(plain: &Plain, request: &Request, out: &mut Output) -> Result<(), Failure> {
    let answer = ask(&plain.common.load()?, request)?;
    if plain.json {
        return Ok(out.json(&answer)?);
    }
    for line in answer["said"].as_array().into_iter().flatten() {
        out.line(text(line))?;
    }
    Ok(())
}

/// From the daemon; where none runs, from what it saved.
fn explain(common: &Common, network: String) -> Result<Value, Failure> {
    let config = common.load()?;
    let prefix = network.parse::<weirgate_units::Prefix>();
    if let Err(error) = prefix {
        return Err(Failure::Usage(error.into()));
    }
    let request = Request::TuneExplain { network: network.clone() };
    match call(&config.control, &request) {
        Ok(answer) => Ok(answer),
        Err(CallError::Nobody { .. }) if config.controller().exists() => {
            say!("weirgate: no daemon runs: this is from {}", config.controller().display());
            let (controller, problem) = books::controller(&config, Host::default(), &config.controller());
            if let Some(problem) = problem {
                return Err(Failure::Work(anyhow!(problem)));
            }
            match answer::explain(&controller, &network) {
                Reply::Ok(answer) => Ok(answer),
                Reply::Error(why) => Err(Failure::Work(anyhow!(why))),
            }
        }
        Err(error) => Err(error.into()),
    }
}

fn status(answer: &Value, out: &mut Output) -> Result<(), Failure> {
    out.line(&format!("mode      {}", text(&answer["mode"])))?;
    out.line(&format!("steering  {}: {}", text(&answer["steering"]["by"]), text(&answer["steering"]["why"])))?;
    let policy = &answer["policy"];
    out.line(&format!(
        "policy    version {}, {} networks, {}",
        policy["version"],
        policy["networks"],
        if policy["applied"] == true { "applied" } else { "not applied" }
    ))?;
    if let Some(fleet) = answer["fleet"].as_object() {
        out.line(&format!("fleet     {}", obeyed(policy, fleet)))?;
        out.line("          what follows is what this host would decide itself")?;
    }
    out.line(&format!("default   {}", answer["default_cc"].as_str().unwrap_or("not known")))?;
    for rule in answer["rules_that_choose_the_default"].as_array().into_iter().flatten() {
        out.line(&format!("          rule `{}` chooses the default itself: it decides nothing here", text(rule)))?;
    }
    round(answer, out)?;
    if let Some(kernel) = answer["kernel"].as_object() {
        let counts: Vec<String> = kernel.iter().map(|(name, n)| format!("{} {n}", name.replace('_', " "))).collect();
        out.line(&format!("kernel    {}", counts.join(", ")))?;
    }
    for problem in answer["problems"].as_array().into_iter().flatten() {
        out.line(&format!("problem   {}", text(problem)))?;
    }
    networks(answer, out)
}

/// What a host obeys of its fleet's controller.
fn obeyed(policy: &Value, fleet: &serde_json::Map<String, Value>) -> String {
    let obeyed = match (policy["fleet_version"].as_u64(), policy["fleet_until_ms"].as_u64()) {
        (Some(version), Some(until)) => {
            let left = until.saturating_sub(clock::unix().as_nanos() / 1_000_000) / 1_000;
            format!("obeys its version {version}, for {left} s more unless another comes")
        }
        _ => "obeys nothing: no policy of its controller's is alive".to_owned(),
    };
    let refused = fleet["refused"].as_object().into_iter().flatten().filter(|(_, n)| n.as_u64() > Some(0));
    let refused: Vec<String> = refused.map(|(why, n)| format!("{n} {}", why.replace('_', " "))).collect();
    if refused.is_empty() { obeyed } else { format!("{obeyed}; refused: {}", refused.join(", ")) }
}

/// The last round.
fn round(answer: &Value, out: &mut Output) -> Result<(), Failure> {
    let round = &answer["round"];
    if round.is_null() {
        return Ok(out.line(&format!("round     none yet; {}", first_selection(answer, 0)))?);
    }
    out.line(&format!(
        "round     {}: {} connections, {} votes, {} networks known, {} selected ({} new, {} gone)",
        round["number"],
        round["connections"],
        round["votes"],
        round["networks_known"],
        round["selected"],
        round["new"],
        round["gone"]
    ))?;
    let ignored = text(&answer["without_a_vote"]);
    if !ignored.is_empty() {
        out.line(&format!("          no vote on their network: {ignored}"))?;
    }
    if round["judged"] == false {
        out.line("          nothing is judged with fewer than [tune] networks_min networks known")?;
    }
    if let Some(missing) = round["rounds_missing"].as_u64().filter(|missing| *missing > 0) {
        out.line(&format!("          {}", first_selection(answer, missing)))?;
    }
    if let Some(refusal) = round["refusal"].as_str() {
        out.line(&format!("          refused: {refusal}"))?;
    }
    if let Some(quiet) = round["quiet"].as_str() {
        out.line(&format!("          nothing was changed: {quiet}"))?;
    }
    let resent = |group: &str| output::share(round["resent"][group].as_f64());
    out.line(&format!(
        "resent    treated {}, held out {}, untreated neighbours {}, other untreated {}",
        resent("treated"),
        resent("holdout"),
        resent("neighbours"),
        resent("others")
    ))?;
    if !round["effect"].is_null() {
        out.line(&format!("effect    treated / held out: {}", effect(&round["effect"])))?;
    }
    Ok(())
}

/// Those that are selected.
fn networks(answer: &Value, out: &mut Output) -> Result<(), Failure> {
    let shown_only = answer["mode"] == "observe";
    let row = |one: &Value| {
        vec![
            text(&one["network"]).to_owned(),
            text(&one["cc"]).to_owned(),
            if shown_only { "-" } else { text(&one["compared"]) }.to_owned(),
            if one["goodput"].is_null() { "-".to_owned() } else { effect(&one["goodput"]) },
            output::share(one["retransmit_treated"].as_f64()),
            output::share(one["retransmit_holdout"].as_f64()),
        ]
    };
    let rows: Vec<Vec<String>> = answer["networks"].as_array().into_iter().flatten().map(row).collect();
    if !rows.is_empty() {
        out.line("")?;
        let gets = if shown_only { "would get" } else { "gets" };
        let heads = ["network", gets, "compared", "goodput treated / held out", "resent", "resent, held out"];
        out.table(&heads, &rows)?;
    }
    Ok(())
}

/// What comes before the first selection: rounds, of which so many are `missing`; 0 where that is not known yet.
fn first_selection(answer: &Value, missing: u64) -> String {
    let round = Duration::from_millis(answer["round_interval_ms"].as_u64().unwrap_or(0));
    let needed =
        format!("a network is judged in {} rounds of {round} before it is selected", answer["known_rounds_min"]);
    match missing {
        0 => needed,
        _ => format!("{needed}: in {} at the earliest", round.saturating_mul(missing)),
    }
}

fn effect(effect: &Value) -> String {
    let number = |name: &str| effect[name].as_f64().unwrap_or(f64::NAN);
    format!(
        "{:.2} ({:.2} to {:.2} at {:.0} %)",
        number("ratio"),
        number("low"),
        number("high"),
        number("level") * 100.0
    )
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or("")
}
