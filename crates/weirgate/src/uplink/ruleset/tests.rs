use std::io::Write as _;
use std::process::{Command, Stdio};

use super::*;
use crate::config::uplinks::UPLINKS_MAX;

const GOLDEN: &str = include_str!("golden.jsonl");

fn prefix_of(text: &str) -> Prefix {
    text.parse().unwrap()
}

/// Two uplinks with all that can be said of them, the second one given up, and rules of every form.
fn full() -> (Vec<RuledUplink>, Vec<FlowRule>, Vec<Order>) {
    let fiber = RuledUplink {
        device: "eth1".into(),
        addresses: vec!["192.0.2.10".parse().unwrap(), "2001:db8:1::10".parse().unwrap()],
        near: vec![prefix_of("192.0.2.0/24"), prefix_of("192.0.2.1/32"), prefix_of("2001:db8:1::/64")],
        prefixes: vec![prefix_of("2001:db8:100::/48")],
        masquerade: true,
        is_given_up: [false; 2],
    };
    let lte = RuledUplink {
        device: "wwan0".into(),
        addresses: vec!["100.64.0.2".parse().unwrap()],
        near: Vec::new(),
        prefixes: vec![prefix_of("2001:db8:200::/48"), prefix_of("203.0.113.0/29")],
        masquerade: true,
        is_given_up: [true, false],
    };
    let rules = vec![
        FlowRule {
            destination: Some(prefix_of("198.51.100.0/24")),
            protocol: Some(6),
            destination_ports: Some(Ports { first: 25, last: 25 }),
            is_strict: true,
            ..FlowRule::default()
        },
        FlowRule {
            source: Some(prefix_of("fd00:1::/64")),
            source_ports: Some(Ports { first: 1_000, last: 2_000 }),
            mark: Some([0x10, 0xff]),
            ..FlowRule::default()
        },
    ];
    let of = |order: [&[Place]; 4]| order.map(<[Place]>::to_vec);
    let orders = vec![of([&[0, 1, 0], &[0], &[0], &[]]), of([&[], &[1], &[], &[]]), of([&[1], &[], &[], &[]])];
    (vec![fiber, lte], rules, orders)
}

fn lines(batch: &Value) -> Vec<String> {
    batch["nftables"].as_array().unwrap().iter().map(ToString::to_string).collect()
}

/// What nft says to a batch in a namespace where nothing is; `None` where it cannot be asked.
fn ask_nft(batch: &Value, then: &str) -> Option<Result<String, String>> {
    if !rustix::process::geteuid().is_root() || Command::new("nft").arg("--version").output().is_err() {
        println!("SKIPPED: it takes root and nft");
        return None;
    }
    let script = format!("nft -j -f - && {then}");
    let mut command = Command::new("unshare");
    command.args(["-n", "sh", "-c", &script]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(batch.to_string().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let said = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Some(if output.status.success() { Ok(said(&output.stdout)) } else { Err(said(&output.stderr)) })
}

#[test]
fn the_whole_table_is_the_golden_one_and_nft_takes_it() {
    let (uplinks, rules, orders) = full();
    let inside = [prefix_of("fd00:1::/48")];
    let marks = Marks::default();
    let ruleset = Ruleset { marks, uplinks: &uplinks, rules: &rules, orders: &orders, inside: &inside };
    let batch = ruleset.whole();
    let listed = ask_nft(&batch, "nft -n list table inet weirgate_uplinks").transpose().unwrap();
    let lines = lines(&batch);
    let golden: Vec<&str> = GOLDEN.lines().collect();
    if lines != golden {
        let path = std::env::temp_dir().join("weirgate-ruleset-golden.jsonl");
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
        let first = lines.iter().zip(&golden).position(|(line, golden)| line != golden);
        panic!("the rules differ from golden.jsonl, first in line {first:?}; what they are now: {}", path.display());
    }
    let Some(listed) = listed else { return };
    for rule in [
        "ct mark & 0x7f000000 vmap { 0x01000000 : goto mark_1, 0x02000000 : goto mark_2 }",
        "numgen inc mod 3 vmap { 0 : goto use_1, 1 : goto use_2, 2 : goto use_1 }",
        "type route hook output priority -150",
        "oifname \"eth1\" fib saddr . oif type != 2 masquerade",
        "oifname \"eth1\" ip6 saddr fd00:1::/48 snat ip6 prefix to 2001:db8:100::/48",
        "oifname \"wwan0\" ip6 saddr 2001:db8:100::/48 snat ip6 prefix to 2001:db8:200::/48",
        "meta l4proto 6 ct state == 0x2 reject with tcp reset",
    ] {
        assert!(listed.contains(rule), "{rule} is not in\n{listed}");
    }
}

#[test]
fn the_largest_table_is_taken_too() {
    let uplink = |at: usize| RuledUplink { device: format!("wan{at}"), masquerade: true, ..RuledUplink::default() };
    let uplinks: Vec<RuledUplink> = (0..UPLINKS_MAX).map(uplink).collect();
    let order: Order = std::array::from_fn(|_| (0..128).map(|slot| slot % UPLINKS_MAX).collect());
    let (rules, orders) = (vec![FlowRule::default(); 16], vec![order; 17]);
    let ruleset = Ruleset { marks: Marks::new(0), uplinks: &uplinks, rules: &rules, orders: &orders, inside: &[] };
    if let Some(said) = ask_nft(&ruleset.whole(), "true") {
        said.unwrap();
    }
}

#[test]
fn orders_signs_and_removal_are_taken_after_it() {
    let (uplinks, rules, orders) = full();
    let marks = Marks::default();
    let ruleset = Ruleset { marks, uplinks: &uplinks, rules: &rules, orders: &orders, inside: &[] };
    let reorder = ruleset.reorder(&[(0, Kind::ALL[0]), (1, Kind::ALL[0]), (2, Kind::ALL[3])]);
    assert_eq!(lines(&reorder).len(), 6, "each is emptied and filled");
    let dir = tempfile::tempdir().unwrap();
    let mut then = Vec::new();
    for (name, batch) in
        [("reorder", &reorder), ("again", &ruleset.whole()), ("alive", &sign_of_life()), ("end", &removal())]
    {
        let path = dir.path().join(name);
        std::fs::write(&path, batch.to_string()).unwrap();
        then.push(format!("nft -j -f {}", path.display()));
    }
    let then = then.join(" && ") + " && nft list ruleset";
    if let Some(said) = ask_nft(&ruleset.whole(), &then) {
        assert_eq!(said.unwrap(), "");
    }
}

#[test]
fn a_pool_of_which_nothing_works_is_refused_or_goes_by_any() {
    let (uplinks, rules, orders) = full();
    let marks = Marks::default();
    let ruleset = Ruleset { marks, uplinks: &uplinks, rules: &rules, orders: &orders, inside: &[] };
    let text = |pool: usize, kind: Kind| ruleset.next_rule(pool, kind, &[]).map(|rule| rule.to_string());
    assert!(text(1, Kind::ALL[0]).unwrap().contains("admin-prohibited"));
    assert!(text(2, Kind::ALL[3]).unwrap().contains("{\"goto\":{\"target\":\"next_0_other6\"}}"));
    assert_eq!(text(0, Kind::ALL[0]), None, "the main routing table has them");
}

#[test]
fn networks_of_a_set_lie_apart() {
    let near_v4 = near(Family::V4, &[prefix_of("192.0.2.1/32"), prefix_of("192.0.2.0/24"), prefix_of("224.1.0.0/16")]);
    let text: Vec<String> = near_v4.iter().map(ToString::to_string).collect();
    assert_eq!(text, ["224.0.0.0/4", "169.254.0.0/16", "192.0.2.0/24", "255.255.255.255/32"]);
}

#[test]
fn counters_are_known_by_their_names() {
    for family in Family::ALL {
        for (at, way) in ["to", "from"].into_iter().enumerate() {
            assert_eq!(counted(&counter(way, family, 6)), Some((6, family, at)));
        }
    }
    for other in ["to_1", "to_0_ipv4", "from_x_ipv6", "out_1_ipv4", "to_1_ip", ""] {
        assert_eq!(counted(other), None, "{other}");
    }
}
