//! Which cells a sweep has.

use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::Path;
use std::str::FromStr;

use super::SweepError;
use super::cell::{Asked, Cell, CellError, Place, Values};
use crate::fabric::scenario::{Override, Scenario};

/// The most cells of a sweep: a slip of the hand is more.
const CELLS_MAX: usize = 100_000;

/// A key of the scenario, and what it is set to, one after the other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vary {
    values: Vec<Override>,
}

impl FromStr for Vary {
    type Err = String;

    /// Reads `KEY=VALUE,VALUE`; a comma in brackets, braces or quotes is part of a value.
    fn from_str(text: &str) -> Result<Self, String> {
        let (key, values) = text.split_once('=').unwrap_or((text, ""));
        let (mut depth, mut is_quoted) = (0_u32, false);
        let values = values.split(|c| {
            match c {
                '"' => is_quoted = !is_quoted,
                '[' | '{' if !is_quoted => depth += 1,
                ']' | '}' if !is_quoted => depth = depth.saturating_sub(1),
                _ => {}
            }
            c == ',' && depth == 0 && !is_quoted
        });
        let values: Result<Vec<Override>, _> = values.map(|value| Override::new(key, value)).collect();
        let is_whole = |values: &Vec<Override>| values.iter().all(|value| !value.value().is_empty());
        let wrong = || format!("`{text}` is not a key of the scenario and its values: write balance.scheme=ecmp,drill");
        let values = values.ok().filter(is_whole).ok_or_else(wrong)?;
        Ok(Self { values })
    }
}

/// A part of all cells: one of so many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shard {
    number: usize,
    of: usize,
}

impl Shard {
    /// All of them.
    pub const ALL: Self = Self { number: 1, of: 1 };

    /// Whether it is all of them.
    pub const fn is_all(self) -> bool {
        self.of == 1
    }

    /// Whether the so-many-th cell is in it.
    const fn has(self, cell: usize) -> bool {
        cell % self.of == self.number - 1
    }
}

impl fmt::Display for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.number, self.of)
    }
}

impl FromStr for Shard {
    type Err = String;

    /// Reads `I/N`, with `I` of 1 to `N`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (number, of) = text
            .split_once('/')
            .and_then(|(number, of)| Some((number.parse().ok()?, of.parse().ok()?)))
            .unwrap_or((0, 0));
        if number == 0 || number > of {
            return Err("a shard is one of so many, counted from 1: write 1/4, 2/4, 3/4 or 4/4".to_owned());
        }
        Ok(Self { number, of })
    }
}

/// All combinations of what is varied, and the seeds that each has.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Of the scenario without what is varied, and without its seed.
    pub(super) scenario: String,
    combinations: Vec<Combination>,
    seeds: Range<u64>,
    asked: Asked,
}

#[derive(Clone, Debug)]
struct Combination {
    vary: Values,
    scenario: Scenario,
}

/// A cell, by its combination and seed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Planned {
    pub(super) seed: u64,
    pub(super) combination: usize,
}

impl Plan {
    /// Of a scenario with these keys set, these varied, the first one slowest, and so many seeds from its own on.
    ///
    /// # Errors
    /// All that is wrong with one of the scenarios, and what cannot be varied.
    pub fn new(file: &Path, set: &[Override], vary: &[Vary], seeds: u32) -> Result<Self, SweepError> {
        check(set, vary)?;
        let count = vary.iter().map(|vary| vary.values.len()).product::<usize>() * seeds as usize;
        if count > CELLS_MAX {
            return Err(SweepError::Vary(format!(
                "and --seeds are {count} runs, and {CELLS_MAX} at most: vary less at once"
            )));
        }
        // What is varied may be what it lacks.
        let base = Scenario::load_base(file, set)?;
        let first = base.settings.seed;
        let mut chosen: Vec<Vec<Override>> = vec![Vec::new()];
        for vary in vary {
            let with = |chosen: &Vec<Override>| {
                vary.values.iter().map(|value| [&chosen[..], std::slice::from_ref(value)].concat()).collect::<Vec<_>>()
            };
            chosen = chosen.iter().flat_map(with).collect();
        }
        let combination = |chosen: Vec<Override>| {
            let scenario = Scenario::load_with(file, &[set, &chosen].concat())?;
            let vary = chosen.iter().map(|value| [value.key(), value.value()].map(String::from)).collect();
            Ok(Combination { vary, scenario })
        };
        let combinations = chosen.into_iter().map(combination).collect::<Result<_, SweepError>>()?;
        let scenario = fingerprint(&with_seed(&base, 0));
        let seeds = first..first.saturating_add(u64::from(seeds));
        let values = |vary: &Vary| vary.values.iter().map(|value| value.value().to_owned()).collect();
        let vary = vary.iter().map(|vary| (vary.values[0].key().to_owned(), values(vary))).collect();
        let asked = Asked { vary, seeds: [seeds.start, seeds.end] };
        Ok(Self { scenario, combinations, seeds, asked })
    }

    /// All cells of a shard: those of a combination one after the other, so that each shard has some seeds of all, as far as can be.
    pub(super) fn cells(&self, shard: Shard) -> Vec<Planned> {
        let seeds = |combination| self.seeds.clone().map(move |seed| Planned { seed, combination });
        let all = (0..self.combinations.len()).flat_map(seeds).enumerate();
        all.filter(|(number, _)| shard.has(*number)).map(|(_, cell)| cell).collect()
    }

    pub(super) fn scenario(&self, cell: Planned) -> Scenario {
        with_seed(&self.combinations[cell.combination].scenario, cell.seed)
    }

    pub(super) fn place(&self, cell: Planned) -> Place {
        let vary = self.combinations[cell.combination].vary.clone();
        let of = fingerprint(&(&vary, self.scenario(cell)));
        let (scenario, asked) = (self.scenario.clone(), self.asked.clone());
        Place { scenario, run: of, number: cell.combination, vary, seed: cell.seed, asked }
    }

    /// That the cells of a folder are of this sweep, or of one that varies the same keys of the same scenario.
    pub(super) fn check(&self, there: &[(std::path::PathBuf, Cell)]) -> Result<(), CellError> {
        let keys = |vary: &[[String; 2]]| vary.iter().map(|[key, _]| key.clone()).collect::<Vec<_>>();
        let mine = keys(&self.combinations[0].vary);
        for (path, cell) in there {
            if cell.place.scenario != self.scenario {
                return Err(CellError::OtherScenario(path.clone()));
            }
            if keys(&cell.place.vary) != mine {
                return Err(CellError::OtherKeys(path.clone(), keys(&cell.place.vary)));
            }
        }
        Ok(())
    }
}

fn with_seed(scenario: &Scenario, seed: u64) -> Scenario {
    let mut scenario = scenario.clone();
    scenario.settings.seed = seed;
    scenario
}

fn check(set: &[Override], vary: &[Vary]) -> Result<(), SweepError> {
    let key = |vary: &Vary| vary.values[0].key().to_owned();
    for (at, one) in vary.iter().enumerate() {
        let key_of = key(one);
        let wrong = |what: &str| Err(SweepError::Vary(format!("{key_of}: {what}")));
        if key_of == "seed" {
            return wrong("seeds are varied by --seeds, for all alike");
        }
        if vary[..at].iter().any(|other| key(other) == key_of) {
            return wrong("is there twice: write all its values once, with commas");
        }
        if set.iter().any(|set| set.key() == key_of) {
            return wrong("is set by --set as well: take one out");
        }
        let twice = one.values.iter().enumerate().find(|(at, value)| one.values[..*at].contains(value));
        if let Some((_, value)) = twice {
            return wrong(&format!("`{}` is there twice", value.value()));
        }
    }
    Ok(())
}

/// A hash of all that something shows of itself (Fowler, Noll and Vo's, of 64 bits): two that have the same are the same.
fn fingerprint(of: &impl fmt::Debug) -> String {
    struct Hash(u64);
    impl fmt::Write for Hash {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            for byte in text.bytes() {
                self.0 = (self.0 ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
            Ok(())
        }
    }
    let mut hash = Hash(0xcbf2_9ce4_8422_2325);
    // It cannot fail: nothing is written anywhere.
    let _ = write!(hash, "{of:?}");
    format!("{:016x}", hash.0)
}
