//! `multipath`: a host with several uplinks that are not alike, and what one transfer over all of them gets of their sum: `weirgate send`,
//! many TCP connections that are pinned to one each or that the daemon steers, and the kernel's MPTCP, beside each uplink alone.

mod brief;
mod datagrams;
mod ground;
mod own;
mod peers;
mod sets;
mod steering;
mod tcp;
mod transfer;
mod tunnel;

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use serde_json::json;

use self::ground::Ground;
use self::peers::Peer;
use self::sets::{Set, sets};
use self::transfer::Sent;
use self::tunnel::Tunnel;
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::machine::CpuTimes;
use crate::net::AllowedCongestion;
use crate::report::{Report, Table, number};

/// Congestion controls of the kernel's that single connections have.
const CONTROLS: [&str; 2] = ["cubic", "bbr"];

/// What is tried on each uplink alone.
const SINGLES: [&str; 3] = ["cubic", "bbr", "spray"];

/// Other programs.
const PEERS: [&str; 2] = ["Aggligator", "TQUIC"];

/// What a single connection has of a clean uplink's rate, at least: of 1,500 bytes 1,448 are TCP's payload.
const SHAPED: f64 = 0.92;

/// The kernel's MPTCP: congestion control, and how many bytes its buffers grow to: those that every arm has, and Linux's default.
const MPTCP: [(&str, &str, u64); 4] = [
    ("MPTCP CUBIC", "cubic", ground::BUFFERS),
    ("MPTCP BBR", "bbr", ground::BUFFERS),
    ("MPTCP CUBIC, buffers of 6 MiB", "cubic", 6 << 20),
    ("MPTCP BBR, buffers of 6 MiB", "bbr", 6 << 20),
];

/// TCP connections that are pinned, over all uplinks.
const PINNED: usize = 20;

/// An object is begun when all paths have been there for so long.
const SETTLES_MS: u64 = 300;

/// What one set of uplinks gave, in Mbit/s of payload.
#[derive(Default)]
struct Measured {
    /// By uplink: one connection of each kind.
    singles: Vec<BTreeMap<&'static str, f64>>,
    /// Of the best of them.
    sum: f64,
    pinned: f64,
    mptcp: BTreeMap<&'static str, f64>,
    spray: f64,
    downs: u64,
    silences: u64,
    /// One TCP connection through the tunnel.
    tunnel: f64,
    /// Aggligator and TQUIC.
    peers: [Peer; 2],
    /// Processor time for each Gbit: of the two sides of spray and of the tunnel, and of the whole machine in each arm.
    sides: [f64; 2],
    machine: BTreeMap<&'static str, f64>,
    /// The same for the single connections, by uplink.
    singles_machine: Vec<BTreeMap<&'static str, f64>>,
}

impl Measured {
    /// What these uplinks have: of each the best single one; on clean ones no less than `SHAPED` of their rates.
    fn sum_of(&self, set: &Set, uplinks: &[usize]) -> f64 {
        let best = |at: &usize| self.singles[*at].values().copied().fold(0.0, f64::max);
        let sum = uplinks.iter().map(best).sum::<f64>();
        let shaped = uplinks.iter().map(|at| set.links[*at].mbit as f64).sum::<f64>() * SHAPED;
        if set.is_clean() { sum.max(shaped) } else { sum }
    }
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "multipath", "One transfer over unlike uplinks");
    let full = options.form == Form::Full;
    let seconds = if full { 30 } else { 4 };
    let _allowed = AllowedCongestion::widen(&CONTROLS)?;
    let dir = options.dir("multipath")?;
    let wanted: Vec<Set> = sets().into_iter().filter(|set| full || set.is_quick).collect();
    let mut all = Vec::new();
    for set in &wanted {
        options.say(set.name);
        let ground = Ground::new(set, options.seed)?;
        let one = measure(options, &ground, set, seconds, &dir)?;
        let shares = [one.spray, one.tunnel].map(|mbit| number(mbit / one.sum * 100.0));
        options.say(format!(
            "the sum is {} Mbit/s: spray {} %, the tunnel {} %",
            number(one.sum),
            shares[0],
            shares[1]
        ));
        all.push(one);
    }
    let article_set = wanted.iter().find(|set| set.name == sets::ARTICLE).context("the article's uplinks")?;
    let ground = Ground::new(article_set, options.seed)?;
    let every: Vec<usize> = (0..article_set.links.len()).collect();
    options.say("steering");
    let steered = steering::run(options, &ground, article_set, seconds, &dir)?;
    options.say("UDP");
    let article = wanted.iter().zip(&all).find(|(set, _)| set.name == sets::ARTICLE);
    let (_, article) = article.context("the article's uplinks")?;
    let udp = datagrams::run(options, &ground, &every, article.sum, seconds, &dir)?;
    let counts = if full { [11, 5] } else { [3, 1] };
    let brief = brief::run(options, &ground, article_set, article, counts, &dir)?;
    let mut expectations = Expectations::of("multipath")?;
    expectations.measured("object_10mb_s", brief.object)?;
    expectations.measured("object_10mb_cold_s", brief.cold)?;
    expectations.measured("blackhole_stall_ms", brief.stall.max(brief.gap))?.explanation =
        Some(format!("spray {} ms, the tunnel {} ms", number(brief.stall), number(brief.gap)));
    let share = |one: &Measured| one.spray / one.sum * 100.0;
    let of = |name: &str| wanted.iter().position(|set| set.name == name).map(|at| &all[at]);
    let worst = all.iter().map(share).fold(f64::INFINITY, f64::min);
    expectations.measured("spray_worst_share_of_sum_pct", worst)?;
    let tunnel_share = |one: &Measured| one.tunnel / one.sum * 100.0;
    let worst = all.iter().map(tunnel_share).fold(f64::INFINITY, f64::min);
    expectations.measured("tunnel_worst_share_of_sum_pct", worst)?;
    expectations.measured("spray_article_share_of_sum_pct", share(article))?;
    expectations.measured("tunnel_article_share_of_sum_pct", tunnel_share(article))?;
    let fiber = of(sets::FIBER).context("fiber and LTE")?;
    expectations.measured("fiber_lte_share_of_sum_pct", share(fiber).min(tunnel_share(fiber)))?.explanation =
        Some(format!("spray {} %, the tunnel {} %", number(share(fiber)), number(tunnel_share(fiber))));
    expectations.measured("steering_share_of_sum_pct", steered.mbit / article.sum * 100.0)?;
    expectations.measured("silent_uplink_new_flow_ms", steered.last_new_flow_ms)?;
    expectations.measured("false_path_deaths", all.iter().map(|one| one.downs).sum::<u64>() as f64)?;

    let payload =
        ["uplinks", "sum of the best single ones", "spray", "spray, %", "its paths silent, times", "tunnel, %"];
    let rivals = ["pinned TCP"].into_iter().chain(MPTCP.map(|(name, ..)| name)).chain(PEERS);
    let heads: Vec<String> =
        payload.into_iter().map(str::to_owned).chain(rivals.clone().map(|arm| format!("{arm}, %"))).collect();
    let mut table = Table::new("Payload, Mbit/s", &heads.iter().map(String::as_str).collect::<Vec<_>>());
    let arms: Vec<&str> = ["spray", "tunnel"].into_iter().chain(rivals).collect();
    let sides = ["uplinks", "the two sides of spray", "of the tunnel"];
    let heads = [&sides[..], &arms[..]].concat();
    let mut cost_table =
        Table::new("Processor time of the whole machine, the links' own included, core per Gbit/s", &heads);
    let mut single_table = Table::new(
        "One connection on one uplink, Mbit/s, and what it costs the machine, core per Gbit/s",
        &["uplinks", "uplink", "TCP CUBIC", "CUBIC's cost", "TCP BBR", "BBR's cost", "spray", "spray's cost"],
    );
    for (set, one) in wanted.iter().zip(&all) {
        let of_sum = |rate: f64| number(rate / one.sum * 100.0);
        let mut row = vec![
            set.name.to_owned(),
            number(one.sum),
            number(one.spray),
            number(share(one)),
            one.silences.to_string(),
            of_sum(one.tunnel),
        ];
        row.push(of_sum(one.pinned));
        row.extend(MPTCP.map(|(name, ..)| of_sum(one.mptcp[name])));
        row.extend(one.peers.map(|peer| peer.of(one.sum)));
        table.rows.push(row);
        let machine = arms.iter().map(|arm| one.machine.get(arm).map_or_else(|| "-".to_owned(), |cost| number(*cost)));
        let costs = one.sides.into_iter().map(number).chain(machine);
        cost_table.rows.push([set.name.to_owned()].into_iter().chain(costs).collect());
        for (at, link) in set.links.iter().enumerate() {
            let rates = SINGLES.map(|kind| [one.singles[at][kind], one.singles_machine[at][kind]].map(number));
            single_table.rows.push([vec![set.name.to_owned(), link.name()], rates.concat()].concat());
        }
    }
    let after = steering::SETTLES;
    report.finish(
        format!(
            "A client with an emulated link for each uplink, and a server with one address. Each arm sends for {seconds} s, its beginning \
             included, `weirgate send` a file of what the uplinks carry in that time: one TCP connection or `weirgate send` on one uplink, \
             {PINNED} TCP connections pinned to uplinks by their rates, the kernel's MPTCP with an endpoint for each uplink, `weirgate send` \
             over all, and one TCP connection through `weirgate tunnel` over all. The sum is that of each uplink's best single one, and on \
             clean uplinks no less than {SHAPED} of their rates. Buffers of the kernel's TCP go up to 64 MiB, where nothing else is said. Steering is measured on the article's uplinks: {PINNED} connections that nobody pins, counted \
             after {after} s; then the fastest uplink becomes a black hole while a new connection begins every 20 ms. The object and the outage \
             are measured by the library, on the article's uplinks: from the first datagram, all paths being there for 300 ms, to the last byte \
             written, the median; cold, by the two commands, from one's start to its end; and over a TCP \
             connection that has been there for as long. The outage is of the fastest uplink, both ways: until \
             goodput, in windows of 50 ms, is nine tenths of the others' sum, and stays so; for a TCP connection, through the \
             tunnel or of MPTCP, the longest time in the 3 s from then on in which nothing came. \
             UDP: datagrams of 1,200 bytes at nine tenths of the sum, {PINNED} flows, each by one path, and one flow sprayed, counted after 5 s. \
             Aggligator's tunnel carries one TCP connection, too, and TQUIC's own programs fetch a file of half as much, with each link reversed, \
             where they are installed."
        ),
        json!({ "seconds": seconds, "pinned": PINNED }),
        expectations,
        vec![table, single_table, cost_table, steered.table(article.sum), udp, brief.table()],
    )
}

fn measure(options: &Options, ground: &Ground, set: &Set, seconds: u64, dir: &std::path::Path) -> Result<Measured> {
    let mut measured = Measured::default();
    let time = seconds as f64;
    for at in 0..set.links.len() {
        let (mut single, mut machine) = (BTreeMap::new(), BTreeMap::new());
        for control in CONTROLS {
            let (mbit, cost) = cost(|| Ok((tcp::pinned(ground, &[at], control, seconds)?, time)))?;
            single.insert(control, mbit);
            machine.insert(control, cost);
        }
        let (mbit, cost) =
            cost(|| transfer::run(options, ground, &[at], seconds, dir).map(|sent| (sent.mbit, sent.seconds)))?;
        single.insert("spray", mbit);
        machine.insert("spray", cost);
        measured.singles.push(single);
        measured.singles_machine.push(machine);
    }
    // Each uplink has one at least, and the others by their rates.
    let rates: Vec<f64> = set.links.iter().map(|link| link.mbit as f64).collect();
    let total: f64 = rates.iter().sum();
    let every: Vec<usize> = (0..rates.len()).collect();
    measured.sum = measured.sum_of(set, &every);
    let mut pins = every.clone();
    while pins.len() < PINNED {
        let lacks =
            |at: usize| rates[at] / total - pins.iter().filter(|pin| **pin == at).count() as f64 / PINNED as f64;
        let next = (0..rates.len()).max_by(|a, b| lacks(*a).total_cmp(&lacks(*b))).context("an uplink")?;
        pins.push(next);
    }
    let (mbit, pinned) = cost(|| Ok((tcp::pinned(ground, &pins, "bbr", seconds)?, time)))?;
    measured.pinned = mbit;
    measured.machine.insert("pinned TCP", pinned);
    for (name, control, buffers) in MPTCP {
        ground.set_buffers(buffers)?;
        let (mbit, cost) = cost(|| Ok((tcp::multipath(ground, control, seconds)?, time)))?;
        measured.mptcp.insert(name, mbit);
        measured.machine.insert(name, cost);
    }
    ground.set_buffers(ground::BUFFERS)?;
    let (mbit, spray) = cost(|| {
        let Sent { mbit, seconds, downs, silences, core_per_gbit } =
            transfer::run(options, ground, &every, seconds, dir)?;
        (measured.downs, measured.silences, measured.sides[0]) = (downs, silences, core_per_gbit);
        Ok((mbit, seconds))
    })?;
    measured.spray = mbit;
    measured.machine.insert("spray", spray);
    let tunnel = Tunnel::new(options, ground, &every, dir)?;
    let (mbit, through) = cost(|| {
        let (mbit, core_per_gbit) = tunnel.run(seconds)?;
        measured.sides[1] = core_per_gbit;
        Ok((mbit, time))
    })?;
    measured.downs += tunnel.downs()?;
    drop(tunnel);
    measured.tunnel = mbit;
    measured.machine.insert("tunnel", through);
    let bytes = (measured.sum * 1e6 / 16.0 * time) as u64;
    for (at, name) in PEERS.into_iter().enumerate() {
        let before = CpuTimes::now().busy();
        // One can only fetch.
        ground.set_reversed(at == 1)?;
        let peer = match at {
            0 => peers::aggligator(ground, seconds)?,
            _ => peers::tquic(ground, every.len(), bytes, seconds, dir)?,
        };
        if let Peer::Mbit(mbit) = peer {
            let spent = CpuTimes::now().busy().saturating_sub(before).as_secs_f64();
            let gbit = if at == 0 { mbit * time / 1e3 } else { bytes as f64 * 8.0 / 1e9 };
            measured.machine.insert(name, spent / gbit);
        }
        measured.peers[at] = peer;
    }
    ground.set_reversed(false)?;
    Ok(measured)
}

/// What an arm gives, which says its Mbit/s and for how many seconds, and what that cost the machine, in cores for a Gbit/s.
fn cost(arm: impl FnOnce() -> Result<(f64, f64)>) -> Result<(f64, f64)> {
    let before = CpuTimes::now().busy();
    let (mbit, took) = arm()?;
    let spent = CpuTimes::now().busy().saturating_sub(before).as_secs_f64();
    Ok((mbit, spent / (mbit * took / 1e3)))
}
