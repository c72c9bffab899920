//! Brings back ports whose device has gone: a container that was started anew, a card that was plugged in again. On a thread of its
//! own, as a vhost-user port's waiting for its front end is, so that nobody's frames wait for a device to be opened.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use weirgate_linux::dataplane::Handle;
use weirgate_switch::bridge::BridgePort;

use super::ports;
use crate::config::shaping::Port;

/// How often it looks for what has gone, and for what is back. A look at ports that have all their devices is one call to each of the
/// switch's threads, and the number of each port's namespace.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The thread; it ends when this is dropped.
#[derive(Debug)]
pub(super) struct Keeper {
    stop: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
    gone: Arc<[AtomicU64]>,
}

/// A port of the switch.
#[derive(Debug)]
struct Kept {
    port: Port,
    id: BridgePort,
    /// The namespace that its device was opened in.
    home: Option<u32>,
    is_gone: bool,
}

impl Keeper {
    /// Begins to look after the ports of a switch of these threads.
    ///
    /// # Errors
    /// Where there can be no thread.
    pub(super) fn start(threads: Arc<[Handle]>, ports: &[(Port, BridgePort)]) -> io::Result<Self> {
        let keep = |(port, id): &(Port, BridgePort)| {
            let home = ports::namespace_of(port);
            Kept { port: port.clone(), id: *id, home, is_gone: false }
        };
        let kept: Vec<Kept> = ports.iter().map(keep).collect();
        let gone: Arc<[AtomicU64]> = kept.iter().map(|_| AtomicU64::new(0)).collect();
        let (stop, stopped) = channel();
        let counts = Arc::clone(&gone);
        let thread = std::thread::Builder::new()
            .name("ports".to_owned())
            .spawn(move || keep_all(&threads, kept, &counts, &stopped))?;
        Ok(Self { stop: Some(stop), thread: Some(thread), gone })
    }

    /// How often each port's device has gone, in the order of the ports.
    pub(super) fn gone(&self) -> Vec<u64> {
        self.gone.iter().map(|count| count.load(Ordering::Relaxed)).collect()
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.stop = None;
        if let Some(thread) = self.thread.take() {
            // It has nothing to say.
            let _ = thread.join();
        }
    }
}

fn keep_all(threads: &[Handle], mut kept: Vec<Kept>, gone: &[AtomicU64], stop: &Receiver<()>) {
    while stop.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
        let failed = failed(threads, &kept);
        for ((kept, failed), gone) in kept.iter_mut().zip(failed).zip(gone) {
            let Some(why) = failed.or_else(|| kept.moved()) else { continue };
            let (name, device) = (&kept.port.name, ports::device_name(&kept.port));
            if !kept.is_gone {
                gone.fetch_add(1, Ordering::Relaxed);
                tracing::warn!(
                    "port `{name}` has lost its device `{device}`: {why}; it is opened again when it is back"
                );
                kept.is_gone = true;
            }
            // All of it, or what is left may be in the way of the next one.
            kept.let_go(threads, &why);
            match kept.bring_back(threads) {
                Ok((home, note)) => {
                    let note = note.map(|note| format!(": {note}")).unwrap_or_default();
                    tracing::info!("port `{name}` has its device `{device}` again{note}");
                    (kept.home, kept.is_gone) = (home, false);
                }
                Err(error) => kept.let_go(threads, &format!("{error:#}")),
            }
        }
    }
}

/// Why each port has no device, as the first thread that knows says.
fn failed(threads: &[Handle], kept: &[Kept]) -> Vec<Option<String>> {
    let mut all = vec![None; kept.len()];
    for thread in threads {
        let ids: Vec<BridgePort> = kept.iter().map(|kept| kept.id).collect();
        let failed = thread.call(move |dataplane| {
            ids.into_iter().map(|id| dataplane.failed(id).map(ToString::to_string)).collect::<Vec<_>>()
        });
        // One that has stopped has no ports.
        for (all, failed) in all.iter_mut().zip(failed.unwrap_or_default()) {
            *all = all.take().or(failed);
        }
    }
    all
}

impl Kept {
    /// Whether its namespace's name is another one's by now, as when a container was started anew: what was opened in the old one
    /// keeps that alive, and so does not go by itself. A name that is gone is no such sign: the namespace may be in use.
    fn moved(&self) -> Option<String> {
        let now = ports::namespace_of(&self.port)?;
        (Some(now) != self.home).then(|| "its namespace is another one now".to_owned())
    }

    fn let_go(&self, threads: &[Handle], why: &str) {
        for thread in threads {
            let (id, why) = (self.id, io::Error::other(why.to_owned()));
            // A thread that has stopped holds nothing.
            let _ = thread.call(move |dataplane| dataplane.let_go(id, why));
        }
    }

    /// Opens the device and gives each thread its part: in which namespace, and what to know of it.
    fn bring_back(&self, threads: &[Handle]) -> anyhow::Result<(Option<u32>, Option<String>)> {
        let home = ports::namespace_of(&self.port);
        let ports::Opened { parts, note } = ports::open(&self.port, threads.len())?;
        for (thread, part) in threads.iter().zip(parts) {
            let id = self.id;
            thread.call(move |dataplane| dataplane.attach(id, part))??;
        }
        Ok((home, note))
    }
}
