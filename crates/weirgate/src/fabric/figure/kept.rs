//! Runs that are done, in files: a figure that was interrupted goes on where it was, and a page is written again without running anything.

use std::collections::hash_map::DefaultHasher;
use std::fs;
use std::hash::{Hash as _, Hasher as _};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};
use weirgate_balance::Looks;
use weirgate_fabric::Scheme;
use weirgate_fabric::verify::schemes;

use super::arm::{Arm, Observed};
use crate::fabric::files::write_whole;
use crate::fabric::scenario::Scenario;

/// What a file begins with; another number, where what is kept of a run has changed, or something that no probe sees.
const FORMAT: u32 = 2;

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

/// Small runs that have between them all that figures make use of: networks, what fails in them, how switches and hosts are set,
/// workloads.
const PROBES: [&str; 5] = [
    "[topology]\nspines = 3\nleaves = 4\nhosts = 6\ncore = \"20 Gbit/s\"\n[[link]]\nbetween = [\"leaf0\", \"spine1\"]\nrate = \"10 Gbit/s\"\n\
     [failures]\nrandom = 2\nat = \"300 us\"\n[routing]\ndelay = \"200 us\"\n[switch]\nbuffer = \"100 KB\"\nmark = \"30 KB\"\nengines = 2\n\
     enqueue_delay = \"100 ns\"\n[tcp]\nmin_rto = \"5 ms\"\n\
     [workload]\nload = 0.7\n[incast]\nclients = 4\nservers = 6\n[run]\nwarm_up = \"100 us\"\nflows = 300\n",
    "[topology]\nspines = 2\nleaves = 4\nhosts = 6\ncore = \"20 Gbit/s\"\n[failures]\nrandom = 1\n[switch]\nshared_buffer = \"200 KB\"\nmark = \"30 KB\"\n\
     [tcp]\ncontrol = \"cubic\"\nreordering_max = 127\nshim = \"50 us\"\nmin_rto = \"5 ms\"\n\
     [workload]\nload = 0.7\nsizes = \"websearch\"\n[run]\nwarm_up = \"100 us\"\nflows = 40\n",
    "[topology]\nkind = \"vl2\"\ntors = 4\naggregations = 4\nintermediates = 2\nhosts = 4\nedge = \"10 Gbit/s\"\n[switch]\nmark = \"30 KB\"\n[tcp]\ncontrol = \"dctcp\"\nmin_rto = \"5 ms\"\n\
     [workload]\nload = 0.5\n[run]\nwarm_up = \"100 us\"\nflows = 200\n",
    "[topology]\nspines = 2\nleaves = 2\nhosts = 4\nedge = \"1 Gbit/s\"\ncore = \"1 Gbit/s\"\n[switch]\nmark = \"30 KB\"\n[tcp]\nmin_rto = \"5 ms\"\n\
     [workload]\nkind = \"stride\"\nstride = 4\nbytes = \"1 MB\"\nmice = \"50 KB\"\nmice_every = \"2 ms\"\n",
    "[topology]\nspines = 2\nleaves = 3\nhosts = 3\n[switch]\nmark = \"30 KB\"\n[tcp]\nmin_rto = \"5 ms\"\n[workload]\nkind = \"ring\"\nbytes = \"1 MB\"\n",
];

/// What comes of these under a balancer of each kind: who changes what happens there, or what is counted of it, changes this. Who changes
/// only what is not run there (FlowBender, JSQ, DRILL's other rules, what the probes do not set) changes [`FORMAT`].
fn model() -> u64 {
    let mut all = String::new();
    let others = [Looks::new(1, 2).expect("both are small")].map(Scheme::Drill);
    let schemes: Vec<Scheme> = schemes().into_iter().chain(others).collect();
    for probe in PROBES {
        let scenario = Scenario::parse(probe, Path::new("")).expect("these are sound");
        for scheme in &schemes {
            let mut scenario = scenario.clone();
            scenario.settings.scheme = *scheme;
            let observed = Arm::new("probe", scenario).observe(1);
            let Observed { times, small_times, .. } = observed.as_ref().expect("it drains");
            all += &format!("{observed:?} {times:?} {small_times:?}\n");
        }
    }
    hash(&all)
}

#[cfg(test)]
mod tests {
    use super::*;

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
