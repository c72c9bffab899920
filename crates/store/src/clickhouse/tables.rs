//! What tables are wanted.

use weirgate_units::Duration;

use crate::export::Form;

/// Tables as they shall be.
#[derive(Clone, Debug)]
pub struct Tables {
    /// The database that holds them.
    pub database: String,
    /// The cluster whose servers all have them, replicated; `None` for one server.
    pub cluster: Option<String>,
    /// Where records come from, if by Kafka.
    pub kafka: Option<Kafka>,
    /// How long rows stay, in whole days; `None` is 30 days where tables are made, and leaves others as they are.
    pub ttl: Option<Duration>,
}

/// A topic that `weirgate` exports to.
#[derive(Clone, Debug)]
pub struct Kafka {
    /// Its brokers, as `kafka1:9092,kafka2:9092`.
    pub brokers: String,
    /// The topic of records.
    pub topic: String,
    /// The topic of tallies; `None`: they are not read.
    pub tallies: Option<String>,
    /// How many consumers a server has for each topic, each with a thread of its own and a share of the partitions.
    pub consumers: u16,
    /// How its messages hold records: `form` of `[export.kafka]`.
    pub form: Form,
}

impl Kafka {
    fn validate(&self) -> Result<(), BadTables> {
        let is_address = |broker: &&str| {
            let parts = broker.trim().rsplit_once(':');
            parts.is_some_and(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0))
        };
        if let Some(broker) = self.brokers.split(',').find(|broker| !is_address(broker)) {
            return Err(BadTables::Broker(broker.to_owned()));
        }
        if let Some(topic) =
            [Some(&self.topic), self.tallies.as_ref()].into_iter().flatten().find(|topic| !is_topic(topic))
        {
            return Err(BadTables::Topic(topic.clone()));
        }
        match self.tallies.as_ref() {
            Some(tallies) if *tallies == self.topic => Err(BadTables::OneTopic(tallies.clone())),
            _ => Ok(()),
        }
    }
}

/// As Kafka itself takes them.
fn is_topic(name: &str) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    (1..=249).contains(&name.len()) && name.bytes().all(is_part) && !matches!(name, "." | "..")
}

/// Why these are no tables that can be made.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadTables {
    /// The database's name.
    #[error("`{0}` is no name for a database: letters, digits and `_`, not beginning with a digit, at most 64")]
    Database(String),
    /// How long rows stay.
    #[error("rows cannot stay for {0}: write whole days, from \"1 d\" to \"36500 d\"")]
    Ttl(Duration),
    /// A topic's name.
    #[error("`{0}` is no topic's name: letters, digits, `.`, `_` and `-`, at most 249")]
    Topic(String),
    /// A broker's address.
    #[error(
        "`{0}` is no broker: write HOST:PORT of each, with commas between, as kafka1.example:9092,kafka2.example:9092"
    )]
    Broker(String),
    /// Records and tallies are messages of two kinds.
    #[error("`{0}` cannot be the topic of records and that of tallies: name another with --topic or --tallies")]
    OneTopic(String),
    /// Nothing where there must be something.
    #[error("{0} is empty: leave it out, or say which")]
    Empty(&'static str),
}

/// Where nobody says.
const TTL_DAYS: u64 = 30;
const TTL_DAYS_MAX: u64 = 36_500;
const DAY: u64 = 86_400_000_000_000;

impl Tables {
    /// Whether they can be made, but for what a server cannot do.
    pub fn validate(&self) -> Result<(), BadTables> {
        let name = self.database.as_bytes();
        let is_word = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_');
        if !is_word || !(1..=64).contains(&name.len()) || name[0].is_ascii_digit() {
            return Err(BadTables::Database(self.database.clone()));
        }
        if let Some(ttl) = self.ttl
            && (ttl.as_nanos() % DAY != 0 || !(1..=TTL_DAYS_MAX).contains(&(ttl.as_nanos() / DAY)))
        {
            return Err(BadTables::Ttl(ttl));
        }
        let kafka = self.kafka.as_ref();
        let texts = [
            ("the cluster's name", self.cluster.as_ref()),
            ("the list of brokers", kafka.map(|kafka| &kafka.brokers)),
            ("the topic's name", kafka.map(|kafka| &kafka.topic)),
            ("the name of the tallies' topic", kafka.and_then(|kafka| kafka.tallies.as_ref())),
        ];
        if let Some((what, _)) = texts.into_iter().find(|(_, text)| text.is_some_and(String::is_empty)) {
            return Err(BadTables::Empty(what));
        }
        kafka.map_or(Ok(()), Kafka::validate)
    }

    /// How many days rows stay in tables that are made now.
    pub(super) fn ttl_days(&self) -> u64 {
        self.ttl.map_or(TTL_DAYS, |ttl| ttl.as_nanos() / DAY)
    }

    /// The value of `${name}` in a file; `None` where there is no such name.
    pub(super) fn value(&self, name: &str) -> Option<String> {
        let of_kafka = |value: fn(&Kafka) -> &str| self.kafka.as_ref().map(|kafka| quoted(value(kafka)));
        match name {
            "database" => Some(self.database.clone()),
            "on_cluster" => {
                Some(self.cluster.as_ref().map_or_else(String::new, |name| format!(" ON CLUSTER {}", quoted(name))))
            }
            "replicated" => Some(self.cluster.as_ref().map_or("", |_| "Replicated").to_owned()),
            "ttl_days" => Some(self.ttl_days().to_string()),
            "brokers" => of_kafka(|kafka| &kafka.brokers),
            "topic" => of_kafka(|kafka| &kafka.topic),
            "tallies" => of_kafka(|kafka| kafka.tallies.as_deref().unwrap_or_default()),
            "format" => of_kafka(|kafka| match kafka.form {
                Form::Delimited => "Protobuf",
                Form::Single => "ProtobufSingle",
            }),
            "consumers" => self.kafka.as_ref().map(|kafka| kafka.consumers.max(1).to_string()),
            // Two databases that read one topic each get all of it.
            "group" => Some(quoted(&self.database)),
            _ => None,
        }
    }
}

/// `text` as a literal of SQL.
pub(super) fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\\', "\\\\").replace('\'', "\\'"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tables() -> Tables {
        Tables { database: "weirgate".to_owned(), cluster: None, kafka: None, ttl: None }
    }

    #[test]
    fn what_cannot_be_made_is_refused_with_the_reason() {
        assert_eq!(tables().validate(), Ok(()));
        let long = "x".repeat(65);
        for database in ["", "9lives", "a.b", "a`b", "a b", &long] {
            let tables = Tables { database: database.to_owned(), ..tables() };
            assert_eq!(tables.validate(), Err(BadTables::Database(database.to_owned())));
        }
        for ttl in [Duration::ZERO, Duration::from_secs(86_401), Duration::MAX] {
            assert_eq!(Tables { ttl: Some(ttl), ..tables() }.validate(), Err(BadTables::Ttl(ttl)));
        }
        let kafka = |brokers: &str, topic: &str, tallies: Option<&str>| {
            let (brokers, topic, tallies) = (brokers.to_owned(), topic.to_owned(), tallies.map(str::to_owned));
            Tables { kafka: Some(Kafka { brokers, topic, tallies, consumers: 1, form: Form::Single }), ..tables() }
                .validate()
        };
        assert_eq!(kafka("a:1,b:2", "a.b", Some("c")), Ok(()));
        for brokers in ["a", "a:1,b", "a:x", ":1", "a:1,"] {
            assert!(matches!(kafka(brokers, "a", None), Err(BadTables::Broker(_))), "{brokers}");
        }
        assert_eq!(kafka("a:1", "it's", None), Err(BadTables::Topic("it's".to_owned())));
        assert_eq!(kafka("a:1", "a", Some("a")), Err(BadTables::OneTopic("a".to_owned())));
        let empty = Tables { cluster: Some(String::new()), ..tables() };
        assert_eq!(empty.validate(), Err(BadTables::Empty("the cluster's name")));
    }

    #[test]
    fn values_of_others_are_literals() {
        let kafka = Kafka {
            brokers: "it's\\:9092".to_owned(),
            topic: "a".to_owned(),
            tallies: None,
            consumers: 4,
            form: Form::Single,
        };
        let tables = Tables { cluster: Some("{cluster}".to_owned()), kafka: Some(kafka), ..tables() };
        assert_eq!(tables.value("brokers").as_deref(), Some("'it\\'s\\\\:9092'"));
        assert_eq!(tables.value("on_cluster").as_deref(), Some(" ON CLUSTER '{cluster}'"));
        assert_eq!(tables.value("format").as_deref(), Some("'ProtobufSingle'"));
        assert_eq!(tables.value("consumers").as_deref(), Some("4"));
        assert_eq!(tables.value("nobody"), None);
    }
}
