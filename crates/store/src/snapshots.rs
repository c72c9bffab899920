//! Policies on their way by Kafka: a compacted topic, which keeps the newest snapshot of each point of presence.
//!
//! ```text
//! controller: Publisher::publish ──▶ the topic's first partition, key: point of presence ──▶ edge: Subscription::next
//! ```
//!
//! - All of them lie in one partition, so that what comes last is the newest. Nobody needs a group or an offset: a subscription begins
//!   with the topic, which holds what compaction has left of it, an hour or two of versions.
//! - Who publishes waits until all brokers in sync have the snapshot (`acks=all`, idempotent). One of which nobody knows whether it
//!   arrived may be published again: an edge obeys none twice.
//! - What comes is bytes: whoever takes them asks [`Held::check`](weirgate_tune::snapshot::Held::check) whether to obey.

use std::collections::BTreeSet;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use futures::executor::block_on;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{DeliveryResult, Message as _};
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};
use weirgate_tune::snapshot::SIZE_MAX;
use weirgate_units::Bytes;

use crate::kafka::{self, Context};
pub use crate::kafka::{CheckError, NotCompacted, Sasl, Security};

/// Where snapshots go, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topic {
    /// `HOST:PORT` of some brokers; the others are learnt from them.
    pub brokers: Vec<String>,
    /// How both ends know each other.
    pub security: Security,
    /// The topic's name.
    pub name: String,
}

/// Why a snapshot was not published. Each may be tried again, with what was said put right.
#[derive(Debug, thiserror::Error)]
pub enum PublishError {
    /// The options cannot be used, as a file of certificates that cannot be read.
    #[error("{0}")]
    Options(KafkaError),
    /// No edge would take it.
    #[error(
        "a snapshot of {0} is larger than {SIZE_MAX}, which is all that edges take: select fewer networks (networks_max in [tune.limits])"
    )]
    TooLarge(Bytes),
    /// The topic would not hold it for those who come later.
    #[error(transparent)]
    NotCompacted(#[from] NotCompacted),
    /// Nobody answered in time, or nobody let us in.
    #[error("no broker has taken the snapshot within {PATIENCE:?}: {0}; {WHERE}")]
    Away(String),
    /// Brokers would not have it.
    #[error("brokers refuse the snapshot: {error}{}", remedy(error))]
    Refused {
        /// What they say.
        error: KafkaError,
    },
}

/// The partition that holds all snapshots.
const PARTITION: i32 = 0;
/// How long brokers may take for a snapshot, or to make the topic.
const PATIENCE: Duration = Duration::from_secs(30);
/// What to look at where nobody answers.
const WHERE: &str = "are the brokers there, and do `tls` and `sasl` fit theirs?";
/// How often the publisher looks whether its snapshot was acknowledged.
const LOOK: Duration = Duration::from_millis(100);
/// How long a client waits at most before it tries a broker again that was away.
const RECONNECT_MS: &str = "2000";
/// A message is its key and what Kafka writes around it beside its snapshot.
const MESSAGE_MAX: u64 = SIZE_MAX.as_u64() + (64 << 10);
/// The most points of presence that are named in place of the one that is missing.
const OTHERS_MAX: usize = 8;
/// What a subscription takes from a broker at once, and of a compressed batch when it is read.
const ANSWER_MAX: u64 = 4 * MESSAGE_MAX;

/// The controller's end.
pub struct Publisher {
    topic: Topic,
    producer: Option<BaseProducer<Context>>,
    /// Whether the topic was there when it was looked for, and is compacted.
    is_there: bool,
}

impl Publisher {
    /// Publishes to `topic`. Nobody is asked yet.
    pub const fn new(topic: Topic) -> Self {
        Self { topic, producer: None, is_there: false }
    }

    /// Publishes `bytes` as the newest snapshot of the point of presence `pop`, and returns when all brokers in sync have it, which takes
    /// a minute at most. Makes the topic where there is none.
    ///
    /// # Errors
    /// [`PublishError`]; after [`Away`](PublishError::Away) it may have arrived all the same.
    pub fn publish(&mut self, pop: &str, bytes: &[u8]) -> Result<(), PublishError> {
        if bytes.len() as u64 > SIZE_MAX.as_u64() {
            return Err(PublishError::TooLarge(Bytes::new(bytes.len() as u64)));
        }
        let sent = self.send(pop, bytes);
        if sent.is_err() {
            // Whatever it was: the next one begins anew, with a topic that may be gone and an epoch that may be fenced.
            (self.producer, self.is_there) = (None, false);
        }
        sent
    }

    fn send(&mut self, pop: &str, bytes: &[u8]) -> Result<(), PublishError> {
        let producer = match &self.producer {
            Some(producer) => producer,
            None => self.producer.insert(producer(&self.topic)?),
        };
        let failed = |error: KafkaError| match is_silence(&error) {
            true => {
                // What is in the way is told to who asks; whoever makes topics is told only that nobody answers.
                producer.poll(LOOK);
                PublishError::Away(producer.context().brokers().unwrap_or_else(|| error.to_string()))
            }
            false => PublishError::Refused { error },
        };
        if !self.is_there {
            if let Some(policy) = make(&self.topic).map_err(failed)? {
                return Err(NotCompacted { topic: self.topic.name.clone(), policy }.into());
            }
            self.is_there = true;
        }
        let receipt = Receipt::default();
        let record = BaseRecord::with_opaque_to(&self.topic.name, Arc::clone(&receipt)).partition(PARTITION);
        producer.send(record.key(pop).payload(bytes)).map_err(|(error, _)| failed(error))?;
        // The producer itself gives it up when its time is over.
        let until = Instant::now() + PATIENCE * 2;
        while receipt.get().is_none() && Instant::now() < until {
            producer.poll(LOOK);
        }
        match receipt.get() {
            Some(None) => Ok(()),
            Some(Some(error)) => Err(failed(error.clone())),
            None => Err(PublishError::Away("nothing was heard".to_owned())),
        }
    }
}

fn producer(topic: &Topic) -> Result<BaseProducer<Context>, PublishError> {
    let mut config = config(topic);
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        .set("message.timeout.ms", PATIENCE.as_millis().to_string())
        .set("message.max.bytes", MESSAGE_MAX.to_string())
        .set("compression.type", "zstd");
    config.create_with_context(Context::default()).map_err(PublishError::Options)
}

/// Makes the topic, or looks whether the one that is there will do; `Some` is what it does in place of being compacted.
fn make(topic: &Topic) -> Result<Option<String>, KafkaError> {
    let admin: AdminClient<Context> = config(topic).create_with_context(Context::default())?;
    let options = AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE));
    let message_max = MESSAGE_MAX.to_string();
    // As many copies as brokers keep of others. Compaction leaves the segment alone that is written to: it is an hour's.
    let new = NewTopic::new(&topic.name, 1, TopicReplication::Fixed(-1))
        .set("cleanup.policy", "compact")
        .set("max.message.bytes", &message_max)
        .set("segment.ms", "3600000")
        .set("min.cleanable.dirty.ratio", "0.1");
    match block_on(admin.create_topics([&new], &options))?.into_iter().next() {
        Some(Err((_, RDKafkaErrorCode::TopicAlreadyExists))) => {}
        // Who may not make topics may find it made.
        Some(Err((_, RDKafkaErrorCode::TopicAuthorizationFailed | RDKafkaErrorCode::ClusterAuthorizationFailed))) => {}
        Some(Err((_, code))) => return Err(KafkaError::AdminOp(code)),
        Some(Ok(_)) | None => return Ok(None),
    }
    not_compacted(&admin, &topic.name)
}

/// Asks brokers whether the topic is there, and holds snapshots. Takes five seconds where nobody answers.
///
/// # Errors
/// [`CheckError`] says what is in the way.
pub fn check(topic: &Topic) -> Result<(), CheckError> {
    kafka::check(&topic.brokers, &topic.security, &topic.name)?;
    let admin = config(topic).create_with_context(Context::default()).map_err(CheckError::Options)?;
    // They have answered before.
    match not_compacted(&admin, &topic.name).map_err(|error| CheckError::Away(error.to_string()))? {
        Some(policy) => Err(NotCompacted { topic: topic.name.clone(), policy }.into()),
        None => Ok(()),
    }
}

/// What a topic that is there does in place of being compacted.
fn not_compacted(admin: &AdminClient<Context>, topic: &str) -> Result<Option<String>, KafkaError> {
    let options = AdminOptions::new().request_timeout(Some(PATIENCE));
    let described = block_on(admin.describe_configs([&ResourceSpecifier::Topic(topic)], &options))?;
    // Who may not look is believed.
    let Some(Ok(described)) = described.into_iter().next() else { return Ok(None) };
    let policy = described.get("cleanup.policy").and_then(|entry| entry.value.clone());
    Ok(policy.filter(|policy| !policy.split(',').any(|word| word.trim() == "compact")))
}

/// An edge's end: the snapshots of one point of presence.
pub struct Subscription {
    consumer: BaseConsumer<Context>,
    topic: String,
    pop: String,
    refused: u64,
    /// Whose snapshots are there in place of ours; `None` once ours was.
    others: Option<BTreeSet<String>>,
    /// What is wrong with the topic, or with what is in it.
    trouble: Option<String>,
}

impl Subscription {
    /// Begins to read `topic` for the point of presence `pop`, in threads of its own; that brokers or topic are not there is no error.
    ///
    /// # Errors
    /// The options cannot be used, as a file of certificates that cannot be read.
    pub fn open(topic: &Topic, pop: &str) -> Result<Self, KafkaError> {
        let mut config = config(topic);
        config
            // Of nobody: partitions are not shared, and no offset is kept.
            .set("group.id", "weirgate")
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            .set("auto.offset.reset", "earliest")
            .set("enable.partition.eof", "true")
            .set("fetch.max.bytes", MESSAGE_MAX.to_string())
            .set("max.partition.fetch.bytes", MESSAGE_MAX.to_string())
            .set("receive.message.max.bytes", ANSWER_MAX.to_string())
            .set("queued.max.messages.kbytes", (MESSAGE_MAX >> 10).to_string())
            // A topic that is made later is found.
            .set("topic.metadata.refresh.interval.ms", "10000")
            // How it is known that a broker is back while nothing new comes.
            .set("statistics.interval.ms", "5000");
        let consumer: BaseConsumer<Context> = config.create_with_context(Context::default())?;
        let mut all = TopicPartitionList::new();
        all.add_partition_offset(&topic.name, PARTITION, Offset::Beginning)?;
        consumer.assign(&all)?;
        Ok(Self {
            consumer,
            topic: topic.name.clone(),
            pop: pop.to_owned(),
            refused: 0,
            others: Some(BTreeSet::new()),
            trouble: None,
        })
    }

    /// The next snapshot, the oldest first; `None`: there is none yet, after `timeout`. With a `timeout` of zero nothing is waited for. At
    /// most 100 MB are held for it.
    pub fn next(&mut self, timeout: Duration) -> Option<Vec<u8>> {
        let until = Instant::now() + timeout;
        loop {
            match self.consumer.poll(until.saturating_duration_since(Instant::now())) {
                Some(Ok(message)) => {
                    self.consumer.context().answered();
                    self.trouble = None;
                    // One that was taken away from the topic has no payload.
                    let Some(bytes) = message.payload() else { continue };
                    if message.key() != Some(self.pop.as_bytes()) {
                        if let (Some(others), Some(key)) = (&mut self.others, message.key())
                            && others.len() < OTHERS_MAX
                        {
                            others.insert(String::from_utf8_lossy(key).into_owned());
                        }
                        continue;
                    }
                    self.others = None;
                    if bytes.len() as u64 <= SIZE_MAX.as_u64() {
                        return Some(bytes.to_vec());
                    }
                    self.refused += 1;
                    self.trouble = Some(format!(
                        "a snapshot of {} in topic `{}` is larger than any ({SIZE_MAX}) and is not looked at: who else writes there?",
                        Bytes::new(bytes.len() as u64),
                        self.topic
                    ));
                }
                Some(Err(KafkaError::PartitionEOF(_))) => {
                    self.consumer.context().answered();
                    if let Some(others) = self.others.as_ref().filter(|others| !others.is_empty()) {
                        let others = others.iter().map(String::as_str).collect::<Vec<_>>().join("`, `");
                        self.trouble = Some(format!(
                            "topic `{}` has no policy of point of presence `{}`, but of `{others}`: is [host] pop one of [controller] pops?",
                            self.topic, self.pop
                        ));
                    }
                }
                Some(Err(error)) => self.trouble = trouble(&error, &self.topic).or_else(|| self.trouble.take()),
                None if Instant::now() >= until => return None,
                None => {}
            }
        }
    }

    /// What is in the way of snapshots, for people, until they come again.
    pub fn trouble(&self) -> Option<String> {
        let brokers = || Some(format!("{}; {WHERE}", self.consumer.context().brokers()?));
        self.trouble.clone().or_else(brokers)
    }

    /// How many were larger than any may be.
    pub const fn refused(&self) -> u64 {
        self.refused
    }
}

/// What became of a snapshot that was sent: nothing, or why it was not acknowledged.
type Receipt = Arc<OnceLock<Option<KafkaError>>>;

impl ProducerContext for Context {
    type DeliveryOpaque = Receipt;

    fn delivery(&self, result: &DeliveryResult<'_>, receipt: Receipt) {
        // Nobody has answered it before: it is one message's.
        let _ = receipt.set(result.as_ref().err().map(|(error, _)| error.clone()));
    }
}

fn config(topic: &Topic) -> ClientConfig {
    let mut config = kafka::config(&topic.brokers, &topic.security);
    config.set("reconnect.backoff.max.ms", RECONNECT_MS);
    config
}

/// The code of `error`, of what was asked of brokers as an administrator, too.
fn code(error: &KafkaError) -> Option<RDKafkaErrorCode> {
    if let KafkaError::AdminOp(code) = error { Some(*code) } else { error.rdkafka_error_code() }
}

/// Whether an error is that nobody answered.
fn is_silence(error: &KafkaError) -> bool {
    matches!(
        code(error),
        Some(
            RDKafkaErrorCode::OperationTimedOut
                | RDKafkaErrorCode::MessageTimedOut
                | RDKafkaErrorCode::RequestTimedOut
                | RDKafkaErrorCode::AllBrokersDown
                | RDKafkaErrorCode::BrokerTransportFailure
        )
    )
}

/// What to do about a refusal.
fn remedy(error: &KafkaError) -> String {
    let remedy = match code(error) {
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => {
            return format!("; raise the topic's max.message.bytes to {MESSAGE_MAX}");
        }
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
            "; make the topic, with cleanup.policy=compact, or give the user the right to"
        }
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => "; give the user the right to write to the topic",
        Some(RDKafkaErrorCode::ClusterAuthorizationFailed) => "; give the user IdempotentWrite on the cluster",
        _ => "",
    };
    remedy.to_owned()
}

/// What an edge is told of `error`, if that is for people.
fn trouble(error: &KafkaError, topic: &str) -> Option<String> {
    match code(error) {
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
            Some(format!("there is no topic `{topic}` so far: has the controller published anything, and there?"))
        }
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => {
            Some(format!("topic `{topic}` may not be read: give the user the right to"))
        }
        // Brokers', of which the context knows more.
        _ if is_silence(error) => None,
        _ => Some(format!("topic `{topic}`: {error}")),
    }
}
