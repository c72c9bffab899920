//! The table of a sweep: means over seeds, and what they are of the first value of what is varied first.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::PathBuf;

use serde::Serialize;
use weirgate_lab::report::csv_cell;

use super::outcome::{Distribution, Ended, Outcome};
use super::statistics::Estimate;
use super::sweep::{Asked, Cell, CellError, Coordinates, Values, read};

type Measured = fn(&Outcome) -> Option<f64>;

/// What is compared, by name, with its unit in it.
pub const MEASURES: [(&str, Measured); 24] = [
    ("fct_mean_us", |outcome| value(outcome.times.fct_us.mean)),
    ("fct_p50_us", |outcome| value(outcome.times.fct_us.p50)),
    ("fct_p99_us", |outcome| value(outcome.times.fct_us.p99)),
    ("fct_p99_9_us", |outcome| value(outcome.times.fct_us.p99_9)),
    ("fct_p99_99_us", |outcome| value(outcome.times.fct_us.p99_99)),
    ("slowdown_mean", |outcome| value(outcome.times.slowdown.mean)),
    ("slowdown_p99", |outcome| value(outcome.times.slowdown.p99)),
    ("class_1_fct_mean_us", |outcome| value(class_1(outcome)?.mean)),
    ("class_1_fct_p99_us", |outcome| value(class_1(outcome)?.p99)),
    ("queues_up_deviation_bytes", |outcome| outcome.queues_up?.deviation_bytes),
    ("queues_down_deviation_bytes", |outcome| outcome.queues_down?.deviation_bytes),
    ("dropped", |outcome| Some(outcome.hops.iter().map(|hop| hop.dropped).sum::<u64>() as f64)),
    ("lost", |outcome| Some(outcome.hops.iter().map(|hop| hop.lost).sum::<u64>() as f64)),
    ("dup_acks_1_share", |outcome| share(outcome.dup_acks_1.flows, outcome)),
    ("dup_acks_1_reordered_share", |outcome| share(outcome.dup_acks_1.reordered, outcome)),
    ("dup_acks_3_share", |outcome| share(outcome.dup_acks_3.flows, outcome)),
    ("dup_acks_3_reordered_share", |outcome| share(outcome.dup_acks_3.reordered, outcome)),
    ("sent_again", |outcome| Some(outcome.sent_again as f64)),
    ("timeouts", |outcome| Some(outcome.timeouts as f64)),
    ("batches", |outcome| Some(outcome.batches as f64)),
    ("goodput_bits_per_s", |outcome| Some(outcome.goodput_bits_per_s)),
    ("uplinks_mean_share", |outcome| Some(outcome.uplinks?.mean_share)),
    ("uplinks_min_share", |outcome| Some(outcome.uplinks?.min_share)),
    ("uplinks_max_share", |outcome| Some(outcome.uplinks?.max_share)),
];

const fn value(estimate: Option<Estimate>) -> Option<f64> {
    match estimate {
        Some(estimate) => Some(estimate.value),
        None => None,
    }
}

/// What a workload has beside its background: mice, an incast.
fn class_1(outcome: &Outcome) -> Option<Distribution> {
    Some(outcome.classes.get(&1)?.fct_us)
}

fn share(flows: u64, outcome: &Outcome) -> Option<f64> {
    (outcome.flows.finished > 0).then(|| flows as f64 / outcome.flows.finished as f64)
}

/// A combination, over its seeds.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// What is varied, and what it was set to.
    pub vary: Values,
    /// The seeds that are there.
    pub seeds: Vec<u64>,
    /// How many of their runs did not end in their time: what they tell is of the flows that did.
    pub unfinished: usize,
    /// By name.
    pub measures: BTreeMap<&'static str, Compared>,
}

/// A measure, over seeds.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct Compared {
    /// Its mean; none, unless all have it.
    pub mean: Option<Estimate>,
    /// What it is of that of the first value of what is varied first, all else alike, seed by seed; none, where that is 0.
    pub ratio: Option<Estimate>,
}

/// What there is of a sweep.
#[derive(Debug)]
pub struct Merged {
    /// By combination and seed.
    cells: BTreeMap<(usize, Values, u64), Cell>,
}

impl Merged {
    /// Of all cells in these folders, which may have copies of some.
    ///
    /// # Errors
    /// Where something is no cell, or they are not of one sweep, or there is none.
    pub fn read(folders: &[PathBuf]) -> Result<Self, CellError> {
        let mut all: Vec<(PathBuf, Cell)> = Vec::new();
        for folder in folders {
            all.extend(read(folder)?);
        }
        let Some((_, first)) = all.first() else {
            return Err(CellError::None(folders.first().cloned().unwrap_or_default()));
        };
        let keys = |cell: &Cell| cell.place.vary.iter().map(|[key, _]| key.clone()).collect::<Vec<_>>();
        let (scenario, mine) = (first.place.scenario.clone(), keys(first));
        // A combination has the number of the sweep that had it first.
        let mut numbers: BTreeMap<Values, usize> = BTreeMap::new();
        let mut by_place: BTreeMap<Coordinates, (PathBuf, Cell)> = BTreeMap::new();
        for (path, cell) in all {
            if cell.place.scenario != scenario {
                return Err(CellError::OtherScenario(path));
            }
            if keys(&cell) != mine {
                return Err(CellError::OtherKeys(path, keys(&cell)));
            }
            let number = numbers.entry(cell.place.vary.clone()).or_insert(cell.place.number);
            *number = cell.place.number.min(*number);
            let place = cell.place.coordinates();
            if let Some((other, had)) = by_place.get(&place) {
                if (&had.place.run, &had.outcome.digest) != (&cell.place.run, &cell.outcome.digest) {
                    return Err(CellError::Twice(other.clone(), path));
                }
                continue;
            }
            by_place.insert(place, (path, cell));
        }
        let cells =
            by_place.into_iter().map(|((vary, seed), (_, cell))| ((numbers[&vary], vary, seed), cell)).collect();
        Ok(Self { cells })
    }

    /// How many runs are not there, of how many that the sweeps have which these are of.
    pub fn missing(&self) -> (usize, usize) {
        let asked: BTreeSet<&Asked> = self.cells.values().map(|cell| &cell.place.asked).collect();
        let planned: BTreeSet<Coordinates> = asked.into_iter().flat_map(Asked::all).collect();
        let there: BTreeSet<Coordinates> = self.cells.values().map(|cell| cell.place.coordinates()).collect();
        (planned.difference(&there).count(), planned.union(&there).count())
    }

    /// The keys that are varied.
    pub fn keys(&self) -> Vec<&str> {
        let first = self.cells.values().next();
        first.map_or_else(Vec::new, |cell| cell.place.vary.iter().map(|[key, _]| key.as_str()).collect())
    }

    /// The combinations, in their order.
    pub fn rows(&self) -> Vec<Row> {
        let mut places: Vec<(usize, &[[String; 2]])> =
            self.cells.keys().map(|(number, vary, _)| (*number, &vary[..])).collect();
        places.dedup();
        places.iter().map(|(_, vary)| self.row(vary, reference(vary, &places))).collect()
    }

    fn row(&self, vary: &[[String; 2]], reference: Option<&[[String; 2]]>) -> Row {
        let mine = self.outcomes(vary);
        let other = reference.map_or_else(BTreeMap::new, |reference| self.outcomes(reference));
        let compare = |(name, of): &(&'static str, Measured)| {
            let values: Option<Vec<f64>> = mine.values().map(|outcome| of(outcome)).collect();
            let ratio = |(seed, outcome): (&u64, &&Outcome)| {
                let [value, other] = [of(outcome)?, of(other.get(seed)?)?];
                (other > 0.0).then_some(value / other)
            };
            let ratios: Vec<f64> = mine.iter().filter_map(ratio).collect();
            let mean = values.and_then(|values| Estimate::mean(&values));
            (*name, Compared { mean, ratio: Estimate::ratio(&ratios) })
        };
        Row {
            vary: vary.to_vec(),
            seeds: mine.keys().copied().collect(),
            unfinished: mine.values().filter(|outcome| outcome.ended != Ended::Finished).count(),
            measures: MEASURES.iter().map(compare).collect(),
        }
    }

    /// By seed.
    fn outcomes(&self, vary: &[[String; 2]]) -> BTreeMap<u64, &Outcome> {
        let mine = self.cells.iter().filter(|((_, other, _), _)| other == vary);
        mine.map(|((.., seed), cell)| (*seed, &cell.outcome)).collect()
    }

    /// All cells, as CSV.
    ///
    /// # Errors
    /// Where they cannot be written.
    pub fn write_csv(&self, to: &mut dyn io::Write) -> io::Result<()> {
        let mut heads: Vec<&str> = self.keys();
        heads.extend(["seed", "ended", "flows"]);
        heads.extend(MEASURES.iter().map(|(name, _)| *name));
        heads.push("digest");
        writeln!(to, "{}", heads.join(","))?;
        for ((_, vary, seed), cell) in &self.cells {
            let outcome = &cell.outcome;
            let ended = match outcome.ended {
                Ended::Finished => "finished",
                Ended::TimeLimit => "time_limit",
                Ended::Interrupted => "interrupted",
            };
            let mut line: Vec<String> = vary.iter().map(|[_, value]| csv_cell(value)).collect();
            line.extend([seed.to_string(), ended.to_owned(), outcome.flows.finished.to_string()]);
            line.extend(MEASURES.iter().map(|(_, of)| of(outcome).map_or_else(String::new, |value| value.to_string())));
            line.push(outcome.digest.clone());
            writeln!(to, "{}", line.join(","))?;
        }
        Ok(())
    }
}

/// The combination that differs in the first key only, where that has its first value: its own for those that have it.
fn reference<'a>(vary: &[[String; 2]], places: &[(usize, &'a [[String; 2]])]) -> Option<&'a [[String; 2]]> {
    let first = places.first()?.1.first();
    let is_it = |(_, other): &&(usize, &[[String; 2]])| other.first() == first && other.get(1..) == vary.get(1..);
    places.iter().find(is_it).map(|(_, other)| *other)
}
