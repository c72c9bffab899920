//! The table behind the defaults, and the text forms of a replay.

mod world;

use weirgate_tune::Config;
use weirgate_tune::replay::{CSV_HEADER, csv_line};
use weirgate_tune::sensitivity::{Grid, one_at_a_time, sensitivity};
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

/// The rows that the comments of the configuration and the document's text speak of, recomputed: the whole takes minutes.
#[test]
fn the_document_shows_what_is_computed() {
    let document = include_str!("../../../docs/sensitivity.md");
    let scenario = Scenario::mixed(500, 288, 1);
    let config = Config { seed: 1, ..Config::default() };
    let mut said = Vec::new();
    for (window, duty, flap) in [(48, 0.8, 0.25), (24, 0.8, 0.25), (48, 0.6, 0.25)] {
        let grid = Grid { duty_enter: vec![duty], flap_enter_max: vec![flap], window_rounds: vec![window] };
        said.push(sensitivity(&scenario, &config, &host("cubic"), &grid).unwrap().to_string());
    }
    said.push(one_at_a_time(&scenario, &config, &host("cubic"), Some("duty_leave")).unwrap().to_string());
    for line in said.iter().flat_map(|table| table.lines()) {
        assert!(document.lines().any(|shown| shown.trim_end() == line.trim_end()), "the document lacks: {line}");
    }
    let all = Grid::default();
    for window in all.window_rounds {
        for duty in &all.duty_enter {
            for flap in &all.flap_enter_max {
                let begins = format!("{window:>6} {duty:>5.2} {flap:>5.2} ");
                assert_eq!(document.lines().filter(|l| l.starts_with(&begins)).count(), 1, "{begins}");
            }
        }
    }
}
