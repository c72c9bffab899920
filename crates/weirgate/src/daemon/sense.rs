//! The daemon's loop, on a thread of its own: polls, drains closes, decides, applies, answers the control socket.
//!
//! Ground rules. Only this thread touches the ledger, the controller, the store's writer and the kernel. It sleeps until
//! the next of its deadlines, a full ring or a call; nothing in it waits for anybody else for long.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::FlockOperation;
use weirgate_linux::bpf::steer::make_available;
use weirgate_linux::clock;
use weirgate_linux::facts::{Congestion, not_loaded};
use weirgate_sockets::sample::Field;
use weirgate_store::OpenError;
use weirgate_store::export::Exporter;
use weirgate_tune::snapshot::Snapshot;
use weirgate_tune::{Controller, Host, Policy};
use weirgate_units::{Duration, Instant, UnixTime};

use super::answer;
use super::bell::Bell;
use super::books::{self, Books, StoreError};
use super::compressors::Compressors;
use super::fresh::{Fresh, Missing};
use super::namespaces::Namespaces;
use super::seed;
use super::shaper::Shaper;
use super::sources::Sources;
use super::steer::Steer;
use super::summed::{self, Summed};
use super::uplinks::Uplinks;
use crate::config::{Config, Mode};
use crate::control::{Call, Reply, Request};
use crate::fleet::follow::{self, Follow};
use crate::folder;
use crate::journal::Actor;
use crate::view::{self, Collector, PollEnd, Shared, api};

/// Time between two drains of the closes, while nothing wakes the loop earlier: the default ring holds 340 ms of the
/// fastest burst measured.
const DRAIN: Duration = Duration::from_millis(200);

/// The loop and all that it owns.
pub(crate) struct Sense {
    config: Config,
    namespaces: Namespaces,
    sources: Sources,
    books: Books,
    steer: Steer,
    /// The software switch, where one is configured.
    shaper: Option<Arc<Shaper>>,
    compressors: Option<Arc<Compressors>>,
    /// The uplinks that new connections are steered over, where any are configured.
    uplinks: Option<Uplinks>,
    shared: Shared,
    calls: Receiver<Call>,
    bell: Bell,
    mode: Mode,
    losses: api::Losses,
    next_poll: Instant,
    next_drain: Instant,
    next_round: Instant,
    /// Whose policy is obeyed, if not this host's own.
    follow: Option<Follow>,
    /// The policy that was decided and is not yet in the kernel, for want of success.
    unapplied: Option<Policy>,
    /// Until when the fleet's policy that is in the kernel may be obeyed.
    applied_until: Option<Instant>,
    policy_since: UnixTime,
    /// Held while the state directory is ours.
    _lock: Option<File>,
}

impl Sense {
    /// Opens everything. What the configuration insists on and cannot be had is an error: the start is refused, and what was
    /// changed until then is taken back, the files that are `fresh` by whoever has that.
    pub(crate) fn open(
        mut config: Config,
        calls: Receiver<Call>,
        bell: Bell,
        fresh: &mut Fresh,
    ) -> anyhow::Result<(Self, Shared)> {
        let lock = lock_state(&config, fresh)?;
        let mut steer = Steer::new(&config);
        for said in steer.undo_earlier()? {
            tracing::warn!("an earlier daemon did not stop in order: {said}");
        }
        let mut namespaces = Namespaces::new(config.sockets.namespaces.clone());
        let changes = namespaces.refresh();
        let host = host_of(&namespaces);
        let (seed, wrong) = seed::load(&config.host.state).context("the holdout's seed cannot be drawn")?;
        if let Some(wrong) = wrong {
            tracing::warn!("{wrong}");
        }
        config.tune.controller.seed = seed;
        let (controller, forgotten) = books::controller(&config, host.clone(), &config.controller());
        if let Some(why) = forgotten {
            tracing::warn!("{why}");
        }
        let (collector, shared) = view::new(api::Facts::default());
        let books = open_books(&config, controller, collector, fresh)?;
        // Its devices go with this process.
        let shaper = Shaper::open(&config.shaping)?.map(Arc::new);
        if let Some(shaper) = &shaper {
            let shaper = Arc::clone(shaper);
            shared.set_switch(Arc::new(move || shaper.look()));
        }
        // Last what outlives this process. The sources come after it, since they share its map; where they are refused, it goes
        // as `steer` is dropped.
        let mode = config.tune.mode;
        if mode == Mode::Apply {
            default_is_there(&config)?;
            steer.start(&Actor::own("start"), &namespaces)?;
        }
        let sources = Sources::open(&config.sockets, steer.conns())?;
        let uplinks = Uplinks::open(&config)?;
        if let Some(uplinks) = &uplinks {
            shared.set_uplinks(uplinks.source());
        }
        shared.set_facts(facts(&config, &sources, &steer, &host));
        // Of use to those who look only: a daemon without it does all the rest.
        let compressors = Compressors::open(&config.control, &config.host.state).map(Arc::new);
        match &compressors {
            Ok(compressors) => {
                let compressors = Arc::clone(compressors);
                shared.set_deflate(Arc::new(move || compressors.look()));
            }
            Err(error) => tracing::warn!("{error:#}"),
        }
        let follow = config.fleet.clone().map(|fleet| {
            let now = (clock::unix(), clock::boottime());
            Follow::open(fleet, config.kafka.as_ref(), &config.host, now)
        });
        let follow = follow.transpose().context("[fleet]")?;
        let now = clock::boottime();
        let mut sense = Self {
            compressors: compressors.ok(),
            uplinks,
            next_poll: now,
            next_drain: now + DRAIN,
            next_round: now
                + summed::end_after(clock::unix(), config.tune.controller.round).saturating_since(clock::unix()),
            // The first policy may hold nothing but the default, which has to be set as well.
            unapplied: (mode == Mode::Apply && config.fleet.is_none()).then(|| books.controller.policy().clone()),
            applied_until: None,
            policy_since: clock::unix(),
            follow,
            _lock: lock,
            losses: api::Losses::default(),
            namespaces,
            sources,
            books,
            steer,
            shaper,
            shared: shared.clone(),
            calls,
            bell,
            mode,
            config,
        };
        sense.look_at_congestion(&host);
        sense.handle_changes(changes);
        sense.apply_unapplied(&Actor::own("start"));
        sense.show_policy();
        Ok((sense, shared))
    }

    /// Runs until it is told to stop; then stops in order: the last closes, the store, the kernel.
    pub(crate) fn run(mut self) {
        while !self.bell.is_stopped() {
            while let Ok(call) = self.calls.try_recv() {
                self.answer(call);
            }
            let now = clock::boottime();
            if now >= self.next_poll {
                self.poll();
                // A poll that took longer than the interval is not made up for.
                self.next_poll = (self.next_poll + self.config.sockets.interval).max(clock::boottime());
                // The round goes with the poll nearest to its end, so that its measurements are fresh.
                if clock::boottime() + self.config.sockets.interval.min(Duration::from_secs(1)) >= self.next_round {
                    self.end_round();
                    let now = clock::unix();
                    let end = summed::next_end(now, self.config.tune.controller.round);
                    self.next_round = clock::boottime() + end.saturating_since(now);
                }
            } else if now >= self.next_drain {
                self.drain();
            }
            self.obey();
            self.renew();
            self.look_at_uplinks();
            if self.wait() {
                self.drain();
            }
            if self.shaper.as_ref().is_some_and(|shaper| !shaper.is_running()) {
                tracing::error!(
                    "a thread of the switch has ended: nothing goes through it any more, so the daemon ends"
                );
                break;
            }
        }
        self.close();
    }

    fn poll(&mut self) {
        let began = clock::monotonic();
        let changes = self.namespaces.refresh();
        self.handle_changes(changes);
        self.books.handle_poll_begin();
        let mut whole = Vec::with_capacity(self.namespaces.open().len());
        let mut bytes = 0;
        let mut failed = None;
        for ns in self.namespaces.open() {
            let books = &mut self.books;
            let filter = &self.config.sockets.filter;
            match self.sources.poll(ns, filter, &mut |sample| books.handle_sample(sample)) {
                Ok(stats) => {
                    bytes += stats.bytes;
                    self.losses.poll_lost += stats.lost;
                    whole.push(ns.inode());
                }
                Err(error) => {
                    self.books.ledger.handle_poll_failed(ns.inode());
                    self.losses.poll_failures += 1;
                    failed = Some(error);
                }
            }
        }
        if let Some(compressors) = &self.compressors {
            // Whose process has ended: its number may be another one's soon.
            compressors.look();
        }
        self.steer.settle(&self.namespaces);
        self.drain();
        for inode in whole {
            self.books.handle_poll_end(inode);
        }
        let took = clock::monotonic().saturating_since(began);
        let complete = failed.is_none();
        self.problem("poll", failed);
        self.books.collector.handle_poll_end(PollEnd { now: clock::unix(), took, bytes, complete });
        self.report();
    }

    fn drain(&mut self) {
        let (books, namespaces) = (&mut self.books, &self.namespaces);
        let failed = self.sources.drain(&self.config.sockets.filter, &mut |sample| {
            // The kernel program saw everything from its attachment until its filter was set.
            if !sample.has(Field::Netns) || namespaces.holds(sample.netns) {
                books.handle_sample(sample);
            }
        });
        if failed.is_some() {
            self.problem("closes", failed);
        }
        if let Some(writer) = &mut self.books.writer {
            writer.handle_tick(clock::unix());
        }
        if let Some(exporter) = &mut self.books.exporter {
            exporter.handle_tick(clock::unix());
        }
        if let Some(summed) = &mut self.books.summed {
            summed.handle_tick(clock::unix());
        }
        self.next_drain = clock::boottime() + DRAIN;
    }

    /// What was lost, and what is wrong, for the page.
    fn report(&mut self) {
        let counters = self.sources.counters();
        let mut losses = api::Losses {
            closes_seen: counters.seen,
            close_ring_failures: counters.ring_failures + self.sources.known_drops(),
            poll_lost: self.losses.poll_lost,
            poll_failures: self.losses.poll_failures,
            ..api::Losses::of_ledger(self.books.ledger.counts())
        };
        if let Some(writer) = &self.books.writer {
            let status = writer.status();
            losses.store_lost = status.lost_disk + status.lost_slow;
            self.problem("store", status.trouble);
        }
        let records = self.books.exporter.as_ref().map(Exporter::status);
        let tallies = self.books.summed.as_ref().map(Summed::status);
        if let Some(kafka) = &self.config.kafka {
            let statuses = [(&kafka.topic, records), (&kafka.tallies, tallies)];
            let exports = statuses.into_iter().filter_map(|(topic, status)| Some((topic.as_ref()?, status?)));
            let exports: Vec<_> = exports.collect();
            losses.export_lost = exports.iter().map(|(_, status)| status.lost).sum();
            self.shared.handle_exports(exports.iter().map(|(topic, status)| exported(topic, status)).collect());
            // Each has said it by itself.
            let trouble =
                exports.into_iter().find_map(|(topic, status)| Some(format!("topic {topic}: {}", status.trouble?)));
            self.shared.set_problem("kafka", trouble);
            self.problem("tallies", self.books.summed.as_ref().and_then(Summed::trouble));
        }
        self.losses = losses;
        self.shared.handle_losses(losses);
    }

    fn end_round(&mut self) {
        let host = host_of(&self.namespaces);
        self.look_at_congestion(&host);
        let round = self.books.end_round(host);
        let rules: Vec<&str> = self.config.tune.controller.rules.iter().map(|rule| rule.name.as_str()).collect();
        for decision in &round.decisions {
            let why = decision.why.in_words(&rules);
            tracing::info!(round = round.number, "{}: {}: {why}", decision.network, decision.what);
        }
        self.problem(
            "decisions",
            round.refusal.as_ref().map(|refusal| format!("this round's policy was refused: {refusal}")),
        );
        self.shared.handle_round(&round);
        let unread = self.books.refresh_geo();
        self.problem("geo", unread);
        // Where another decides, this host's decisions are shown, and nothing more.
        if let Some(policy) = round.policy.filter(|_| self.follow.is_none()) {
            self.policy_since = round.time;
            self.unapplied = (self.mode == Mode::Apply).then_some(policy);
        }
        self.apply_unapplied(&Actor::own("round"));
        self.show_policy();
        let saved = save(&self.config.controller(), &self.books.controller.save());
        self.problem(
            "controller",
            saved.err().map(|error| {
                let path = self.config.controller();
                format!(
                    "{}: {error}: a restart would begin without history; make room there, or set [host] state to a \
                     directory that can be written",
                    path.display()
                )
            }),
        );
    }

    /// What the configuration may choose has to be loaded; a module that is loaded later is seen by the next round.
    fn look_at_congestion(&self, host: &Host) {
        let missing = self.config.tune.controller.unavailable(&host.available_cc).next();
        self.problem("congestion", missing.filter(|_| !host.available_cc.is_empty()).map(not_loaded));
        let settings = &self.config.tune.controller;
        let idle = settings.default_cc.or(host.system_cc).and_then(|cc| answer::idle_rules(settings, &cc));
        let before = self.shared.set_notice("rules", idle.clone());
        if let Some(text) = idle.filter(|text| before.as_ref() != Some(text)) {
            tracing::info!("{text}");
        }
    }

    /// Puts what was decided into the kernel; keeps it for the next round where that fails.
    fn apply_unapplied(&mut self, actor: &Actor) {
        let Some(policy) = self.unapplied.take() else { return };
        match self.steer.apply(actor, &policy, &self.namespaces) {
            Ok(notes) => {
                for note in notes {
                    tracing::info!("{note}");
                }
                self.problem("steering", None);
            }
            Err(error) => {
                self.problem("steering", Some(error.to_string()));
                self.unapplied = Some(policy);
            }
        }
    }

    /// Obeys the fleet's controller, where there is one.
    fn obey(&mut self) {
        let Some(follow) = &mut self.follow else { return };
        let before = follow.obeyed().map(Snapshot::held);
        let policy = follow.handle_time((clock::unix(), clock::boottime()));
        let is_renewed = follow.obeyed().map(Snapshot::held) != before;
        let (trouble, counts) = (follow.trouble(), follow.counts());
        let until = follow.deadline();
        if let Some(mut policy) = policy {
            // What this host is told not to touch, nobody else makes it touch.
            let exclude = &self.config.tune.controller.exclude;
            policy.networks.retain(|(network, _)| !exclude.iter().any(|excluded| excluded.overlaps(*network)));
            self.policy_since = clock::unix();
            self.unapplied = (self.mode == Mode::Apply).then_some(policy);
            self.apply_unapplied(&Actor::own("fleet"));
            self.show_policy();
        } else if is_renewed {
            // It says the same and lives longer.
            self.show_policy();
        }
        if self.unapplied.is_none() {
            self.applied_until = until;
        }
        self.shared.handle_fleet(of_fleet(counts));
        // Whoever follows has said each of them.
        let is_over = trouble.is_none();
        if self.shared.set_problem("fleet", trouble).is_some() && is_over {
            tracing::info!("fleet: in order again");
        }
    }

    fn renew(&mut self) {
        // Where what follows cannot be applied, the kernel drops what is in force by itself.
        let is_over = self.applied_until.is_some_and(|until| until <= clock::boottime());
        if is_over && self.unapplied.is_some() {
            return;
        }
        let renewed = self.steer.handle_time(&Actor::own("renewal"), clock::boottime(), &self.namespaces);
        if let Err(error) = renewed {
            self.problem("steering", Some(error.to_string()));
        }
    }

    fn answer(&mut self, call: Call) {
        let reply = match &call.request {
            Request::TuneStatus => {
                let status = self.shared.status(clock::unix());
                Reply::Ok(answer::status(&status, &self.books.controller, self.steer.counters()))
            }
            Request::TuneExplain { network } => answer::explain(&self.books.controller, network),
            Request::TuneApply => self.begin_applying(&call.actor),
            Request::TuneClear => self.clear(&call.actor),
            Request::LimitList => Reply::Ok(serde_json::json!(self.shared.switch(clock::unix()))),
            Request::DeflateStatus => Reply::Ok(serde_json::json!(self.shared.deflate(clock::unix()))),
            Request::LimitSet { name, rate } => self.set_limit(name, rate),
            Request::UplinkStatus => Reply::Ok(serde_json::json!(self.shared.uplinks(clock::unix()))),
            Request::UplinkDrain { name } => self.drain_uplink(name, true),
            Request::UplinkResume { name } => self.drain_uplink(name, false),
            Request::UplinkClear => self.clear_uplinks(),
        };
        // Who asked may have hung up.
        let _ = call.reply.send(reply);
    }

    fn set_limit(&self, name: &str, rate: &str) -> Reply {
        let Some(shaper) = &self.shaper else {
            return Reply::Error("no limits: write [[port]], [[limit]] and [[class]] into the configuration".into());
        };
        let set = rate.parse().map_err(anyhow::Error::from).and_then(|rate| shaper.set(name, rate));
        match set.and_then(|limit| Ok(serde_json::to_value(limit)?)) {
            Ok(limit) => Reply::Ok(limit),
            Err(error) => Reply::Error(error.to_string()),
        }
    }

    fn drain_uplink(&self, name: &str, is_drained: bool) -> Reply {
        let Some(uplinks) = &self.uplinks else {
            return Reply::Error("no uplinks are steered: write [[uplink]] into the configuration".into());
        };
        match uplinks.drain(name, is_drained) {
            Ok(()) => Reply::Ok(serde_json::json!(self.shared.uplinks(clock::unix()))),
            Err(error) => Reply::Error(error.to_string()),
        }
    }

    /// New connections go as they would without this daemon, until it is started again.
    fn clear_uplinks(&mut self) -> Reply {
        let said = match self.uplinks.take() {
            None => return Reply::Ok(serde_json::json!({ "steered": false, "said": [] })),
            Some(mut uplinks) => uplinks.stop(),
        };
        self.shared.set_uplinks(Arc::new(api::Uplinks::default));
        match said {
            Ok(said) => Reply::Ok(serde_json::json!({ "steered": true, "said": said })),
            Err(error) => Reply::Error(error.to_string()),
        }
    }

    /// What is wrong with the uplinks is shown with what else is wrong. Their thread ends only with the daemon.
    fn look_at_uplinks(&self) {
        let Some(uplinks) = &self.uplinks else { return };
        let trouble = match uplinks.is_running() {
            true => self.shared.uplinks(UnixTime::from_nanos(0)).problem.map(|why| format!("uplinks: {why}")),
            false => {
                Some("the uplinks' thread ended by itself: new connections are steered no longer; see the log".into())
            }
        };
        self.shared.set_problem("uplinks", trouble);
    }

    fn begin_applying(&mut self, actor: &Actor) -> Reply {
        if self.config.tune.controller.server_ports.is_empty() {
            let why = "[tune] server_ports is empty: list the ports whose accepted connections may be changed, as \
                       [80, 443], and restart the daemon";
            return Reply::Error(why.to_owned());
        }
        if let Err(error) = self.steer.start(actor, &self.namespaces) {
            return Reply::Error(error.to_string());
        }
        let books = &mut self.books;
        if let Some(conns) = self.steer.conns()
            && let Err(error) =
                self.sources.share(&self.config.sockets, conns, &mut |sample| books.handle_sample(sample))
        {
            tracing::warn!("{error}");
        }
        self.take_up_namespaces();
        self.mode = Mode::Apply;
        self.books.controller.handle_mode(self.follow.is_none());
        self.unapplied = Some(self.policy().clone());
        self.apply_unapplied(actor);
        self.show_facts();
        self.show_policy();
        let networks = self.policy().networks.len();
        let said = match &self.unapplied {
            None => format!("decisions are applied from now on; {networks} networks are selected"),
            Some(_) => "decisions are applied from now on, but the present policy could not be: see the log".to_owned(),
        };
        Reply::Ok(serde_json::json!({ "mode": "apply", "networks": networks, "said": [said] }))
    }

    fn clear(&mut self, actor: &Actor) -> Reply {
        let (policy, decisions) = self.books.controller.clear(None);
        tracing::info!(uid = actor.uid, pid = actor.pid, networks = decisions.len(), "cleared by a person");
        self.unapplied = None;
        self.mode = Mode::Observe;
        self.books.controller.handle_mode(false);
        let said = match self.steer.stop() {
            Ok(said) => said,
            Err(error) => return Reply::Error(error.to_string()),
        };
        self.policy_since = clock::unix();
        self.show_facts();
        self.show_policy();
        let mut lines = vec![match &self.follow {
            Some(_) => {
                "the fleet's policy is only shown from now on, and obeyed again by `weirgate tune apply`".to_owned()
            }
            None => format!(
                "{} networks released (they are not selected again for a while); decisions are only shown from now on",
                decisions.len()
            ),
        }];
        lines.extend(said);
        Reply::Ok(serde_json::json!({ "mode": "observe", "version": policy.version, "said": lines }))
    }

    fn handle_changes(&mut self, changes: super::namespaces::Changes) {
        for inode in &changes.gone {
            self.sources.handle_gone(*inode);
            self.books.handle_namespace_gone(*inode);
        }
        if !changes.gone.is_empty() || !changes.new.is_empty() {
            let failed = self.sources.set_filter(&self.config.sockets.filter, self.namespaces.open());
            self.problem("filter", failed);
            let problem = changes.new.iter().filter_map(|inode| {
                let ns = self.namespaces.open().iter().find(|ns| ns.inode() == *inode)?;
                self.sources.handle_new(ns)
            });
            let problem = problem.last();
            if problem.is_some() {
                self.problem("closes", problem);
            }
        }
        self.problem("namespaces", changes.missing);
    }

    /// Sources that were replaced know no namespace.
    fn take_up_namespaces(&mut self) {
        let failed = self.sources.set_filter(&self.config.sockets.filter, self.namespaces.open());
        self.problem("filter", failed);
        for ns in self.namespaces.open() {
            if let Some(problem) = self.sources.handle_new(ns) {
                tracing::warn!("{problem}");
            }
        }
    }

    fn show_facts(&self) {
        let host = host_of(&self.namespaces);
        let facts = facts(&self.config, &self.sources, &self.steer, &host);
        self.shared.update_facts(|shown| {
            *shown = api::Facts { mode: self.mode.to_string(), started_ms: shown.started_ms, ..facts };
        });
    }

    /// What is to be obeyed: the fleet's policy, or this host's own.
    fn policy(&self) -> &Policy {
        self.follow.as_ref().and_then(Follow::policy).unwrap_or_else(|| self.books.controller.policy())
    }

    fn show_policy(&self) {
        let policy = self.policy();
        let obeyed = self.follow.as_ref().and_then(Follow::obeyed);
        let (applied, until) = self.steer.standing();
        let now = clock::boottime();
        let expires = until.map(|until| clock::unix() + until.saturating_since(now));
        self.shared.handle_policy(Some(api::Policy {
            version: policy.version,
            networks: policy.networks.len() as u64,
            applied: applied && self.unapplied.is_none(),
            since_ms: ms(self.policy_since),
            expires_ms: expires.map(ms),
            holdout_share: f64::from(policy.holdout.share_ppm) / 1e6,
            switch_after_bytes: policy.switch_after.as_u64(),
            fleet_version: obeyed.map(|snapshot| snapshot.version),
            fleet_until_ms: obeyed.map(|snapshot| ms(snapshot.until)),
        }));
    }

    /// Notes what is wrong, or no longer wrong, about one matter; logged when it changes.
    fn problem(&self, about: &str, problem: Option<String>) {
        let new = problem.clone();
        match (self.shared.set_problem(about, problem), new) {
            (None, Some(text)) => tracing::warn!("{about}: {text}"),
            (Some(_), None) => tracing::info!("{about}: in order again"),
            // It may hold numbers that change with every poll.
            (Some(before), Some(text)) if before != text => tracing::debug!("{about}: {text}"),
            _ => {}
        }
    }

    /// Sleeps until there is something to do; true: closes wait.
    fn wait(&self) -> bool {
        let deadline = [Some(self.next_poll), Some(self.next_drain), self.steer.poll_at()].into_iter().flatten().min();
        let left = deadline.map_or(Duration::ZERO, |at| at.saturating_since(clock::boottime()));
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: (left.as_nanos() % 1_000_000_000) as i64 };
        let mut fds = vec![PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)];
        fds.extend(self.sources.fds().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN)));
        let ready = poll(&mut fds, Some(&timeout));
        let rung = fds[0].revents().contains(PollFlags::IN);
        let closes = fds[1..].iter().any(|fd| fd.revents().contains(PollFlags::IN));
        drop(fds);
        if ready.is_ok() && rung {
            self.bell.clear();
        }
        ready.is_ok() && closes
    }

    fn close(mut self) {
        while let Ok(call) = self.calls.try_recv() {
            drop(call);
        }
        self.drain();
        if let Err(error) = save(&self.config.controller(), &self.books.controller.save()) {
            tracing::warn!("{}: {error}", self.config.controller().display());
        }
        // It says what it takes back.
        self.uplinks = None;
        self.steer.end();
        if let Some(writer) = self.books.writer.take() {
            let status = writer.close();
            tracing::info!(records = status.written, lost = status.lost_disk + status.lost_slow, "the store is closed");
        }
        let (records, tallies) = (self.books.exporter.take(), self.books.summed.take());
        // Each waits for its brokers.
        let (records, tallies) = std::thread::scope(|scope| {
            let records = records.map(|exporter| scope.spawn(|| exporter.close()));
            let tallies = tallies.map(|summed| summed.close(clock::unix()));
            (records.and_then(|records| records.join().ok()), tallies)
        });
        for (what, status) in [("records", records), ("tallies", tallies)] {
            let Some(status) = status else { continue };
            let (acknowledged, left, lost) = (status.acknowledged, status.waiting, status.lost);
            tracing::info!(acknowledged, left, left_out = status.sampled_out, lost, "the export of {what} is closed");
        }
    }
}

/// One daemon per state directory: two would undo each other's journal. Where nothing can be written there, nothing is
/// applied either, and there is nothing to keep apart.
fn lock_state(config: &Config, fresh: &mut Fresh) -> anyhow::Result<Option<File>> {
    let state = &config.host.state;
    let missing = Missing::of(&[state.join("lock"), seed::path(state), config.journal()]);
    let opened = std::fs::create_dir_all(state).and_then(|()| File::create(state.join("lock")));
    let file = match opened {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!("{}: {error}: decisions are not kept over a restart", state.display());
            fresh.own(missing);
            return Ok(None);
        }
    };
    match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => {
            fresh.own(missing);
            fresh.hold(file.try_clone().ok());
            Ok(Some(file))
        }
        Err(_) => anyhow::bail!(
            "another weirgate keeps its state in {}: stop it, or give this one its own [host] state",
            state.display()
        ),
    }
}

/// The books, and the store's folder among what is fresh where it is this daemon's.
fn open_books(
    config: &Config,
    controller: Controller,
    collector: Collector,
    fresh: &mut Fresh,
) -> Result<Books, StoreError> {
    let missing = config.store.as_ref().map(|store| Missing::of(&[store.dir.join(".lock")]));
    let books = Books::open(config, controller, collector);
    if !matches!(books, Err(StoreError::Open(OpenError::Taken(_)))) {
        missing.into_iter().for_each(|missing| fresh.own(missing));
    }
    books
}

/// Writes `bytes` so that a crash leaves the old file or the new one.
fn save(path: &Path, bytes: &[u8]) -> io::Result<()> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir)?;
    }
    folder::replace(path, 0o666, bytes)
}

fn host_of(namespaces: &Namespaces) -> Host {
    let found = namespaces.open().first().and_then(|ns| Congestion::of(ns).ok());
    found.map_or_else(Host::default, |congestion| Host {
        available_cc: congestion.available,
        system_cc: Some(congestion.default),
    })
}

/// What connections are put back to has to be there before any is changed.
fn default_is_there(config: &Config) -> anyhow::Result<()> {
    let named: Vec<_> = config.tune.controller.default_cc.into_iter().collect();
    make_available(&named).context("[tune] default_cc cannot be used: name another, or \"system\"")
}

fn facts(config: &Config, sources: &Sources, steer: &Steer, host: &Host) -> api::Facts {
    let default_cc = config.tune.controller.default_cc.or(host.system_cc);
    api::Facts {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        host: config.host.name.clone(),
        pop: config.host.pop.clone(),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        started_ms: ms(clock::unix()),
        mode: config.tune.mode.to_string(),
        polls: sources.polls.clone(),
        closes: sources.closes.clone(),
        steering: steer.source(),
        poll_interval_ms: config.sockets.interval.as_millis(),
        round_interval_ms: config.tune.controller.round.as_millis(),
        known_rounds_min: config.tune.controller.known_enter_min.into(),
        default_cc: default_cc.map_or_else(String::new, |cc| cc.to_string()),
        rules: config.tune.controller.rules.iter().map(|rule| rule.name.clone()).collect(),
        store: config.store.as_ref().map_or_else(String::new, |store| store.dir.display().to_string()),
    }
}

fn exported(topic: &str, status: &weirgate_store::export::Status) -> api::Export {
    api::Export {
        topic: topic.to_owned(),
        found: status.found,
        acknowledged: status.acknowledged,
        sampled_out: status.sampled_out,
        waiting: status.waiting,
        messages: status.messages,
        bytes: status.bytes,
        spool_files: status.spool_batches,
        spool_bytes: status.spool_bytes,
        weight: status.weight,
    }
}

fn of_fleet(counts: follow::Counts) -> api::Fleet {
    let refused = follow::WHYS.iter().map(|why| (*why).to_owned()).zip(counts.refused).collect();
    api::Fleet {
        obeyed: counts.obeyed,
        refused,
        expired: counts.expired,
        failed: counts.failed,
        forgotten: counts.forgotten,
    }
}

fn ms(time: UnixTime) -> u64 {
    time.as_nanos() / 1_000_000
}
