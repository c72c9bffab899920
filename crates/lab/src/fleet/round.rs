//! A decision round over a million client networks: what edges have sent by Kafka, in ClickHouse's server of 25.8, after a history that SQL
//! has made there; the real controller with its memory of the rounds before.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use weirgate_linux::clock;
use weirgate_tune::sketch::LN_FACTOR;

use super::controller::{Controller, ROUND_S};
use super::edges::{Sent, TALLIES};
use super::exporter;
use super::ground::{Current, Ground, until};
use crate::process::memory_mb;
use crate::stats::median;

/// Untreated votes of a network in a round.
pub(super) const VOTES: u32 = 12;

/// How much of it.
#[derive(Clone, Copy)]
pub(super) struct Size {
    pub(super) pops: u32,
    pub(super) networks: u32,
    /// Rounds before the one that is measured.
    pub(super) history: u32,
}

/// What was found.
pub(super) struct Found {
    /// Seconds of each measured round, and their median.
    pub(super) rounds_s: Vec<f64>,
    pub(super) round_s: f64,
    pub(super) controller_mb: f64,
    pub(super) controller_cpu_s: f64,
    pub(super) engine_mb: f64,
    pub(super) engine_before_mb: f64,
    pub(super) rows: u64,
    pub(super) votes: u64,
    pub(super) stored_bytes: u64,
    pub(super) stored_rows: u64,
    pub(super) selected: u64,
    /// Tallies of all edges taken in from Kafka, a second.
    pub(super) taken_in_per_s: f64,
    pub(super) fill_s: f64,
    pub(super) history_s: f64,
    pub(super) state_bytes: u64,
    pub(super) snapshot_bytes: u64,
}

/// Takes in what edges have `sent`, fills the server with rounds before that and has the controller decide: the history once, and then the
/// last round three times from the same memory.
pub(super) fn run(ground: &Ground, size: Size, sent: Sent, say: &dyn Fn(String)) -> Result<Found> {
    let engine = Current::start(ground, "round")?;
    let number = |sql: &str| super::ground::count(&engine.url, sql);
    let brokers = exporter::address(ground, "KAFKA")?;
    let start = std::time::Instant::now();
    ground.weirgate(&[
        "store",
        "init",
        "--url",
        &engine.url,
        "--kafka",
        &brokers,
        "--topic",
        exporter::NOTHING,
        "--tallies",
        TALLIES,
    ])?;
    let mut taken = 0;
    while taken < sent.tallies {
        // Patience begins anew with whatever comes.
        until("more of the edges' tallies are taken in", || {
            let before = std::mem::replace(&mut taken, number("SELECT count() FROM weirgate.tallies")?);
            Ok(taken > before)
        })?;
    }
    let taken_in_per_s = sent.tallies as f64 / start.elapsed().as_secs_f64();
    say(format!("{} tallies of {} edges: {taken_in_per_s:.0} a second taken in", sent.tallies, size.pops));
    let last = sent.end;
    // So that the measured round has just ended by the controller's reckoning, and the next one does not while it is decided.
    let settle = (clock::unix().as_secs() - last).saturating_sub(60);
    let start = std::time::Instant::now();
    for round in 0..size.history {
        let end = last - u64::from(size.history - round) * ROUND_S;
        let pop = format!("concat('pop-', leftPad(toString(intDiv(n, {})), 3, '0'))", size.networks);
        engine.ask(&fill(&pop, size, round, (end, ROUND_S)))?;
    }
    let fill_s = start.elapsed().as_secs_f64();
    say(format!("filled in {fill_s:.0} s; deciding {} rounds of history", size.history));
    let controller = Controller::new(ground, "decider", &engine.url, &(0..size.pops).map(name).collect::<Vec<_>>())?;
    let history_s = controller.run(settle + ROUND_S)?.took.as_secs_f64();
    let pristine = ground.path("decider-before");
    fs::rename(controller.state(), &pristine).context("the controller has no memory")?;
    let _ = fs::remove_dir_all(controller.published());

    let engine_before_mb = memory_mb(engine.pid()?, "VmRSS")?;
    // The high-water mark begins anew: proc(5), clear_refs.
    fs::write(format!("/proc/{}/clear_refs", engine.pid()?), "5")?;
    let mut runs = Vec::new();
    for n in 1..=3 {
        let _ = fs::remove_dir_all(controller.state());
        let copied = Command::new("cp").arg("-a").arg(&pristine).arg(controller.state()).status()?;
        ensure!(copied.success(), "the controller's memory cannot be copied");
        let run = controller.run(settle)?;
        let published = fs::read_dir(controller.published())?.count();
        ensure!(published == size.pops as usize, "{published} of {} points of presence published", size.pops);
        ensure!(run.decided == size.pops as usize, "{} rounds decided, not one of each", run.decided);
        say(format!("round {n} of 3: {:.1} s", run.wall_s));
        runs.push(run);
    }
    let engine_mb = memory_mb(engine.pid()?, "VmHWM")?;
    let first = runs.first().context("a round ran")?;
    Ok(Found {
        rounds_s: runs.iter().map(|run| run.wall_s).collect(),
        round_s: median(runs.iter().map(|run| run.wall_s)),
        controller_mb: runs.iter().map(|run| run.peak_mb).fold(0.0, f64::max),
        controller_cpu_s: median(runs.iter().map(|run| run.cpu_s)),
        engine_mb,
        engine_before_mb,
        rows: first.sum("rows="),
        votes: first.sum("votes="),
        stored_bytes: number("SELECT sum(bytes_on_disk) FROM system.parts WHERE active AND table = 'tallies'")?,
        stored_rows: number("SELECT count() FROM weirgate.tallies")?,
        selected: first.sum("selected="),
        taken_in_per_s,
        fill_s,
        history_s,
        state_bytes: bytes_below(&controller.state().join("controller"))?,
        snapshot_bytes: bytes_below(&controller.published())?,
    })
}

/// The name of a point of presence.
pub(super) fn name(pop: u32) -> String {
    format!("pop-{pop:03}")
}

/// The tallies of one round. One network in ten is slow; from round 26 on, by when the controller will have selected it, its
/// connections come in two arms, as an edge reports them. `pop` is the name of network `n`'s point of presence, in SQL. Votes scatter as
/// goodputs do, over some twenty bins of 2 %.
pub(super) fn fill(pop: &str, size: Size, round: u32, (end, length_s): (u64, u64)) -> String {
    let Size { pops, networks, .. } = size;
    let rows = u64::from(pops) * u64::from(networks);
    let arms = if round >= 26 { "if(slow, ['treated', 'holdout'], [''])" } else { "['']" };
    format!(
        "INSERT INTO weirgate.tallies WITH number AS n, sipHash64(n) AS h, sipHash64(n, {round}, arm) AS g, n % 10 = 0 AS slow, \
         toUInt16(if(slow, if(arm = 'treated', 730, 700), 780) + h % 40 + g % 20) AS base, \
         arrayCumSum(arrayMap(i -> toUInt16(1 + bitAnd(bitShiftRight(g, i * 3), 7)), range({VOTES}))) AS steps, \
         {VOTES} * 1000000 + g % 5000000 AS bytes \
         SELECT toDateTime({end}, 'UTC'), fromUnixTimestamp64Nano(toInt64({end} - 30) * 1000000000, 'UTC'), 'edge-1', \
         {pop}, 'b1', \
         concat('10.', toString(intDiv(n % {networks}, 256)), '.', toString(n % {networks} % 256), '.0/24'), arm, \
         if(arm = 'treated', 'bbr', 'cubic'), {VOTES}, bytes, bitOr(h, g), 0, 0, 0, {VOTES}, \
         arraySum(arrayMap(s -> (base + s - 1) * {LN_FACTOR}, steps)), bytes + bytes % 9973, bytes % 9973, {VOTES}, \
         {VOTES} * (20000 + h % 80000), arrayMap(s -> toUInt16(base + s), steps), arrayMap(s -> toUInt32(1), steps), \
         {length_s}, 'goodput' FROM numbers({rows}) ARRAY JOIN {arms} AS arm"
    )
}

fn bytes_below(dir: &Path) -> Result<u64> {
    let sizes = fs::read_dir(dir)?.map(|entry| Ok(entry?.metadata()?.len()));
    sizes.sum()
}
