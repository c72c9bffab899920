//! What becomes of a sample: an entry in its connection's account, a row of the store, a point on the page, a vote.
//!
//! Nothing here allocates per socket.

use std::path::PathBuf;

use weirgate_linux::clock;
use weirgate_sockets::ledger::{Ledger, Options};
use weirgate_sockets::network::ClientNetworks;
use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::{Origin, Record};
use weirgate_sockets::sample::Sample;
use weirgate_store::export::{Exporter, SpoolError};
use weirgate_store::{Anonymise, Geo, GeoError, Writer};
use weirgate_tune::{Controller, Host, Round};
use weirgate_units::{Duration, UnixTime};

use super::export::options;
use super::summed::Summed;
use crate::config::{Config, Mode};
use crate::journal;
use crate::view::Collector;

/// Everything that is told of every sample.
pub(crate) struct Books {
    pub(crate) ledger: Ledger,
    pub(crate) controller: Controller,
    pub(crate) collector: Collector,
    pub(crate) writer: Option<Writer>,
    pub(crate) exporter: Option<Exporter>,
    pub(crate) summed: Option<Summed>,
    geo: Option<Geo>,
    networks: ClientNetworks,
    /// What is added to time since boot to have civil time.
    civil: u64,
    /// The newest measurement of the round under way.
    newest: Option<UnixTime>,
}

/// Why the store cannot be written. The daemon does not start then.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StoreError {
    /// The folder.
    #[error("{0}; or set [store] enabled = false")]
    Open(#[from] weirgate_store::OpenError),
    /// What places are looked up in.
    #[error("{0}; or leave it out of [store] geo")]
    Geo(#[from] GeoError),
    /// Where what is for Kafka waits.
    #[error(transparent)]
    Spool(#[from] SpoolError),
    /// What Kafka's brokers are told cannot be read.
    #[error("{0:#}")]
    Kafka(anyhow::Error),
}

impl Books {
    pub(crate) fn open(config: &Config, controller: Controller, collector: Collector) -> Result<Self, StoreError> {
        let tune = &config.tune.controller;
        let networks = ClientNetworks::new(tune.network_len_v4, tune.network_len_v6).unwrap_or_default();
        let closed_memory = config.sockets.interval.saturating_mul(2).max(Duration::from_secs(20));
        Ok(Self {
            ledger: Ledger::new(Options { closed_memory, ..Options::default() }),
            controller,
            collector,
            geo: open_geo(config)?,
            writer: open_writer(config)?,
            exporter: open_exporter(config)?,
            summed: open_summed(config)?,
            networks,
            civil: civil_offset(),
            newest: None,
        })
    }

    /// To be called before every poll: the civil clock may have been set.
    pub(crate) fn handle_poll_begin(&mut self) {
        self.civil = civil_offset();
    }

    pub(crate) fn handle_sample(&mut self, sample: &Sample) {
        let Some(seen) = self.ledger.handle_sample(sample) else { return };
        let time = UnixTime::from_nanos(sample.time_ns.saturating_add(self.civil));
        self.newest = self.newest.max(Some(time));
        let network = self.networks.of(seen.remote.ip());
        let place = self.geo.as_mut().map(|geo| geo.place(network)).unwrap_or_default();
        let record = Record {
            sample,
            time,
            sequence: seen.sequence,
            direction: seen.direction,
            listener_port: seen.listener_port,
            delivery_rate_max: seen.delivery_rate_max,
            network,
            asn: place.asn,
            country: place.country,
        };
        self.collector.handle_record(&record);
        if let Some(writer) = &mut self.writer {
            writer.append(&record);
        }
        if let Some(exporter) = &mut self.exporter {
            exporter.append(&record);
        }
        if let Some(progress) = &seen.last {
            vote(&mut self.controller, &mut self.collector, self.summed.as_mut(), progress);
        }
    }

    /// To be called once a round: files that changed are read again.
    pub(crate) fn refresh_geo(&mut self) -> Option<String> {
        self.geo.as_mut().and_then(|geo| geo.handle_tick().err()).map(|error| error.to_string())
    }

    /// The poll of a namespace is whole.
    pub(crate) fn handle_poll_end(&mut self, netns: u32) {
        let Self { ledger, controller, collector, summed, .. } = self;
        ledger.handle_poll_end(netns, clock::boottime(), &mut |progress| {
            vote(controller, collector, summed.as_mut(), progress)
        });
        // That nobody is there is a measurement, too.
        self.newest = self.newest.max(Some(clock::unix()));
    }

    /// A namespace is gone.
    pub(crate) fn handle_namespace_gone(&mut self, netns: u32) {
        let Self { ledger, controller, collector, summed, .. } = self;
        ledger.handle_namespace_gone(netns, &mut |progress| vote(controller, collector, summed.as_mut(), progress));
    }

    /// Ends the round: every open connection votes, then it is decided.
    pub(crate) fn end_round(&mut self, host: Host) -> Round {
        let Self { ledger, controller, collector, summed, .. } = self;
        ledger.take_round(&mut |progress| vote(controller, collector, summed.as_mut(), progress));
        controller.handle_host(host);
        let now = clock::unix();
        let round = controller.end_round(now, self.newest.take());
        if let Some(summed) = summed {
            summed.end_round(now);
        }
        collector.handle_round_end(now);
        round
    }
}

fn vote(controller: &mut Controller, collector: &mut Collector, summed: Option<&mut Summed>, progress: &Progress) {
    controller.handle_progress(progress);
    collector.handle_progress(progress);
    if let Some(summed) = summed {
        summed.handle_progress(progress);
    }
}

fn open_writer(config: &Config) -> Result<Option<Writer>, StoreError> {
    let Some(store) = &config.store else { return Ok(None) };
    let options = weirgate_store::Options {
        interval: store.flush,
        age_max: Some(store.age_max),
        size_max: Some(store.size_max),
        keep_free: store.keep_free,
        anonymise: if store.anonymise { Anonymise::Client } else { Anonymise::Off },
        ..weirgate_store::Options::default()
    };
    Ok(Some(Writer::open(&store.dir, &origin(config), options)?))
}

fn open_exporter(config: &Config) -> Result<Option<Exporter>, StoreError> {
    let Some((kafka, topic)) = config.kafka.as_ref().and_then(|kafka| Some((kafka, kafka.topic.as_ref()?))) else {
        return Ok(None);
    };
    let options = options(kafka, topic, &kafka.spool).map_err(StoreError::Kafka)?;
    Ok(Some(Exporter::open(&origin(config), options)?))
}

fn open_summed(config: &Config) -> Result<Option<Summed>, StoreError> {
    let Some((kafka, topic)) = config.kafka.as_ref().and_then(|kafka| Some((kafka, kafka.tallies.as_ref()?))) else {
        return Ok(None);
    };
    let options = options(kafka, topic, &kafka.spool.join("tallies")).map_err(StoreError::Kafka)?;
    Ok(Some(Summed::open(&origin(config), options, config.tune.controller.clone(), clock::unix())?))
}

fn origin(config: &Config) -> Origin {
    Origin {
        host: config.host.name.clone(),
        pop: config.host.pop.clone(),
        boot_id: journal::boot_id().unwrap_or_default(),
    }
}

fn open_geo(config: &Config) -> Result<Option<Geo>, GeoError> {
    let paths = config.store.as_ref().map_or(&[][..], |store| &store.geo);
    if paths.is_empty() { Ok(None) } else { Geo::open(paths).map(Some) }
}

/// The controller that was saved in `path`, else one that has seen nothing, and why.
pub(crate) fn controller(config: &Config, host: Host, path: &PathBuf) -> (Controller, Option<String>) {
    let settings = config.tune.controller.clone();
    let fresh = |settings, host| Controller::new(settings, host).expect("the configuration was checked as it was read");
    let (mut controller, problem) = match std::fs::read(path) {
        Ok(bytes) => match Controller::load(settings.clone(), host.clone(), &bytes) {
            Ok(controller) => (controller, None),
            Err(error) => (fresh(settings, host), Some(format!("{}: {error}", path.display()))),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => (fresh(settings, host), None),
        Err(error) => (fresh(settings, host), Some(format!("{}: {error}: history is gathered anew", path.display()))),
    };
    // Where the fleet's controller decides, this host's own is heard by nobody.
    controller.handle_mode(config.tune.mode == Mode::Apply && config.fleet.is_none());
    (controller, problem)
}

fn civil_offset() -> u64 {
    clock::unix().as_nanos().saturating_sub(clock::boottime().as_nanos())
}
