//! The daemon: one thread that measures, decides and applies (`sense`), one async runtime for the page and the control
//! socket, and the store's own writing thread. Three threads in all, whatever the number of sockets; a
//! software switch has its own, and one that brings back its ports; uplinks have one.

pub(crate) mod answer;
mod bell;
pub(crate) mod books;
mod compressors;
pub(crate) mod export;
mod fresh;
mod keeper;
pub(crate) mod namespaces;
pub(crate) mod ports;
pub(crate) mod seed;
mod sense;
mod shaper;
pub(crate) mod sources;
pub(crate) mod steer;
mod summed;
pub(crate) mod uplinks;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::mpsc;

use anyhow::Context;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::oneshot;

use self::bell::Bell;
use self::fresh::{Fresh, Missing};
use self::sense::Sense;
use crate::config::Config;
use crate::control::{Call, Door};
use crate::http::Server;

/// Why the daemon ended otherwise than by being told to.
#[derive(Debug)]
pub enum Ended {
    /// It did not start: what is configured cannot be had. Exit code 2.
    Refused(anyhow::Error),
    /// It failed while it ran. Exit code 1.
    Failed(anyhow::Error),
}

/// Runs the daemon until SIGTERM or SIGINT. Returns `Ok` once everything is closed and taken back.
pub fn run(config: Config) -> Result<(), Ended> {
    // Two arenas: the loop's and everybody else's.
    weirgate_linux::memory::limit_arenas(2);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("the async runtime cannot be made").map_err(Ended::Refused)?;
    runtime.block_on(serve(config))
}

async fn serve(config: Config) -> Result<(), Ended> {
    let refused = |error: anyhow::Error| Ended::Refused(error);
    let mut term = signal(SignalKind::terminate()).context("signals cannot be caught").map_err(refused)?;
    let mut int = signal(SignalKind::interrupt()).context("signals cannot be caught").map_err(refused)?;
    // Dropped last: the socket, the kernel and the journal have been taken care of when the folders go.
    let mut fresh = Fresh::new(&config);
    fresh.own(Missing::of(std::slice::from_ref(&config.control)));
    // Before the page: where a daemon of this configuration runs, its page is what has the port.
    let door = Door::open(&config.control).map_err(|error| refused(error.into()))?;
    let server = match config.http {
        Some(address) => Some(Server::bind(address).await.map_err(|error| refused(error.into()))?),
        None => None,
    };
    let kernel = rustix::system::uname();
    let release = kernel.release().to_string_lossy();
    tracing::info!("weirgate {} on {} ({release})", env!("CARGO_PKG_VERSION"), config.host.name);
    let (calls, received) = mpsc::channel::<Call>();
    let bell = Bell::new().context("no eventfd").map_err(refused)?;
    let (sense, shared) = Sense::open(config.clone(), received, bell.clone(), &mut fresh).map_err(refused)?;
    let address = server.as_ref().map(Server::address);
    note_address(&config.control, address);
    announce(&config, &shared.status(weirgate_linux::clock::unix()), address);

    let (ended, mut has_ended) = oneshot::channel::<()>();
    let thread = std::thread::Builder::new().name("sense".to_owned()).spawn(move || {
        // Dropped by a panic as well: the daemon must not go on without its loop.
        let _ended = ended;
        sense.run();
    });
    let thread = thread.context("the sense's thread cannot be started").map_err(refused)?;
    fresh.keep();

    let (close, closing) = oneshot::channel::<()>();
    let page = server.map(|server| {
        let shutdown = async move {
            let _ = closing.await;
        };
        tokio::spawn(server.serve(shared, shutdown))
    });
    let rung = bell.clone();
    let control = tokio::spawn(door.serve(move |call| {
        // Where the loop has ended the call is dropped, which answers it.
        let _ = calls.send(call);
        rung.ring();
    }));

    let died = tokio::select! {
        _ = term.recv() => false,
        _ = int.recv() => false,
        _ = &mut has_ended => true,
    };
    tracing::info!("stopping");
    bell.stop();
    let _ = close.send(());
    if let Some(page) = page {
        // Answers under way are finished, but nobody is waited for who reads slowly.
        let _ = tokio::time::timeout(std::time::Duration::from_secs(2), page).await;
    }
    let _ = has_ended.await;
    let joined = tokio::task::spawn_blocking(move || thread.join()).await;
    control.abort();
    let _ = control.await;
    let _ = std::fs::remove_file(address_file(&config.control));
    match joined {
        Ok(Ok(())) if !died => Ok(()),
        _ => Err(Ended::Failed(anyhow::anyhow!(
            "the measuring thread ended by itself, which is a fault of Weirgate: please report the log; what was applied \
             expires by itself, `weirgate undo` takes it back now"
        ))),
    }
}

fn announce(config: &Config, status: &crate::view::api::Status, address: Option<SocketAddr>) {
    let facts = &status.facts;
    tracing::info!("sockets: {}: {}", facts.polls.name, facts.polls.why);
    tracing::info!("closes: {}: {}", facts.closes.name, facts.closes.why);
    tracing::info!(
        "decisions are {}; steering: {}: {}",
        match facts.mode.as_str() {
            "apply" => "applied",
            _ => "shown, nothing is changed",
        },
        facts.steering.name,
        facts.steering.why
    );
    let shaping = &config.shaping;
    if !shaping.ports.is_empty() {
        tracing::info!(
            "switch: {} ports, {} limits, {} classes",
            shaping.ports.len(),
            shaping.limits.len(),
            shaping.classes.len()
        );
    }
    let uplinks = &config.uplinks.uplinks;
    if !uplinks.is_empty() {
        let names: Vec<&str> = uplinks.iter().map(|uplink| uplink.name.as_str()).collect();
        tracing::info!("uplinks: new connections are steered over {}", names.join(", "));
    }
    match &config.store {
        Some(store) => tracing::info!("store: {}", store.dir.display()),
        None => tracing::info!("store: off"),
    }
    if let Some(kafka) = &config.kafka {
        for (what, topic) in [("records", &kafka.topic), ("tallies", &kafka.tallies)] {
            let Some(topic) = topic else { continue };
            tracing::info!("kafka: {what} go to topic {topic} at {}", kafka.brokers.join(", "));
        }
    }
    tracing::info!("control: {}", config.control.display());
    if let Some(address) = address {
        tracing::info!("page: http://{address}/");
    }
}

/// Where the page of the daemon that runs with `config` is, or would be.
pub(crate) fn page_address(config: &Config) -> Option<SocketAddr> {
    let noted = std::fs::read_to_string(address_file(&config.control)).ok().and_then(|text| text.trim().parse().ok());
    noted.or(config.http).filter(|_| config.http.is_some())
}

/// Beside the control socket, for scripts that let the daemon choose its port.
fn address_file(control: &Path) -> PathBuf {
    control.with_file_name("http-address")
}

/// A help that the daemon can do without: what is in the way is said, and what an earlier daemon wrote goes.
fn note_address(control: &Path, address: Option<SocketAddr>) {
    let Some(address) = address else { return };
    let path = address_file(control);
    let new = path.with_extension("new");
    let noted = std::fs::write(&new, format!("{address}\n")).and_then(|()| std::fs::rename(&new, &path));
    if let Err(error) = noted {
        tracing::warn!("{}: {error}: scripts will not find the page's address there; make room", path.display());
        let _ = std::fs::remove_file(new);
        let _ = std::fs::remove_file(path);
    }
}
