//! What is sound and yet can hardly be meant: `weirgate doctor` says it, and nothing is refused for it.

use std::collections::HashSet;

use weirgate_linux::dataplane::MEMORY_MAX;
use weirgate_switch::limits::{Mode, class_max};
use weirgate_units::{BitRate, Bytes, Duration, Prefix};

use super::{Class, Limit, Match, Problem, Shaping, TWO_PACKETS, problem};

/// Whoever looks at a rate looks at seconds: with a longer burst nobody would see the limit hold.
const BURST_TIME_MAX: Duration = Duration::from_secs(1);

/// What waits for longer has been sent again twice meanwhile: TCP's first timeout is a second, and doubles (RFC 6298).
const QUEUE_TIME_MAX: Duration = Duration::from_secs(3);

/// The default of the slowest limits, however long that lasts.
const QUEUE_SMALL: Bytes = Bytes::new(128 << 10);

/// What there is to say, in the order of the file. The lines are those of the limits and of the classes.
pub(super) fn notes(shaping: &Shaping, limit_lines: &[usize], class_lines: &[usize]) -> Vec<Problem> {
    let Shaping { limits, classes, .. } = shaping;
    let mut notes = Vec::new();
    let used: HashSet<usize> = classes.iter().flat_map(|class| class.limits.iter().copied()).collect();
    for (at, (limit, line)) in limits.iter().zip(limit_lines).enumerate() {
        if !used.contains(&at) {
            let what =
                format!("no class names `{}`: nothing is held to it; write it into a class's `limits`", limit.name);
            notes.push(problem(*line, "limit", what));
        }
        notes.extend(odd_burst(limit, shaping.coalesce).map(|what| problem(*line, "limit", what)));
    }
    for (class, line) in classes.iter().zip(class_lines) {
        let never = contradiction(&class.matches).map(|why| format!("no frame is ever of it: {why}"));
        notes.extend(never.map(|what| problem(*line, "class", what)));
        notes.extend(long_queue(class, limits).map(|what| problem(*line, "class", what)));
        notes.extend(cut_queue(class, shaping.threads).map(|what| problem(*line, "class", what)));
    }
    notes.sort_by_key(|note| note.line);
    notes
}

/// Whether more threads are to switch than there are `processors`, and what comes of it.
pub(crate) fn too_many_threads(threads: u16, processors: usize) -> Option<String> {
    (usize::from(threads) > processors).then(|| {
        format!("[switch] threads = {threads}, but there are {processors} processors: they take them from each other")
    })
}

/// What threads that never sleep take.
pub(crate) fn whole_processors(shaping: &Shaping) -> Option<String> {
    let threads = shaping.threads;
    (shaping.poll && !shaping.ports.is_empty()).then(|| match threads {
        1 => "[switch] poll = true: its thread takes a whole processor, also where nothing passes".into(),
        _ => format!(
            "[switch] poll = true: each of its {threads} threads takes a whole processor, also where nothing passes"
        ),
    })
}

fn odd_burst(limit: &Limit, coalesce: Duration) -> Option<String> {
    let Limit { name, rate, burst, .. } = limit;
    let (burst, used) = ((*burst)?, limit.burst_at(*rate, coalesce));
    if burst < TWO_PACKETS {
        return Some(format!("the `burst` of `{name}`, {burst}, is less than two packets: {used} is used"));
    }
    if burst < used {
        return Some(format!(
            "the `burst` of `{name}`, {burst}, is less than what is due while the switch rests ([switch] coalesce): {used} is used"
        ));
    }
    let time = rate.time_for(burst);
    (*rate > BitRate::ZERO && burst > TWO_PACKETS && time > BURST_TIME_MAX).then(|| {
        let time = time.as_secs_f64();
        format!("the `burst` of `{name}`, {burst}, is {time:.1} s of its rate, and passes unlimited after idling")
    })
}

/// Whether what came last would wait for long, in a class where something waits.
fn long_queue(class: &Class, limits: &[Limit]) -> Option<String> {
    let chain = || class.limits.iter().map(|at| &limits[*at]);
    let queue = class.queue.filter(|_| chain().any(|limit| limit.mode == Mode::Pace))?;
    let slowest = chain().filter(|limit| limit.rate > BitRate::ZERO).min_by_key(|limit| limit.rate)?;
    let time = slowest.rate.time_for(queue);
    (queue > QUEUE_SMALL && time > QUEUE_TIME_MAX).then(|| {
        let (name, time) = (&slowest.name, time.as_secs_f64());
        format!("what is last in a `queue` of {queue} waits for {time:.1} s at the rate of `{name}`: by then it was sent again")
    })
}

/// Whether a class is to hold more than its part of a thread's memory.
fn cut_queue(class: &Class, threads: u16) -> Option<String> {
    let queue = class.queue?;
    let most = class_max(Bytes::new(MEMORY_MAX.as_u64() / u64::from(threads.max(1))));
    (queue > most)
        .then(|| format!("a `queue` of {queue} is more than a class may take of a thread's memory: {most} is used"))
}

/// Why no frame can be all that is asked for.
fn contradiction(asked: &Match) -> Option<&'static str> {
    let is_v4 = |network: Option<Prefix>| network.map(|network| network.address().is_ipv4());
    let (source, destination) = (is_v4(asked.source), is_v4(asked.destination));
    if source.zip(destination).is_some_and(|(source, destination)| source != destination) {
        return Some("of `source` and `destination` one is IPv4 and the other IPv6");
    }
    let has_ports = asked.source_ports.or(asked.destination_ports).is_some();
    match (asked.protocol, source.or(destination)) {
        (Some(protocol), _) if has_ports && ![6, 17].contains(&protocol) => Some("only \"tcp\" and \"udp\" have ports"),
        (Some(1), Some(false)) => Some("\"icmp\" is of IPv4, and its network of IPv6: write \"icmpv6\""),
        (Some(58), Some(true)) => Some("\"icmpv6\" is of IPv6, and its network of IPv4: write \"icmp\""),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Surroundings};

    const GROUND: &str = "[[port]]\nname = \"vm1\"\nkind = \"tap\"\n[[limit]]\nname = \"a\"\nrate = \"8 Mbit/s\"\n";
    const CLASS: &str = "[[class]]\nport = \"vm1\"\nlimits = [\"a\"]\n";

    fn noted(text: &str) -> Vec<String> {
        let around = Surroundings { host: "h".into(), state: "/state".into(), run: "/run".into() };
        let config = Config::from_text(text, &around).expect("notes refuse nothing");
        config.shaping.notes.iter().map(ToString::to_string).collect()
    }

    /// The notes on classes with these conditions, one after the other.
    fn classes(conditions: &[&str]) -> Vec<String> {
        let classes: String = conditions.iter().map(|more| format!("{CLASS}{more}")).collect();
        noted(&format!("{GROUND}{classes}"))
    }

    #[test]
    fn what_is_meant_is_not_noted() {
        assert_eq!(classes(&[""]), [""; 0]);
        let narrow_last = ["", "protocol = \"udp\"\n", "source = \"10.0.0.0/8\"\n", "source = \"10.1.0.0/16\"\n"];
        assert_eq!(classes(&narrow_last), [""; 0]);
        assert_eq!(classes(&["direction = \"to\"\ndscp = 1\n", "dscp = 1\nvlan = 3\n"]), [""; 0]);
    }

    #[test]
    fn a_limit_that_nothing_uses_is_noted() {
        let text = format!("{GROUND}{CLASS}[[limit]]\nname = \"b\"\nrate = \"1 Mbit/s\"\n");
        assert_eq!(
            noted(&text),
            ["line 10: limit: no class names `b`: nothing is held to it; write it into a class's `limits`"]
        );
    }

    #[test]
    fn conditions_that_contradict_each_other_are_noted() {
        for (conditions, why) in [
            ("source = \"10.0.0.0/8\"\ndestination = \"2001:db8::/32\"\n", "one is IPv4 and the other IPv6"),
            ("protocol = \"47\"\ndestination_ports = \"80\"\n", "only \"tcp\" and \"udp\" have ports"),
            ("protocol = \"icmp\"\nsource = \"2001:db8::/32\"\n", "write \"icmpv6\""),
            ("protocol = \"icmpv6\"\ndestination = \"10.0.0.0/8\"\n", "write \"icmp\""),
        ] {
            let notes = classes(&[conditions]);
            assert_eq!(notes.len(), 1, "{notes:?}");
            assert!(
                notes[0].starts_with("line 7: class: no frame is ever of it: ") && notes[0].contains(why),
                "{notes:?}"
            );
        }
        assert_eq!(classes(&["protocol = \"icmpv6\"\nsource = \"2001:db8::/32\"\n"]), [""; 0]);
    }

    #[test]
    fn absurd_amounts_are_noted() {
        let burst = |burst: &str| noted(&format!("{GROUND}burst = \"{burst}\"\n{CLASS}"));
        assert_eq!(
            burst("1500 B"),
            ["line 4: limit: the `burst` of `a`, 1.5 KB, is less than two packets: 3.028 KB is used"]
        );
        assert_eq!(
            burst("2 MB"),
            ["line 4: limit: the `burst` of `a`, 2 MB, is 2.0 s of its rate, and passes unlimited after idling"]
        );
        assert_eq!((burst("3028 B"), burst("1 MB")), (vec![], vec![]));
        let fast = GROUND.replace("8 Mbit/s", "200 Mbit/s");
        assert_eq!(
            noted(&format!("{fast}burst = \"3028 B\"\n{CLASS}")),
            [
                "line 4: limit: the `burst` of `a`, 3.028 KB, is less than what is due while the switch rests ([switch] coalesce): 7.764 KB is used"
            ]
        );
        let queue = |queue: &str| classes(&[&format!("queue = \"{queue}\"\n")]);
        assert_eq!(
            queue("30 MB"),
            [
                "line 7: class: what is last in a `queue` of 30 MB waits for 30.0 s at the rate of `a`: by then it was sent again"
            ]
        );
        assert_eq!(queue("3 MB"), [""; 0]);
        let most =
            |switch: &str| noted(&format!("{switch}{GROUND}{CLASS}queue = \"40 MB\"\n").replace("8 Mbit", "1 Gbit"));
        assert_eq!(most(""), [""; 0]);
        assert_eq!(
            most("[switch]\nthreads = 2\n"),
            ["line 9: class: a `queue` of 40 MB is more than a class may take of a thread's memory: 32 MiB is used"]
        );
        let still = noted(&format!("{GROUND}{CLASS}queue = \"30 MB\"\n").replace("8 Mbit", "0 bit"));
        assert_eq!(still, [""; 0], "a rate of zero is a door that is shut, not slow");
    }

    #[test]
    fn threads_that_never_sleep_are_noted() {
        let polling = |switch: &str| {
            let around = Surroundings { host: "h".into(), state: "/state".into(), run: "/run".into() };
            let config =
                Config::from_text(&format!("[switch]\n{switch}\n{GROUND}{CLASS}"), &around).expect("it is sound");
            (config.shaping.coalesce, whole_processors(&config.shaping))
        };
        assert_eq!(polling("threads = 2"), (Duration::from_micros(250), None));
        let (coalesce, said) = polling("poll = true");
        assert!(
            coalesce == Duration::ZERO && said.is_some_and(|said| said.contains("its thread takes a whole processor"))
        );
        let said = polling("poll = true\nthreads = 2").1;
        assert!(said.is_some_and(|said| said.contains("each of its 2 threads takes a whole processor")));
    }

    #[test]
    fn more_threads_than_processors_are_noted() {
        assert_eq!(too_many_threads(2, 2), None);
        let said = too_many_threads(3, 2).expect("one too many");
        assert!(said.starts_with("[switch] threads = 3, but there are 2 processors"), "{said}");
    }
}
