//! Policies by Kafka: the controller's end on a thread of its own, so that brokers that are away hold nobody up, and the edge's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use weirgate_linux::clock;
use weirgate_store::snapshots::{self, CheckError, Publisher, Subscription, Topic};

use super::board::Board;
use super::fetch::{self, News, pause};
use crate::config::Kafka;
use crate::daemon::export::security;

/// How often it is looked whether there is something to publish.
const LOOK: Duration = Duration::from_millis(200);
/// How long a subscription waits before it says that all is well.
const WAIT: Duration = Duration::from_secs(5);

fn topic(kafka: &Kafka, name: &str) -> Result<Topic> {
    let security = security(kafka)?;
    Ok(Topic { brokers: kafka.brokers.clone(), security, name: name.to_owned() })
}

/// Whether the topic `name` is there.
///
/// # Errors
/// Brokers cannot be asked, or it does not keep policies.
pub(super) fn is_there(kafka: &Kafka, name: &str) -> Result<bool> {
    match snapshots::check(&topic(kafka, name)?) {
        Ok(()) => Ok(true),
        Err(CheckError::NoTopic(_)) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// The controller's end.
pub(crate) struct Sender {
    publisher: Publisher,
    topic: String,
    board: Arc<Board>,
    /// What was sent last of each point of presence.
    sent: BTreeMap<String, String>,
}

impl Sender {
    /// Sends what `board` shows to the topic `name`. Nothing is sent yet.
    ///
    /// # Errors
    /// The password's file cannot be read.
    pub(crate) fn new(kafka: &Kafka, name: &str, board: Arc<Board>) -> Result<Self> {
        let publisher = Publisher::new(topic(kafka, name)?);
        Ok(Self { publisher, topic: name.to_owned(), board, sent: BTreeMap::new() })
    }

    /// Sends whatever is new from now on, from a thread of its own.
    pub(crate) fn start(mut self) -> Result<()> {
        let run = move || {
            let mut failures = 0;
            loop {
                match self.send() {
                    Ok(()) => {
                        failures = 0;
                        sleep(LOOK);
                    }
                    Err(error) => {
                        tracing::warn!("{error:#}; tried again in a while");
                        pause(failures);
                        failures += 1;
                    }
                }
            }
        };
        std::thread::Builder::new().name("topic".to_owned()).spawn(run).context("no thread can be started")?;
        Ok(())
    }

    /// Sends what was not sent yet, while this controller decides: others would send older ones after its own.
    ///
    /// # Errors
    /// Brokers have not taken one; it is sent the next time. The others are not held up by it.
    pub(crate) fn send(&mut self) -> Result<()> {
        let mut failed = None;
        for (pop, document) in self.board.documents() {
            if !self.board.is_active() {
                self.sent.clear();
                break;
            }
            if self.sent.get(pop) == Some(&document.etag) || !document.is_alive(clock::unix()) {
                continue;
            }
            if let Err(error) = self.publisher.publish(pop, &document.bytes) {
                self.board.count(pop, |numbers| numbers.failed += 1);
                failed.get_or_insert(anyhow::Error::new(error).context(format!("the policy of `{pop}`")));
                continue;
            }
            self.board.count(pop, |numbers| numbers.in_topic = document.version);
            tracing::info!(pop, version = document.version, topic = self.topic, "brokers have it");
            self.sent.insert(pop.to_owned(), document.etag.clone());
        }
        failed.map_or(Ok(()), Err)
    }
}

/// Hands over the policies of `pop` in the topic `name`, until what is returned is dropped.
///
/// # Errors
/// The options cannot be used.
pub(super) fn subscribe(kafka: &Kafka, name: &str, pop: &str) -> Result<Receiver<News>> {
    let mut subscription = Subscription::open(&topic(kafka, name)?, pop)?;
    fetch::start(move |news| while read(&mut subscription, news) {})
}

/// The newest policy of `pop` in the topic `name`, where there is one.
///
/// # Errors
/// What is in the way, or why there is none.
pub(super) fn ask(kafka: &Kafka, name: &str, pop: &str) -> Result<Option<Vec<u8>>> {
    let mut subscription = Subscription::open(&topic(kafka, name)?, pop)?;
    match (newest(&mut subscription), subscription.trouble()) {
        (None, Some(why)) => bail!(why),
        (found, _) => Ok(found),
    }
}

/// Of what has piled up only the newest matters.
fn newest(subscription: &mut Subscription) -> Option<Vec<u8>> {
    let mut last = subscription.next(WAIT);
    while let Some(newer) = last.is_some().then(|| subscription.next(Duration::from_millis(50))).flatten() {
        last = Some(newer);
    }
    last
}

/// Reads once; false: there is nobody left to tell.
fn read(subscription: &mut Subscription, news: &SyncSender<News>) -> bool {
    let last = newest(subscription);
    let said = match (last, subscription.trouble()) {
        (Some(bytes), _) => News::Snapshot(bytes),
        (None, Some(why)) => News::Trouble(why),
        (None, None) => News::Same,
    };
    news.send(said).is_ok()
}
