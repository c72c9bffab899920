//! The table behind the defaults, and the text forms of a replay.

mod world;

use weirgate_tune::Config;
use weirgate_tune::replay::{CSV_HEADER, csv_line};
use weirgate_tune::sensitivity::{Grid, sensitivity};
use weirgate_tune::synthetic::Scenario;
use world::*;

#[test]
fn the_defaults_choose_the_lossy_and_neither_the_clean_nor_the_flapping() {
    let grid = Grid { duty_enter: vec![0.5, 0.8], flap_enter_max: vec![0.25], window_rounds: vec![48] };
    let scenario = Scenario { connections: 12, ..Scenario::mixed(100, 120, 1) };
    let table = sensitivity(&scenario, &Config::default(), &host("cubic"), &grid).unwrap();
    println!("{table}");
    let [low, default] = &table.rows[..] else { panic!() };
    assert_eq!(default.chosen["lossy"], (14, 14));
    assert_eq!((default.chosen["flapping"].0, default.chosen["clean"].0), (0, 0));
    assert!(low.chosen["flapping"].0 > 0, "a lower threshold would have been wrong");
    assert!(default.new_per_round < 0.5 && default.rounds_until.is_some_and(|r| r <= 30));
    let csv = table.csv();
    assert_eq!(csv.lines().count(), 3);
    assert!(csv.lines().all(|l| l.split(',').count() == 3 + 2 * 5 + 3), "{csv}");
}

#[test]
fn figure_2_few_new_networks_per_round_once_settled() {
    let (_, rounds, _) = run(Config::default(), Scenario::mixed(200, 150, 9));
    let columns = CSV_HEADER.split(',').count();
    for round in &rounds {
        assert_eq!(csv_line(round).split(',').count(), columns, "{}", csv_line(round));
    }
    let settled: u32 = rounds.iter().filter(|r| r.number > 48).map(|r| r.stats.new).sum();
    assert!(settled <= 20, "{settled} new networks in 102 rounds");
}
