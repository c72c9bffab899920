//! The uplinks as they are configured: a thread that looks at them, and has the kernel send new connections where `uplink::fleet` says. It
//! is in its namespace for as long as it lives.
//!
//! Ground rules. What it changes is written down first: the table, the routes and rules when it begins, a device's setting when the device
//! is seen. It takes all of that back when it ends. What it cannot do it says, and tries again.

mod driver;
mod give_up;
mod look;
mod row;

use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use weirgate_linux::netns::Netns;
use weirgate_linux::{clock, nft};
use weirgate_units::Instant;

use self::driver::Driver;
pub(crate) use self::look::{gateways, reached};
use super::bell::Bell;
use super::steer::undo_all;
use crate::config::shaping::namespace_path;
use crate::config::{Config, unknown};
use crate::journal::{self, Actor, Change, Journal, JournalError, Object, PRESENT};
use crate::uplink::ruleset::TABLE;
use crate::uplink::{fleet, marks, measure, ruleset};
use crate::view::api;

/// What it is told while it runs.
enum Order {
    /// From now on an uplink takes no new flow, or does again; to be answered when that is in force.
    Drain(usize, bool, Sender<()>),
}

/// The running thread; it takes everything back when this is dropped.
pub(crate) struct Uplinks {
    names: Vec<String>,
    orders: Sender<Order>,
    bell: Bell,
    thread: Option<JoinHandle<()>>,
    shown: Arc<Mutex<api::Uplinks>>,
    journal: PathBuf,
}

impl Uplinks {
    /// Begins to steer; `None` where no uplink is configured.
    pub(crate) fn open(config: &Config) -> anyhow::Result<Option<Self>> {
        let uplinks = &config.uplinks;
        if uplinks.uplinks.is_empty() {
            return Ok(None);
        }
        nft::version().context("uplinks cannot be steered without nftables")?;
        let path = namespace_path(&uplinks.namespace).unwrap_or_default();
        let ns = match path.as_os_str().is_empty() {
            true => Netns::current(),
            false => Netns::open(&path, &path.to_string_lossy()),
        };
        let ns = ns.with_context(|| format!("[steering] namespace: {}", path.display()))?;
        let journal = config.journal();
        let begun = begin(&journal, &path, uplinks.table, uplinks.priority)?;
        let settings = settings(uplinks);
        let names = settings.uplinks.iter().map(|uplink| uplink.name.clone()).collect();
        let (orders, received) = channel();
        let bell = Bell::new().context("no eventfd")?;
        let shown = Arc::default();
        let mut all = Self { names, orders, bell, thread: None, shown, journal };
        // From here on `drop` takes back what was begun.
        let (ready, is_ready) = channel();
        let work = Work {
            config: uplinks.clone(),
            settings,
            namespace: path,
            journal: begun,
            orders: received,
            bell: all.bell.clone(),
            shown: Arc::clone(&all.shown),
        };
        let thread = std::thread::Builder::new().name("uplinks".to_owned()).spawn(move || {
            // The thread never leaves it: its sockets and programs are all there.
            let ran = ns.within(|| match Driver::open(work) {
                Ok(driver) => {
                    let _ = ready.send(Ok(()));
                    driver.run();
                }
                Err(error) => drop(ready.send(Err(error))),
            });
            if let Err(error) = ran {
                tracing::error!("the namespace of the uplinks cannot be entered: {error}");
            }
        })?;
        all.thread = Some(thread);
        match is_ready.recv() {
            Ok(opened) => opened.context("uplinks cannot be steered")?,
            Err(_) => bail!("uplinks cannot be steered: their thread ended; see the log"),
        }
        Ok(Some(all))
    }

    /// Whether its thread runs.
    pub(crate) fn is_running(&self) -> bool {
        self.thread.as_ref().is_some_and(|thread| !thread.is_finished())
    }

    /// Who says what the uplinks do.
    pub(crate) fn source(&self) -> crate::view::UplinksSource {
        let shown = Arc::clone(&self.shown);
        Arc::new(move || shown.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// From now on an uplink takes no new flow, or does again, until the daemon ends.
    pub(crate) fn drain(&self, name: &str, is_drained: bool) -> anyhow::Result<()> {
        let Some(place) = self.names.iter().position(|known| known == name) else {
            let known: Vec<&str> = self.names.iter().map(String::as_str).collect();
            bail!(unknown("uplink", name, &known));
        };
        let (done, is_done) = channel();
        let sent = self.orders.send(Order::Drain(place, is_drained, done));
        self.bell.ring();
        // A look at all flows of a large router may come first.
        let answered = sent.is_ok() && is_done.recv_timeout(std::time::Duration::from_secs(20)).is_ok();
        if answered { Ok(()) } else { bail!("the uplinks' thread does not answer: see the log") }
    }

    /// Ends it and takes everything back; what was done, in sentences.
    pub(crate) fn stop(&mut self) -> Result<Vec<String>, JournalError> {
        self.bell.stop();
        if let Some(thread) = self.thread.take() {
            // It has said in the log what there was to say.
            let _ = thread.join();
        }
        take_back(&self.journal)
    }
}

impl Drop for Uplinks {
    fn drop(&mut self) {
        match self.stop() {
            Ok(said) => said.iter().for_each(|line| tracing::info!("{line}")),
            Err(error) => tracing::error!("{error}; run `weirgate undo`"),
        }
    }
}

/// All that the thread begins with.
struct Work {
    config: crate::config::Uplinks,
    settings: fleet::Settings,
    namespace: PathBuf,
    journal: Journal,
    orders: Receiver<Order>,
    bell: Bell,
    shown: Arc<Mutex<api::Uplinks>>,
}

/// Writes down what will be made.
fn begin(journal: &Path, namespace: &Path, table: u32, priority: u32) -> Result<Journal, JournalError> {
    let mut journal = Journal::open(journal)?;
    let actor = Actor::own("uplinks");
    let ways = Object::Ways { namespace: namespace.to_owned(), table, priority };
    // Undone the last one first: nothing is marked any more when the ways go.
    for object in [ways, Object::NftTable { namespace: namespace.to_owned(), table: TABLE.to_owned() }] {
        journal.record(&actor, Change { object, before: None, after: Some(PRESENT.to_owned()) })?;
    }
    Ok(journal)
}

/// Takes back what the journal says of uplinks; what was done, in sentences.
fn take_back(path: &Path) -> Result<Vec<String>, JournalError> {
    let own = || -> Result<Vec<journal::Entry>, JournalError> {
        let open = journal::read(path)?.open;
        Ok(open.into_iter().filter(|entry| entry.change.object.is_of_uplinks()).collect())
    };
    let entries = own()?;
    if entries.is_empty() {
        return Ok(Vec::new());
    }
    let mut said = undo_all(&mut Journal::open(path)?, &entries);
    let left = own()?.len();
    if left > 0 {
        said.push(format!("{left} changes are not taken back: run `weirgate undo`"));
    }
    Ok(said)
}

/// What is configured, as those who decide take it.
fn settings(config: &crate::config::Uplinks) -> fleet::Settings {
    let mut mediums: Vec<&str> = Vec::new();
    for medium in config.uplinks.iter().filter_map(|uplink| uplink.medium.as_deref()) {
        if !mediums.contains(&medium) {
            mediums.push(medium);
        }
    }
    let number = |medium: &str| mediums.iter().position(|known| *known == medium).map(|at| at as u32);
    let uplink = |uplink: &crate::config::uplinks::Uplink| fleet::UplinkSettings {
        name: uplink.name.clone(),
        device: uplink.device.clone(),
        measure: measure::Settings { weight: uplink.weight, cap: uplink.cap, is_metered: uplink.is_metered },
        is_backup: uplink.is_backup,
        medium: uplink.medium.as_deref().and_then(number),
        masquerade: uplink.masquerade,
        prefixes: uplink.prefixes.clone(),
    };
    let uplinks = config.uplinks.iter().map(uplink).collect();
    let rule = |rule: &crate::config::uplinks::SteerRule| {
        let flows = ruleset::FlowRule {
            source: rule.source,
            destination: rule.destination,
            protocol: rule.protocol,
            source_ports: rule.source_ports,
            destination_ports: rule.destination_ports,
            mark: rule.mark,
            is_strict: rule.is_strict,
        };
        (flows, rule.uplinks.clone())
    };
    fleet::Settings {
        marks: marks::Marks::new(config.mark_shift),
        uplinks,
        rules: config.rules.iter().map(rule).collect(),
        inside: config.inside.clone(),
    }
}

fn now() -> Instant {
    clock::boottime()
}
