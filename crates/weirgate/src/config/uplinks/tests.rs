use super::*;
use crate::config::{Config, Surroundings};

fn around() -> Surroundings {
    Surroundings { host: "h".into(), state: "/state".into(), run: "/run".into() }
}

fn read_text(text: &str) -> Uplinks {
    let config = Config::from_text(text, &around());
    config.unwrap_or_else(|problems| panic!("{problems:?}")).uplinks
}

fn refused(text: &str) -> String {
    let problems = Config::from_text(text, &around()).expect_err("this text is wrong");
    problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n")
}

/// Uplinks of these names, each with more keys.
fn uplinks(of: &[(&str, &str)]) -> String {
    of.iter().map(|(name, more)| format!("[[uplink]]\nname = \"{name}\"\n{more}")).collect()
}

#[test]
fn without_uplinks_there_is_nothing() {
    let none = read_text("");
    assert_eq!((none.uplinks.len(), none.rules.len(), none.notes.len()), (0, 0, 0));
    assert_eq!((none.mark_shift, none.table, none.priority), (24, 30_600, 30_600));
}

#[test]
fn an_uplink_needs_a_name_and_little_else() {
    let all = read_text(&uplinks(&[("eth1", ""), ("lte", "device = \"wwan0\"\n")]));
    let eth1 = &all.uplinks[0];
    assert_eq!((eth1.device.as_str(), eth1.gateways, eth1.weight), ("eth1", [Gateway::Auto; 2], None));
    assert!(eth1.masquerade && !eth1.is_metered && !eth1.is_backup && eth1.targets.len() == 6);
    assert_eq!(all.uplinks[1].device, "wwan0");
    assert_eq!(all.notes, []);
}

#[test]
fn every_key_is_understood() {
    let keys = "gateway = \"192.0.2.1\"\ngateway6 = \"none\"\nweight = \"50 Mbit/s\"\ncap = \"100 Mbit/s\"\nmetered = true\n\
                backup = true\nmedium = \"dsl\"\ntargets = [\"192.0.2.9\", \"192.0.2.9:443\", \"[2001:db8::1]:53\"]\n\
                masquerade = false\nprefixes = [\"2001:db8:1::/48\"]\n";
    let rule = "[[steer]]\nsource = \"10.0.0.0/8\"\nprotocol = \"tcp\"\ndestination_ports = \"25\"\nmark = \"0x10/0xff\"\n\
                uplinks = [\"b\", \"a\"]\notherwise = \"any\"\n[[steer]]\ndestination = \"192.0.2.0/24\"\nuplinks = [\"a\"]\n";
    let common = "[steering]\nnamespace = \"wan\"\nmarks = 16\ntable = 500\npriority = 600\ninside = [\"fd00::/48\"]\n";
    let all = read_text(&format!("{}{rule}{common}", uplinks(&[("a", keys), ("b", "")])));
    let a = &all.uplinks[0];
    assert_eq!(a.gateways, [Gateway::At("192.0.2.1".parse().unwrap()), Gateway::None]);
    assert_eq!((a.weight, a.cap.map(BitRate::as_bits_per_sec)), (Some(50_000_000), Some(100_000_000)));
    assert!(a.is_metered && a.is_backup && !a.masquerade);
    assert_eq!(a.targets.iter().map(|target| target.port).collect::<Vec<_>>(), [None, Some(443), Some(53)]);
    assert_eq!(
        a.targets.iter().map(ToString::to_string).collect::<Vec<_>>()[1..],
        ["192.0.2.9:443", "[2001:db8::1]:53"]
    );
    assert_eq!((a.medium.as_deref(), a.prefixes.len()), (Some("dsl"), 1));
    assert_eq!((all.rules[0].uplinks.as_slice(), all.rules[0].mark), (&[1, 0][..], Some([0x10, 0xff])));
    assert_eq!((all.rules[0].is_strict, all.rules[1].is_strict), (false, true));
    assert_eq!((&all.namespace, all.mark_shift), (&Namespace::Name("wan".into()), 16));
    assert_eq!((all.table, all.priority, all.inside.len()), (500, 600, 1));
}

#[test]
fn what_cannot_be_is_refused_with_its_line() {
    let one = |more: &str| refused(&uplinks(&[("a", more)]));
    for (text, said) in [
        (refused("[[uplink]]\ndevice = \"eth0\"\n"), "line 1: uplink: an uplink needs a `name`"),
        (refused(&uplinks(&[("a\\nb", "")])), "a name is letters, digits and signs, of one line"),
        (
            refused(&uplinks(&[("a", "device = \"eth0\"\n"), ("b", "device = \"eth0\"\n")])),
            "line 4: uplink: `b` has the same device as `a`",
        ),
        (refused(&uplinks(&[("a", ""), ("a", "")])), "there is another uplink called `a`"),
        (one("device = \"a-name-that-is-too-long\"\n"), "is no device: write a `device`, as `ip link` names it"),
        (one("gateway = \"2001:db8::1\"\n"), "2001:db8::1 is not of IPv4: write it as `gateway6`"),
        (one("gateway6 = \"192.0.2.1\"\n"), "192.0.2.1 is not of IPv6: write it as `gateway`"),
        (one("gateway = \"aoto\"\n"), "did you mean `auto`?; or an address"),
        (one("gateway = \"none\"\ngateway6 = \"none\"\n"), "neither IPv4 nor IPv6 goes by it"),
        (one("weight = \"heavy\"\n"), "`heavy` is no weight: write \"auto\", a rate as \"50 Mbit/s\""),
        (one("weight = 3\n"), "must be a text in double quotes: write \"3\""),
        (one("weight = \"0\"\n"), "an uplink of weight 0 takes nothing"),
        (one("cap = \"0 bit/s\"\n"), "may carry nothing"),
        (one("targets = []\n"), "names 0 targets: write 1 to 8"),
        (one("targets = [\"example.org\"]\n"), "`example.org` is no target: write an address"),
        (one("targets = [\"192.0.2.1:0\"]\n"), "is no target"),
        (one("metred = true\n"), "unknown key; did you mean `metered`?"),
        (
            refused(&uplinks(&[("a", "weight = \"3\"\n"), ("b", "")])),
            "line 3: uplink.weight: a plain number says nothing beside the rate of `b`",
        ),
        (one("[[steer]]\nprotocol = \"tcp\"\n"), "line 3: steer: a rule needs `uplinks`"),
        (one("[[steer]]\nuplinks = []\n"), "names no uplink"),
        (one("[[steer]]\nuplinks = [\"aa\"]\n"), "there is no uplink called `aa`; did you mean `a`?"),
        (one("[[steer]]\nuplinks = [\"a\", \"a\"]\n"), "`a` stands there twice"),
        (one("[[steer]]\nuplinks = [\"a\"]\nmark = \"0x100/0xff\"\n"), "never fits"),
        (one("[[steer]]\nuplinks = [\"a\"]\nmark = \"ten\"\n"), "is no mark"),
        (one("[[steer]]\nuplinks = [\"a\"]\notherwise = \"wait\"\n"), "`wait` is not known: write one of refuse, any"),
        (one("[steering]\nnamespace = \"all\"\n"), "uplinks are in one namespace"),
        (one("[steering]\nmarks = 25\n"), "must be a whole number of 0 to 24"),
        (one("[steering]\ntable = 254\n"), "must be a whole number of 256"),
    ] {
        assert!(text.contains(said), "{said}\nis not in\n{text}");
    }
    let many: Vec<String> = (0..33).map(|at| format!("wan{at}")).collect();
    let many: Vec<(&str, &str)> = many.iter().map(|name| (name.as_str(), "")).collect();
    assert!(refused(&uplinks(&many)).contains("33 uplinks: at most 32 are told apart"));
}

#[test]
fn what_can_hardly_be_meant_is_noted() {
    let noted = |text: &str| read_text(text).notes.iter().map(ToString::to_string).collect::<Vec<_>>();
    let only = noted(&uplinks(&[("a", "")]));
    assert_eq!(only, ["line 1: uplink: `a` is the only uplink: there is nothing to choose from, it is only watched"]);
    let backups = noted(&uplinks(&[("a", "backup = true\n"), ("b", "backup = true\n")]));
    assert_eq!(backups, ["line 1: uplink: all uplinks are backups: there is nobody whom they stand in for"]);
    let two = uplinks(&[("a", ""), ("b", "")]);
    let rule = |more: &str| noted(&format!("{two}[[steer]]\nuplinks = [\"a\"]\n{more}"));
    assert_eq!(rule(""), [""; 0], "the last one may take all");
    assert!(rule("[[steer]]\nuplinks = [\"b\"]\n")[0].starts_with("line 5: steer: it takes all connections"));
    assert!(rule("source = \"10.0.0.0/8\"\ndestination = \"2001:db8::/32\"\n")[0].contains("one network is IPv4"));
    assert!(rule("protocol = \"icmp\"\ndestination_ports = \"80\"\n")[0].contains("have ports"));
    let capped = noted(&uplinks(&[("a", "weight = \"9 Mbit/s\"\ncap = \"5 Mbit/s\"\n"), ("b", "")]));
    assert!(capped[0].contains("its `cap` says nothing beside it"));
}
