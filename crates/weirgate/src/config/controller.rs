//! `[controller]`: policies for others.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use weirgate_sockets::sample::CcName;
use weirgate_units::Duration;

use super::export::{self, Kafka};
use super::fleet::is_pop;
use super::read::{Problem, Section};
use super::tune::Share;
use super::typed::{Maybe, Word, words};
use super::{between, directory, listen_address, or};

/// The secret key, where nobody says otherwise.
pub(crate) const KEY: &str = "/etc/weirgate/controller.key";

/// `[controller]`: this host decides for others.
#[derive(Clone, Debug, PartialEq)]
pub struct Controller {
    /// Where rounds are read.
    pub database: Database,
    /// The points of presence that are decided for.
    pub pops: Vec<String>,
    /// The file of the secret key that signs.
    pub key: PathBuf,
    /// Where each point of presence's snapshot is put.
    pub publish: PathBuf,
    /// Where edges ask for them, if they do.
    pub serve: Option<Serve>,
    /// The topic that they are sent to, of the brokers in `[export.kafka]`.
    pub topic: Option<String>,
    /// For how long a controller that is not heard of keeps others from deciding; `None`: there are no others.
    pub lease: Option<Duration>,
    /// Where its metrics can be read.
    pub metrics: Option<SocketAddr>,
    /// For how long a snapshot may be obeyed.
    pub life: Duration,
    /// How long after the end of a round its data are there.
    pub settle: Duration,
    /// The share of edges that treat a network first, in parts per million, and for how many rounds.
    pub canary: (u32, u32),
    /// The congestion controls that every edge has.
    pub available: Vec<CcName>,
}

/// Where what connections came to is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Database {
    /// In ClickHouse.
    ClickHouse {
        /// Its HTTP address.
        url: String,
        /// The database of the fleet's tables.
        name: String,
        /// Who asks, and the file of the password.
        login: (Option<String>, Option<PathBuf>),
        /// The authority that signs its certificate; `None`: those of the system.
        ca: Option<PathBuf>,
        /// What is asked.
        source: Source,
    },
    /// In the store of a host, in this folder.
    Store(PathBuf),
}

/// How edges are answered by HTTPS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Serve {
    /// Where.
    pub listen: SocketAddr,
    /// The controller's certificate, and its key.
    pub certificate: (PathBuf, PathBuf),
    /// The first line of this file has to be sent along.
    pub token_file: Option<PathBuf>,
    /// The authority that has to have signed the edges' certificates.
    pub clients_ca: Option<PathBuf>,
}

/// What the controller decides from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Source {
    /// What hosts have summed up.
    #[default]
    Tallies,
    /// Single connections' records.
    Records,
    /// Responses of access logs, and the records of their connections.
    Responses,
}

/// As typed.
#[derive(Debug)]
pub(super) struct TypedController {
    first: Maybe<()>,
    clickhouse: Maybe<String>,
    clickhouse_ca: Maybe<String>,
    store: Maybe<String>,
    database: Maybe<String>,
    user: Maybe<String>,
    password_file: Maybe<String>,
    source: Maybe<Word<Source>>,
    pops: Maybe<Vec<String>>,
    key: Maybe<String>,
    publish: Maybe<String>,
    serve: TypedServe,
    topic: Maybe<String>,
    lease: Maybe<Duration>,
    metrics: Maybe<String>,
    life: Maybe<Duration>,
    settle: Maybe<Duration>,
    canary_share: Maybe<Share>,
    canary_rounds: Maybe<u64>,
    available: Maybe<Vec<String>>,
}

#[derive(Debug)]
struct TypedServe {
    listen: Maybe<SocketAddr>,
    certificate: Maybe<String>,
    certificate_key: Maybe<String>,
    token_file: Maybe<String>,
    clients_ca: Maybe<String>,
}

pub(super) fn read(root: &mut Section<'_>) -> TypedController {
    root.table("controller", |s| TypedController {
        first: s.first(),
        clickhouse: s.parsed("clickhouse"),
        clickhouse_ca: s.parsed("clickhouse_ca"),
        store: s.parsed("store"),
        database: s.parsed("database"),
        user: s.parsed("user"),
        password_file: s.parsed("password_file"),
        source: s.parsed("source"),
        pops: s.list("pops"),
        key: s.parsed("key"),
        publish: s.parsed("publish"),
        serve: TypedServe {
            listen: s.parsed("listen"),
            certificate: s.parsed("certificate"),
            certificate_key: s.parsed("certificate_key"),
            token_file: s.parsed("token_file"),
            clients_ca: s.parsed("clients_ca"),
        },
        topic: s.parsed("topic"),
        lease: s.parsed("lease"),
        metrics: s.parsed("metrics"),
        life: s.parsed("life"),
        settle: s.parsed("settle"),
        canary_share: s.parsed("canary_share"),
        canary_rounds: s.integer("canary_rounds", 0, 10_000),
        available: s.list("available"),
    })
}

const OF_CLICKHOUSE: &str = "is of ClickHouse, and there is none with `store`";

/// `None` where no database is named. `round` is how long a round is, `kafka` what `[export.kafka]` says.
pub(super) fn meaning(
    typed: TypedController,
    (state, round, kafka): (&Path, Duration, Option<&Kafka>),
    problems: &mut Vec<Problem>,
) -> Option<Controller> {
    let Some(from) = typed.clickhouse.as_ref().or(typed.store.as_ref()) else {
        // Silence would be taken for success.
        if let Some(first) = &typed.first {
            problems.push(first.problem(
                "nothing is decided without `clickhouse`: write its address, as \"http://127.0.0.1:8123\", or `store`",
            ));
        }
        return None;
    };
    let pops = typed.pops.as_ref().map_or(&[][..], |pops| &pops.value);
    if pops.is_empty() {
        problems.push(from.problem("needs `pops` beside it: the points of presence to decide for"));
    }
    if let Some(store) = &typed.store {
        if typed.clickhouse.is_some() {
            problems.push(store.problem("is read in place of `clickhouse`: write one of them"));
        }
        if let Some(lease) = &typed.lease {
            problems.push(lease.problem("is kept in ClickHouse, and there is none with `store`"));
        }
        let text = |typed: &Maybe<String>| typed.as_ref().map(|typed| typed.problem(OF_CLICKHOUSE));
        let of_no_use = [
            text(&typed.clickhouse_ca),
            text(&typed.database),
            text(&typed.user),
            text(&typed.password_file),
            typed.source.as_ref().map(|source| source.problem(OF_CLICKHOUSE)),
        ];
        problems.extend(of_no_use.into_iter().flatten());
    }
    if let (Some(ca), Some(clickhouse)) = (&typed.clickhouse_ca, &typed.clickhouse)
        && !clickhouse.value.starts_with("https://")
    {
        problems.push(ca.problem("is of no use where `clickhouse` is no https address"));
    }
    if let Some(database) = typed.database.as_ref().filter(|database| !is_database(&database.value)) {
        problems.push(database.problem(format!(
            "`{}` is no database's name here: up to 64 letters, digits and `_`, and no digit first",
            database.value
        )));
    }
    if let Some(typed) = &typed.pops {
        if let Some(pop) = pops.iter().find(|pop| !is_pop(pop)) {
            problems.push(typed.problem(format!("`{pop}` is no name for a file: letters, digits, `-` and `_`")));
        }
        if let Some((_, twice)) = pops.iter().enumerate().find(|(at, pop)| pops[..*at].contains(pop)) {
            problems.push(typed.problem(format!("names `{twice}` twice")));
        }
    }
    if let Some(topic) = &typed.topic {
        if kafka.is_none() {
            problems.push(topic.problem("is a topic of which brokers? Write [export.kafka] brokers"));
        }
        if !export::is_topic(&topic.value) {
            problems.push(export::no_topic(topic));
        }
    }
    let settle = between(typed.settle, "0 s", "1 h", "30 s", problems);
    // A policy has to outlive the one round that is late.
    let life_min = round.saturating_mul(2).saturating_add(settle);
    let life = match typed.life {
        None => Duration::from_secs(1_800).max(round.saturating_mul(4).saturating_add(settle)),
        Some(life) => {
            if life.value < life_min {
                problems.push(life.problem(format!(
                    "`{}` is over before the next policy is there: write {life_min} (two rounds and `settle`) or more",
                    life.value
                )));
            }
            between(Some(life), "1 s", "30 d", "30 min", problems)
        }
    };
    let lease = typed.lease.map(|lease| {
        // Who takes over does so when the lease is over, and publishes with the next round that has ended by then.
        let over_after = lease.value.saturating_add(round).saturating_add(settle);
        if over_after > life {
            problems.push(lease.problem(format!(
                "`{}`, a round and `settle` are longer than policies live ({life}): where a controller dies, all would expire before another \
                 decides; write less, or a longer `life`",
                lease.value
            )));
        }
        between(Some(lease), "5 s", "1 h", "30 s", problems)
    });
    let mut available = Vec::new();
    match &typed.available {
        None => available.extend(["cubic", "bbr"].iter().filter_map(|name| CcName::new(name))),
        Some(typed) => {
            for name in &typed.value {
                match CcName::new(name) {
                    Some(cc) if !name.is_empty() => available.push(cc),
                    _ => problems.push(typed.problem(format!("`{name}` is no congestion control's name"))),
                }
            }
        }
    }
    Some(Controller {
        database: match typed.clickhouse {
            None => Database::Store(directory(typed.store, problems)?),
            Some(clickhouse) => Database::ClickHouse {
                url: clickhouse.value,
                name: or(typed.database, "weirgate".to_owned()),
                login: (typed.user.map(|user| user.value), directory(typed.password_file, problems)),
                ca: directory(typed.clickhouse_ca, problems),
                source: or(typed.source, Word(Source::default())).0,
            },
        },
        pops: pops.to_vec(),
        key: directory(typed.key, problems).unwrap_or_else(|| KEY.into()),
        publish: directory(typed.publish, problems).unwrap_or_else(|| state.join("published")),
        serve: serve(typed.serve, problems),
        topic: typed.topic.map(|topic| topic.value),
        lease,
        metrics: match typed.metrics {
            None => Some(SocketAddr::from(([127, 0, 0, 1], 7071))),
            Some(listen) => listen_address(&listen, problems),
        },
        life,
        settle,
        canary: ((or(typed.canary_share, Share(0.1)).0 * 1e6).round() as u32, or(typed.canary_rounds, 36) as u32),
        available,
    })
}

/// As `weirgate store init` takes them.
fn is_database(name: &str) -> bool {
    let is_word = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    is_word && (1..=64).contains(&name.len()) && !name.starts_with(|first: char| first.is_ascii_digit())
}

/// `None` where edges do not ask.
fn serve(typed: TypedServe, problems: &mut Vec<Problem>) -> Option<Serve> {
    let TypedServe { listen, certificate, certificate_key, token_file, clients_ca } = typed;
    let Some(listen) = listen else {
        for file in [&certificate, &certificate_key, &token_file, &clients_ca].into_iter().flatten() {
            problems.push(file.problem("is of no use without `listen`, where edges ask for their policy"));
        }
        return None;
    };
    if token_file.is_none() && clients_ca.is_none() {
        problems.push(listen.problem(
            "would answer anybody: write `token_file`, whose first line edges send, or `clients_ca`, which signs their \
             certificates, beside it",
        ));
    }
    let is_without = certificate.is_none() && certificate_key.is_none();
    if is_without {
        problems.push(listen.problem("needs `certificate` and `certificate_key` beside it, for TLS"));
    }
    let certificate = export::pair((certificate, certificate_key), problems);
    let (token_file, clients_ca) = (directory(token_file, problems), directory(clients_ca, problems));
    Some(Serve { listen: listen.value, certificate: certificate?, token_file, clients_ca })
}

words! {
    Source: "tallies" = Source::Tallies, "records" = Source::Records, "responses" = Source::Responses;
}

#[cfg(test)]
mod tests {
    use super::{Database, Source};
    use crate::config::{Config, Surroundings};

    fn read(text: &str) -> Result<Config, String> {
        let around = Surroundings { host: "h".into(), state: "/state".into(), run: "/run".into() };
        Config::from_text(text, &around)
            .map_err(|problems| problems.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))
    }

    #[test]
    fn what_cannot_be_decided_is_said() {
        let with = |more: &str| format!("[controller]\nclickhouse = \"http://c:8123\"\npops = [\"ams\"]\n{more}\n");
        let server = "listen = \"0.0.0.0:8443\"\ncertificate = \"/c\"\ncertificate_key = \"/k\"";
        for (text, what) in [
            ("[controller]\npops = [\"a\"]\n".to_owned(), "nothing is decided without `clickhouse`"),
            ("[controller]\nlease = \"30 s\"\n".to_owned(), "line 2: controller.lease: nothing is decided without"),
            (
                "[controller]\nstore = \"/s\"\npops = [\"a\"]\nsource = \"records\"\n".to_owned(),
                "controller.source: is of ClickHouse",
            ),
            ("[controller]\nclickhouse = \"http://c:8123\"\n".to_owned(), "needs `pops`"),
            (
                "[controller]\nclickhouse = \"http://c:8123\"\npops = [\"a/b\"]\n".to_owned(),
                "`a/b` is no name for a file",
            ),
            ("[controller]\nclickhouse = \"http://c:8123\"\npops = [\"a\", \"a\"]\n".to_owned(), "names `a` twice"),
            (with("life = \"10 min\""), "over before the next policy is there: write 630 s (two rounds"),
            (with("lease = \"25 min\""), "longer than policies live (30 min)"),
            (with("available = [\"cubic\", \"no such control\"]"), "`no such control` is no congestion control's name"),
            (with("token_file = \"/t\""), "is of no use without `listen`"),
            (with(server), "would answer anybody"),
            (with("listen = \"0.0.0.0:8443\"\ntoken_file = \"/t\""), "for TLS"),
            (with("topic = \"t\""), "Write [export.kafka] brokers"),
            (with("store = \"/s\""), "write one of them"),
            (with("database = \"weirgate.tallies WHERE 1 --\""), "is no database's name"),
            ("[controller]\nstore = \"/s\"\npops = [\"a\"]\nlease = \"30 s\"\n".to_owned(), "kept in ClickHouse"),
            (with("metrics = \"0.0.0.0:7071\""), "a loopback address only"),
            (with("clickhouse_ca = \"/ca\""), "is of no use where `clickhouse` is no https address"),
        ] {
            let said = read(&text).expect_err(&text);
            assert!(said.contains(what), "{text}: {said}");
        }
        let config = read(&with(&format!("{server}\nclients_ca = \"/ca\""))).unwrap().decides.unwrap();
        assert_eq!((config.canary, config.available.len(), config.life.as_millis()), ((100_000, 36), 2, 1_800_000));
        assert_eq!(config.serve.unwrap().clients_ca.unwrap().to_str(), Some("/ca"));
        let read_from = |source: &str| {
            read(&with(&format!("source = \"{source}\""))).map(|config| config.decides.unwrap().database)
        };
        let is_of_responses = |database| matches!(database, Database::ClickHouse { source: Source::Responses, .. });
        assert!(read_from("responses").is_ok_and(is_of_responses) && read_from("answers").is_err());
        let slow = read("[tune]\nround = \"1 h\"\n[controller]\nclickhouse = \"http://c\"\npops = [\"a\"]\n").unwrap();
        assert_eq!(slow.decides.unwrap().life.as_millis(), 4 * 3_600_000 + 30_000);
    }
}
