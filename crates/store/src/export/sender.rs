//! The exporter's thread: packs batches, keeps the spool, and feeds librdkafka no more than what it should hold.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use rdkafka::error::KafkaError;
use rdkafka::message::DeliveryResult;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{ClientContext, Message as _};

use super::batch::{Batch, Loose};
use super::spool::Spool;
use super::{Compression, Options, Shared};
use crate::kafka::{self, CheckError};

/// How long the producer waits for more messages before it sends a batch of Kafka's.
pub(super) const LINGER: Duration = Duration::from_millis(200);
/// Bytes handed to the producer that are not acknowledged.
const WINDOW: usize = 8 << 20;
/// How often the thread looks for acknowledgements while no batch comes.
const LOOK: Duration = Duration::from_millis(50);
/// How long after a refusal the same messages are tried again.
const RETRY: Duration = Duration::from_secs(5);
/// How long the end waits for acknowledgements.
const PATIENCE: Duration = Duration::from_secs(5);

/// A batch that was handed to the producer, all or in part.
struct Flight {
    number: u64,
    batch: Batch,
    /// Messages handed over that were neither acknowledged nor refused.
    outstanding: AtomicU32,
    /// Messages that were refused, to be sent again.
    refused: Mutex<Vec<usize>>,
}

/// What comes back with a message.
struct Receipt {
    flight: Arc<Flight>,
    message: usize,
}

/// What librdkafka tells.
struct Context {
    shared: Arc<Shared>,
    /// What a broker's last trouble was of.
    last: Mutex<Option<RDKafkaErrorCode>>,
}

impl ClientContext for Context {
    fn error(&self, error: KafkaError, reason: &str) {
        // Of each broker, with its name and how long it took, and then of all, at each attempt: said once, until it is of another kind.
        let (code, is_first) = (error.rdkafka_error_code(), !self.shared.is_in_trouble());
        if code == Some(RDKafkaErrorCode::AllBrokersDown) {
            if is_first {
                self.shared.trouble("no broker answers; messages wait in the spool");
            }
            return;
        }
        let last = core::mem::replace(&mut *self.last.lock().unwrap_or_else(PoisonError::into_inner), code);
        match is_first || last != code {
            true => self.shared.trouble(&format!("{reason}; messages wait in the spool")),
            false => tracing::debug!("kafka: {reason}"),
        }
    }

    fn log(&self, _: rdkafka::config::RDKafkaLogLevel, facility: &str, text: &str) {
        tracing::debug!("librdkafka: {facility}: {text}");
    }
}

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Receipt>;

    fn delivery(&self, result: &DeliveryResult<'_>, receipt: Box<Receipt>) {
        let flight = &receipt.flight;
        match result {
            Ok(message) => {
                let (_, _, records) = flight.batch.message(receipt.message);
                self.shared.acknowledge(
                    records,
                    message.key().map_or(0, <[u8]>::len) + message.payload().map_or(0, <[u8]>::len),
                );
            }
            Err((error, _)) => {
                if error.rdkafka_error_code() != Some(RDKafkaErrorCode::PurgeQueue) {
                    self.shared.trouble(&refusal(error));
                }
                flight.refused.lock().unwrap_or_else(PoisonError::into_inner).push(receipt.message);
            }
        }
        flight.outstanding.fetch_sub(1, Ordering::Release);
    }
}

/// Why a message was refused, and what to do.
fn refusal(error: &KafkaError) -> String {
    let remedy = match error.rdkafka_error_code() {
        Some(RDKafkaErrorCode::MessageSizeTooLarge) => ": raise the topic's max.message.bytes to 1 MiB",
        Some(RDKafkaErrorCode::UnknownTopicOrPartition | RDKafkaErrorCode::UnknownTopic) => {
            ": make the topic, or let brokers do so"
        }
        Some(RDKafkaErrorCode::TopicAuthorizationFailed) => ": give the user the right to write to the topic",
        Some(RDKafkaErrorCode::ClusterAuthorizationFailed) => ": give the user IdempotentWrite on the cluster",
        _ => "",
    };
    format!("messages are refused, and tried again every 5 s: {error}{remedy}")
}

/// Asks brokers for the topic; returns how many partitions it has. Takes five seconds where nobody answers.
///
/// # Errors
/// [`CheckError`] says what is in the way.
pub fn check(options: &Options) -> Result<usize, CheckError> {
    kafka::check(&options.brokers, &options.security, &options.topic)
}

fn producer(options: &Options, shared: Arc<Shared>) -> Result<BaseProducer<Context>, CheckError> {
    options.security.check()?;
    let mut config = kafka::config(&options.brokers, &options.security);
    config
        .set("enable.idempotence", "true")
        .set("acks", "all")
        // Never given up: what waits is in the spool.
        .set("message.timeout.ms", "0")
        .set("linger.ms", LINGER.as_millis().to_string())
        .set("batch.size", "1000000")
        .set("queue.buffering.max.kbytes", "32768")
        // As Kafka's own clients choose, so that other producers' keys meet ours.
        .set("partitioner", "murmur2_random")
        .set(
            "compression.type",
            match options.compression {
                Compression::Zstd => "zstd",
                Compression::Lz4 => "lz4",
                Compression::Gzip => "gzip",
                Compression::Snappy => "snappy",
                Compression::Off => "none",
            },
        );
    config.create_with_context(Context { shared, last: Mutex::default() }).map_err(CheckError::Options)
}

/// What the thread owns.
pub(super) struct Sender {
    options: Options,
    pop: String,
    spool: Spool,
    shared: Arc<Shared>,
    producer: Option<BaseProducer<Context>>,
    flights: VecDeque<Arc<Flight>>,
    /// Messages of the last flight that were handed over.
    handed: usize,
    /// The batch after the last flight's.
    next: u64,
    /// When what was refused is tried again; nothing else is sent until then.
    retry: Option<Instant>,
}

impl Sender {
    pub(super) fn new(options: Options, pop: String, spool: Spool, shared: Arc<Shared>) -> Self {
        let (flights, handed, next) = (VecDeque::new(), 0, 0);
        Self { options, pop, spool, shared, producer: None, flights, handed, next, retry: None }
    }

    /// Runs until nobody can hand over batches any more, and then until all is acknowledged or [`PATIENCE`] is over.
    pub(super) fn run(mut self, batches: &Receiver<Loose>) {
        let mut end = None;
        loop {
            match batches.recv_timeout(LOOK) {
                Ok(loose) => self.store(loose),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    end.get_or_insert_with(|| Instant::now() + PATIENCE);
                    std::thread::sleep(LOOK / 5);
                }
            }
            self.send();
            self.settle();
            self.shared.look_at(&self.spool, self.options.spool_max);
            if end.is_some_and(|end| self.spool.waiting().0 == 0 || Instant::now() >= end) {
                break;
            }
        }
        // What is under way is left to the next daemon: it is in the spool.
        drop(self.producer);
    }

    fn store(&mut self, loose: Loose) {
        let batch = loose.pack(self.options.form, &self.pop);
        let records = batch.records();
        if self.spool.waiting().1 + batch.bytes().len() as u64 > self.options.spool_max.as_u64() {
            let max = self.options.spool_max;
            return self.shared.lose(records, &format!("the spool is full ({max}; [export.kafka] spool_max)"));
        }
        let dir = self.options.spool.display();
        match self.spool.add(&batch) {
            Ok(()) => {}
            Err((error, true)) => self.shared.trouble(&format!("{dir}: {error}; records wait in memory")),
            Err((error, false)) => self.shared.lose(records, &format!("{dir}: {error}")),
        }
    }

    /// Hands over what there is and what there is room for.
    fn send(&mut self) {
        if self.retry.is_some_and(|retry| Instant::now() < retry) {
            return;
        }
        if self.producer.is_none() && self.spool.waiting().0 > 0 {
            match producer(&self.options, Arc::clone(&self.shared)) {
                Ok(producer) => self.producer = Some(producer),
                Err(error) => {
                    self.shared.trouble(&format!("{error}; tried again every 5 s"));
                    self.retry = Some(Instant::now() + RETRY);
                    return;
                }
            }
        }
        let Some(producer) = &self.producer else { return };
        if self.retry.take().is_some() {
            for flight in &self.flights {
                let refused = core::mem::take(&mut *flight.refused.lock().unwrap_or_else(PoisonError::into_inner));
                for message in refused {
                    // What finds no room now is refused once more.
                    if !hand(producer, &self.options.topic, flight, message) {
                        flight.refused.lock().unwrap_or_else(PoisonError::into_inner).push(message);
                    }
                }
            }
        }
        loop {
            if self.flights.back().is_none_or(|last| self.handed == last.batch.len()) {
                let under_way: usize = self.flights.iter().map(|flight| flight.batch.bytes().len()).sum();
                if under_way >= WINDOW {
                    return;
                }
                match self.spool.read_from(self.next) {
                    None => return,
                    Some(Err((records, error))) => {
                        self.shared.lose(records, &error.to_string());
                        continue;
                    }
                    Some(Ok((number, batch))) => {
                        let (outstanding, refused) = (AtomicU32::new(0), Mutex::default());
                        self.flights.push_back(Arc::new(Flight { number, batch, outstanding, refused }));
                        (self.next, self.handed) = (number + 1, 0);
                    }
                }
            }
            let Some(last) = self.flights.back() else { return };
            while self.handed < last.batch.len() {
                if !hand(producer, &self.options.topic, last, self.handed) {
                    return;
                }
                self.handed += 1;
            }
        }
    }

    /// Hears what was acknowledged and refused, and lets go of batches that are done.
    fn settle(&mut self) {
        let Some(producer) = &self.producer else { return };
        producer.poll(Duration::ZERO);
        let is_handed =
            |this: &Self, at: usize| at + 1 < this.flights.len() || this.handed == this.flights[at].batch.len();
        let mut at = 0;
        let mut refused = false;
        while at < self.flights.len() {
            let flight = &self.flights[at];
            let has_refused = !flight.refused.lock().unwrap_or_else(PoisonError::into_inner).is_empty();
            refused |= has_refused;
            if !has_refused && is_handed(self, at) && flight.outstanding.load(Ordering::Acquire) == 0 {
                self.spool.remove(flight.number);
                self.flights.remove(at);
            } else {
                at += 1;
            }
        }
        if refused && self.retry.is_none() {
            self.retry = Some(Instant::now() + RETRY);
        }
        // A producer that has failed for good (its epoch was fenced) sends nothing more; the next one begins a new sequence.
        if producer.client().fatal_error().is_some()
            && self.flights.iter().all(|flight| flight.outstanding.load(Ordering::Acquire) == 0)
        {
            self.producer = None;
        }
    }
}

/// Hands a message to the producer; false where it has no room.
fn hand(producer: &BaseProducer<Context>, topic: &str, flight: &Arc<Flight>, message: usize) -> bool {
    let (key, payload, _) = flight.batch.message(message);
    let receipt = Box::new(Receipt { flight: Arc::clone(flight), message });
    flight.outstanding.fetch_add(1, Ordering::Relaxed);
    match producer.send(BaseRecord::with_opaque_to(topic, receipt).key(key).payload(payload)) {
        Ok(()) => true,
        Err((error, _)) => {
            flight.outstanding.fetch_sub(1, Ordering::Relaxed);
            if error.rdkafka_error_code() != Some(RDKafkaErrorCode::QueueFull) {
                // Refused at once, as one that is too large: tried again with all others.
                flight.refused.lock().unwrap_or_else(PoisonError::into_inner).push(message);
                producer.context().shared.trouble(&refusal(&error));
                return true;
            }
            false
        }
    }
}
