//! Where a controller reads what the connections of a round came to: a fleet's ClickHouse, or the store of this host.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, ensure};
use weirgate_store::clickhouse::{self, Round, RoundError, Server};
use weirgate_store::{TimeRange, for_each_record};
use weirgate_tune::{Config, Tallies, Tally};
use weirgate_units::{Duration, UnixTime};

use super::secret;
use crate::config::controller::{Database, Source};
use crate::recorded::Recorded;

/// Rows of a round that are taken at most: a point of presence has a million networks at most, in two arms and with two congestion controls.
const ROWS_MAX: usize = 4_000_000;

/// Where rounds are read.
pub(super) enum Rounds {
    /// In these tables.
    ClickHouse(Server, String, clickhouse::Source),
    /// In the files of this folder.
    Store(PathBuf),
}

impl Rounds {
    /// Where whoever asks has a `lease`, an answer that takes longer comes too late.
    pub(super) fn open(database: &Database, lease: Option<Duration>) -> Result<Self> {
        Ok(match database {
            Database::Store(dir) => Self::Store(dir.clone()),
            Database::ClickHouse { url, name, login: (user, password), ca, source } => {
                let password =
                    password.as_deref().map(|path| secret("[controller] password_file", path)).transpose()?;
                let source = match source {
                    Source::Tallies => clickhouse::Source::Tallies,
                    Source::Records => clickhouse::Source::Records,
                    Source::Responses => clickhouse::Source::Responses,
                };
                let mut server = Server::new(url, user.clone(), password)?;
                if let Some(ca) = ca {
                    server = server.with_authorities(ca)?;
                }
                if let Some(lease) = lease {
                    server = server.with_patience(lease.to_std());
                }
                Self::ClickHouse(server, name.clone(), source)
            }
        })
    }

    /// Whether rounds can be asked for there at all.
    ///
    /// # Errors
    /// The server is too old, or does not answer.
    pub(super) fn check(&self) -> Result<(), RoundError> {
        match self {
            Self::ClickHouse(server, ..) => clickhouse::can_add_up(server),
            Self::Store(_) => Ok(()),
        }
    }

    /// What is asked, and the database there, where it is a server.
    pub(super) fn server(&self) -> Option<(&Server, &str)> {
        match self {
            Self::ClickHouse(server, database, _) => Some((server, database)),
            Self::Store(_) => None,
        }
    }

    /// What the connections of `pop` came to in the round that ends at `end`, and of what that was; nothing where there are no data of it.
    ///
    /// # Errors
    /// The database does not answer, or its files cannot be read.
    pub(super) fn read(&self, pop: &str, end: UnixTime, config: &Config) -> Result<(Vec<Tally>, Round)> {
        match self {
            Self::Store(dir) => from_store(dir, pop, end, config),
            Self::ClickHouse(server, database, source) => {
                let mut tallies = Vec::new();
                let each = &mut |tally| {
                    // One more tells that there are more.
                    if tallies.len() <= ROWS_MAX {
                        tallies.push(tally);
                    }
                };
                let round = clickhouse::round(server, database, *source, (pop, end), config, each)?;
                ensure!(
                    tallies.len() <= ROWS_MAX,
                    "the round has more than {ROWS_MAX} networks by arm and congestion control, from which is not decided: who else writes \
                     into its table?"
                );
                Ok((tallies, round))
            }
        }
    }
}

/// As the hosts themselves would have summed it up. What a connection did before the round is told by its records of the round before.
fn from_store(dir: &Path, pop: &str, end: UnixTime, config: &Config) -> Result<(Vec<Tally>, Round)> {
    ensure!(dir.is_dir(), "[controller] store: {}: there is no such folder", dir.display());
    let before = |rounds| UnixTime::from_nanos(end.as_nanos().saturating_sub(config.round.as_nanos() * rounds));
    let start = before(1);
    let lens = (config.network_len_v4, config.network_len_v6);
    let mut hosts: BTreeMap<String, Host> = BTreeMap::new();
    let done = for_each_record(dir, TimeRange { from: before(2), to: end }, &mut |record, origin| {
        if origin.pop == pop {
            let host = hosts.entry(origin.host.clone()).or_insert_with(|| Host::new(config));
            if record.time >= start && !host.has_begun {
                host.has_begun = true;
                host.recorded.end_round(&mut |_| {});
            }
            let Host { recorded, tallies, has_begun } = host;
            recorded.handle_record(record, origin, lens, &mut |progress| {
                if *has_begun {
                    tallies.handle_progress(progress);
                }
            });
        }
        true
    });
    for warning in done.with_context(|| format!("[controller] store: {}", dir.display()))?.warnings {
        tracing::warn!("{warning}");
    }
    let (mut all, mut round) = (Vec::new(), Round::default());
    for (name, Host { mut recorded, mut tallies, has_begun }) in hosts {
        if has_begun {
            recorded.end_round(&mut |progress| tallies.handle_progress(progress));
            all.extend(tallies.take());
            round.hosts.push(name);
        }
    }
    round.rows = all.len() as u64;
    Ok((all, round))
}

/// One host whose records are in the store.
struct Host {
    recorded: Recorded,
    tallies: Tallies,
    /// Whether a record of the round has been seen.
    has_begun: bool,
}

impl Host {
    fn new(config: &Config) -> Self {
        Self { recorded: Recorded::default(), tallies: Tallies::new(config.clone()), has_begun: false }
    }
}

#[cfg(test)]
mod tests {
    use weirgate_sockets::record::{Direction, Origin, Record};
    use weirgate_sockets::sample::{CcName, Field, Kind, Sample, flag, mapped, state};
    use weirgate_store::{Options, Writer};
    use weirgate_units::{Duration, Prefix};

    use super::*;

    const BEGIN: u64 = 1_795_291_200;

    fn at(seconds: u64) -> UnixTime {
        UnixTime::from_nanos((BEGIN + seconds) * 1_000_000_000)
    }

    /// Polls every 5 s for a minute of eight connections, four of a client network, which deliver 1 MB each time; the last one closes
    /// in the middle.
    fn write(dir: &Path, host: &str, pop: &str) {
        let origin = Origin { host: host.to_owned(), pop: pop.to_owned(), boot_id: host.to_owned() };
        let mut writer = Writer::open(dir, &origin, Options::default()).unwrap();
        for (poll, connection) in (0..12).flat_map(|poll| (0..8_u64).map(move |connection| (poll, connection))) {
            let is_last = connection == 7 && poll >= 5;
            if connection == 7 && poll > 5 {
                continue;
            }
            let remote = [198, 18, (connection / 4) as u8, connection as u8 + 1].into();
            let time = at(poll * 5 + 1);
            let mut sample = Sample {
                kind: if is_last { Kind::Close } else { Kind::Poll } as u8,
                state: state::ESTABLISHED,
                flags: flag::ACCEPTED,
                family: 4,
                local_port: 443,
                remote_port: 4_000,
                local: mapped([192, 0, 2, 1].into()),
                remote: mapped(remote),
                cookie: connection + 1,
                netns: 1,
                time_ns: time.as_nanos(),
                cc: CcName::new("cubic").unwrap(),
                bytes_acked: 1_000_000 * (poll + 1),
                busy_us: 100_000 * (poll + 1),
                ..Sample::default()
            };
            for field in [Field::TcpInfo, Field::BytesAcked, Field::BusyUs, Field::Cc, Field::Netns] {
                sample.set_given(field);
            }
            writer.append(&Record {
                sample: &sample,
                time,
                sequence: poll as u32,
                direction: Direction::Accepted,
                listener_port: 443,
                network: Prefix::client_network(remote),
                asn: 0,
                delivery_rate_max: 0,
                country: [0; 2],
            });
        }
        writer.close();
    }

    #[test]
    fn a_store_is_summed_up_as_its_host_would() {
        let dir = tempfile::tempdir().unwrap();
        let config = Config { round: Duration::from_secs(20), ..Config::default() };
        write(dir.path(), "edge-1", "ams");
        write(dir.path(), "edge-2", "ams");
        write(dir.path(), "edge-3", "fra");
        let read = |pop, end| {
            let (mut tallies, round) = from_store(dir.path(), pop, at(end), &config).unwrap();
            assert_eq!(round.rows, tallies.len() as u64);
            tallies.sort_by_key(|tally| tally.network);
            let row = |tally: &Tally| (tally.did.connections, tally.did.acked.as_u64() / 1_000_000, tally.fit.len());
            tallies.iter().map(row).collect::<Vec<_>>()
        };
        // Four polls of a round in which each delivers 1 MB more than at the one before.
        assert_eq!(read("fra", 60), [(4, 16, 4), (3, 12, 3)]);
        assert_eq!(read("fra", 40), [(4, 16, 4), (4, 14, 4)], "one has closed after the second");
        assert_eq!(read("ams", 60), [(4, 16, 4), (4, 16, 4), (3, 12, 3), (3, 12, 3)], "of two hosts");
        assert!(read("nowhere", 60).is_empty() && read("fra", 200).is_empty());
    }
}
