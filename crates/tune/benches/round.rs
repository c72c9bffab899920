//! `cargo bench -p weirgate-tune [-- NETWORKS]`: the time of whole rounds at a million networks (or as many as are
//! asked for), the memory of the books, and the size of the saved state. Bound: a round in 30 s.
//!
//! Plain and not Criterion's: one iteration takes seconds, and what is asked for is an order of magnitude.
#![allow(clippy::disallowed_methods, reason = "a benchmark reads the clock, the crate does not")]

use std::time::Instant;

use weirgate_sockets::sample::CcName;
use weirgate_tune::replay::replay;
use weirgate_tune::synthetic::{Scenario, Synthetic};
use weirgate_tune::{Config, Controller, Host};

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
    let scenario = Scenario { connections: 5, ..Scenario::mixed(networks, 12, 1) };
    let mut controller = Controller::new(config, host).expect("the settings above are within bounds");
    let before = rss_kb();
    let (mut last, mut worst) = (Instant::now(), 0.0f64);
    replay(&mut controller, &mut Synthetic::new(scenario), &mut |_, round| {
        let took = last.elapsed().as_secs_f64();
        let s = &round.stats;
        println!(
            "round {:>2}: {took:.2} s, {} connections, {} networks, {} selected, {} new",
            round.number, s.connections, s.networks_tracked, s.selected, s.new
        );
        worst = worst.max(took);
        last = Instant::now();
        true
    });
    let saving = Instant::now();
    let saved = controller.save();
    let (save_s, size) = (saving.elapsed().as_secs_f64(), saved.len());
    println!("worst round {worst:.2} s (telemetry made up included; bound 30 s)");
    println!("state {} MB, saved in {save_s:.2} s", size / 1_000_000);
    println!("resident {} MB, {} before", rss_kb() / 1_000, before / 1_000);
}

/// Resident memory in KB, 0 where /proc is not there.
fn rss_kb() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find(|l| l.starts_with("VmRSS:")).and_then(|l| l.split_whitespace().nth(1));
    line.and_then(|n| n.parse().ok()).unwrap_or(0)
}
