use std::fs;
use std::sync::atomic::AtomicBool;

use super::*;
use crate::fabric::merge::Merged;

const SMALL: &str = "[topology]\nspines = 2\nleaves = 2\nhosts = 4\ncore = \"20 Gbit/s\"\n[workload]\nsizes = \"20 KB\"\nload = 0.5\n\
                     [run]\nwarm_up = \"100 us\"\nflows = 150\n";

struct Ground {
    folder: tempfile::TempDir,
}

impl Ground {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("small.toml"), SMALL).unwrap();
        Self { folder }
    }

    fn at(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn plan(&self, set: &[&str], vary: &[&str], seeds: u32) -> Result<Plan, String> {
        let set: Vec<_> = set.iter().map(|set| set.parse().unwrap()).collect();
        let vary: Vec<Vary> = vary.iter().map(|vary| vary.parse().unwrap()).collect();
        Plan::new(&self.at("small.toml"), &set, &vary, seeds).map_err(|error| error.to_string())
    }

    fn sweep(&self, plan: &Plan, shard: &str, out: &str, threads: usize) -> Result<Swept, String> {
        let shard = shard.parse().unwrap();
        sweep(plan, shard, &self.at(out), threads, &AtomicBool::new(false), &mut |_| ())
            .map_err(|error| error.to_string())
    }

    /// What is varied, seeds and digests, sorted.
    fn digests(&self, out: &str) -> Vec<(String, u64, String)> {
        let cells = read(&self.at(out)).unwrap().into_iter();
        let cell =
            |(_, cell): (PathBuf, Cell)| (format!("{:?}", cell.place.vary), cell.place.seed, cell.outcome.digest);
        let mut cells: Vec<_> = cells.map(cell).collect();
        cells.sort();
        cells
    }
}

const VARIED: [&str; 2] = ["balance.scheme=ecmp,drill", "workload.load=0.3,0.6"];

#[test]
fn same_digest_1_and_2_threads() {
    let ground = Ground::new();
    let plan = ground.plan(&[], &VARIED, 3).unwrap();
    for (out, threads) in [("one", 1), ("two", 2)] {
        assert_eq!(ground.sweep(&plan, "1/1", out, threads), Ok(Swept { found: 0, made: 12, missing: 0 }));
    }
    let digests = ground.digests("one");
    assert_eq!(digests.len(), 12);
    assert_eq!(digests, ground.digests("two"));
}

#[test]
fn shards_are_parts_of_the_same_sweep() {
    let ground = Ground::new();
    let plan = ground.plan(&[], &VARIED, 3).unwrap();
    ground.sweep(&plan, "1/1", "all", 2).unwrap();
    for shard in ["1/2", "2/2"] {
        assert_eq!(ground.sweep(&plan, shard, "shards", 2).unwrap().made, 6);
    }
    ground.sweep(&plan, "1/3", "first", 2).unwrap();
    ground.sweep(&plan, "3/3", "third", 2).unwrap();
    ground.sweep(&plan, "2/3", "first", 2).unwrap();
    assert_eq!(ground.digests("all"), ground.digests("shards"));
    let rows = |folders: &[&str]| {
        let folders: Vec<PathBuf> = folders.iter().map(|name| ground.at(name)).collect();
        serde_json::to_string(&Merged::read(&folders).unwrap().rows()).unwrap()
    };
    assert_eq!(rows(&["all"]), rows(&["first", "third"]));
    assert_eq!(rows(&["all"]), rows(&["third", "shards", "first"]), "copies of a run count once");
    let missing = |folders: &[&str]| {
        let folders: Vec<PathBuf> = folders.iter().map(|name| ground.at(name)).collect();
        Merged::read(&folders).unwrap().missing()
    };
    assert_eq!([missing(&["third"]), missing(&["third", "first"])], [(8, 12), (0, 12)]);
    for shard in ["0/2", "3/2", "1", "a/b", "1/0"] {
        assert!(shard.parse::<Shard>().unwrap_err().contains("write 1/4"), "{shard}");
    }
}

#[test]
fn what_was_interrupted_goes_on_and_may_grow() {
    let ground = Ground::new();
    let plan = ground.plan(&[], &["balance.scheme=ecmp,drill"], 4).unwrap();
    let stop = AtomicBool::new(false);
    let mut left = Vec::new();
    let swept = sweep(&plan, Shard::ALL, &ground.at("out"), 1, &stop, &mut |progress| {
        left.push(progress.left.is_some());
        stop.store(progress.there == 3, Ordering::Relaxed);
    });
    assert_eq!(swept.unwrap(), Swept { found: 0, made: 3, missing: 5 });
    assert_eq!(left, [false, true, true, true], "how long it takes is known from the first one");
    let written = fs::read_dir(ground.at("out")).unwrap().count();
    assert_eq!(written, 3, "what was interrupted leaves no file");
    assert_eq!(ground.sweep(&plan, "1/1", "out", 2), Ok(Swept { found: 3, made: 5, missing: 0 }));
    assert_eq!(ground.sweep(&plan, "1/1", "out", 2), Ok(Swept { found: 8, made: 0, missing: 0 }));
    // More of the same sweep: other seeds, and another value.
    let more = ground.plan(&["seed=4"], &["balance.scheme=ecmp,drill,rr"], 2).unwrap();
    assert_eq!(ground.sweep(&more, "1/1", "out", 2), Ok(Swept { found: 2, made: 4, missing: 0 }));
    let whole = ground.plan(&[], &["balance.scheme=ecmp,drill,rr"], 5).unwrap();
    ground.sweep(&whole, "1/1", "whole", 2).unwrap();
    let (all, some) = (ground.digests("whole"), ground.digests("out"));
    assert_eq!((all.len(), some.len()), (15, 12));
    assert_eq!(Merged::read(&[ground.at("out")]).unwrap().missing(), (0, 12), "of both sweeps, not of one over both");
    assert!(some.iter().all(|cell| all.contains(cell)));
}

#[test]
fn cells_of_something_else_are_left_alone() {
    let ground = Ground::new();
    let plan = ground.plan(&[], &["balance.scheme=ecmp"], 1).unwrap();
    ground.sweep(&plan, "1/1", "out", 1).unwrap();
    let before = ground.digests("out");
    let refused = |set: &[&str], vary: &[&str], said: &str| {
        let plan = ground.plan(set, vary, 1).unwrap();
        let error = ground.sweep(&plan, "1/1", "out", 1).unwrap_err();
        assert!(error.contains(said) && error.contains("choose another folder"), "{error}");
    };
    refused(&["run.flows=151"], &["balance.scheme=ecmp"], "is of another scenario, or of the same with other keys set");
    refused(&[], &["balance.scheme=ecmp", "workload.load=0.3"], "is of a sweep over balance.scheme:");
    assert_eq!(ground.digests("out"), before);
    fs::write(ground.at("out/outcome.json"), "{}").unwrap();
    refused(&[], &["balance.scheme=ecmp"], "outcome.json is no cell of a sweep");
    let merged = |folder: &str| Merged::read(&[ground.at(folder)]).unwrap_err().to_string();
    assert!(merged("out").contains("is no cell of a sweep"));
    fs::create_dir(ground.at("empty")).unwrap();
    assert!(merged("empty").contains("there is no cell"));
    assert!(merged("none").contains("No such file"));
}

/// Another distribution under the same name is another run.
#[test]
fn what_a_scenario_reads_is_part_of_it() {
    let ground = Ground::new();
    let sizes = |bytes: u32| fs::write(ground.at("sizes.csv"), format!("{bytes},0\n{bytes},1\n")).unwrap();
    let plan = || ground.plan(&[], &["workload.sizes=10 KB,sizes.csv"], 1).unwrap();
    sizes(500_000);
    assert_eq!(ground.sweep(&plan(), "1/1", "out", 1).unwrap().made, 2);
    assert_eq!(ground.sweep(&plan(), "1/1", "out", 1).unwrap().found, 2);
    sizes(600_000);
    let error = ground.sweep(&plan(), "1/1", "out", 1).unwrap_err();
    assert!(error.contains("a file that the scenario names has changed since"), "{error}");
}

/// What is varied may be what the others need.
#[test]
fn what_is_varied_completes_the_scenario() {
    let ground = Ground::new();
    let plan = |vary: &[&str]| ground.plan(&["balance.scheme=plb"], vary, 1);
    assert!(plan(&[]).unwrap_err().contains("balance.scheme: plb goes by marks (ECN), and nothing is marked"));
    assert_eq!(plan(&["switch.mark=50 KB,100 KB"]).unwrap().cells(Shard::ALL).len(), 2);
    assert_eq!(ground.plan(&["failures.at=1 ms"], &["failures.random=0,1"], 1).unwrap().cells(Shard::ALL).len(), 2);
}

#[test]
fn what_cannot_be_varied_is_refused() {
    let ground = Ground::new();
    for (set, vary, said) in [
        (&[][..], &["balance.scheme=ecmp,dril"][..], "there is no scheme called `dril`; did you mean `drill`?"),
        (&[], &["balance.schema=ecmp"], "balance.schema: unknown key; did you mean `scheme`?"),
        (&[], &["seed=1,2"], "--vary seed: seeds are varied by --seeds"),
        (&[], &["workload.load=0.1,0.2,0.1"], "--vary workload.load: `0.1` is there twice"),
        (&[], &["workload.load=0.1", "workload.load=0.2"], "--vary workload.load: is there twice"),
        (&["workload.load=0.5"], &["workload.load=0.1"], "--vary workload.load: is set by --set as well"),
        (&["run.flow=3"], &[], "run.flow: unknown key; did you mean `flows`?"),
    ] {
        let error = ground.plan(set, vary, 1).unwrap_err();
        assert!(error.contains(said), "{error}");
    }
    let many: Vec<String> = (1..=400).map(|n| n.to_string()).collect();
    let [a, b] = ["topology.spines", "switch.engines"].map(|key| format!("{key}={}", many.join(",")));
    assert!(ground.plan(&[], &[&a, &b], 1).unwrap_err().contains("160000 runs, and 100000 at most"));
    for typed in ["balance.scheme", "balance.scheme=", "a=1,,2", "=1"] {
        assert!(typed.parse::<Vary>().unwrap_err().contains("balance.scheme=ecmp,drill"), "{typed}");
    }
    let links = ground.plan(&[], &["failures.links=[],[\"leaf0 - spine0\", \"leaf1 - spine1\"]"], 1).unwrap_err();
    assert!(links.contains("there is no way"), "a list is one value: {links}");
}

/// With the same seeds, and so the same flows: a ratio of 1 to itself, and of each pair, not of means.
#[test]
fn what_is_merged_is_compared_seed_by_seed() {
    let ground = Ground::new();
    let plan = ground.plan(&[], &VARIED, 3).unwrap();
    ground.sweep(&plan, "1/1", "out", 2).unwrap();
    let merged = Merged::read(&[ground.at("out")]).unwrap();
    assert_eq!(merged.keys(), ["balance.scheme", "workload.load"]);
    let rows = merged.rows();
    let names: Vec<Vec<&str>> =
        rows.iter().map(|row| row.vary.iter().map(|[_, value]| value.as_str()).collect()).collect();
    assert_eq!(names, [["ecmp", "0.3"], ["ecmp", "0.6"], ["drill", "0.3"], ["drill", "0.6"]]);
    assert!(rows.iter().all(|row| row.seeds == [1, 2, 3] && row.unfinished == 0));
    let means = |scheme: &str, load: &str| -> Vec<f64> {
        let is_it = |cell: &Cell| cell.place.vary[0][1] == scheme && cell.place.vary[1][1] == load;
        let mut cells: Vec<Cell> =
            read(&ground.at("out")).unwrap().into_iter().map(|(_, cell)| cell).filter(is_it).collect();
        cells.sort_by_key(|cell| cell.place.seed);
        cells.iter().map(|cell| cell.outcome.times.fct_us.mean.unwrap().value).collect()
    };
    let [ecmp, drill] = ["ecmp", "drill"].map(|scheme| means(scheme, "0.6"));
    let measure = |row: usize| rows[row].measures["fct_mean_us"];
    assert!((measure(3).mean.unwrap().value - drill.iter().sum::<f64>() / 3.0).abs() < 1e-9);
    let ratio: f64 = drill.iter().zip(&ecmp).map(|(drill, ecmp)| drill / ecmp).product();
    assert!((measure(3).ratio.unwrap().value - ratio.cbrt()).abs() < 1e-9, "the mean of its logarithm");
    assert_eq!(measure(1).ratio.unwrap().interval, Some([1.0, 1.0]));
    let mut csv = Vec::new();
    merged.write_csv(&mut csv).unwrap();
    let csv = String::from_utf8(csv).unwrap();
    let mut lines = csv.lines();
    let heads: Vec<&str> = lines.next().unwrap().split(',').collect();
    assert_eq!(heads[..6], ["balance.scheme", "workload.load", "seed", "ended", "flows", "fct_mean_us"]);
    assert!(lines.clone().count() == 12 && lines.all(|line| line.split(',').count() == heads.len()));
}
