//! The files of `packaging/clickhouse`, as this binary has them: numbered, applied in order, each once.
//!
//! A file is statements with names to be filled in, as `${database}`. What was released never changes, since tables out there were
//! made by it; a new column is a new file. From [`REMADE_FROM`] on a file makes only what holds no rows: it may change, and is applied
//! again when it, or what is filled in, has.

use super::dialect::Dialect;
use super::tables::{Tables, quoted};

/// The first number of files that are applied again when they change.
const REMADE_FROM: u32 = 900;

/// One file.
#[derive(Debug)]
pub(super) struct File {
    path: &'static str,
    text: &'static str,
}

macro_rules! file {
    ($path:literal) => {
        File { path: $path, text: include_str!(concat!("../../../../packaging/clickhouse/", $path, ".sql")) }
    };
}

/// The database, and the table of what was applied: run every time.
pub(super) const BOOK: File = file!("000_migrations");

const CURRENT: &[File] = &[
    file!("001_sockets"),
    file!("002_networks_1m"),
    file!("003_responses"),
    file!("004_sockets_kafka_errors"),
    file!("005_tallies"),
    file!("006_responses_of_connections"),
    file!("007_controller"),
    file!("008_tallies_terms"),
    file!("900_sockets_kafka"),
    file!("901_tallies_kafka"),
];
const V18: &[File] = &[
    file!("18.16/001_sockets"),
    file!("18.16/002_networks_1m"),
    file!("18.16/003_responses"),
    file!("18.16/006_responses_of_connections"),
];

impl Dialect {
    /// Its files, in order.
    pub(super) const fn files(self) -> &'static [File] {
        match self {
            Self::Current => CURRENT,
            Self::V18 => V18,
        }
    }

    /// The other dialect.
    pub(super) const fn other(self) -> Self {
        match self {
            Self::Current => Self::V18,
            Self::V18 => Self::Current,
        }
    }
}

impl File {
    /// Its name, as `001_sockets`.
    pub(super) fn name(&self) -> &'static str {
        self.path.rsplit('/').next().unwrap_or(self.path)
    }

    /// The number that its name begins with.
    pub(super) fn number(&self) -> u32 {
        self.name()
            .split('_')
            .next()
            .and_then(|number| number.parse().ok())
            .expect("names begin with a number, a test says")
    }

    /// Whether it is applied again when it changes.
    pub(super) fn is_remade(&self) -> bool {
        self.number() >= REMADE_FROM
    }

    /// Whether `tables` need it.
    pub(super) fn is_wanted(&self, tables: &Tables) -> bool {
        match self.number() {
            ..REMADE_FROM => true,
            REMADE_FROM => tables.kafka.is_some(),
            _ => tables.kafka.as_ref().is_some_and(|kafka| kafka.tallies.is_some()),
        }
    }

    /// Its statements.
    pub(super) fn statements(&self, tables: &Tables) -> Vec<String> {
        split(self.text).iter().map(|statement| filled(statement, tables)).collect()
    }

    /// The tables and views that it makes.
    pub(super) fn makes(&self) -> Vec<String> {
        let makes = |statement: &String| {
            let (_, rest) = statement.strip_prefix("CREATE ")?.split_once("IF NOT EXISTS ${database}.")?;
            Some(word(rest).to_owned())
        };
        split(self.text).iter().filter_map(makes).collect()
    }

    /// Whether one of its statements names the table `name`.
    pub(super) fn is_about(&self, name: &str) -> bool {
        split(self.text).iter().any(|statement| statement.split("${database}.").skip(1).any(|rest| word(rest) == name))
    }

    /// What tells its statements from others: as they are written, or as they are filled in where that makes a difference.
    pub(super) fn checksum(&self, tables: &Tables) -> String {
        let statements = if self.is_remade() { self.statements(tables) } else { split(self.text) };
        let hash = blake3::hash(statements.join(";\n").as_bytes()).to_hex();
        hash[..32].to_owned()
    }

    /// The statement that says that it was applied.
    pub(super) fn record(&self, tables: &Tables) -> String {
        let (name, checksum) = (quoted(self.name()), quoted(&self.checksum(tables)));
        let database = &tables.database;
        format!(
            "INSERT INTO {database}.migrations (number, name, checksum) VALUES ({}, {name}, {checksum})",
            self.number()
        )
    }
}

/// The name that `text` begins with.
fn word(text: &str) -> &str {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next().unwrap_or_default()
}

/// The statements of a file, without comments.
fn split(text: &str) -> Vec<String> {
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("--")).collect();
    let statements = lines.join("\n");
    statements
        .split(';')
        .map(|statement| statement.trim().to_owned())
        .filter(|statement| !statement.is_empty())
        .collect()
}

/// `statement` with a value in place of each `${name}`. What a value says is not looked at again.
fn filled(statement: &str, tables: &Tables) -> String {
    let mut parts = statement.split("${");
    let mut filled = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (name, rest) = part.split_once('}').expect("names are closed, a test says");
        filled += &tables.value(name).expect("every name in a file that is wanted has a value, a test says");
        filled += rest;
    }
    filled
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clickhouse::Kafka;
    use crate::export::Form;
    use crate::schema::{COLUMNS, Kind};

    fn tables() -> Tables {
        let kafka = Kafka {
            brokers: "kafka:9092".to_owned(),
            topic: "${topic};".to_owned(),
            form: Form::Delimited,
            consumers: 1,
            tallies: None,
        };
        Tables { database: "fleet".to_owned(), cluster: Some("all".to_owned()), kafka: Some(kafka), ttl: None }
    }

    fn all() -> impl Iterator<Item = &'static File> {
        [&BOOK].into_iter().chain(CURRENT).chain(V18)
    }

    #[test]
    fn every_file_is_here_and_in_order() {
        for (folder, files) in [("", CURRENT), ("18.16/", V18)] {
            let dir = format!("{}/../../packaging/clickhouse/{folder}", env!("CARGO_MANIFEST_DIR"));
            let mut found: Vec<String> = std::fs::read_dir(dir)
                .unwrap()
                .filter_map(|entry| entry.unwrap().file_name().to_str()?.strip_suffix(".sql").map(str::to_owned))
                .filter(|name| name != BOOK.name())
                .collect();
            found.sort();
            assert_eq!(found, files.iter().map(File::name).collect::<Vec<_>>());
            assert!(files.iter().all(|file| file.path == format!("{folder}{}", file.name())));
            assert!(files.is_sorted_by_key(File::number) && files[0].number() == 1);
        }
    }

    #[test]
    fn files_are_written_so_that_they_can_be_split_and_applied_twice() {
        for file in all() {
            let commented = file.text.lines().filter(|line| line.contains("--"));
            assert!(commented.clone().count() > 0, "{} says what it is for", file.path);
            assert!(commented.into_iter().all(|line| line.starts_with("--")), "{}", file.path);
            let code = || file.text.lines().filter(|line| !line.starts_with("--"));
            assert!(code().all(|line| !line.trim_end_matches(';').contains(';')), "{}", file.path);
            assert!(code().next_back().is_some_and(|line| line.ends_with(';')), "{}", file.path);
            for statement in split(file.text) {
                assert!(
                    statement.contains(" IF NOT EXISTS ") || statement.starts_with("DROP TABLE IF EXISTS"),
                    "{statement}"
                );
                assert!(file.is_remade() || !statement.starts_with("DROP"), "{statement}");
            }
        }
    }

    #[test]
    fn a_file_says_what_it_makes_and_what_it_is_about() {
        let file = |number| CURRENT.iter().find(|file| file.number() == number).unwrap();
        assert_eq!(file(5).makes(), ["tallies"]);
        assert_eq!(file(900).makes(), ["sockets_kafka", "sockets_kafka_mv", "sockets_kafka_errors_mv"]);
        assert!(file(8).makes().is_empty() && file(8).is_about("tallies") && !file(8).is_about("tall"));
        assert!(file(900).is_about("sockets") && !file(5).is_about("sockets"));
        assert!(
            all()
                .all(|file| !file.statements(&tables()).is_empty() && file.makes().iter().all(|name| !name.is_empty()))
        );
    }

    #[test]
    fn names_are_filled_in_and_values_are_left_alone() {
        for file in all() {
            for statement in file.statements(&tables()) {
                let is_whole = !statement.replace("'${topic};'", "").contains("${");
                assert!(is_whole && statement.contains("fleet"), "{statement}");
                assert_eq!(statement.contains(" ON CLUSTER 'all'"), !file.path.starts_with("18.16"), "{statement}");
            }
        }
        let sql = CURRENT[0].statements(&tables()).concat();
        assert!(sql.contains("ENGINE = ReplicatedReplacingMergeTree\n") && sql.contains("INTERVAL 30 DAY"), "{sql}");
        let kafka = CURRENT[8].statements(&tables()).concat();
        assert!(kafka.contains("kafka_topic_list = '${topic};',\n    kafka_group_name = 'fleet',"), "{kafka}");
    }

    #[test]
    fn what_was_released_has_not_changed() {
        let sums: Vec<String> =
            CURRENT[..8].iter().chain(V18).map(|file| format!("{} {}", file.path, file.checksum(&tables()))).collect();
        assert_eq!(sums, RELEASED, "tables out there were made by these: add a file instead");
    }

    const RELEASED: [&str; 12] = [
        "001_sockets 1973cc8c167aa5efc2b2d9c23ddc3156",
        "002_networks_1m fffea2006007c6c440f83a97808d1a56",
        "003_responses a5822489b017f2bb1e52bf311f4a5098",
        "004_sockets_kafka_errors 739b34e4f691f1b5d9b4fdc2acef66f0",
        "005_tallies f41c2b2f4bca32ca5c6d79f90324a891",
        "006_responses_of_connections 582a8fb00cce667018d6fb020279757f",
        "007_controller 255de82f76dc8607d22f0c6b6a105cf7",
        "008_tallies_terms b1687f10c09c24fc1ee7f7facccb6138",
        "18.16/001_sockets 251ae78e222b8863d7eb1b26c7953d8f",
        "18.16/002_networks_1m 10161eb8e6fbcbe39b62ba4bf8583627",
        "18.16/003_responses ed8018a51f0177b7e60b1e7d4c1b0bf4",
        "18.16/006_responses_of_connections 419be2da78135ebac55f001e5647126d",
    ];

    #[test]
    fn a_checksum_is_of_the_statements_and_where_it_matters_of_the_values() {
        let file = |text| File { path: "001_a", text };
        let sum = file("SELECT ${database};\n").checksum(&tables());
        assert_eq!(file("-- why\nSELECT ${database};\n\n").checksum(&tables()), sum);
        assert_ne!(file("SELECT  ${database};\n").checksum(&tables()), sum);
        let other = Tables { database: "other".to_owned(), ..tables() };
        assert_eq!(file("SELECT ${database};\n").checksum(&other), sum);
        assert_ne!(CURRENT[8].checksum(&other), CURRENT[8].checksum(&tables()));
    }

    /// The columns of the table that is made by `sql`: name, type.
    fn columns(sql: &str) -> Vec<(&str, &str)> {
        let body = sql.split("\n(\n").nth(1).and_then(|rest| rest.split("\n)\n").next()).unwrap();
        body.lines()
            .map(|line| {
                let (name, kind) = line.trim().trim_end_matches(',').split_once(' ').unwrap();
                (name, kind.split(" CODEC").next().unwrap())
            })
            .collect()
    }

    /// What every record has, and the columns of the key.
    const KNOWN: [&str; 11] = [
        "time",
        "host",
        "pop",
        "boot_id",
        "kind",
        "sequence",
        "local_address",
        "remote_address",
        "network",
        "cookie",
        "netns",
    ];

    fn nullable(name: &str, inner: &str) -> String {
        if KNOWN.contains(&name) { inner.to_owned() } else { format!("Nullable({inner})") }
    }

    fn number(kind: Kind) -> &'static str {
        match kind {
            Kind::U8 | Kind::Network => "UInt8",
            Kind::U16 => "UInt16",
            Kind::U32 => "UInt32",
            _ => "UInt64",
        }
    }

    #[test]
    fn sockets_has_the_columns_of_the_schema() {
        let ours = || COLUMNS.iter().filter(|column| column.kind != Kind::Partition);
        let current: Vec<_> = ours()
            .map(|column| {
                let kind = match column.kind {
                    Kind::Time => "DateTime64(9, 'UTC')".to_owned(),
                    Kind::Text => format!("LowCardinality({})", nullable(column.name, "String")),
                    Kind::Network => "String".to_owned(),
                    Kind::Address => "IPv6".to_owned(),
                    Kind::Bool => nullable(column.name, "Bool"),
                    kind => nullable(column.name, number(kind)),
                };
                (column.name, kind)
            })
            .chain([("weight", "UInt32 DEFAULT 1".to_owned())])
            .collect();
        assert_eq!(
            columns(CURRENT[0].text),
            current.iter().map(|(name, kind)| (*name, kind.as_str())).collect::<Vec<_>>()
        );
        let old: Vec<_> = ours()
            .map(|column| {
                let kind = match column.kind {
                    Kind::Time => "DateTime('UTC')".to_owned(),
                    Kind::Text | Kind::Network | Kind::Address => nullable(column.name, "String"),
                    Kind::Bool => nullable(column.name, "UInt8"),
                    kind => nullable(column.name, number(kind)),
                };
                (column.name, kind)
            })
            .chain([("weight", "UInt32".to_owned())])
            .collect();
        assert_eq!(columns(V18[0].text), old.iter().map(|(name, kind)| (*name, kind.as_str())).collect::<Vec<_>>());
    }

    #[test]
    fn messages_have_the_fields_of_the_schema() {
        let sql = split(CURRENT[8].text);
        let expected: Vec<_> = COLUMNS
            .iter()
            .filter(|column| column.kind != Kind::Partition)
            .map(|column| match column.kind {
                Kind::Network => ("network_len", "UInt8".to_owned()),
                Kind::Time => ("time", "UInt64".to_owned()),
                Kind::Text => (column.name, nullable(column.name, "String")),
                Kind::Address => (column.name, "FixedString(16)".to_owned()),
                Kind::Bool => (column.name, nullable(column.name, "Bool")),
                kind => (column.name, nullable(column.name, number(kind))),
            })
            .chain([("weight", "UInt32".to_owned())])
            .collect();
        assert_eq!(columns(&sql[3]), expected.iter().map(|(name, kind)| (*name, kind.as_str())).collect::<Vec<_>>());
    }
}
