//! `cargo bench -p weirgate-tune [-- NETWORKS]`: whole rounds at a million networks (or as many as are asked for), from tallies in memory to
//! decisions, as a fleet's controller has them: nanoseconds per vote and per network, and the memory that it takes at its peak.
//! Bound: a round in 30 s.
//!
//! Measured on two virtual processors of an Intel Xeon (of no name beyond that), other work beside it, five votes of each of a million
//! networks a round and 100,000 networks selected: 0.50 to 0.79 s a round, 100 to 165 ns a vote, 510 to 810 ns a network, half of it to
//! count the tallies. Memory without the tallies themselves: 430 B a network at its peak, 268 B between rounds; 120 B saved.
//!
//! Plain and not Criterion's: one iteration takes seconds, and what is asked for is an order of magnitude.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock, the crate does not")]

use std::time::Instant;

use weirgate_sockets::sample::CcName;
use weirgate_tune::replay::Telemetry;
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_tune::{Config, Controller, Host, Tallies, Tally};
use weirgate_units::UnixTime;

/// Connections of a network in a round, each a vote.
const CONNECTIONS: u32 = 5;
const ROUNDS: u32 = 12;

fn main() {
    let networks: u32 = std::env::args().filter_map(|a| a.parse().ok()).next().unwrap_or(1_000_000);
    let cc = |name: &[u8]| CcName::from_kernel(name);
    let host = Host { available_cc: vec![cc(b"cubic"), cc(b"bbr")], system_cc: Some(cc(b"cubic")) };
    // Selected in the fifth round, blocks closed from then on.
    let config = Config {
        networks_max: 2_000_000,
        window_rounds: 16,
        known_enter_min: 4,
        epoch_rounds: 2,
        switchback_rounds: 2,
        ..Config::default()
    };
    let mut world = Synthetic::new(Scenario { connections: CONNECTIONS, ..Scenario::mixed(networks, ROUNDS, 1) });
    let mut controller = Controller::new(config.clone(), host).expect("the settings above are within bounds");
    let (start, mut input, mut worst, mut peak, mut books) = (memory_kb("VmRSS:"), None, 0.0f64, 0, 0);
    while let Some((end, tallies)) = next(&mut world, &controller, &config) {
        // What else there is in memory: about the same in each round.
        let input = *input.get_or_insert_with(|| memory_kb("VmRSS:") - start) + start;
        // Forgets the peak of what made the input.
        std::fs::write("/proc/self/clear_refs", "5").expect("Linux lets a process forget its own peak");
        let began = Instant::now();
        tallies.iter().for_each(|tally| controller.handle_tally(tally));
        let counted_s = began.elapsed().as_secs_f64();
        let round = controller.end_round(end, Some(end));
        let took_s = began.elapsed().as_secs_f64();
        (peak, books) = (peak.max(memory_kb("VmHWM:") - input), memory_kb("VmRSS:") - input);
        let s = &round.stats;
        let per = |of: u64| took_s * 1e9 / of.max(1) as f64;
        println!(
            "round {:>2}: {took_s:.2} s ({counted_s:.2} s to count), {:.0} ns a vote, {:.0} ns a network, {} networks, {} selected, {} new",
            round.number,
            per(s.votes()),
            per(s.networks_seen.into()),
            s.networks_tracked,
            s.selected,
            s.new
        );
        worst = worst.max(took_s);
    }
    let saving = Instant::now();
    let saved = controller.save();
    let (save_s, size) = (saving.elapsed().as_secs_f64(), saved.len());
    let count = f64::from(networks);
    let bytes = |kb: u64| kb as f64 * 1_024.0 / count;
    println!("worst round {worst:.2} s (bound 30 s)");
    println!("memory: {:.0} B a network at most, {:.0} B between rounds", bytes(peak), bytes(books));
    println!("saved in {save_s:.2} s, {:.0} B a network", size as f64 / count);
}

/// The next round, summed up as the edges do it.
fn next(world: &mut Synthetic, controller: &Controller, config: &Config) -> Option<(UnixTime, Vec<Tally>)> {
    let mut edge = Tallies::new(config.clone());
    let end = world.next_round(controller.policy(), &mut |progress| edge.handle_progress(progress))?;
    Some((end, edge.take()))
}

/// Memory of this process by its name in /proc/self/status, in KB (1,024 B).
fn memory_kb(name: &str) -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|line| line.starts_with(name)).and_then(|line| line.split_whitespace().nth(1));
    line.and_then(|n| n.parse().ok()).unwrap_or(0)
}
