use super::shaping::PortKind;
use super::*;

const EXAMPLE: &str = include_str!("../../../../weirgate.example.toml");

fn root() -> Surroundings {
    Surroundings { host: "localhost".into(), state: "/var/lib/weirgate".into(), run: "/run/weirgate".into() }
}

fn problems(text: &str) -> String {
    let problems = Config::from_text(text, &root()).expect_err("this text is wrong");
    problems.iter().map(Problem::to_string).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_example_is_the_defaults() {
    let example = Config::from_text(EXAMPLE, &root()).unwrap();
    assert_eq!(example, Config::from_text("", &root()).unwrap());
}

#[test]
fn the_example_shows_every_key() {
    let shown = |key: &str| {
        // A table's name stands in its own head.
        EXAMPLE.contains(&format!(".{key}]"))
            || EXAMPLE
                .lines()
                .any(|line| line.trim_start_matches("# ").split('=').next().is_some_and(|k| k.trim() == key))
    };
    // An unknown key that is like no other makes the reader list the known ones.
    for section in ["host", "http", "control", "sockets", "store", "tune", "tune.limits", "steering"] {
        let text = problems(&format!("[{section}]\nxyzzyxyzzy = 1"));
        let (_, known) = text.split_once("known here: ").expect("a list of the known keys");
        for key in known.split(", ") {
            assert!(shown(key), "weirgate.example.toml does not show `{key}` of [{section}]");
        }
    }
}

#[test]
fn the_example_s_comments_are_valid_values() {
    for key in ["states", "min_rtt_min", "min_rtt_max", "retransmit_min", "retransmit_max"] {
        let uncommented = EXAMPLE.replace(&format!("# {key} = "), &format!("{key} = "));
        assert_ne!(uncommented, EXAMPLE);
        Config::from_text(&uncommented, &root()).unwrap();
    }
}

/// A switch may have 131,072 of these: what each is compared with must not grow with them.
#[test]
fn classes_of_one_flow_each_can_be_very_many() {
    let port = "[[port]]\nname = \"vm1\"\nkind = \"tap\"\n[[limit]]\nname = \"a\"\nrate = \"8 Mbit/s\"\n";
    let class = |n: u16| {
        let [high, low] = n.to_be_bytes();
        format!(
            "[[class]]\nport = \"vm1\"\nsource = \"10.0.{high}.{low}/32\"\ndestination = \"10.9.9.9/32\"\nprotocol = \"tcp\"\n\
             source_ports = \"1000\"\ndestination_ports = \"80\"\nlimits = [\"a\"]\n"
        )
    };
    let classes: String = (0..20_000).map(class).collect();
    let twice = format!("{port}{classes}{}", class(7));
    let shaping = Config::from_text(&format!("{port}{classes}"), &root()).expect("they are sound").shaping;
    assert_eq!((shaping.classes.len(), shaping.notes.len()), (20_000, 0));
    assert_eq!(
        problems(&twice),
        "line 160007: class: nothing is left for it: the class in line 63 is of the same frames"
    );
}

/// The end of the example with its comment marks taken away.
fn shaping_example() -> String {
    let (_, lines) = EXAMPLE.split_once("# [switch]").expect("the example shows the switch");
    let (lines, _) = lines.split_once("\n\n").expect("uplinks come after it");
    uncommented(&format!("# [switch]{lines}"))
}

fn uncommented(lines: &str) -> String {
    lines
        .lines()
        .map(|line| line.strip_prefix("# ").unwrap_or(line.trim_start_matches('#')))
        .collect::<Vec<_>>()
        .join("\n")
}

#[test]
fn the_example_s_ports_limits_and_classes_are_sound_and_shown_in_full() {
    let config = Config::from_text(&shaping_example(), &root()).unwrap();
    let shaping = &config.shaping;
    assert_eq!((shaping.ports.len(), shaping.limits.len(), shaping.classes.len()), (3, 1, 1));
    assert_eq!((shaping.threads, shaping.coalesce, shaping.poll), (1, Duration::from_micros(250), false));
    assert_eq!(shaping.limits[0].rate.as_bits_per_sec(), 200_000_000);
    assert_eq!(shaping.notes, []);
    for table in ["port", "limit", "class"] {
        let text = problems(&format!("[[{table}]]\nxyzzyxyzzy = 1"));
        let (_, known) = text.split_once("known here: ").expect("a list of the known keys");
        for key in known.lines().next().unwrap_or("").split(", ") {
            assert!(
                EXAMPLE.contains(&format!("# {key} = ")),
                "weirgate.example.toml does not show `{key}` of [[{table}]]"
            );
        }
    }
}

#[test]
fn the_example_s_uplinks_and_rules_are_sound_and_shown_in_full() {
    let (_, lines) = EXAMPLE.split_once("# [steering]").expect("the example shows uplinks");
    let config = Config::from_text(&uncommented(&format!("# [steering]{lines}")), &root()).unwrap();
    let uplinks = &config.uplinks;
    assert_eq!((uplinks.uplinks.len(), uplinks.rules.len()), (1, 1));
    let defaults = Config::defaults(&root()).uplinks;
    let common = |all: &Uplinks| (all.namespace.clone(), all.mark_shift, all.table, all.priority);
    assert_eq!(common(uplinks), common(&defaults));
    for table in ["uplink", "steer"] {
        let text = problems(&format!("[[{table}]]\nxyzzyxyzzy = 1"));
        let (_, known) = text.split_once("known here: ").expect("a list of the known keys");
        for key in known.lines().next().unwrap_or("").split(", ") {
            assert!(
                EXAMPLE.contains(&format!("# {key} = ")),
                "weirgate.example.toml does not show `{key}` of [[{table}]]"
            );
        }
    }
}

#[test]
fn the_example_s_export_is_sound_and_shown_in_full() {
    let (_, lines) = EXAMPLE.split_once("# [export.kafka]").expect("the example shows the export");
    let (lines, _) = lines.split_once("\n\n").expect("[tune] comes after it");
    let text = uncommented(&format!("# [export.kafka]{lines}"));
    let kafka = Config::from_text(&text, &root()).unwrap().kafka.unwrap();
    let defaults = Config::from_text("[export.kafka]\nbrokers = [\"a:1\"]", &root()).unwrap().kafka.unwrap();
    let of = |kafka: &Kafka| (kafka.topic.clone(), kafka.form, kafka.fields, kafka.compression);
    assert_eq!(of(&kafka), of(&defaults));
    let of = |kafka: &Kafka| (kafka.spool.clone(), kafka.spool_max, kafka.interval, kafka.anonymise);
    assert_eq!(of(&kafka), of(&defaults));
    let text = problems("[export.kafka]\nxyzzyxyzzy = 1");
    let (_, known) = text.split_once("known here: ").expect("a list of the known keys");
    for key in known.lines().next().unwrap_or("").split(", ") {
        assert!(
            EXAMPLE.contains(&format!("# {key} = ")),
            "weirgate.example.toml does not show `{key}` of [export.kafka]"
        );
    }
}

#[test]
fn the_example_s_fleet_and_controller_are_sound_and_shown_in_full() {
    let (_, lines) = EXAMPLE.split_once("# [fleet]").expect("the example shows the fleet");
    let (lines, _) = lines.split_once("\n\n[tune]").expect("[tune] comes after it");
    let lines = lines.replace("\n\n# A host that decides", "\n# # A host that decides");
    let text = uncommented(&format!("# [host]\n# pop = \"ams\"\n# [fleet]{lines}"));
    let config = Config::from_text(&text, &root()).unwrap();
    assert_eq!(config.fleet.unwrap().trust.len(), 1);
    let shown = config.decides.unwrap();
    let least = "[controller]\nclickhouse = \"http://127.0.0.1:8123\"\npops = [\"ams\", \"fra\"]";
    let defaults = Config::from_text(least, &root()).unwrap().decides.unwrap();
    let of = |c: &controller::Controller| (c.key.clone(), c.metrics, c.life, c.settle, c.canary, c.available.clone());
    assert_eq!(of(&shown), of(&defaults));
    for table in ["fleet", "controller"] {
        let text = problems(&format!("[{table}]\nxyzzyxyzzy = 1"));
        let (_, known) = text.split_once("known here: ").expect("a list of the known keys");
        for key in known.lines().next().unwrap_or("").split(", ") {
            assert!(
                EXAMPLE.contains(&format!("# {key} = ")),
                "weirgate.example.toml does not show `{key}` of [{table}]"
            );
        }
    }
}

#[test]
fn an_export_that_cannot_be_is_refused() {
    let refused = |more: &str| problems(&format!("[export.kafka]\nbrokers = [\"kafka1:9092\"]\n{more}"));
    for (more, what) in [
        (
            "sasl = \"plain\"\nuser = \"a\"\npassword_file = \"/p\"\n",
            "`plain` sends the password as it is: set `tls = true`",
        ),
        ("sasl = \"scram-sha-512\"\nuser = \"a\"\n", "needs both `user` and `password_file` beside it"),
        ("user = \"a\"\n", "needs `sasl`, as \"scram-sha-512\" beside it"),
        ("ca = \"/ca.pem\"\n", "is of no use without `tls = true`"),
        ("tls = true\ncertificate_key = \"/key.pem\"\n", "needs `certificate` beside it"),
        ("sasl = \"scram\"\n", "did you mean"),
        ("topic = \"a b\"\n", "`a b` is no topic"),
        ("tallies = \"a/b\"\n", "`a/b` is no topic"),
        ("tallies = \"weirgate.sockets\"\n", "is the topic of records"),
        ("records = false\n", "leaves nothing to be sent"),
        ("tallies = \"t\"\nrecords = false\nfields = \"all\"\n", "export.kafka.fields: says how records are sent"),
        ("spool = \"here\"\n", "is not an absolute path"),
        ("interval = \"2 min\"\n", "write 100 ms to 1 min"),
    ] {
        let text = refused(more);
        assert!(text.contains(what), "{more}: {text}");
    }
    for brokers in ["[]", "[\"kafka1\"]", "[\":9092\"]", "[\"kafka1:0\"]"] {
        let text = problems(&format!("[export.kafka]\nbrokers = {brokers}"));
        assert!(text.contains("HOST:PORT") || text.contains("names no broker"), "{brokers}: {text}");
    }
    let kafka = |more: &str| {
        let text = format!("[export.kafka]\nbrokers = [\"kafka1:9092\"]\n{more}");
        let kafka = Config::from_text(&text, &root()).unwrap().kafka.unwrap();
        (kafka.topic, kafka.tallies)
    };
    let some = |topic: &str| Some(topic.to_owned());
    assert_eq!(kafka(""), (some("weirgate.sockets"), None));
    assert_eq!(kafka("tallies = \"t\"\n"), (some("weirgate.sockets"), some("t")));
    assert_eq!(kafka("tallies = \"t\"\nrecords = false\n"), (None, some("t")));
    let text = problems("[export.kafka]\ntallies = \"t\"\n");
    assert!(text.contains("line 2: export.kafka.tallies: nothing is sent without `brokers`"), "{text}");
    let text = problems("[export.kafka]\n\nspool_max = \"1 GB\"\ntopic = \"t\"\n");
    assert!(text.contains("line 3: export.kafka.spool_max: nothing is sent without `brokers`"), "{text}");
}

#[test]
fn a_known_round_trip_says_when_a_queue_is_too_long() {
    let ground = "[[port]]\nname = \"vm1\"\nkind = \"tap\"\n[[limit]]\nname = \"a\"\nrate = \"5 Mbit/s\"\n";
    let class = "[[class]]\nport = \"vm1\"\nlimits = [\"a\"]\n";
    let codel = |more: &str| {
        let config = Config::from_text(&format!("{ground}{class}{more}"), &root()).unwrap();
        config.shaping.classes[0].codel.map(|c| (c.target.as_nanos() / 1_000_000, c.interval.as_nanos() / 1_000_000))
    };
    assert_eq!(codel(""), Some((5, 100)));
    assert_eq!(codel("rtt = \"200 ms\"\n"), Some((50, 800)));
    assert_eq!(codel("rtt = \"200 ms\"\ntarget = \"8 ms\"\n"), Some((8, 800)));
    assert_eq!(codel("target = \"off\"\n"), None);
    // A connection's own round trip counts where nobody said what it would change.
    for (more, by_flow_rtt) in
        [("", true), ("rtt = \"9 ms\"\n", true), ("target = \"8 ms\"\n", false), ("interval = \"80 ms\"\n", false)]
    {
        let config = Config::from_text(&format!("{ground}{class}{more}"), &root()).unwrap();
        assert_eq!(config.shaping.classes[0].by_flow_rtt, by_flow_rtt, "{more}");
    }
    let long = problems(&format!("{ground}{class}target = \"200 ms\"\n"));
    assert!(long.contains("no longer than the `target`"), "{long}");
    // A limit's is for all its classes; a class's own, and the nearest limit's, come first.
    let far = "[[limit]]\nname = \"b\"\nrate = \"9 Mbit/s\"\nrtt = \"400 ms\"\ntarget = \"7 ms\"\n";
    let ground = ground.replace("5 Mbit/s\"\n", "5 Mbit/s\"\nrtt = \"200 ms\"\n") + far;
    let below = |chain: &str, more: &str| {
        let text = format!("{ground}[[class]]\nport = \"vm1\"\nlimits = [{chain}]\n{more}");
        let codel = Config::from_text(&text, &root()).unwrap().shaping.classes[0].codel;
        codel.map(|c| (c.target.as_nanos() / 1_000_000, c.interval.as_nanos() / 1_000_000))
    };
    assert_eq!(below("\"a\"", ""), Some((50, 800)));
    assert_eq!(below("\"a\", \"b\"", ""), Some((7, 800)));
    assert_eq!(below("\"b\"", "interval = \"90 ms\"\n"), Some((7, 90)));
    assert_eq!(below("\"a\"", "target = \"off\"\n"), None);
}

#[test]
fn ports_that_cannot_be_are_refused() {
    let port = |more: &str| format!("[[port]]\nname = \"p\"\n{more}");
    let refused = |more: &str| problems(&port(more));
    assert!(refused("device = \"eth1\"\n").contains("a port needs a `kind`: \"tap\", \"interface\" or \"vhost-user\""));
    let text = refused("kind = \"interface\"\nsocket = \"/run/x\"\n");
    assert!(text.contains("only a VM's card has a socket"), "{text}");
    let text = refused("kind = \"tap\"\nxdp = true\n");
    assert!(text.contains("line 4: port.xdp: AF_XDP is for kind = \"interface\""), "{text}");
    let threads = format!("[switch]\nthreads = 2\n{}", port("kind = \"interface\"\nxdp = true\n"));
    assert!(
        problems(&threads).contains("line 6: port.xdp: AF_XDP is for a switch of one thread"),
        "{}",
        problems(&threads)
    );
    let text = refused("kind = \"interface\"\nxdp = true\nqueues = 2\n");
    assert!(text.contains("all queues of the interface are read"), "{text}");
    let text = refused("kind = \"interface\"\nnamespace = \"all\"\n");
    assert!(text.contains("a port is in one namespace"), "{text}");
    let twice = "kind = \"interface\"\n[[port]]\nname = \"q\"\nkind = \"tap\"\ndevice = \"p\"\n";
    assert!(refused(twice).contains("`q` is the same device as `p`"), "{}", refused(twice));
    let pair = |peer: &str| format!("kind = \"tap\"\npeer = \"{peer}\"\n[[port]]\nname = \"q\"\nkind = \"tap\"\n");
    let third = "[[port]]\nname = \"r\"\nkind = \"tap\"\npeer = \"q\"\n";
    let config = Config::from_text(&port(&pair("q")), &root()).unwrap();
    assert_eq!(config.shaping.ports.iter().map(|port| port.peer).collect::<Vec<_>>(), [Some(1), Some(0)]);
    assert!(refused(&pair("x")).contains("there is no port called `x`"), "{}", refused(&pair("x")));
    assert!(refused(&pair("p")).contains("a port has one peer, another one"), "{}", refused(&pair("p")));
    let text = refused(&(pair("q") + third));
    assert!(text.contains("a port has one peer, another one"), "{text}");
    let config = Config::from_text(&port("kind = \"interface\"\nxdp = true\n"), &root()).unwrap();
    let kind = PortKind::Interface { device: "p".into(), namespace: Namespace::Own, xdp: true };
    assert_eq!(config.shaping.ports[0].kind, kind);
}

#[test]
fn limits_that_contradict_each_other_are_refused() {
    let ground = "[[port]]\nname = \"vm1\"\nkind = \"tap\"\n[[limit]]\nname = \"a\"\nrate = \"5 Mbit/s\"\n";
    let with = |more: &str| problems(&format!("{ground}{more}"));
    let class = "[[class]]\nport = \"vm1\"\nlimits = ";
    assert!(with("[[limit]]\nname = \"a\"\nrate = \"1 Mbit/s\"\n").contains("another limit called `a`"));
    assert!(with("[[limit]]\nname = \"b\"\n").contains("line 7: limit: a limit needs a `rate`"));
    assert!(
        with(&format!("{class}[\"b\"]\n")).contains("there is no limit called `b`; did you mean `a`? There are: a")
    );
    assert!(
        with("[[class]]\nport = \"vm2\"\nlimits = [\"a\"]\n")
            .contains("line 8: class.port: there is no port called `vm2`; did you mean `vm1`? There are: vm1")
    );
    assert!(with(&format!("{class}[]\n")).contains("names no limit"));
    let other = "[[limit]]\nname = \"b\"\nrate = \"1 Mbit/s\"\nlayer = \"L2\"\n";
    assert!(with(&format!("{other}{class}[\"a\", \"b\"]\n")).contains("do not count alike"));
    let gate = "[[limit]]\nname = \"g\"\nrate = \"1 Mbit/s\"\nmode = \"gate\"\n";
    assert!(
        with(&format!("{gate}{class}[\"g\"]\nprotocol = \"udp\"\n")).contains("holds back all that comes by a port")
    );
    let to = "[[class]]\nport = \"vm1\"\ndirection = \"to\"\nlimits = [\"g\"]\n";
    let text = with(&format!("{gate}{to}"));
    assert!(text.contains("what goes to `vm1` can come by every port: write a `peer`"), "{text}");
    let borrow = format!("{ground}{}{to}", gate.replace("\"gate\"", "\"borrow\""));
    assert!(Config::from_text(&borrow, &root()).is_ok(), "the article's drops what it does not let pass");
    let uplink = |more: &str| format!("[[port]]\nname = \"up\"\nkind = \"tap\"\n{more}");
    let text = format!("{ground}{gate}{to}{}", uplink("peer = \"vm1\"\n"));
    assert!(Config::from_text(&text, &root()).is_ok(), "{}", problems(&text));
    let both =
        "[[limit]]\nname = \"h\"\nrate = \"1 Mbit/s\"\nmode = \"gate\"\n[[class]]\nport = \"up\"\nlimits = [\"h\"]\n";
    let text = with(&format!("{gate}{to}{both}{}", uplink("peer = \"vm1\"\n")));
    assert!(text.contains("`h` gates what comes by `up`, as `g` does"), "{text}");
    let text = with(&uplink("peer = \"vm1\"\nmacs = [\"02:00:00:00:00:01\"]\n"));
    assert!(text.contains("`macs` says nothing where a port has a `peer`"), "{text}");
    let pinned = |name: &str| format!("[[port]]\nname = \"{name}\"\nkind = \"tap\"\nmacs = [\"02:00:00:00:00:01\"]\n");
    let text = with(&format!("{}{}", pinned("x"), pinned("y")));
    assert!(text.contains("02:00:00:00:00:01 is at another port already"), "{text}");
    assert!(with("[[limit]]\nname = \"c\"\nrate = \"5 Mbit\"\n").contains("limit.rate"));
    assert!(with(&format!("{class}[\"a\", \"a\"]\n")).contains("`a` stands there twice"));
    let text = with(&format!("{class}[\"a\"]\nqueue = \"1 KB\"\n"));
    assert!(text.contains("there would be no room for a packet"), "{text}");
    for more in ["", "protocol = \"udp\"\nvlan = 7\n"] {
        let class = format!("{class}[\"a\"]\n{more}");
        let text = with(&format!("{class}{class}"));
        assert!(text.contains("class: nothing is left for it: the class in line 7 is of the same frames"), "{text}");
    }
    let all_v4 = |which: &str| format!("{class}[\"a\"]\n{which} = \"0.0.0.0/0\"\n");
    let text = with(&format!("{}{}", all_v4("source"), all_v4("destination")));
    assert!(text.contains("the class in line 7 is of the same frames"), "{text}");
    let vlan = |n: usize| format!("{class}[\"a\"]\nvlan = {}\ndscp = {}\n", n / 64, n % 64);
    let many: String = (0..4_097).map(vlan).collect();
    assert!(with(&many).contains("line 20487: class: one more than the 4096 that there may be"), "{}", with(&many));
    let (narrow, all) = (format!("{class}[\"a\"]\nprotocol = \"udp\"\n"), format!("{class}[\"g\"]\n"));
    for classes in [format!("{narrow}{all}"), format!("{all}{narrow}")] {
        let text = with(&format!("{gate}{classes}"));
        assert!(text.contains("let its class be the port's only one"), "{text}");
    }
}

#[test]
fn an_unknown_key_names_line_and_nearest() {
    let text = "[sockets]\ninterval = \"10 s\"\n\nintervall = \"1 s\"\n";
    assert_eq!(problems(text), "line 4: sockets.intervall: unknown key; did you mean `interval`?");
    assert_eq!(problems("[socket]\n"), "line 1: socket: unknown key; did you mean `sockets`?");
    let text = problems("[tune]\nserver = [80]\n");
    assert_eq!(text, "line 2: tune.server: unknown key; did you mean `server_ports`?");
    let text = problems("[http]\nnonsense = 1\n");
    assert_eq!(text, "line 2: http.nonsense: unknown key; known here: listen");
}

#[test]
fn a_wrong_unit_says_which_is_right() {
    let text = problems("[tune]\nswitch_after = \"100 Kb\"\n");
    assert!(text.starts_with("line 2: tune.switch_after: `100 Kb` is not an amount of data: write `100 KB`"), "{text}");
}

#[test]
fn a_bare_number_is_told_what_it_lacks() {
    let text = problems("[sockets]\ninterval = 10\n");
    let said =
        "line 2: sockets.interval: `10` has no unit: write a time with its unit, such as \"100 ms\" (units: d, h";
    assert!(text.starts_with(said), "{text}");
    let text = problems("[[limit]]\nname = \"a\"\nrate = 1.5\n");
    let said = "line 3: limit.rate: `1.5` has no unit: write a rate with its unit, such as \"100 Mbit/s\"";
    assert!(text.starts_with(said), "{text}");
    let text = problems("[[limit]]\nname = 7\n");
    assert_eq!(text, "line 2: limit.name: must be a text in double quotes: write \"7\"");
    let text = problems("[[limit]]\nname = true\n");
    assert_eq!(text, "line 2: limit.name: must be a text in double quotes, not boolean");
}

#[test]
fn an_unknown_name_says_which_there_are() {
    let said = |name: &str, known: &[&str]| unknown("limit", name, known);
    assert_eq!(said("x", &[]), "there is no limit called `x`, nor any other");
    assert_eq!(said("zebra", &["b", "", "a", "b"]), "there is no limit called `zebra`; there are: a, b");
    let near = said("tennant", &["udp", "tenant"]);
    assert_eq!(near, "there is no limit called `tennant`; did you mean `tenant`? There are: tenant, udp");
    let many: Vec<String> = (10..30).map(|n| format!("customer-{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).rev().collect();
    let said = said("zebra", &many);
    assert!(said.contains("there are: customer-10, customer-11, ") && said.ends_with("-19, and 10 more"), "{said}");
}

#[test]
fn one_fault_of_two_ports_is_said_once() {
    let tap = |name: &str, more: &str| format!("[[port]]\nname = \"{name}\"\nkind = \"tap\"\n{more}");
    let text = problems(&[tap("p", ""), tap("p", "")].concat());
    assert_eq!(text, "line 5: port.name: there is another port called `p`");
    let text = problems(&[tap("p", ""), tap("q", "device = \"p\"\n")].concat());
    assert_eq!(text, "line 4: port: `q` is the same device as `p`: one port is enough");
    let text = problems("[[port]]\nname = \"p\"\n[[port]]\nname = \"q\"\n");
    assert!(text.lines().count() == 2 && !text.contains("the same device"), "{text}");
}

#[test]
fn every_problem_is_reported_in_the_order_of_the_file() {
    let text =
        problems("[sockets]\nsource = \"netlnk\"\nports = [0]\n[store]\nenabled = \"yes\"\nsizemax = \"1 GB\"\n");
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 4, "{text}");
    assert_eq!(lines[0], "line 2: sockets.source: `netlnk` is not known; did you mean `netlink`?");
    assert!(lines[1].starts_with("line 3: sockets.ports: must be a list of port numbers"), "{text}");
    assert!(lines[2].starts_with("line 5: store.enabled: must be true or false"), "{text}");
    assert_eq!(lines[3], "line 6: store.sizemax: unknown key; did you mean `size_max`?");
}

#[test]
fn contradictions_and_bounds_are_refused() {
    assert!(problems("[tune]\nmode = \"apply\"\n").contains("`apply` needs `server_ports`"));
    assert!(problems("[http]\nlisten = \"0.0.0.0:7070\"\n").contains("loopback address only"));
    assert!(problems("[sockets]\ninterval = \"1 ms\"\n").contains("out of bounds: write 100 ms to 1 h"));
    assert!(problems("[sockets]\ninclude = [\"192.0.2.1/24\"]\n").contains("write `192.0.2.0/24`"));
    assert!(problems("[control]\nsocket = \"here.sock\"\n").contains("not an absolute path"));
    let text = problems("[tune]\n\nduty_leave = \"80 %\"\n");
    assert_eq!(text, "line 3: tune.duty_leave: `duty_leave` is 80 %: it must be at least 0 %, below duty_enter");
    let text = problems("[tune]\nexclude = [\"192.0.2.0/24\", \"10.1.0.0/16\", \"10.0.0.0/8\"]\n");
    assert_eq!(text, "line 2: tune.exclude: 10.1.0.0/16 lies within 10.0.0.0/8: leave out one of the two");
    let text = problems("[tune]\nduty_enter = \"30 %\"\n");
    assert_eq!(text, "line 2: tune.duty_enter: `duty_leave` is 40 %: it must be at least 0 %, below duty_enter");
    let text = problems("[tune]\n[tune.limits]\nchanged_share_max = \"0 %\"\n");
    assert!(text.starts_with("line 3: tune.limits.changed_share_max: "), "{text}");
    assert!(problems("[tune]\nduty_enter = \"0.7\"\n").contains("write a number of 0 to 100 and %"));
    let text = problems("[[tune.rules]]\nname = \"worst\"\nccc = \"bbr\"\n");
    assert!(text.contains("line 1: tune.rules: a rule needs a `cc`") || text.contains("did you mean `cc`"), "{text}");
    assert!(problems("tune = 3\n").contains("must be a table"));
}

#[test]
fn a_rule_out_of_bounds_is_named_with_its_line() {
    let rule = |name: &str, more: &str| format!("[[tune.rules]]\nname = \"{name}\"\ncc = \"bbr\"\n{more}");
    let text = problems(&rule("worst", "worst_share = \"60 %\"\n"));
    let said = "line 4: tune.rules.worst_share: `worst_share` is 60 %: it must be above 0 %, at most 50 %";
    assert_eq!(text, said);
    let text = problems(&format!("{}{}", rule("a", ""), rule("b", "min_rtt_min = \"2 s\"\nmin_rtt_max = \"1 s\"\n")));
    assert!(text.starts_with("line 7: tune.rules.min_rtt_min: `min_rtt_min` is 2 s"), "{text}");
    let text = problems(&format!("{}{}", rule("a", ""), rule("a", "")));
    assert_eq!(text, "line 5: tune.rules.name: rule name `a`: names are unique and 1 to 32 bytes long");
    let four: String = ["a", "b", "c", "d"].map(|name| rule(name, "")).concat();
    assert_eq!(problems(&four), "line 10: tune.rules: 4 rules: at most 3 are possible; merge or remove some");
    assert_eq!(problems("[[tune.rules]]\nname = \"a\"\n").lines().count(), 1, "what is missing is said once");
}

#[test]
fn what_is_not_toml_names_its_line() {
    let text = problems("[host]\nname = \"a\n");
    assert!(text.starts_with("line 2: not TOML:"), "{text}");
}

#[test]
fn states_always_include_listeners() {
    let config = Config::from_text("[sockets]\nstates = [\"ESTAB\"]\n", &root()).unwrap();
    assert_eq!(config.sockets.filter.states, 1 << state::ESTABLISHED | 1 << state::LISTEN);
}

#[test]
fn the_file_is_named_in_the_message() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("w.toml");
    std::fs::write(&path, "[host]\nnam = \"a\"\n").unwrap();
    let error = Config::load(Some(&path), &root()).unwrap_err().to_string();
    assert_eq!(error, format!("{}:2: host.nam: unknown key; did you mean `name`?", path.display()));
    let missing = dir.path().join("none.toml");
    assert!(
        Config::load(Some(&missing), &root())
            .unwrap_err()
            .to_string()
            .contains("none.toml cannot be read: No such file")
    );
}
