use weirgate_balance::CongaSettings;
use weirgate_fabric::Scheme;

use super::*;

const ARTICLE: &str = include_str!("../../../../../scenarios/article.toml");

fn parse(text: &str) -> Result<Scenario, String> {
    Scenario::parse(text, Path::new(""))
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

fn wrong(text: &str) -> String {
    parse(text).unwrap_err()
}

#[test]
fn the_articles_scenario_is_read() {
    let scenario = parse(ARTICLE).unwrap();
    assert_eq!(scenario.settings.scheme.name(), "drill(2,1)");
    assert_eq!(scenario.settings.buffers, Buffers::PerPort(300_000));
    assert_eq!(
        scenario.run,
        Run { flows: 100_000, warm_up: Duration::from_millis(20), time: Duration::from_secs(100) }
    );
    // What the article says is what an empty file means, but for its warm-up.
    let plain = parse("").unwrap();
    assert_eq!(Scenario { run: scenario.run, ..plain }, scenario);
}

#[test]
fn only_open_arrivals_are_warmed_up_and_cut_off_unless_said() {
    let run = |text: &str| {
        let run = parse(text).unwrap().run;
        (run.warm_up, run.flows)
    };
    assert_eq!(run(""), (Duration::from_millis(10), 100_000));
    assert_eq!(run("[workload]\nkind = \"ring\"\n"), (Duration::ZERO, FLOWS_MAX));
    let said = run("[workload]\nkind = \"ring\"\n[run]\nwarm_up = \"1 ms\"\nflows = 7\n");
    assert_eq!(said, (Duration::from_millis(1), 7));
}

#[test]
fn what_is_wrong_is_said_with_its_line_and_what_to_do() {
    for (text, said) in [
        (
            "[balance]\nscheme = \"dril\"\n",
            "line 2: balance.scheme: there is no scheme called `dril`; did you mean `drill`?",
        ),
        ("[balance]\nperiod = \"0 s\"\n", "line 2: balance.period: must be a time of 1 us to 1 s, as \"40 us\""),
        ("[balance]\nperiod = \"2 s\"\n", "line 2: balance.period: must be a time of 1 us to 1 s, as \"40 us\""),
        ("[balance]\ndecay = 0\n", "line 2: balance.decay: must be a whole number of 1 to 8, without quotes or unit"),
        ("[balance]\nbits = 9\n", "line 2: balance.bits: must be a whole number of 1 to 8, without quotes or unit"),
        ("[topology]\nkind = \"mesh\"\n", "there is no kind of topology called `mesh`"),
        ("[topology]\nspine = 3\n", "line 2: topology.spine: unknown key; did you mean `spines`?"),
        ("[topology]\ncore = \"0 bit/s\"\n", "line 2: topology.core: a link carries 1 Mbit/s at least"),
        ("[topology]\nkind = \"fat-tree\"\nk = 5\n", "line 3: topology.k: a fat tree's switches have an even number"),
        ("[workload]\nload = 1.2\n", "line 2: workload.load: must be a number of 0 to 1"),
        ("[workload]\nload = 0\n", "workload.load: a load of 0 sends nothing"),
        (
            "[topology]\nhosts = 5\n",
            "workload.load: a load of 0.8 on the uplinks is 2048.0 Gbit/s, and the hosts' own links carry 800.0: more hosts, \
             or a load of 0.312 at most",
        ),
        ("[topology]\nleaves = 1\n", "all hosts are at one leaf"),
        (
            "[topology]\nleaves = 70000\n",
            "topology: 70000 leaves and 1680000 links are too many: at most 65534 and 4000000",
        ),
        ("[topology]\nleaves = 50000\nhosts = 100000\n", "50000 leaves and 5000200000 links are too many"),
        (
            "[topology]\nkind = \"vl2\"\nhosts = 100000\ntors = 60000\n",
            "60000 leaves and 6000120032 links are too many",
        ),
        ("[topology]\nkind = \"pods\"\npods = 100000\n", "400000 leaves and 11200000 links are too many"),
        ("[workload]\nsizes = \"web\"\n", "there is no distribution called `web`"),
        ("[workload]\nsizes = \"none.csv\"\n", "line 2: workload.sizes: none.csv: No such file"),
        ("[[link]]\nbetween = [\"leaf0\", \"spine9\"]\nrate = \"10 Gbit/s\"\n", "there is no node called `spine9`"),
        (
            "[[link]]\nrate = \"10 Gbit/s\"\n",
            "line 1: link: `between` is missing: write between = [\"leaf0\", \"spine0\"]",
        ),
        (
            "[[link]]\nbetween = [\"leaf0\"]\nrate = \"10 Gbit/s\"\n",
            "line 2: link.between: a link is between two nodes",
        ),
        ("[failures]\nlinks = [\"leaf0 - leaf1\"]\n", "there is no link between leaf0 and leaf1"),
        ("[failures]\nrandom = 1\nat = \"100 s\"\n", "line 3: failures.at: nothing fails: the run ends after 100 s"),
        ("[topology]\nkind = \"vl2\"\naggregations = 5\n", "line 3: topology.aggregations: each top-of-rack switch is"),
        ("[topology]\ncore = \"8 Tbit/s\"\n", "line 2: topology.core: a link carries 4 Tbit/s at most"),
        (
            "[switch]\nmark = \"299 KB\"\n[tcp]\ncontrol = \"dctcp\"\n",
            "line 4: tcp.control: dctcp goes by marks (ECN), and a buffer is full before 299000 B wait: write mark = \"99487 B\", or less",
        ),
        (
            "[topology]\nspines = 300\nhosts = 300\nleaves = 2\ncore = \"10 Gbit/s\"\n[balance]\nscheme = \"conga\"\n",
            "line 1: topology: a leaf has 300 links to other switches, and conga's headers have a byte for them, 256 at most",
        ),
        (
            "[topology]\nkind = \"fat-tree\"\nk = 64\n[balance]\nscheme = \"drill-per-flow\"\n",
            "line 1: topology: the tables that drill(2,1)-per-flow goes by would take 21.5 GB",
        ),
        ("[failures]\nrandom = 65\n", "there are not 65 links that could fail"),
        ("[failures]\nrandom = 64\n", "line 2: failures.random: there is no way from host0 to host20 while leaf"),
        (
            "[failures]\nlinks = [\"host0 - leaf0\", \"leaf3 - spine1\"]\n",
            "line 2: failures.links: there is no way from host0 to host1 while host0 - leaf0 is down",
        ),
        (
            "[[link]]\nbetween = [\"host3\", \"leaf1\"]\nrate = \"10 Gbit/s\"\n",
            "line 1: link.between: host3 has 2 links: a host has one",
        ),
        (
            "[[link]]\nbetween = [\"leaf1\", \"leaf1\"]\nrate = \"10 Gbit/s\"\n",
            "line 1: link.between: the link leads from leaf1 to itself",
        ),
        (
            "[topology]\nhosts = 70000\nleaves = 2\n",
            "line 1: topology: a switch has more than 65535 links: fewer hosts",
        ),
        ("seed = 2\n[switch]\nbuffer = \"100 B\"\n", "line 3: switch.buffer: a buffer has room for a packet at least"),
        (
            "[switch]\nshared_buffer = \"100 B\"\n",
            "line 2: switch.shared_buffer: a buffer has room for a packet at least",
        ),
        ("[tcp]\ncontrol = \"bbr\"\n", "must be \"newreno\", \"cubic\" or \"dctcp\""),
        ("[run]\ntime = \"5 ms\"\n", "line 2: run.time: 5 ms is over before the warm-up is, of 10 ms"),
        (
            "[workload]\nkind = \"stride\"\nstride = 320\n",
            "line 3: workload.stride: a stride of 320 leads to the host itself: there are 320",
        ),
        (
            "[incast]\nclients = 300\n",
            "line 1: incast.servers: an incast's clients and servers are 332 different hosts, and there are 320",
        ),
        ("[incast]\nshare = 1.0\n", "line 2: incast.share: is a part of the load, neither none nor all of it"),
        ("[incast]\nshare = 0.0\n", "line 2: incast.share: is a part of the load"),
        (
            "[workload]\nkind = \"random\"\nmice = \"50 KB\"\nmice_every = \"0 s\"\n",
            "line 4: workload.mice_every: mice that come without a pause have no end",
        ),
        ("[tcp]\nmin_rto = \"0 s\"\n", "line 2: tcp.min_rto: a timer without time would run out for ever"),
        ("[tcp]\nmax_rto = \"0 s\"\n", "line 2: tcp.max_rto: a timer without time"),
        (
            "[tcp]\nmin_rto = \"10 s\"\nmax_rto = \"1 s\"\n",
            "line 3: tcp.max_rto: the shortest timer is longer than the longest one",
        ),
        ("[balance]\nscheme = \"adaptive\"\nquantum = \"0 B\"\n", "line 3: balance.quantum: queues differ by a byte"),
        ("[workload]\nsizes = \"0 B\"\n", "line 2: workload.sizes: a flow has 1 byte at least"),
        ("[workload]\nkind = \"ring\"\nbytes = \"0 B\"\n", "line 3: workload.bytes: a flow has 1 byte at least"),
        (
            "[workload]\nunit = \"KB\"\n",
            "line 2: workload.unit: says what a file of sizes counts, and `sizes` names none",
        ),
        ("seed = \n", "line 1: not TOML"),
    ] {
        let what = wrong(text);
        assert!(what.contains(said), "{text}: {what}");
    }
}

#[test]
fn a_graph_and_a_trace_are_read_from_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write(
        "net.toml",
        "hosts = [\"a\", \"b\"]\nswitches = [\"s\", \"t\", \"u\"]\n\
         [[link]]\nbetween = [\"a\", \"s\"]\nrate = \"10 Gbit/s\"\n[[link]]\nbetween = [\"b\", \"t\"]\nrate = \"10 Gbit/s\"\n\
         [[link]]\nbetween = [\"s\", \"u\"]\nrate = \"1 Gbit/s\"\ncount = 2\n[[link]]\nbetween = [\"t\", \"u\"]\nrate = \"1 Gbit/s\"\n",
    );
    write("trace.csv", "# us,from,to,bytes\n1.5,0,1,3000\n2,1,0,1\n");
    let text =
        "[topology]\nkind = \"graph\"\nfile = \"net.toml\"\n[workload]\nkind = \"trace\"\nfile = \"trace.csv\"\n";
    let scenario = Scenario::parse(text, folder.path()).unwrap();
    let mut simulation = scenario.simulation().unwrap();
    assert!(!simulation.run_until(Time::from_picos(1_000_000_000_000)));
    assert_eq!(simulation.measures().finished.len(), 2);
    write("trace.csv", "1.5,0,1,3000\n2,1,1,1\n");
    let problems = Scenario::parse(text, folder.path()).unwrap_err();
    assert!(problems[0].to_string().contains("trace.csv: line 2: `2,1,1,1` is not"), "{problems:?}");
    write("trace.csv", "1.5,0,2,3000\n");
    let problems = Scenario::parse(text, folder.path()).unwrap_err();
    let said = "line 6: workload.file: trace.csv: line 1: `1.5,0,2,3000` is of host 2: there are 2, numbered from 0";
    assert_eq!(problems[0].to_string(), said);
    write("trace.csv", "# nothing yet\n");
    let problems = Scenario::parse(text, folder.path()).unwrap_err();
    assert!(
        problems[0].to_string().contains("line 6: workload.file: trace.csv: there is no flow in it"),
        "{problems:?}"
    );
    // Beyond the run's time, or within its warm-up.
    for (trace, run) in [("200000000,0,1,1\n", ""), ("5,0,1,1\n", "[run]\nwarm_up = \"1 ms\"\n")] {
        write("trace.csv", trace);
        let problems = Scenario::parse(&format!("{text}{run}"), folder.path()).unwrap_err();
        let said = "line 6: workload.file: nothing would be measured: its flows begin from ";
        assert!(problems[0].to_string().starts_with(said), "{problems:?}");
    }
}

#[test]
fn what_is_wrong_with_a_graph_is_said_of_its_file_and_by_its_names() {
    let folder = tempfile::tempdir().unwrap();
    let link = |a: &str, b: &str| format!("[[link]]\nbetween = [\"{a}\", \"{b}\"]\nrate = \"10 Gbit/s\"\n");
    let said = |links: &[(&str, &str)], more: &str| {
        let links: String = links.iter().map(|(a, b)| link(a, b)).collect();
        let text = format!("hosts = [\"a\", \"b\"]\nswitches = [\"s\", \"t\"]\n{links}");
        std::fs::write(folder.path().join("net.toml"), text).unwrap();
        let text =
            format!("seed = 2\n[topology]\nkind = \"graph\"\nfile = \"net.toml\"\n[workload]\nkind = \"ring\"\n{more}");
        Scenario::parse(&text, folder.path()).unwrap_err()[0].to_string()
    };
    let parts = [("a", "s"), ("b", "t")];
    let of_file = |links: &[(&str, &str)]| said(&[&parts, links].concat(), "");
    assert_eq!(
        of_file(&[("s", "core")]),
        "line 4: topology.file: net.toml: line 9: link.between: there is no node called `core`; there are: a, b, s, t"
    );
    assert_eq!(
        of_file(&[("s", "s")]),
        "line 4: topology.file: net.toml: line 9: link.between: the link leads from s to itself"
    );
    assert_eq!(
        of_file(&[("a", "t")]),
        "line 4: topology.file: net.toml: line 9: link.between: a has 2 links: a host has one"
    );
    assert!(
        of_file(&[("a", "b")]).contains("net.toml: line 9: link.between: a and b are hosts, linked without a switch")
    );
    assert_eq!(of_file(&[]), "line 4: topology.file: net.toml: there is no way from a to b");
    assert_eq!(said(&parts[..1], ""), "line 4: topology.file: net.toml: b has 0 links: a host has one");
    let short = [parts[0], ("b", "s")];
    let lonely = "line 4: topology.file: net.toml: t has no link: write a [[link]] to it, or take it out";
    assert_eq!(said(&short, ""), lonely);
    let whole = [parts[0], parts[1], ("s", "t"), ("s", "t")];
    assert_eq!(
        said(&whole, "[failures]\nlinks = [\"s - t\", \"t-s\"]\n"),
        "line 8: failures.links: there is no way from a to b while s - t, s - t are down"
    );
}

#[test]
fn a_file_of_small_sizes_says_what_it_counts() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("web.csv"), "1,0\n10,0.5\n20000,1\n").unwrap();
    let sizes = |more: &str| {
        let text = format!("[tcp]\nmss = 1000\n[workload]\nsizes = \"web.csv\"\n{more}");
        let scenario = Scenario::parse(&text, folder.path()).map_err(|problems| problems[0].to_string())?;
        let Traffic::Poisson { sizes, .. } = scenario.traffic else { unreachable!("it is open") };
        Ok(sizes.largest())
    };
    let asked = "line 4: workload.sizes: web.csv: the largest flow is of 20000: bytes? Write unit = \"bytes\", \"KB\" (1,000 bytes) or \
                 \"packets\" (of tcp.mss bytes) below [workload]";
    assert_eq!(sizes(""), Err(asked.to_owned()));
    for (unit, largest) in [("bytes", 20_000), ("KB", 20_000_000), ("packets", 20_000_000)] {
        assert_eq!(sizes(&format!("unit = \"{unit}\"\n")), Ok(largest), "{unit}");
    }
    let wrong = sizes("unit = \"MB\"\n").unwrap_err();
    assert!(wrong.starts_with("line 5: workload.unit: there is no unit called `MB`"), "{wrong}");
    std::fs::write(folder.path().join("web.csv"), "1,0\n10,0.5\n100000,1\n").unwrap();
    assert_eq!(sizes(""), Ok(100_000));
}

#[test]
fn what_has_no_effect_is_refused() {
    let marks = "goes by marks (ECN), and nothing is marked: write mark = \"100 KB\" below [switch]";
    for (scheme, key) in [("plb", "balance.scheme"), ("flowbender", "balance.scheme"), ("reps", "balance.scheme")] {
        let text = format!("[balance]\nscheme = \"{scheme}\"\n");
        assert_eq!(wrong(&text), format!("line 2: {key}: {scheme} {marks}"));
        parse(&format!("{text}[switch]\nmark = \"100 KB\"\n")).unwrap();
    }
    assert_eq!(wrong("[tcp]\ncontrol = \"dctcp\"\n"), format!("line 2: tcp.control: dctcp {marks}"));
    let incast = "[workload]\nkind = \"ring\"\n[incast]\nclients = 2\n";
    assert_eq!(
        wrong(incast),
        "line 3: incast: an incast is beside kind = \"poisson\" below [workload] only: take it out"
    );
    let nothing = "nothing fails: write links = [\"leaf0 - spine0\"] or random = 1";
    assert_eq!(
        wrong("[failures]\nat = \"1 ms\"\nuntil = \"2 ms\"\n"),
        format!("line 2: failures.at: {nothing}\nline 3: failures.until: {nothing}")
    );
    parse("[failures]\nrandom = 0\nat = \"1 ms\"\n").unwrap();
}

#[test]
fn every_kind_of_network_runs_as_it_comes() {
    for kind in KINDS_OF_TOPOLOGY.into_iter().filter(|kind| *kind != "graph") {
        let scenario = parse(&format!("[topology]\nkind = \"{kind}\"\n")).unwrap();
        let (topology, _) = scenario.network.build(1).unwrap();
        let hosts = topology.nodes().filter(|node| topology.is_host(*node)).count();
        assert_eq!(hosts as u64, scenario.network.hosts(), "{kind}");
    }
    // What fits is what is said to fit.
    let pods = |load: &str| set("[topology]\nkind = \"pods\"\nhosts = 3\n", &[&format!("workload.load={load}")]);
    let most = "more hosts, or a load of 0.187 at most (set on the command line)";
    assert!(pods("0.188").unwrap_err().ends_with(most), "{:?}", pods("0.188"));
    pods("0.187").unwrap();
}

fn set(text: &str, overrides: &[&str]) -> Result<Scenario, String> {
    let overrides: Vec<Override> = overrides.iter().map(|set| set.parse().unwrap()).collect();
    Scenario::parse_with(text, Path::new(""), &overrides)
        .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
}

#[test]
fn what_is_set_on_the_command_line_is_as_if_it_stood_in_the_file() {
    let changed = ARTICLE.replace("scheme = \"drill\"", "scheme = \"ecmp\"").replace("load = 0.8", "load = 0.5");
    let sets = ["balance.scheme=ecmp", "workload.load = 0.5", "topology.core=40 Gbit/s", "tcp.min_rto=\"200 ms\""];
    assert_eq!(set(ARTICLE, &sets).unwrap(), parse(&changed).unwrap());
    let failed = set("", &["failures.links=[\"leaf0 - spine1\"]"]).unwrap();
    assert_eq!(failed.network.failures.links, [["leaf0", "spine1"].map(String::from)]);
    // Nothing takes a key out.
    let shared = set(ARTICLE, &["switch.buffer=", "switch.shared_buffer=1 MB", "failures.random="]).unwrap();
    assert_eq!(shared.settings.buffers, Buffers::Shared(1_000_000));
}

#[test]
fn what_is_wrong_with_it_is_said_as_of_the_file() {
    for (sets, said) in [
        (
            &["balance.scheme=dril"][..],
            "balance.scheme: there is no scheme called `dril`; did you mean `drill`? There are: adaptive, conga",
        ),
        (&["balance.schema=drill"], "balance.schema: unknown key; did you mean `scheme`? (set on the command line)"),
        (&["seed=3", "failures.links=[\"leaf0\"]"], "failures.links: `leaf0` is not \"leaf0 - spine1\", with"),
        (&["failures.links=[\"leaf-1-sp-1\"]"], "failures.links: `leaf-1-sp-1` is not \"leaf0 - spine1\", with spaces"),
        (&["seed=3", "seed=4"], "seed: is set twice on the command line: leave one of them out"),
        (&["balance=3"], "balance: must be a table, not integer"),
        (&["failures.random=64"], "failures.random: there is no way from host0 to host20 while leaf"),
    ] {
        let what = set(ARTICLE, sets).unwrap_err();
        assert!(what.starts_with(said), "{sets:?}: {what}");
    }
    // Those of the file keep their lines.
    let what = set("[topology]\nspine = 3\n", &["seed=2", "run.flow=3"]).unwrap_err();
    assert!(
        what.starts_with("line 2: topology.spine: unknown key") && what.contains("\nrun.flow: unknown key"),
        "{what}"
    );
    for typed in ["scheme", "=3", "a..b=3", "balance.scheme x=3", "seed=1\n2"] {
        assert!(typed.parse::<Override>().is_err(), "{typed}");
    }
}

#[test]
fn conga_is_the_articles_unless_said() {
    let conga = |text: &str| match parse(&format!("[balance]\nscheme = \"conga\"\n{text}")).unwrap().settings.scheme {
        Scheme::Conga(conga) => conga,
        other => panic!("{other:?}"),
    };
    assert_eq!(conga(""), CongaSettings::default());
    let text = "period = \"20 us\"\ndecay = 3\nbits = 4\nage_max = \"0 s\"\ngap = \"100 us\"\nflowlets = 1024\n";
    let said = CongaSettings {
        period: Duration::from_micros(20),
        decay: 3,
        bits: 4,
        age_max: Duration::ZERO,
        gap: Duration::from_micros(100),
        flowlets: 1_024,
    };
    assert_eq!(conga(text), said);
}

#[test]
fn a_ring_has_its_order() {
    let order = |text: &str| match parse(&format!("[workload]\nkind = \"ring\"\n{text}")).unwrap().traffic {
        Traffic::Ring { order, .. } => order,
        other => panic!("{other:?}"),
    };
    use weirgate_fabric::RingOrder::{Hosts, Leaves};
    assert_eq!([order(""), order("order = \"hosts\""), order("order = \"leaves\"")], [Hosts, Hosts, Leaves]);
    let problem = wrong("[workload]\nkind = \"ring\"\norder = \"spines\"\n");
    assert!(problem.contains("workload.order: must be \"hosts\" or \"leaves\""), "{problem}");
}

const NO_KEY: &str = "zzzzzzzzzzzzzzzzzzzz";

/// All keys that are asked for in a section: what is unknown is answered with what is known.
fn asked(section: &str, what: &str) -> Vec<String> {
    let known =
        what.split_once(&format!("{section}{NO_KEY}: unknown key; known here: ")).unwrap_or_else(|| panic!("{what}")).1;
    let known = known.lines().next().unwrap().trim_end_matches(" (set on the command line)");
    known.split(", ").map(|key| format!("{section}{key}")).collect()
}

#[test]
fn every_key_is_on_the_page_for_users() {
    let in_section = |text: &str, section: &str| {
        let section = format!("{section}.");
        asked(&section, &set(text, &[&format!("{section}{NO_KEY}=1")]).unwrap_err())
    };
    let mut keys = std::collections::BTreeSet::from(["seed".to_owned()]);
    let mut sections = asked("", &set("", &[&format!("{NO_KEY}=1")]).unwrap_err());
    sections.retain(|section| section != "seed" && section != "link");
    keys.extend(sections.iter().flat_map(|section| in_section("", section)));
    keys.extend(asked("link.", &wrong(&format!("[[link]]\n{NO_KEY} = 1\n"))));
    for kind in KINDS_OF_TOPOLOGY {
        keys.extend(in_section(&format!("[topology]\nkind = \"{kind}\"\nfile = \"none.toml\"\n"), "topology"));
    }
    for kind in KINDS_OF_WORKLOAD {
        keys.extend(in_section(&format!("[workload]\nkind = \"{kind}\"\nfile = \"none.csv\"\n"), "workload"));
    }
    assert!(keys.len() > 60, "{keys:?}");
    let page = include_str!("../../../../../docs/fabric.md");
    let rows: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next()).collect();
    let (absent, gone): (Vec<_>, Vec<_>) = (
        keys.iter().filter(|key| !rows.contains(&key.as_str())).collect(),
        rows.iter().filter(|row| row.contains('.') && !keys.contains(**row)).collect(),
    );
    assert!(absent.is_empty() && gone.is_empty(), "not on the page: {absent:?}; not asked for: {gone:?}");
}
