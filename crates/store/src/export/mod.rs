//! Records to Kafka: what one machine's store outgrows.
//!
//! ```text
//! the loop's thread                the exporter's thread                    librdkafka's threads
//! append: encode ──▶ some seconds' records ──▶ by network ──▶ spool (files) ──▶ compression, TLS, the brokers
//!                                                  ▲                                     │
//!                                                  └────────── acknowledged: removed ◀───┘
//! ```
//!
//! - Every batch lies in the spool until the broker has acknowledged it (`acks=all`): what a broker that is away, or a daemon that
//!   ends, leaves there is sent later, in its order.
//! - The producer is idempotent: it repeats what was not acknowledged without writing it twice. What a *daemon* sent that was
//!   killed before it heard the acknowledgement is sent again by the next one; (boot_id, netns, cookie, sequence, time) names a record.
//! - A spool that fills is stretched: from half of its size on one connection of two is left out, from three quarters on one of
//!   four stays, and so on; a connection stays or goes as a whole, and the field `weight` says how many a record stands for. What a full one does not
//!   take is lost and counted.
//! - [`Exporter::append`] does no I/O and waits for nobody.
//!
//! Every record that was handed over, or found in the spool, ends as exactly one of [`Status`]'s `acknowledged`, `sampled_out`,
//! `lost` or `waiting`.

mod batch;
mod encode;
mod fields;
mod sender;
mod spool;
mod tally;

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use weirgate_sockets::record::{Origin, Record};
use weirgate_tune::Tally;
use weirgate_units::{Bytes, Duration, Prefix, UnixTime};

use self::batch::{Loose, Place};
pub use self::encode::Encoder as ProtobufEncoder;
pub use self::fields::{FIELDS, Field, proto};
use self::sender::Sender;
pub use self::sender::check;
use self::spool::Spool;
pub use self::spool::SpoolError;
pub use self::tally::TALLIES_PROTO;
use self::tally::TallyEncoder;
use crate::anonymise::Anonymise;
pub use crate::kafka::{CheckError, Sasl, Security};

/// Records in a batch at most: 3 to 4 MB of messages.
const BATCH_RECORDS: usize = 16_384;
/// Batches that may wait for the exporter's thread, beside the one that it works at: a poll of 100,000 sockets is six of them.
const HANDED_OVER_MAX: usize = 8;

/// How a message holds its records.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Form {
    /// The records of one client network, each behind its length: ClickHouse's format `Protobuf`.
    #[default]
    Delimited,
    /// One record: ClickHouse's format `ProtobufSingle`.
    Single,
}

/// How the producer compresses its batches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    /// Zstandard.
    #[default]
    Zstd,
    /// LZ4.
    Lz4,
    /// gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// None.
    Off,
}

/// Where to and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// `HOST:PORT` of some brokers; the others are learnt from them.
    pub brokers: Vec<String>,
    /// The topic, which has to be there, or brokers have to make it.
    pub topic: String,
    /// How a message holds its records.
    pub form: Form,
    /// Whether every field is sent or the lean ones ([`FIELDS`]).
    pub all_fields: bool,
    /// How batches are compressed.
    pub compression: Compression,
    /// How both ends know each other.
    pub security: Security,
    /// The folder of what waits.
    pub spool: PathBuf,
    /// What may wait there.
    pub spool_max: Bytes,
    /// A batch is no older when it is handed to the producer, which sends it within 200 ms.
    pub interval: Duration,
    /// Whether clients' addresses leave this host.
    pub anonymise: Anonymise,
}

/// What became of the records since the exporter was opened. `appended` and `found` together are always the sum of
/// `acknowledged`, `sampled_out`, `lost` and `waiting`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// Records handed over.
    pub appended: u64,
    /// Records that an earlier daemon had left in the spool.
    pub found: u64,
    /// Records that all brokers in sync have written.
    pub acknowledged: u64,
    /// Records left out because the spool fills; those that stay have a `weight`.
    pub sampled_out: u64,
    /// Records lost: no room in the spool, no disk to write to, or a damaged file.
    pub lost: u64,
    /// Records on their way.
    pub waiting: u64,
    /// Messages acknowledged, and the bytes of their keys and payloads before compression.
    pub messages: u64,
    /// See `messages`.
    pub bytes: u64,
    /// Batches in the spool, and their bytes.
    pub spool_batches: u64,
    /// See `spool_batches`.
    pub spool_bytes: u64,
    /// How many records one stands for that is handed over now.
    pub weight: u32,
    /// What is in the way, until something is acknowledged again.
    pub trouble: Option<String>,
}

/// Records, or tallies, into Kafka. One per spool; dropping it closes it.
pub struct Exporter {
    encoder: ProtobufEncoder,
    tallies: TallyEncoder,
    loose: Loose,
    /// How many records one stands for, as it was said last.
    said: u32,
    /// When the batch that grows began.
    since: Option<UnixTime>,
    interval: Duration,
    shared: Arc<Shared>,
    batches: Option<SyncSender<Loose>>,
    thread: Option<JoinHandle<()>>,
}

impl Exporter {
    /// Opens the spool and begins to send what is in it. That a broker cannot be reached is no error: records wait.
    ///
    /// # Errors
    /// The spool is another's, or cannot be written.
    pub fn open(origin: &Origin, options: Options) -> Result<Self, SpoolError> {
        let spool = Spool::open(&options.spool)?;
        let shared = Arc::new(Shared { topic: options.topic.clone(), ..Shared::default() });
        let found = spool.waiting().2;
        shared.found.store(found, Ordering::Relaxed);
        shared.look_at(&spool, options.spool_max);
        let encoder = ProtobufEncoder::new(origin, options.anonymise, !options.all_fields);
        let tallies = TallyEncoder::new(origin);
        let interval = options.interval;
        let (batches, received) = mpsc::sync_channel(HANDED_OVER_MAX);
        let sender = Sender::new(options, origin.pop.clone(), spool, Arc::clone(&shared));
        let thread = std::thread::Builder::new().name("export".to_owned()).spawn(move || sender.run(&received));
        let thread = thread.map_err(SpoolError::Thread)?;
        let (batches, thread) = (Some(batches), Some(thread));
        Ok(Self { encoder, tallies, loose: Loose::default(), said: 1, since: None, interval, shared, batches, thread })
    }

    /// Takes a record. Bounded work, no I/O, no waiting.
    pub fn append(&mut self, record: &Record<'_>) {
        self.shared.appended.fetch_add(1, Ordering::Relaxed);
        let weight = self.shared.weight.load(Ordering::Relaxed).max(1);
        if weight != core::mem::replace(&mut self.said, weight) {
            let topic = &self.shared.topic;
            match weight {
                1 => tracing::info!("kafka: topic {topic}: all connections are sent again"),
                _ => tracing::warn!(
                    "kafka: topic {topic}: the spool fills: one connection of {weight} is sent, the others are left out"
                ),
            }
        }
        if weight > 1 && mix(record.sample.cookie) & u64::from(weight - 1) != 0 {
            self.shared.sampled_out.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let start = self.loose.bytes.len();
        let prefix = self.encoder.push(record, weight, &mut self.loose.bytes);
        self.place(record.network, start, prefix, record.time);
    }

    /// Takes a tally that was summed up at `time`, of the round that ends at `round`; whatever waits, none is left out. Bounded work, no
    /// I/O, no waiting.
    pub fn append_tally(&mut self, tally: &Tally, round: UnixTime, time: UnixTime) {
        self.shared.appended.fetch_add(1, Ordering::Relaxed);
        let start = self.loose.bytes.len();
        let prefix = self.tallies.push(tally, round, time, &mut self.loose.bytes);
        self.place(tally.network, start, prefix, time);
    }

    /// Notes what was written from `start` on.
    fn place(&mut self, network: Prefix, start: usize, prefix: usize, time: UnixTime) {
        let end = self.loose.bytes.len();
        self.loose.records.push(Place { network, start: start as u32, end: end as u32, prefix: prefix as u8 });
        self.since.get_or_insert(time);
        if self.loose.records.len() >= BATCH_RECORDS {
            self.hand_over();
        }
    }

    /// To be called every second or so: hands a batch over whose interval has passed.
    pub fn handle_tick(&mut self, now: UnixTime) {
        // A clock that was set back would hold the batch for as long as it was set back by.
        if self.since.is_some_and(|since| now < since || now.saturating_since(since) >= self.interval) {
            self.hand_over();
        }
    }

    /// What became of the records so far.
    pub fn status(&self) -> Status {
        self.shared.status()
    }

    /// Hands over what there is, waits for acknowledgements for five seconds at most, leaves the rest in the spool for the next
    /// daemon, and says what became of everything.
    pub fn close(mut self) -> Status {
        self.end();
        self.status()
    }

    fn hand_over(&mut self) {
        self.since = None;
        let room = Loose {
            bytes: Vec::with_capacity(self.loose.bytes.len()),
            records: Vec::with_capacity(self.loose.records.len()),
        };
        let loose = core::mem::replace(&mut self.loose, room);
        let records = loose.records.len() as u64;
        let Some(batches) = &self.batches else { return };
        match batches.try_send(loose) {
            Ok(()) => {}
            Err(TrySendError::Full(_)) => self.shared.lose(records, "the disk of the spool does not keep up"),
            Err(TrySendError::Disconnected(_)) => {
                self.shared.lose(records, "the exporter's thread has ended by a fault of its own; see the log")
            }
        }
    }

    fn end(&mut self) {
        if !self.loose.records.is_empty() {
            self.hand_over();
        }
        self.batches = None;
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            self.shared.trouble("the exporter's thread has ended by a fault of its own; see the log");
        }
    }
}

impl Drop for Exporter {
    fn drop(&mut self) {
        self.end();
    }
}

/// Counters that both threads write.
#[derive(Debug, Default)]
struct Shared {
    topic: String,
    appended: AtomicU64,
    found: AtomicU64,
    acknowledged: AtomicU64,
    sampled_out: AtomicU64,
    lost: AtomicU64,
    messages: AtomicU64,
    bytes: AtomicU64,
    spool_batches: AtomicU64,
    spool_bytes: AtomicU64,
    weight: AtomicU32,
    trouble: Mutex<Option<String>>,
}

impl Shared {
    /// Notes what waits, and how many records one must stand for from now on.
    fn look_at(&self, spool: &Spool, max: Bytes) {
        let (batches, bytes, _) = spool.waiting();
        self.spool_batches.store(batches, Ordering::Relaxed);
        self.spool_bytes.store(bytes, Ordering::Relaxed);
        self.weight.store(weight(bytes, max.as_u64()), Ordering::Relaxed);
    }

    fn acknowledge(&self, records: u32, bytes: usize) {
        self.acknowledged.fetch_add(u64::from(records), Ordering::Relaxed);
        self.messages.fetch_add(1, Ordering::Relaxed);
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take().is_some() {
            tracing::info!("kafka: topic {}: messages are acknowledged again", self.topic);
        }
    }

    fn lose(&self, records: u64, why: &str) {
        self.lost.fetch_add(records, Ordering::Relaxed);
        self.trouble(&format!("records are lost: {why}"));
    }

    fn is_in_trouble(&self) -> bool {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    /// Notes what is in the way; says it where it is another than before.
    fn trouble(&self, why: &str) {
        let mut trouble = self.trouble.lock().unwrap_or_else(PoisonError::into_inner);
        if trouble.as_deref() != Some(why) {
            tracing::warn!("kafka: topic {}: {why}", self.topic);
            *trouble = Some(why.to_owned());
        }
    }

    fn status(&self) -> Status {
        let read = |n: &AtomicU64| n.load(Ordering::Relaxed);
        // The ends before the beginning, so that `waiting` is never negative while threads count.
        let (acknowledged, sampled_out, lost) = (read(&self.acknowledged), read(&self.sampled_out), read(&self.lost));
        let found = read(&self.found);
        let appended = read(&self.appended).max((acknowledged + sampled_out + lost).saturating_sub(found));
        Status {
            appended,
            found,
            acknowledged,
            sampled_out,
            lost,
            waiting: appended + found - acknowledged - sampled_out - lost,
            messages: read(&self.messages),
            bytes: read(&self.bytes),
            spool_batches: read(&self.spool_batches),
            spool_bytes: read(&self.spool_bytes),
            weight: self.weight.load(Ordering::Relaxed).max(1),
            trouble: self.trouble.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }
}

/// How many records one stands for while `bytes` of `max` wait: 2 from a half on, 4 from three quarters, twice as many each time
/// that the room that is left is halved, to 256.
fn weight(bytes: u64, max: u64) -> u32 {
    let left = max.saturating_sub(bytes);
    (0..8).take_while(|halved| left <= max >> (halved + 1)).fold(1, |weight, _| weight * 2)
}

/// Spreads a cookie's bits: connections that were opened one after the other are not left out together (SplitMix64's finaliser).
fn mix(cookie: u64) -> u64 {
    let mut x = cookie;
    x = (x ^ x >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ x >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ x >> 31
}

#[cfg(test)]
mod tests;
