//! Many runs of a scenario: all combinations of what is varied, each with the same seeds, on all cores.
//!
//! A cell is one run, and a small file. A sweep makes the cells that its folder lacks: one that was interrupted goes on where it was, and
//! shards of a cluster's job array fill one folder or several. [`merge`](super::merge) reads what is there.

mod cell;
mod plan;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use super::outcome::{Ended, Outcome};
use super::run::run;
use super::scenario::ScenarioError;
use super::threads::on_threads;
use crate::config::Problem;

pub use self::cell::{Asked, Cell, CellError, Coordinates, Place, Values, read};
use self::plan::Planned;
pub use self::plan::{Plan, Shard, Vary};

/// Why there is no sweep, or no more of it.
#[derive(Debug, thiserror::Error)]
pub enum SweepError {
    /// The scenario, with one of its combinations.
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    /// What is varied.
    #[error("--vary {0}")]
    Vary(String),
    /// What lies in the folder.
    #[error(transparent)]
    Cell(#[from] CellError),
    /// With this seed, the network cannot carry what is asked for.
    #[error("seed {0}: {1}")]
    Seed(u64, Problem),
    /// A folder or a file cannot be written.
    #[error("{}: {error}", path.display())]
    Unwritten {
        /// Where.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
}

/// How far a sweep is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Cells of this shard.
    pub all: usize,
    /// Of these, those that are there.
    pub there: usize,
    /// Threads that make the others.
    pub threads: usize,
    /// How long that will take; nothing, before there is one.
    pub left: Option<Duration>,
}

/// What a sweep did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Swept {
    /// Cells of this shard that had been there.
    pub found: usize,
    /// Cells that were made.
    pub made: usize,
    /// Cells that are still missing: it was interrupted.
    pub missing: usize,
}

/// Makes the cells of a shard that a folder lacks, until all are there or `is_interrupted`, which is set as well where one fails.
///
/// # Errors
/// Where there are cells of another scenario, or one cannot be run or written. What was made until then stays.
pub fn sweep(
    plan: &Plan,
    shard: Shard,
    folder: &Path,
    threads: usize,
    is_interrupted: &AtomicBool,
    progress: &mut (dyn FnMut(Progress) + Send),
) -> Result<Swept, SweepError> {
    let unwritten = |error| SweepError::Unwritten { path: folder.to_owned(), error };
    std::fs::create_dir_all(folder).map_err(unwritten)?;
    let cells = plan.cells(shard);
    let mut walls = Walls::default();
    // All combinations of a seed before those of the next: what is compared is complete as early as can be, and so is what is known of
    // how long cells take.
    let mut open: BTreeSet<Planned> = cells.iter().copied().collect();
    for (cell, outcome) in found(plan, &cells, folder)? {
        walls.note(cell, &outcome);
        open.remove(&cell);
    }
    let order: Vec<Planned> = open.iter().copied().collect();
    let found = cells.len() - open.len();
    let threads = threads.clamp(1, open.len().max(1));
    let state = Mutex::new((open, walls, progress));
    let tell = |made: Option<(Planned, &Outcome)>| {
        let (open, walls, progress) = &mut *state.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((cell, outcome)) = made {
            walls.note(cell, outcome);
            open.remove(&cell);
        }
        let there = cells.len() - open.len();
        progress(Progress { all: cells.len(), there, threads, left: walls.left(open, threads) });
    };
    tell(None);
    let made = on_threads(threads, &order, |cell| {
        let made = make(plan, *cell, is_interrupted).and_then(|outcome| {
            let Some(outcome) = outcome else { return Ok(0) };
            let made = Cell { place: plan.place(*cell), outcome };
            made.write(folder).map_err(unwritten)?;
            tell(Some((*cell, &made.outcome)));
            Ok(1)
        });
        // What fails for one would do so for all.
        is_interrupted.fetch_or(made.is_err(), Ordering::Relaxed);
        made
    });
    let made = made.into_iter().sum::<Result<usize, SweepError>>()?;
    Ok(Swept { found, made, missing: order.len() - made })
}

/// What there is of these cells, after a look at all that is in the folder.
fn found(plan: &Plan, cells: &[Planned], folder: &Path) -> Result<Vec<(Planned, Outcome)>, CellError> {
    let there = read(folder)?;
    plan.check(&there)?;
    let mut by_place: BTreeMap<Coordinates, (PathBuf, Cell)> = BTreeMap::new();
    for (path, cell) in there {
        by_place.insert(cell.place.coordinates(), (path, cell));
    }
    let mut found = Vec::new();
    for planned in cells {
        let place = plan.place(*planned);
        let Some((path, cell)) = by_place.remove(&place.coordinates()) else { continue };
        if cell.place.run != place.run {
            return Err(CellError::Changed(path));
        }
        found.push((*planned, cell.outcome));
    }
    Ok(found)
}

/// Runs a cell; nothing, if it was interrupted.
fn make(plan: &Plan, cell: Planned, is_interrupted: &AtomicBool) -> Result<Option<Outcome>, SweepError> {
    if is_interrupted.load(Ordering::Relaxed) {
        return Ok(None);
    }
    let scenario = plan.scenario(cell);
    let ran = run(&scenario, is_interrupted, &mut |_| ()).map_err(|problem| SweepError::Seed(cell.seed, problem))?;
    Ok((ran.ended != Ended::Interrupted).then(|| ran.outcome(&scenario)))
}

/// How long cells took, by combination: with another seed it is about the same.
#[derive(Default)]
struct Walls(BTreeMap<usize, (f64, u32)>);

impl Walls {
    fn note(&mut self, cell: Planned, outcome: &Outcome) {
        let (sum, count) = self.0.entry(cell.combination).or_default();
        *sum += outcome.speed.wall_s;
        *count += 1;
    }

    fn left(&self, open: &BTreeSet<Planned>, threads: usize) -> Option<Duration> {
        let mean = |(sum, count): (f64, u32)| sum / f64::from(count);
        let all = self.0.values().fold((0.0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
        if all.1 == 0 {
            return None;
        }
        let of = |cell: &Planned| mean(self.0.get(&cell.combination).copied().unwrap_or(all));
        Duration::try_from_secs_f64(open.iter().map(of).sum::<f64>() / threads as f64).ok()
    }
}

#[cfg(test)]
mod tests;
