//! `[fleet]` and `[controller]`: policies from elsewhere, and for others.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use weirgate_units::Duration;

use super::read::{Problem, Section};
use super::tune::Share;
use super::typed::{Maybe, Word, words};
use super::{between, directory, or};

/// `[fleet]`: this host obeys the controller of its fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fleet {
    /// The file of the snapshot to obey, which somebody else writes.
    pub policy: PathBuf,
    /// The public keys, one of which has signed it.
    pub trust: Vec<Key>,
}

/// `[controller]`: this host decides for others.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// The HTTP address of ClickHouse.
    pub clickhouse: String,
    /// The database of the fleet's tables.
    pub database: String,
    /// Who asks, and the file of the password.
    pub login: (Option<String>, Option<PathBuf>),
    /// What is asked.
    pub source: Source,
    /// The points of presence that are decided for.
    pub pops: Vec<String>,
    /// The file of the secret key that signs.
    pub key: PathBuf,
    /// Where each point of presence's snapshot is put.
    pub publish: PathBuf,
    /// For how long a snapshot may be obeyed.
    pub life: Duration,
    /// How long after the end of a round its data are there.
    pub settle: Duration,
    /// The share of edges that treat a network first, in parts per million, and for how many rounds.
    pub canary: (u32, u32),
    /// The congestion controls that every edge has.
    pub available: Vec<String>,
}

/// What the controller decides from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// What hosts have summed up.
    #[default]
    Tallies,
    /// Single connections' records.
    Records,
}

/// A public key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key(pub [u8; 32]);

/// As typed.
#[derive(Debug)]
pub(super) struct TypedFleet {
    policy: Maybe<String>,
    trust: Maybe<Vec<Key>>,
}

/// As typed.
#[derive(Debug)]
pub(super) struct TypedController {
    clickhouse: Maybe<String>,
    database: Maybe<String>,
    user: Maybe<String>,
    password_file: Maybe<String>,
    source: Maybe<Word<Source>>,
    pops: Maybe<Vec<String>>,
    key: Maybe<String>,
    publish: Maybe<String>,
    life: Maybe<Duration>,
    settle: Maybe<Duration>,
    canary_share: Maybe<Share>,
    canary_rounds: Maybe<u64>,
    available: Maybe<Vec<String>>,
}

pub(super) fn read(root: &mut Section<'_>) -> (TypedFleet, TypedController) {
    let fleet = root.table("fleet", |s| TypedFleet { policy: s.parsed("policy"), trust: s.list("trust") });
    let controller = root.table("controller", |s| TypedController {
        clickhouse: s.parsed("clickhouse"),
        database: s.parsed("database"),
        user: s.parsed("user"),
        password_file: s.parsed("password_file"),
        source: s.parsed("source"),
        pops: s.list("pops"),
        key: s.parsed("key"),
        publish: s.parsed("publish"),
        life: s.parsed("life"),
        settle: s.parsed("settle"),
        canary_share: s.parsed("canary_share"),
        canary_rounds: s.integer("canary_rounds", 0, 10_000),
        available: s.list("available"),
    });
    (fleet, controller)
}

pub(super) fn fleet(typed: TypedFleet, pop: &str, problems: &mut Vec<Problem>) -> Option<Fleet> {
    match (typed.policy, typed.trust) {
        (None, None) => None,
        (Some(policy), None) => {
            problems.push(policy.problem("needs `trust` beside it: the controller's public key"));
            None
        }
        (None, Some(trust)) => {
            problems.push(trust.problem("needs `policy` beside it: the file of the snapshot"));
            None
        }
        (Some(policy), Some(trust)) => {
            if trust.value.is_empty() {
                problems.push(trust.problem("names no key: nothing would ever be obeyed"));
            }
            if pop.is_empty() {
                problems.push(policy.problem("is of a point of presence: write [host] pop"));
            }
            Some(Fleet { policy: directory(Some(policy), problems)?, trust: trust.value })
        }
    }
}

/// `None` where no ClickHouse is named.
pub(super) fn controller(typed: TypedController, state: &Path, problems: &mut Vec<Problem>) -> Option<Controller> {
    let Some(clickhouse) = typed.clickhouse else {
        // Silence would be taken for success.
        if let Some(pops) = &typed.pops {
            problems.push(
                pops.problem(
                    "nothing is decided without `clickhouse`: write its address, as \"http://127.0.0.1:8123\"",
                ),
            );
        }
        return None;
    };
    let pops = typed.pops.as_ref().map_or(&[][..], |pops| &pops.value);
    if pops.is_empty() {
        problems.push(clickhouse.problem("needs `pops` beside it: the points of presence to decide for"));
    }
    let is_name =
        |pop: &&String| !pop.is_empty() && pop.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if let (Some(typed), Some(pop)) = (&typed.pops, pops.iter().find(|pop| !is_name(pop))) {
        problems.push(typed.problem(format!("`{pop}` is no name for a file: letters, digits, `-` and `_`")));
    }
    let available = or(typed.available, vec!["cubic".to_owned(), "bbr".to_owned()]);
    Some(Controller {
        clickhouse: clickhouse.value,
        database: or(typed.database, "weirgate".to_owned()),
        login: (typed.user.map(|user| user.value), directory(typed.password_file, problems)),
        source: or(typed.source, Word(Source::default())).0,
        pops: pops.to_vec(),
        key: directory(typed.key, problems).unwrap_or_else(|| "/etc/weirgate/controller.key".into()),
        publish: directory(typed.publish, problems).unwrap_or_else(|| state.join("published")),
        life: between(typed.life, "1 min", "30 d", "30 min", problems),
        settle: between(typed.settle, "0 s", "1 h", "30 s", problems),
        canary: ((or(typed.canary_share, Share(0.1)).0 * 1e6).round() as u32, or(typed.canary_rounds, 36) as u32),
        available,
    })
}

impl FromStr for Key {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        let bytes =
            (0..s.len()).step_by(2).map(|at| s.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok()));
        let bytes = bytes.collect::<Option<Vec<u8>>>().and_then(|bytes| bytes.try_into().ok());
        bytes.map(Self).ok_or_else(|| {
            format!("`{s}` is no public key: 64 hexadecimal digits, as `weirgate controller key` prints them")
        })
    }
}

words! {
    Source: "tallies" = Source::Tallies, "records" = Source::Records;
}

#[cfg(test)]
mod tests {
    use crate::config::{Config, Surroundings};

    fn read(text: &str) -> Result<Config, String> {
        let around = Surroundings { host: "h".into(), state: "/state".into(), run: "/run".into() };
        Config::from_text(text, &around)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn what_cannot_be_obeyed_or_decided_is_said() {
        let key = "ab".repeat(32);
        for (text, what) in [
            ("[fleet]\npolicy = \"/p\"\n".to_owned(), "line 2: fleet.policy: needs `trust`"),
            (format!("[fleet]\ntrust = [\"{key}\"]\n"), "needs `policy`"),
            (format!("[fleet]\npolicy = \"/p\"\ntrust = [\"{key}\"]\n"), "write [host] pop"),
            ("[host]\npop = \"a\"\n[fleet]\npolicy = \"/p\"\ntrust = []\n".to_owned(), "names no key"),
            ("[fleet]\ntrust = [\"abc\"]\n".to_owned(), "64 hexadecimal digits"),
            ("[controller]\npops = [\"a\"]\n".to_owned(), "nothing is decided without `clickhouse`"),
            ("[controller]\nclickhouse = \"http://c:8123\"\n".to_owned(), "needs `pops`"),
            (
                "[controller]\nclickhouse = \"http://c:8123\"\npops = [\"a/b\"]\n".to_owned(),
                "`a/b` is no name for a file",
            ),
        ] {
            let said = read(&text).expect_err(&text);
            assert!(said.contains(what), "{text}: {said}");
        }
        let config = read(&format!("[host]\npop = \"a\"\n[fleet]\npolicy = \"/p\"\ntrust = [\"{key}\"]\n")).unwrap();
        assert_eq!(config.fleet.unwrap().trust[0].0, [0xab; 32]);
        let config = read("[controller]\nclickhouse = \"http://c:8123\"\npops = [\"ams\"]\n").unwrap();
        assert_eq!(config.decides.unwrap().canary, (100_000, 36));
    }
}
