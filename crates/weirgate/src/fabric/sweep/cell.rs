//! A cell of a sweep: one run, in a file of its own.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::fabric::files::write_whole;
use crate::fabric::outcome::Outcome;

/// What is varied, and what each is set to, in the order in which it was asked for.
pub type Values = Vec<[String; 2]>;

/// Where a cell is in a sweep: what is varied, and the seed.
pub type Coordinates = (Values, u64);

/// One run of a sweep.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Cell {
    /// Which.
    #[serde(flatten)]
    pub place: Place,
    /// What came of it.
    pub outcome: Outcome,
}

/// Which run of a sweep.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// A hash of the scenario without what is varied: that of all cells of a sweep.
    pub scenario: String,
    /// A hash of the scenario that was run, with all that it reads from other files.
    pub run: String,
    /// The combination's number in its sweep, from 0.
    pub number: usize,
    /// What is varied, and what it was set to.
    pub vary: Values,
    /// The seed.
    pub seed: u64,
    /// The sweep that made it, whole.
    #[serde(default)]
    pub asked: Asked,
}

/// Which runs a sweep has: who has some of its shards knows by this how many are missing.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Asked {
    /// What is varied, and all that each is set to.
    pub vary: Vec<(String, Vec<String>)>,
    /// The first seed, and the one after the last.
    pub seeds: [u64; 2],
}

impl Asked {
    /// All its runs.
    pub fn all(&self) -> Vec<Coordinates> {
        let mut all: Vec<Values> = vec![Vec::new()];
        for (key, values) in &self.vary {
            let with = |chosen: &Values| {
                let set = |value: &String| [&chosen[..], &[[key.clone(), value.clone()]]].concat();
                values.iter().map(set).collect::<Vec<_>>()
            };
            all = all.iter().flat_map(with).collect();
        }
        let [first, end] = self.seeds;
        all.iter().flat_map(|vary| (first..end).map(|seed| (vary.clone(), seed))).collect()
    }
}

/// What is wrong with the files of a sweep.
#[derive(Debug, thiserror::Error)]
pub enum CellError {
    /// A folder or file cannot be read.
    #[error("{}: {error}", path.display())]
    Unread {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is none of a sweep.
    #[error("{} is no cell of a sweep ({error}): move it away, or choose another folder", path.display())]
    NoCell {
        /// Which.
        path: PathBuf,
        /// Why.
        error: serde_json::Error,
    },
    /// A cell is of another scenario.
    #[error("{} is of another scenario, or of the same with other keys set: choose another folder", .0.display())]
    OtherScenario(PathBuf),
    /// A cell is of a sweep over other keys.
    #[error("{} is of a sweep over {}: choose another folder", .0.display(), keys(.1))]
    OtherKeys(PathBuf, Vec<String>),
    /// A cell is of the same place and of another run.
    #[error("{}: a file that the scenario names has changed since: move the cells away, or choose another folder", .0.display())]
    Changed(PathBuf),
    /// Two cells are of one place and not the same.
    #[error("{} and {} are of the same run, with different outcomes: keep one", .0.display(), .1.display())]
    Twice(PathBuf, PathBuf),
    /// There is none.
    #[error("{}: there is no cell of a sweep", .0.display())]
    None(PathBuf),
}

fn keys(keys: &[String]) -> String {
    if keys.is_empty() { "seeds alone".to_owned() } else { keys.join(", ") }
}

/// All cells of a folder, by their files' names.
///
/// # Errors
/// Where something cannot be read, or is no cell.
pub fn read(folder: &Path) -> Result<Vec<(PathBuf, Cell)>, CellError> {
    let unread = |path: &Path, error| CellError::Unread { path: path.to_owned(), error };
    let entries = fs::read_dir(folder).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let entries = entries.map_err(|error| unread(folder, error))?;
    let mut paths: Vec<PathBuf> = entries.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
    paths.sort();
    let cell = |path: PathBuf| {
        let text = fs::read(&path).map_err(|error| unread(&path, error))?;
        match serde_json::from_slice(&text) {
            Ok(cell) => Ok((path, cell)),
            Err(error) => Err(CellError::NoCell { path, error }),
        }
    };
    paths.into_iter().map(cell).collect()
}

impl Cell {
    /// Writes it into a folder: at once, or not at all.
    ///
    /// # Errors
    /// Where it cannot be written.
    pub(super) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut text = serde_json::to_vec(self)?;
        text.push(b'\n');
        write_whole(&folder.join(self.place.file()), &text)
    }
}

impl Place {
    /// Where it is.
    pub fn coordinates(&self) -> Coordinates {
        (self.vary.clone(), self.seed)
    }

    /// What its file is called: for people, and by the hash unlike all others.
    pub(super) fn file(&self) -> String {
        let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' || c == '-' { c } else { '_' };
        let values: String =
            self.vary.iter().flat_map(|[_, value]| value.chars().map(plain).chain(['_'])).take(60).collect();
        format!("{values}seed{}-{}.json", self.seed, self.run)
    }
}
