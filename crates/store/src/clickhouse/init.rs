//! From what a server has to what is wanted.
//!
//! Ground rules: whatever is done twice does nothing the second time, so a run that was cut off is taken up by the next one, and two at
//! once end with the same tables. What was applied is written down after it was; rows are never dropped.

use std::collections::BTreeSet;

use super::client::{Server, ServerError};
use super::dialect::{Dialect, UnknownVersion};
use super::file::{BOOK, File};
use super::standby::meet;
use super::tables::{BadTables, Tables, quoted};

/// What was done.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Done {
    /// The server's version.
    pub version: String,
    /// Its SQL.
    pub dialect: Dialect,
    /// What was applied now, in order.
    pub applied: Vec<&'static str>,
    /// How much had been applied before, and still holds.
    pub kept: usize,
    /// The tables whose rows stay for another time from now on.
    pub retimed: Vec<String>,
    /// The tables of others of the cluster that this server has from now on, too.
    pub joined: Vec<String>,
    /// The tables that had been made, were gone, and are there again, without their rows.
    pub remade: Vec<String>,
    /// The tables that read Kafka as before, since nothing was said of their topics.
    pub left: Vec<&'static str>,
    /// The schemas of messages that the server does not find: it reads nothing from Kafka until it does.
    pub missing_schemas: Vec<&'static str>,
}

/// Why the tables are not as they shall be. What was applied until then stays, and the next run goes on from there.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// They were not said well.
    #[error(transparent)]
    Tables(#[from] BadTables),
    /// The server.
    #[error(transparent)]
    Server(#[from] ServerError),
    /// Its version.
    #[error(transparent)]
    Version(#[from] UnknownVersion),
    /// Its version cannot do what is wanted.
    #[error("ClickHouse before 23.10 {0}")]
    Unsupported(&'static str),
    /// Servers of the cluster have tables that are no replicas of each other's.
    #[error(
        "servers of this cluster have a database {database} each of its own, whose tables do not follow each other's: drop it on the one \
         that is wrong (DROP DATABASE {database} SYNC), and run this there again"
    )]
    Apart {
        /// The database.
        database: String,
    },
    /// What was applied is not what this binary has under the same name.
    #[error(
        "{database} was made with another `{name}` (checksum {theirs}, here {ours}), by a changed or unreleased Weirgate: nothing was \
         changed; use the binary that made it, or another --database"
    )]
    Changed {
        /// The database.
        database: String,
        /// The file.
        name: String,
        /// The checksum of what was applied.
        theirs: String,
        /// The checksum of what is here.
        ours: String,
    },
    /// What was applied is not known here.
    #[error(
        "{database} was made by a newer Weirgate, which applied `{name}`: nothing was changed; use that version or a later one"
    )]
    Newer {
        /// The database.
        database: String,
        /// The file.
        name: String,
    },
    /// The tables were made for a server of another time.
    #[error(
        "the tables of {database} are those for ClickHouse {}, and this server is of another time: nothing was changed; they go on as \
         they are, and new ones need another --database",
        match dialect { Dialect::V18 => "18.16 to 23.9", Dialect::Current => "23.10 or later" }
    )]
    OtherDialect {
        /// The database.
        database: String,
        /// What they were made for.
        dialect: Dialect,
    },
}

impl InitError {
    /// Whether something was wanted that cannot be, in contrast to what went wrong.
    pub const fn is_asked_wrongly(&self) -> bool {
        matches!(
            self,
            Self::Tables(_) | Self::Unsupported(_) | Self::Server(ServerError::BadUrl(_) | ServerError::BadLogin(_))
        )
    }
}

/// A row of the table `migrations`.
#[derive(Debug)]
struct Row {
    number: u32,
    name: String,
    checksum: String,
}

/// The tables whose rows go after a time, and the column that it counts from.
const AGEING: [(&str, &str); 5] = [
    ("sockets", "time"),
    ("networks_1m", "minute"),
    ("responses", "time"),
    ("responses_1m", "minute"),
    ("tallies", "round"),
];

/// Makes what `tables` lack on `server`. Waits for the server for some minutes at most for each statement.
pub fn init(server: &Server, tables: &Tables) -> Result<Done, InitError> {
    tables.validate()?;
    let version = server.version()?;
    let dialect = Dialect::of(&version)?;
    supported(tables, dialect)?;
    let joined = match &tables.cluster {
        Some(cluster) => join(server, tables, cluster)?,
        None => Vec::new(),
    };
    for statement in BOOK.statements(tables) {
        server.ask(&statement)?;
    }
    // Of a replica, what the others noted; one that has just joined may be busy with fetching sockets for minutes.
    meet(server, server.patience(), &tables.database, "migrations")?;
    let rows = rows(server, tables)?;
    let missing = missing(tables, dialect, &rows)?;
    let is_missing = |file: &File| missing.iter().any(|missing| missing.number() == file.number());
    let wanted: Vec<_> = dialect.files().iter().filter(|file| file.is_wanted(tables)).collect();
    let there = names(server, &tables.database)?;
    // Somebody has dropped them.
    let made = wanted.iter().filter(|file| !is_missing(file)).flat_map(|file| file.makes());
    let gone: Vec<String> = made.filter(|name| !there.contains(name)).collect();
    for file in wanted.iter().filter(|file| is_missing(file) || gone.iter().any(|name| file.is_about(name))) {
        let statements = file.statements(tables);
        if file.is_remade() && file.makes().iter().all(|name| there.contains(name)) {
            // Who may not make what is there finds out before it is dropped.
            for statement in statements.iter().filter(|statement| !statement.starts_with("DROP")) {
                server.ask(statement)?;
            }
        }
        for statement in statements {
            server.ask(&statement)?;
        }
        if is_missing(file) {
            server.ask(&file.record(tables))?;
        }
    }
    let retimed = match tables.ttl {
        Some(_) => retime(server, tables)?,
        None => Vec::new(),
    };
    let applied: Vec<_> = missing.iter().map(|file| file.name()).collect();
    let missing_schemas = missing_schemas(server, tables)?;
    let kept = wanted.len() - applied.len();
    let tallies = tables.kafka.as_ref().and_then(|kafka| kafka.tallies.as_ref());
    let said = [("sockets_kafka", tables.kafka.is_some()), ("tallies_kafka", tallies.is_some())];
    let left =
        said.into_iter().filter(|(name, is_said)| !is_said && there.contains(*name)).map(|(name, _)| name).collect();
    Ok(Done { version, dialect, kept, applied, retimed, joined, remade: gone, left, missing_schemas })
}

/// Makes on `server` the tables that other servers of the cluster have, as theirs: of the same UUIDs, which their paths in Keeper hold.
/// Made anew they would be replicas of nothing.
fn join(server: &Server, tables: &Tables, cluster: &str) -> Result<Vec<String>, InitError> {
    let (database, all) = (&tables.database, format!("clusterAllReplicas({}, system.tables)", quoted(cluster)));
    let of_others = format!("FROM {all} WHERE database = {}", quoted(database));
    let settings = "SETTINGS skip_unavailable_shards = 1, show_table_uuid_in_table_create_query_if_not_nil = 1";
    let books = server.ask(&format!("SELECT uniqExact(uuid) {of_others} AND name = 'migrations' {settings}"))?;
    match books.trim() {
        "0" => return Ok(Vec::new()),
        // This server's own, perhaps, and all others theirs: then nothing is missing.
        "1" => {}
        _ => return Err(InitError::Apart { database: database.clone() }),
    }
    server.ask(&format!("CREATE DATABASE IF NOT EXISTS {database}"))?;
    let statements = server.ask(&format!(
        "SELECT name, any(create_table_query) {of_others} GROUP BY name, engine \
         ORDER BY engine = 'MaterializedView', engine = 'Kafka', name {settings} FORMAT TSVRaw"
    ))?;
    let there = names(server, database)?;
    let mut joined = Vec::new();
    for (name, statement) in statements.lines().filter_map(|line| line.split_once('\t')) {
        if !there.contains(name) {
            server.ask(statement)?;
            joined.push(name.to_owned());
        }
    }
    Ok(joined)
}

/// The names of all tables and views of `database`.
fn names(server: &Server, database: &str) -> Result<BTreeSet<String>, ServerError> {
    let names = server.ask(&format!("SELECT name FROM system.tables WHERE database = {}", quoted(database)))?;
    Ok(names.lines().map(str::to_owned).collect())
}

/// The schemas that `server` has to have, and does not find.
fn missing_schemas(server: &Server, tables: &Tables) -> Result<Vec<&'static str>, ServerError> {
    let Some(kafka) = &tables.kafka else { return Ok(vec![]) };
    let mut all = vec![("weirgate/v1/sockets.proto", "Socket")];
    if kafka.tallies.is_some() {
        all.push(("weirgate/v1/tallies.proto", "Tally"));
    }
    let mut missing = Vec::new();
    for (schema, message) in all {
        let statement = format!("SELECT 1 WHERE 0 SETTINGS format_schema = '{schema}:{message}' FORMAT Protobuf");
        match server.ask(&statement) {
            Err(ServerError::Failed { said, .. }) if said.contains("File not found") => missing.push(schema),
            Err(ServerError::Failed { .. }) | Ok(_) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(missing)
}

/// All that [`init`] does on an empty server, as text to be run by hand.
pub fn script(tables: &Tables, dialect: Dialect) -> Result<String, InitError> {
    tables.validate()?;
    supported(tables, dialect)?;
    let mut text = String::new();
    let mut add = |statement: &str| {
        text.push_str(statement);
        text.push_str(";\n\n");
    };
    BOOK.statements(tables).iter().for_each(|statement| add(statement));
    for file in dialect.files().iter().filter(|file| file.is_wanted(tables)) {
        file.statements(tables).iter().for_each(|statement| add(statement));
        add(&file.record(tables));
    }
    Ok(text)
}

fn supported(tables: &Tables, dialect: Dialect) -> Result<(), InitError> {
    let why = match dialect {
        Dialect::Current => None,
        Dialect::V18 if tables.kafka.is_some() => Some(
            "cannot read these messages from Kafka: upgrade it, or leave --kafka out and insert JSON (docs/clickhouse.md)",
        ),
        Dialect::V18 if tables.cluster.is_some() => {
            Some("has no --cluster here: upgrade it, or run this on each server without")
        }
        Dialect::V18 if tables.ttl.is_some() => {
            Some("lets no rows go by themselves: leave --ttl out, and drop old days (docs/clickhouse.md)")
        }
        Dialect::V18 => None,
    };
    why.map_or(Ok(()), |why| Err(InitError::Unsupported(why)))
}

fn rows(server: &Server, tables: &Tables) -> Result<Vec<Row>, InitError> {
    let database = &tables.database;
    let last = "argMax(name, applied_at), argMax(checksum, applied_at)";
    let text =
        server.ask(&format!("SELECT number, {last} FROM {database}.migrations GROUP BY number ORDER BY number"))?;
    Ok(text.lines().filter_map(row).collect())
}

fn row(line: &str) -> Option<Row> {
    let mut fields = line.split('\t');
    let (number, name, checksum) = (fields.next()?.parse().ok()?, fields.next()?, fields.next()?);
    Some(Row { number, name: name.to_owned(), checksum: checksum.to_owned() })
}

/// What is wanted and was not applied, in order; refuses what was applied by others.
fn missing(tables: &Tables, dialect: Dialect, rows: &[Row]) -> Result<Vec<&'static File>, InitError> {
    let database = || tables.database.clone();
    for row in rows {
        let ours = dialect.files().iter().find(|file| file.number() == row.number);
        if ours.is_some_and(|file| file.is_remade() || file.checksum(tables) == row.checksum) {
            continue;
        }
        if dialect.other().files().iter().any(|file| !file.is_remade() && file.checksum(tables) == row.checksum) {
            return Err(InitError::OtherDialect { database: database(), dialect: dialect.other() });
        }
        let (name, theirs) = (row.name.clone(), row.checksum.clone());
        return Err(match ours {
            Some(file) => InitError::Changed { database: database(), name, theirs, ours: file.checksum(tables) },
            None => InitError::Newer { database: database(), name },
        });
    }
    let is_missing = |file: &&File| {
        let is_applied = |row: &Row| row.number == file.number() && row.checksum == file.checksum(tables);
        file.is_wanted(tables) && !rows.iter().any(is_applied)
    };
    Ok(dialect.files().iter().filter(is_missing).collect())
}

/// Lets rows stay as long as `tables` say, in tables where that is another time than now.
fn retime(server: &Server, tables: &Tables) -> Result<Vec<String>, InitError> {
    let database = &tables.database;
    let days = tables.ttl_days();
    let names: Vec<String> = AGEING.iter().map(|(name, _)| quoted(name)).collect();
    let others = server.ask(&format!(
        "SELECT name FROM system.tables WHERE database = {} AND name IN ({}) AND position(engine_full, 'toIntervalDay({days})') = 0 \
         ORDER BY name",
        quoted(database),
        names.join(", ")
    ))?;
    let on_cluster = tables.value("on_cluster").unwrap_or_default();
    let mut retimed = Vec::new();
    for (name, column) in AGEING.into_iter().filter(|(name, _)| others.lines().any(|other| other == *name)) {
        server.ask(&format!(
            "ALTER TABLE {database}.{name}{on_cluster} MODIFY TTL toDateTime({column}) + INTERVAL {days} DAY"
        ))?;
        retimed.push(name.to_owned());
    }
    Ok(retimed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clickhouse::Kafka;
    use crate::export::Form;

    fn tables() -> Tables {
        Tables { database: "fleet".to_owned(), cluster: None, kafka: None, ttl: None }
    }

    fn with_kafka(topic: &str) -> Tables {
        let kafka = Kafka {
            brokers: "kafka:9092".to_owned(),
            topic: topic.to_owned(),
            form: Form::Delimited,
            consumers: 1,
            tallies: None,
        };
        Tables { kafka: Some(kafka), ..tables() }
    }

    fn applied(file: &File, tables: &Tables) -> Row {
        Row { number: file.number(), name: file.name().to_owned(), checksum: file.checksum(tables) }
    }

    fn names(tables: &Tables, rows: &[Row]) -> Vec<&'static str> {
        missing(tables, Dialect::Current, rows).unwrap().iter().map(|file| file.name()).collect()
    }

    #[test]
    fn what_is_missing_is_applied_in_order() {
        let files = Dialect::Current.files();
        assert_eq!(
            names(&tables(), &[]),
            [
                "001_sockets",
                "002_networks_1m",
                "003_responses",
                "004_sockets_kafka_errors",
                "005_tallies",
                "006_responses_of_connections",
                "007_controller",
                "008_tallies_terms"
            ]
        );
        let rows: Vec<Row> = files[..3].iter().map(|file| applied(file, &tables())).collect();
        assert_eq!(
            names(&with_kafka("a"), &rows),
            [
                "004_sockets_kafka_errors",
                "005_tallies",
                "006_responses_of_connections",
                "007_controller",
                "008_tallies_terms",
                "900_sockets_kafka"
            ]
        );
        let rows: Vec<Row> = files.iter().map(|file| applied(file, &with_kafka("a"))).collect();
        assert!(names(&with_kafka("a"), &rows).is_empty());
        assert!(names(&tables(), &rows).is_empty(), "Kafka's stays where nobody asks for it");
        assert_eq!(names(&with_kafka("b"), &rows), ["900_sockets_kafka"], "another topic");
        let mut summed = with_kafka("a");
        summed.kafka.iter_mut().for_each(|kafka| kafka.tallies = Some("t".to_owned()));
        assert_eq!(names(&summed, &rows), ["901_tallies_kafka"]);
    }

    #[test]
    fn what_others_applied_is_refused() {
        let file = &Dialect::Current.files()[0];
        let changed = Row { checksum: "0".repeat(32), ..applied(file, &tables()) };
        let said = missing(&tables(), Dialect::Current, &[changed]).unwrap_err().to_string();
        assert!(said.contains("another `001_sockets`") && said.contains("another --database"), "{said}");
        let newer = Row { number: 99, name: "099_more".to_owned(), checksum: String::new() };
        let said = missing(&tables(), Dialect::Current, &[applied(file, &tables()), newer]).unwrap_err().to_string();
        assert!(said.contains("newer Weirgate, which applied `099_more`"), "{said}");
        let said = missing(&tables(), Dialect::V18, &[applied(file, &tables())]).unwrap_err().to_string();
        assert!(said.contains("are those for ClickHouse 23.10 or later"), "{said}");
        let old = applied(&Dialect::V18.files()[0], &tables());
        let said = missing(&tables(), Dialect::Current, &[old]).unwrap_err().to_string();
        assert!(said.contains("are those for ClickHouse 18.16 to 23.9"), "{said}");
    }

    #[test]
    fn old_servers_say_what_they_cannot_do() {
        let cluster = Tables { cluster: Some("all".to_owned()), ..tables() };
        let ttl = Tables { ttl: Some(weirgate_units::Duration::from_secs(86_400)), ..tables() };
        for (tables, word) in [(with_kafka("a"), "insert JSON"), (cluster, "--cluster"), (ttl, "--ttl")] {
            let error = script(&tables, Dialect::V18).unwrap_err();
            assert!(error.is_asked_wrongly() && error.to_string().contains(word), "{error}");
            assert!(script(&tables, Dialect::Current).is_ok());
        }
    }

    #[test]
    fn the_script_is_what_would_be_applied_and_writes_it_down() {
        let text = script(&with_kafka("a"), Dialect::Current).unwrap();
        let at = |what: &str| text.find(what).unwrap_or_else(|| panic!("{what}:\n{text}"));
        assert!(text.starts_with("CREATE DATABASE IF NOT EXISTS fleet;\n"));
        assert!(at("CREATE TABLE IF NOT EXISTS fleet.sockets\n") < at("VALUES (1, '001_sockets', "));
        assert!(at("VALUES (4, '004_") < at("ENGINE = Kafka") && at("ENGINE = Kafka") < at("VALUES (900, '900_"));
        let old = script(&tables(), Dialect::V18).unwrap();
        assert!(
            !old.contains("LowCardinality") && !old.contains("TTL") && old.contains("VALUES (3, '003_responses', ")
        );
    }

    #[test]
    fn tables_age_by_the_column_that_is_altered() {
        let text = script(&tables(), Dialect::Current).unwrap();
        for (name, column) in AGEING {
            let table = text.split(&format!("CREATE TABLE IF NOT EXISTS fleet.{name}\n")).nth(1).unwrap();
            let ttl = format!("TTL toDateTime({column}) + INTERVAL 30 DAY");
            assert!(table.split(';').next().unwrap().contains(&ttl), "{name}");
        }
        assert_eq!(text.matches("INTERVAL 30 DAY").count(), AGEING.len());
    }
}
