//! What was typed of uplinks and rules, and what it means.

use weirgate_units::{BitRate, Prefix};

use super::super::read::Problem;
use super::super::shaping::{Names, problem};
use super::super::typed::Maybe;
use super::super::{Namespace, or};
use super::marks::Marks;
use super::words::{Otherwise, TypedGateway, TypedWeight};
use super::{Gateway, NUMBERS, SteerRule, TypedRule, TypedUplink, TypedUplinks, UPLINKS_MAX, Uplink, Uplinks};

/// Each is a chain of its own that new connections may be compared with.
const RULES_MAX: usize = 64;

/// All of an uplink's are asked at once where something seems wrong.
const TARGETS_MAX: usize = 8;

/// Who is asked where nobody is named: public resolvers of three operators, each in many places of the world.
const TARGETS: [&str; 6] =
    ["1.1.1.1", "8.8.8.8", "9.9.9.9", "2606:4700:4700::1111", "2001:4860:4860::8888", "2620:fe::fe"];

pub(in crate::config) fn meaning(typed: TypedUplinks, problems: &mut Vec<Problem>) -> Uplinks {
    let known = Names::read("uplink", typed.uplinks.iter().map(|uplink| (uplink.line, &uplink.name)), problems);
    if let Some(excess) = typed.uplinks.get(UPLINKS_MAX) {
        let what = format!("{} uplinks: at most {UPLINKS_MAX} are told apart", typed.uplinks.len());
        problems.push(problem(excess.line, "uplink", what));
    }
    if let Some(excess) = typed.rules.get(RULES_MAX) {
        let what = format!("{} rules: at most {RULES_MAX} are compared", typed.rules.len());
        problems.push(problem(excess.line, "steer", what));
    }
    let namespace = match typed.namespace {
        None => Namespace::Own,
        Some(name) if name.value == "all" => {
            problems.push(name.problem("uplinks are in one namespace: write \"self\", a name or a path"));
            Namespace::Own
        }
        Some(name) => Namespace::from_name(&name.value),
    };
    same_measure(&typed.uplinks, problems);
    let lines: Vec<usize> = typed.uplinks.iter().map(|uplink| uplink.line).collect();
    let uplinks: Vec<Uplink> = typed.uplinks.into_iter().map(|typed| uplink(typed, problems)).collect();
    for (at, line) in lines.iter().enumerate() {
        let device = &uplinks[at].device;
        let same = |other: &&Uplink| other.device == *device && other.name != uplinks[at].name && !device.is_empty();
        if let Some(other) = uplinks[..at].iter().find(same) {
            let what = format!("`{}` has the same device as `{}`: one uplink is enough", uplinks[at].name, other.name);
            problems.push(problem(*line, "uplink", what));
        }
    }
    let rule_lines: Vec<usize> = typed.rules.iter().map(|rule| rule.line).collect();
    let rules: Vec<SteerRule> = typed.rules.into_iter().filter_map(|typed| rule(typed, &known, problems)).collect();
    let mut all = Uplinks {
        namespace,
        mark_shift: or(typed.marks, Marks::SHIFT_MAX.into()) as u8,
        table: or(typed.table, NUMBERS.into()) as u32,
        priority: or(typed.priority, NUMBERS.into()) as u32,
        inside: or(typed.inside, Vec::new()),
        uplinks,
        rules,
        notes: Vec::new(),
    };
    all.notes = notes(&all, &lines, &rule_lines);
    all
}

/// Weights that are plain numbers say nothing beside rates, measured or typed.
fn same_measure(uplinks: &[TypedUplink], problems: &mut Vec<Problem>) {
    let number = |uplink: &&TypedUplink| {
        uplink.weight.as_ref().is_some_and(|weight| matches!(weight.value, TypedWeight::Number(_)))
    };
    let Some(typed) = uplinks.iter().find(number).and_then(|uplink| uplink.weight.as_ref()) else { return };
    if let Some(other) = uplinks.iter().find(|uplink| !number(uplink)) {
        let name = other.name.as_ref().map_or("another one", |name| name.value.as_str());
        problems.push(typed.problem(format!(
            "a plain number says nothing beside the rate of `{name}`: write rates, as \"50 Mbit/s\", or numbers for all"
        )));
    }
}

fn uplink(typed: TypedUplink, problems: &mut Vec<Problem>) -> Uplink {
    let name = or(typed.name, String::new());
    let device = or(typed.device, name.clone());
    if device.len() > 15 || device.contains(['/', ' ']) {
        let what = format!("`{device}` is no device: write a `device`, as `ip link` names it");
        problems.push(problem(typed.line, "uplink", what));
    }
    let mut gateway = |typed: Maybe<TypedGateway>, is_v4: bool| {
        let Some(typed) = typed else { return Gateway::Auto };
        if let Gateway::At(address) = typed.value.0
            && address.is_ipv4() != is_v4
        {
            let [this, other] = if is_v4 { ["IPv4", "gateway6"] } else { ["IPv6", "gateway"] };
            problems.push(typed.problem(format!("{address} is not of {this}: write it as `{other}`")));
        }
        typed.value.0
    };
    let gateways = [gateway(typed.gateway, true), gateway(typed.gateway6, false)];
    if gateways == [Gateway::None; 2] {
        problems.push(problem(typed.line, "uplink", "neither IPv4 nor IPv6 goes by it: leave it out".into()));
    }
    if let Some(cap) = typed.cap.as_ref().filter(|cap| cap.value == BitRate::ZERO) {
        problems.push(cap.problem("an uplink that may carry nothing takes nothing: leave it out"));
    }
    if let Some(weight) = typed.weight.as_ref().filter(|weight| weight.value.value() == Some(0)) {
        problems.push(weight.problem("an uplink of weight 0 takes nothing: leave it out, or write backup = true"));
    }
    let targets = match typed.targets {
        None => TARGETS.iter().filter_map(|target| target.parse().ok()).collect(),
        Some(targets) => {
            let count = targets.value.len();
            if count == 0 || count > TARGETS_MAX {
                let what = format!(
                    "names {count} targets: write 1 to {TARGETS_MAX}, by which silence is told, or leave the key out"
                );
                problems.push(targets.problem(what));
            }
            targets.value
        }
    };
    let medium = typed.medium.map(|medium| medium.value).filter(|medium| !medium.is_empty());
    Uplink {
        name,
        device,
        gateways,
        weight: typed.weight.and_then(|weight| weight.value.value()),
        cap: typed.cap.map(|cap| cap.value),
        is_metered: or(typed.metered, false),
        is_backup: or(typed.backup, false),
        medium,
        targets,
        masquerade: or(typed.masquerade, true),
        prefixes: or(typed.prefixes, Vec::new()),
    }
}

fn rule(typed: TypedRule, known: &Names, problems: &mut Vec<Problem>) -> Option<SteerRule> {
    let Some(chosen) = &typed.uplinks else {
        let what = "a rule needs `uplinks`: the names of one or more [[uplink]] that its connections go by";
        problems.push(problem(typed.line, "steer", what.into()));
        return None;
    };
    if chosen.value.is_empty() {
        problems.push(chosen.problem("names no uplink: its connections would go nowhere"));
    }
    let mut uplinks: Vec<usize> = Vec::new();
    for name in &chosen.value {
        let Some(at) = known.find(chosen, name, problems) else { continue };
        if uplinks.contains(&at) {
            problems.push(chosen.problem(format!("`{name}` stands there twice")));
        } else {
            uplinks.push(at);
        }
    }
    Some(SteerRule {
        source: typed.source.map(|network| network.value),
        destination: typed.destination.map(|network| network.value),
        protocol: typed.protocol.map(|protocol| protocol.value.0),
        source_ports: typed.source_ports.map(|ports| ports.value.0),
        destination_ports: typed.destination_ports.map(|ports| ports.value.0),
        mark: typed.mark.map(|mark| mark.value.0),
        uplinks,
        is_strict: or(typed.otherwise, Otherwise::Refuse) == Otherwise::Refuse,
    })
}

/// What there is to say, in the order of the file.
fn notes(all: &Uplinks, lines: &[usize], rule_lines: &[usize]) -> Vec<Problem> {
    let mut notes = Vec::new();
    let mut note = |line: usize, key: &str, what: String| notes.push(problem(line, key, what));
    match (all.uplinks.as_slice(), lines) {
        ([only], [line]) => note(
            *line,
            "uplink",
            format!("`{}` is the only uplink: there is nothing to choose from, it is only watched", only.name),
        ),
        ([_, ..], [line, ..]) if all.uplinks.iter().all(|uplink| uplink.is_backup) => {
            note(*line, "uplink", "all uplinks are backups: there is nobody whom they stand in for".into());
        }
        _ => {}
    }
    for (uplink, line) in all.uplinks.iter().zip(lines) {
        if let (Some(weight), Some(cap)) = (uplink.weight, uplink.cap)
            && weight > cap.as_bits_per_sec()
        {
            note(*line, "uplink", format!("`{}` has a `weight`: its `cap` says nothing beside it", uplink.name));
        }
    }
    for (rule, line) in all.rules.iter().zip(rule_lines) {
        let is_v4 = |network: Option<Prefix>| network.map(|network| network.address().is_ipv4());
        let families = is_v4(rule.source).zip(is_v4(rule.destination));
        if families.is_some_and(|(source, destination)| source != destination) {
            note(*line, "steer", "no connection is ever of it: one network is IPv4 and the other IPv6".into());
        }
        let ports = rule.source_ports.or(rule.destination_ports);
        if ports.is_some() && rule.protocol.is_some_and(|protocol| ![6, 17].contains(&protocol)) {
            note(*line, "steer", "no connection is ever of it: only \"tcp\" and \"udp\" have ports".into());
        }
    }
    for (before, (rule, line)) in all.rules.iter().zip(rule_lines).enumerate() {
        let takes_all = |rule: &SteerRule| {
            SteerRule { uplinks: Vec::new(), is_strict: false, ..rule.clone() } == SteerRule::default()
        };
        if takes_all(rule) && before + 1 < all.rules.len() {
            note(*line, "steer", "it takes all connections: nothing is left for the rules behind it".into());
        }
    }
    notes.sort_by_key(|note| note.line);
    notes
}
