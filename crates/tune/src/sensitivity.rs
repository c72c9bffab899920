//! The tables that argue the defaults: what other thresholds would have chosen in the same synthetic world. The three that weigh
//! most in every combination ([`sensitivity`]), the others one at a time ([`one_at_a_time`]).

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use weirgate_units::Prefix;

use crate::config::{Config, ConfigError};
use crate::controller::{Controller, Host};
use crate::decision::What;
use crate::replay::replay;
use crate::synthetic::{Scenario, Synthetic};

/// Values to try; every combination is one replay.
#[derive(Clone, Debug, PartialEq)]
pub struct Grid {
    /// [`Config::duty_enter`]; `duty_leave` follows at half of it, the default's proportion.
    pub duty_enter: Vec<f64>,
    /// [`Config::flap_enter_max`].
    pub flap_enter_max: Vec<f64>,
    /// [`Config::window_rounds`]; `known_enter_min` follows at half of it.
    pub window_rounds: Vec<u32>,
}

/// One combination and what it came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// As tried.
    pub duty_enter: f64,
    /// As tried.
    pub flap_enter_max: f64,
    /// As tried.
    pub window_rounds: u32,
    /// Per class: networks that were ever selected, of how many.
    pub chosen: BTreeMap<&'static str, (u32, u32)>,
    /// Median over chosen lossy networks of the round in which they were first selected.
    pub rounds_until: Option<u32>,
    /// New networks per round, mean from the round after twice the window on, when the first are in.
    pub new_per_round: f64,
    /// Networks released or rolled back, in all.
    pub gone: u64,
}

/// The whole table, with the world it was made in.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Seed of the world.
    pub seed: u64,
    /// Rounds of each replay.
    pub rounds: u32,
    /// One row per combination.
    pub rows: Vec<Row>,
}

/// One threshold at one value, and what it came to.
#[derive(Clone, Debug, PartialEq)]
pub struct Single {
    /// The threshold: a field of [`Config`], or `worst_share` of the rules.
    pub key: &'static str,
    /// As tried.
    pub value: f64,
    /// Whether that is what it is anyway.
    pub is_base: bool,
    /// What it came to.
    pub row: Row,
}

/// The table of [`one_at_a_time`].
#[derive(Clone, Debug, PartialEq)]
pub struct Singles {
    /// One row per threshold and value.
    pub rows: Vec<Single>,
}

impl Default for Grid {
    fn default() -> Self {
        Self {
            duty_enter: vec![0.5, 0.6, 0.7, 0.8, 0.9],
            flap_enter_max: vec![0.15, 0.25, 0.4],
            window_rounds: vec![12, 24, 48, 96],
        }
    }
}

/// Replays `scenario` once per combination of `grid`, everything else as in `base`. A combination that
/// [`Config::check`] refuses is an error.
pub fn sensitivity(scenario: &Scenario, base: &Config, host: &Host, grid: &Grid) -> Result<Table, ConfigError> {
    let mut rows = Vec::new();
    for &window_rounds in &grid.window_rounds {
        for &duty_enter in &grid.duty_enter {
            for &flap_enter_max in &grid.flap_enter_max {
                let config = Config {
                    window_rounds,
                    known_enter_min: (window_rounds / 2).max(2),
                    known_leave_min: (window_rounds / 6).max(1),
                    duty_enter,
                    duty_leave: duty_enter / 2.0,
                    flap_enter_max,
                    flap_leave_min: (flap_enter_max * 1.6).min(1.0),
                    idle_rounds: base.idle_rounds.max(window_rounds),
                    ..base.clone()
                };
                rows.push(row(scenario, config, host)?);
            }
        }
    }
    Ok(Table { seed: scenario.seed, rounds: scenario.rounds, rows })
}

/// A threshold that is tried at other values while everything else stays as it is.
struct Threshold {
    key: &'static str,
    values: &'static [f64],
    set: fn(&mut Config, f64),
    get: fn(&Config) -> f64,
}

macro_rules! threshold {
    ($field:ident: $kind:ty, $($value:literal),+) => {
        Threshold {
            key: stringify!($field),
            values: &[$($value),+],
            set: |config, value| config.$field = value as $kind,
            get: |config| config.$field as f64,
        }
    };
}

/// What [`one_at_a_time`] tries, the defaults among them.
const THRESHOLDS: &[Threshold] = &[
    threshold!(duty_leave: f64, 0.2, 0.4, 0.6),
    threshold!(flap_leave_min: f64, 0.3, 0.4, 0.6),
    threshold!(dwell_rounds: u32, 0.0, 6.0, 12.0, 24.0),
    threshold!(known_enter_min: u32, 12.0, 24.0, 36.0),
    threshold!(known_leave_min: u32, 4.0, 8.0, 16.0),
    threshold!(votes_min: u32, 1.0, 3.0, 10.0),
    threshold!(holdout_share: f64, 0.05, 0.1, 0.2),
    Threshold {
        key: "worst_share",
        values: &[0.1, 0.2, 0.3],
        set: |config, share| config.rules.iter_mut().for_each(|rule| rule.group.worst_share = Some(share)),
        get: |config| config.rules.first().and_then(|rule| rule.group.worst_share).unwrap_or(0.0),
    },
];

/// Replays `scenario` once for each value of each other threshold, everything else as in `base`; `only` names one.
pub fn one_at_a_time(
    scenario: &Scenario,
    base: &Config,
    host: &Host,
    only: Option<&str>,
) -> Result<Singles, ConfigError> {
    let mut rows = Vec::new();
    for threshold in THRESHOLDS.iter().filter(|threshold| only.is_none_or(|key| key == threshold.key)) {
        for &value in threshold.values {
            let mut config = base.clone();
            (threshold.set)(&mut config, value);
            let row = row(scenario, config, host)?;
            rows.push(Single { key: threshold.key, value, is_base: (threshold.get)(base) == value, row });
        }
    }
    Ok(Singles { rows })
}

fn row(scenario: &Scenario, config: Config, host: &Host) -> Result<Row, ConfigError> {
    let mut world = Synthetic::new(scenario.clone());
    let class_of: BTreeMap<Prefix, &'static str> = world.networks().collect();
    let (duty_enter, flap_enter_max, window_rounds) = (config.duty_enter, config.flap_enter_max, config.window_rounds);
    let mut controller = Controller::new(config, host.clone())?;
    let mut chosen: BTreeSet<Prefix> = BTreeSet::new();
    let mut until: Vec<u32> = Vec::new();
    let (mut settled, mut new) = (0u32, 0u64);
    let summary = replay(&mut controller, &mut world, &mut |_, round| {
        for decision in &round.decisions {
            let first = matches!(decision.what, What::Select(_)) && chosen.insert(decision.network);
            if first && class_of.get(&decision.network) == Some(&"lossy") {
                until.push(round.number);
            }
        }
        if round.number > 2 * window_rounds {
            settled += 1;
            new += u64::from(round.stats.new);
        }
        true
    });
    let mut by_class: BTreeMap<&'static str, (u32, u32)> = BTreeMap::new();
    for (network, class) in &class_of {
        let (of, all) = by_class.entry(class).or_default();
        *all += 1;
        *of += u32::from(chosen.contains(network));
    }
    until.sort_unstable();
    Ok(Row {
        duty_enter,
        flap_enter_max,
        window_rounds,
        chosen: by_class,
        rounds_until: until.get(until.len() / 2).copied(),
        new_per_round: new as f64 / f64::from(settled.max(1)),
        gone: summary.departures,
    })
}

impl Table {
    /// The table as CSV, with a header.
    pub fn csv(&self) -> String {
        let classes = self.classes();
        let mut out = String::from("window_rounds,duty_enter,flap_enter_max");
        for class in &classes {
            out += &format!(",{class}_chosen,{class}_networks");
        }
        out += ",rounds_until,new_per_round,gone\n";
        for row in &self.rows {
            out += &format!("{},{},{}", row.window_rounds, row.duty_enter, row.flap_enter_max);
            for class in &classes {
                let (of, all) = row.chosen.get(class).copied().unwrap_or_default();
                out += &format!(",{of},{all}");
            }
            let until = row.rounds_until.map_or(String::new(), |r| r.to_string());
            out += &format!(",{until},{:.3},{}\n", row.new_per_round, row.gone);
        }
        out
    }

    fn classes(&self) -> Vec<&'static str> {
        self.rows.first().map_or(Vec::new(), |r| r.chosen.keys().copied().collect())
    }
}

impl Row {
    fn heads(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chosen.keys().try_for_each(|class| write!(f, " {class:>13}"))?;
        writeln!(f, " {:>6} {:>9} {:>5}", "until", "new/round", "gone")
    }

    fn cells(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.chosen.values().try_for_each(|(of, all)| write!(f, " {:>13}", format!("{of}/{all}")))?;
        let until = self.rounds_until.map_or("-".to_owned(), |r| r.to_string());
        writeln!(f, " {until:>6} {:>9.3} {:>5}", self.new_per_round, self.gone)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} rounds, seed {}; networks ever chosen, of how many", self.rounds, self.seed)?;
        write!(f, "{:>6} {:>5} {:>5}", "window", "duty", "flap")?;
        self.rows.first().map_or(Ok(()), |row| row.heads(f))?;
        for row in &self.rows {
            write!(f, "{:>6} {:>5.2} {:>5.2}", row.window_rounds, row.duty_enter, row.flap_enter_max)?;
            row.cells(f)?;
        }
        Ok(())
    }
}

/// The default has a star.
impl fmt::Display for Singles {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<15} {:>6} ", "threshold", "value")?;
        self.rows.first().map_or(Ok(()), |single| single.row.heads(f))?;
        for single in &self.rows {
            write!(f, "{:<15} {:>6}{}", single.key, single.value, if single.is_base { '*' } else { ' ' })?;
            single.row.cells(f)?;
        }
        Ok(())
    }
}
