//! `[fleet]`: policies from elsewhere.

use std::path::PathBuf;
use std::str::FromStr;

use super::directory;
use super::export::{self, Kafka};
use super::read::{Problem, Section, Typed};
use super::typed::Maybe;

/// `[fleet]`: this host obeys the controller of its fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// Where snapshots come from.
    pub origin: Origin,
    /// The public keys, one of which has signed what is obeyed.
    pub trust: Vec<Key>,
}

/// Where snapshots come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// A file, which somebody else writes.
    File(PathBuf),
    /// Controllers, asked by HTTPS.
    Controllers(Controllers),
    /// This topic of the brokers in `[export.kafka]`.
    Topic(String),
}

/// Controllers, and how this host and they know each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Controllers {
    /// `https://HOST:PORT` of each.
    pub urls: Vec<String>,
    /// The authority that signs their certificates; `None`: those of the system.
    pub ca: Option<PathBuf>,
    /// The first line of this file is sent along.
    pub token_file: Option<PathBuf>,
    /// This host's certificate, and its key.
    pub certificate: Option<(PathBuf, PathBuf)>,
}

/// A public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

/// As typed.
#[derive(Debug)]
pub(super) struct TypedFleet {
    first: Maybe<()>,
    policy: Maybe<String>,
    controllers: Maybe<Vec<String>>,
    topic: Maybe<String>,
    trust: Maybe<Vec<Key>>,
    ca: Maybe<String>,
    token_file: Maybe<String>,
    certificate: Maybe<String>,
    certificate_key: Maybe<String>,
}

pub(super) fn read(root: &mut Section<'_>) -> TypedFleet {
    root.table("fleet", |s| TypedFleet {
        first: s.first(),
        policy: s.parsed("policy"),
        controllers: s.list("controllers"),
        topic: s.parsed("topic"),
        trust: s.list("trust"),
        ca: s.parsed("ca"),
        token_file: s.parsed("token_file"),
        certificate: s.parsed("certificate"),
        certificate_key: s.parsed("certificate_key"),
    })
}

/// `None` where this host decides for itself. `kafka` is what `[export.kafka]` says, `pop` what `[host]` does.
pub(super) fn meaning(
    typed: TypedFleet,
    kafka: Option<&Kafka>,
    pop: &str,
    problems: &mut Vec<Problem>,
) -> Option<Fleet> {
    let TypedFleet { first, policy, controllers, topic, trust, ca, token_file, certificate, certificate_key } = typed;
    let first = first?;
    match [policy.is_some(), controllers.is_some(), topic.is_some()].iter().filter(|is_there| **is_there).count() {
        0 => {
            let what =
                "needs to know where policies come from: write `policy` (a file), `controllers` or `topic` beside it";
            problems.push(first.problem(what));
        }
        1 => {}
        _ => {
            let what = "is one of `policy`, `controllers` and `topic`: write one of them";
            let others =
                [topic.as_ref().map(|topic| topic.problem(what)), controllers.as_ref().map(|urls| urls.problem(what))];
            problems.extend(others.into_iter().flatten().next());
        }
    }
    match &trust {
        None => {
            let what = "needs `trust` beside it: the controller's public key, which `weirgate controller key` prints";
            problems.push(first.problem(what));
        }
        Some(trust) if trust.value.is_empty() => {
            problems.push(trust.problem("names no key: nothing would ever be obeyed"));
        }
        Some(_) => {}
    }
    if pop.is_empty() {
        problems.push(first.problem("is of a point of presence: write [host] pop"));
    } else if !is_pop(pop) {
        let what =
            format!("is of [host] pop `{pop}`, which no controller decides for: letters, digits, `-` and `_` name one");
        problems.push(first.problem(what));
    }
    if controllers.is_none() {
        let of_no_use = [&ca, &token_file, &certificate, &certificate_key];
        for file in of_no_use.into_iter().flatten() {
            problems.push(file.problem("is of no use without `controllers`"));
        }
    }
    let origin = if let Some(urls) = controllers {
        Origin::Controllers(meant(urls, ca, token_file, (certificate, certificate_key), problems))
    } else if let Some(topic) = topic {
        if kafka.is_none() {
            problems.push(topic.problem("is a topic of which brokers? Write [export.kafka] brokers"));
        }
        if !export::is_topic(&topic.value) {
            problems.push(export::no_topic(&topic));
        }
        Origin::Topic(topic.value)
    } else {
        Origin::File(directory(policy, problems)?)
    };
    Some(Fleet { origin, trust: trust?.value })
}

fn meant(
    urls: Typed<Vec<String>>,
    ca: Maybe<String>,
    token_file: Maybe<String>,
    certificate: (Maybe<String>, Maybe<String>),
    problems: &mut Vec<Problem>,
) -> Controllers {
    if urls.value.is_empty() {
        problems.push(urls.problem("names no controller: list some, or leave the section out"));
    }
    let is_address = |url: &&String| {
        url.strip_prefix("https://")
            .map(|rest| rest.trim_end_matches('/'))
            .is_some_and(|rest| !rest.is_empty() && !rest.starts_with(':') && !rest.contains(['@', '?', '#', '/', ' ']))
    };
    if let Some(url) = urls.value.iter().find(|url| !is_address(url)) {
        problems.push(urls.problem(format!("`{url}` is not https://HOST:PORT, as https://controller.example:8443")));
    }
    if token_file.is_none() && certificate.0.is_none() {
        problems.push(urls.problem(
            "are asked by nobody in particular: write `token_file`, or `certificate` and `certificate_key`, beside it",
        ));
    }
    Controllers {
        urls: urls.value.iter().map(|url| url.trim_end_matches('/').to_owned()).collect(),
        ca: directory(ca, problems),
        token_file: directory(token_file, problems),
        certificate: export::pair(certificate, problems),
    }
}

/// Whether a controller can decide for a point of presence of that name, which is a file's and part of an address.
pub(super) fn is_pop(name: &str) -> bool {
    !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'))
}

impl FromStr for Key {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        // A number may have a sign, a digit does not.
        let is_hexadecimal = s.bytes().all(|byte| byte.is_ascii_hexdigit());
        let bytes =
            (0..s.len()).step_by(2).map(|at| s.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok()));
        let bytes =
            bytes.collect::<Option<Vec<u8>>>().filter(|_| is_hexadecimal).and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| {
            format!("`{s}` is no public key: 64 hexadecimal digits, as `weirgate controller key` prints them")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, Surroundings};

    fn read(text: &str) -> Result<Config, String> {
        let around = Surroundings { host: "h".into(), state: "/state".into(), run: "/run".into() };
        Config::from_text(text, &around)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn what_cannot_be_obeyed_is_said() {
        let key = "ab".repeat(32);
        let with = |fleet: &str| format!("[host]\npop = \"a\"\n[fleet]\n{fleet}\ntrust = [\"{key}\"]\n");
        for (text, what) in [
            ("[fleet]\npolicy = \"/p\"\n".to_owned(), "line 2: fleet.policy: needs `trust`"),
            (format!("[fleet]\ntrust = [\"{key}\"]\n"), "write `policy` (a file), `controllers` or `topic`"),
            (format!("[fleet]\npolicy = \"/p\"\ntrust = [\"{key}\"]\n"), "write [host] pop"),
            ("[host]\npop = \"a\"\n[fleet]\npolicy = \"/p\"\ntrust = []\n".to_owned(), "names no key"),
            ("[fleet]\ntrust = [\"abc\"]\n".to_owned(), "64 hexadecimal digits"),
            (format!("[fleet]\ntrust = [\"{}\"]\n", "+d".repeat(32)), "64 hexadecimal digits"),
            (with("policy = \"/p\"").replace("pop = \"a\"", "pop = \"a b\""), "which no controller decides for"),
            (with("policy = \"/p\"\ntopic = \"t\""), "write one of them"),
            (with("topic = \"t\""), "Write [export.kafka] brokers"),
            (with("policy = \"/p\"\nca = \"/ca\""), "fleet.ca: is of no use without `controllers`"),
            (with("controllers = [\"http://c:8443\"]\ntoken_file = \"/t\""), "is not https://HOST:PORT"),
            (with("controllers = [\"https://c:8443\"]"), "asked by nobody in particular"),
            (
                with("controllers = [\"https://c:8443\"]\ncertificate = \"/c\""),
                "needs `certificate_key`, the file of its key",
            ),
        ] {
            let said = read(&text).expect_err(&text);
            assert!(said.contains(what), "{text}: {said}");
        }
    }

    #[test]
    fn each_origin_is_read() {
        let key = "ab".repeat(32);
        let origin = |fleet: &str, more: &str| {
            let text = format!("[host]\npop = \"a\"\n[fleet]\n{fleet}\ntrust = [\"{key}\"]\n{more}");
            let fleet = read(&text).unwrap().fleet.unwrap();
            assert_eq!(fleet.trust, [Key([0xab; 32])]);
            fleet.origin
        };
        assert_eq!(origin("policy = \"/p\"", ""), Origin::File("/p".into()));
        let kafka = "[export.kafka]\nbrokers = [\"k:9092\"]\n";
        assert_eq!(origin("topic = \"weirgate.policies\"", kafka), Origin::Topic("weirgate.policies".to_owned()));
        let Origin::Controllers(two) =
            origin("controllers = [\"https://a:1/\", \"https://b\"]\ntoken_file = \"/t\"", "")
        else {
            panic!("these are controllers")
        };
        assert_eq!(
            (two.urls, two.token_file),
            (vec!["https://a:1".to_owned(), "https://b".to_owned()], Some("/t".into()))
        );
    }
}
