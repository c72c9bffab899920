//! Runs that are done, in files: a figure that was interrupted goes on where it was, and a page is written again without running anything.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weirgate_balance::Looks;
use weirgate_fabric::verify::{crowd, schemes};
use weirgate_fabric::{ControlKind, Scheme, Settings};

use super::arm::{Arm, Observed};
use crate::fabric::files::write_whole;

/// What a file begins with; another number, where what is kept of a run has changed.
const FORMAT: u32 = 1;

/// A folder of runs.
#[derive(Debug)]
pub(super) struct Kept {
    dir: PathBuf,
    /// What the simulator does, in a number: what another one has kept is of no use.
    model: u64,
}

/// What a file says before the times, which are four bytes each.
#[derive(Serialize, Deserialize)]
struct Head {
    key: String,
    observed: Observed,
    times: usize,
    small_times: usize,
}

impl Kept {
    pub(super) fn new(dir: PathBuf) -> Self {
        Self { dir, model: model() }
    }

    /// The run of an arm with a seed, if it is there and whole.
    pub(super) fn read(&self, arm: &Arm, seed: u64) -> Option<Observed> {
        let key = self.key(arm, seed);
        let bytes = fs::read(self.path(&key)).ok()?;
        let (length, rest) = bytes.split_first_chunk::<8>()?;
        let (head, times) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        let Head { key: kept, mut observed, times: count, small_times } = serde_json::from_slice(head).ok()?;
        let (all, _) = times.as_chunks::<4>();
        if kept != key || all.len() != count + small_times {
            return None;
        }
        let mut all = all.iter().map(|bytes| f64::from(f32::from_le_bytes(*bytes)));
        observed.times = all.by_ref().take(count).collect();
        observed.small_times = all.collect();
        Some(observed)
    }

    /// Keeps it, whole or not at all.
    pub(super) fn write(&self, arm: &Arm, seed: u64, observed: &Observed) -> Result<()> {
        let key = self.key(arm, seed);
        let path = self.path(&key);
        let head = Head {
            key,
            observed: observed.clone(),
            times: observed.times.len(),
            small_times: observed.small_times.len(),
        };
        let head = serde_json::to_vec(&head)?;
        let mut bytes = (head.len() as u64).to_le_bytes().to_vec();
        bytes.extend(head);
        bytes.extend(
            observed.times.iter().chain(&observed.small_times).flat_map(|micros| (*micros as f32).to_le_bytes()),
        );
        fs::create_dir_all(&self.dir).with_context(|| format!("cannot make {}", self.dir.display()))?;
        write_whole(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))
    }

    fn key(&self, arm: &Arm, seed: u64) -> String {
        format!("{FORMAT} {:016x} {seed} {:?}", self.model, arm.scenario)
    }

    fn path(&self, key: &str) -> PathBuf {
        self.dir.join(format!("{:016x}.run", hash(key)))
    }
}

fn hash(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

/// What comes of crowds under several balancers and controls: who changes what happens, or what is counted of it, changes this.
fn model() -> u64 {
    let mut all = String::new();
    let others = [Looks::new(1, 2).expect("both are small")].map(Scheme::Drill);
    for scheme in schemes().into_iter().chain(others) {
        let mut settings = Settings::new(1, scheme);
        settings.mark = Some(30_000);
        for (control, reordering_max) in [(ControlKind::NewReno, 0), (ControlKind::Dctcp, 127)] {
            (settings.tcp.control, settings.tcp.reordering_max) = (control, reordering_max);
            let simulation = crowd(settings.clone());
            let lines: Vec<_> = simulation.lines().collect();
            all += &format!("{:x} {:?} {lines:?}\n", simulation.digest(), simulation.measures().finished);
        }
    }
    hash(&all)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::fabric::scenario::Scenario;

    #[test]
    fn a_run_is_read_as_it_was_kept_and_another_one_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let text = "[topology]\nspines = 2\nleaves = 2\nhosts = 4\n[workload]\nload = 0.3\n[run]\nwarm_up = \"0 s\"\nflows = 200\n";
        let arm = Arm::new("drill", Scenario::parse(text, Path::new("")).unwrap());
        let kept = Kept::new(dir.path().join("runs"));
        assert!(kept.read(&arm, 1).is_none());
        let observed = arm.observe(1).unwrap();
        kept.write(&arm, 1, &observed).unwrap();
        let again = kept.read(&arm, 1).unwrap();
        assert_eq!((&again.times, &again.small_times), (&observed.times, &observed.small_times));
        assert_eq!(format!("{:?}", again.order), format!("{:?}", observed.order));
        // JSON's numbers are read to the last digit but one.
        assert!((again.drift / observed.drift - 1.0).abs() < 1e-12 && again.hops.len() == 4);
        assert!(kept.read(&arm, 2).is_none());
        let other = Kept { model: kept.model ^ 1, dir: kept.dir.clone() };
        assert!(other.read(&arm, 1).is_none(), "another simulator has kept it");
        let file = fs::read_dir(&kept.dir).unwrap().next().unwrap().unwrap().path();
        fs::write(&file, &fs::read(&file).unwrap()[..900]).unwrap();
        assert!(kept.read(&arm, 1).is_none(), "it is cut off");
    }
}
