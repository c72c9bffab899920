//! The thread: it looks, hands over what it saw, and does what it is told.

use std::collections::HashSet;
use std::net::{IpAddr, UdpSocket};
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use weirgate_linux::ask::{Answer, Asker};
use weirgate_linux::conntrack::Conntrack;
use weirgate_linux::diag::{DiagPoller, Killer};
use weirgate_linux::netns::Netns;
use weirgate_linux::nft::{self, Tables};
use weirgate_linux::nudge::Nudger;
use weirgate_linux::ways::{Device, Way, Ways};
use weirgate_sockets::wire::request::Extensions;
use weirgate_units::{Duration, Instant};

use super::give_up::Doom;
use super::{Order, Work, now};
use crate::config::uplinks::Target;
use crate::daemon::bell::Bell;
use crate::journal::Journal;
use crate::uplink::Place;
use crate::uplink::fleet::{Act, Fleet};
use crate::uplink::ruleset::{ALIVE, sign_of_life};
use crate::view::api;

/// Between two looks at counters and links: silence is found in steps of it, and a look takes some tens of microseconds.
pub(super) const LOOK: Duration = Duration::from_millis(50);
/// Between two looks at addresses and gateways, while no link changes.
pub(super) const SITE: Duration = Duration::from_secs(1);
/// Between two looks at all flows, at the least; a look at many comes as rarely as it takes a twentieth of the time.
pub(super) const FLOWS: Duration = Duration::from_millis(250);
pub(super) const FLOWS_SHARE: u64 = 20;
/// Between two looks at the host's own connections.
pub(super) const SOCKETS: Duration = Duration::from_secs(2);
/// Between two pictures for those who ask.
const SHOW: Duration = Duration::from_millis(500);
/// What the kernel refused is tried again after so long.
const RETRY: Duration = Duration::from_secs(2);

/// The thread's state.
pub(super) struct Driver {
    pub(super) config: crate::config::Uplinks,
    pub(super) namespace: PathBuf,
    pub(super) fleet: Fleet,
    pub(super) journal: Journal,
    pub(super) ns: Netns,
    pub(super) ways: Ways,
    pub(super) ways_in_force: Vec<Way>,
    pub(super) devices: Vec<Option<Device>>,
    /// Of each uplink, the targets of each family that can be asked by it.
    pub(super) targets: Vec<[Vec<Target>; 2]>,
    pub(super) flags_by: UdpSocket,
    pub(super) loosened: HashSet<(String, u32)>,
    /// Uplinks whose way was gone at the last look, for the first time.
    pub(super) doubtful: HashSet<Place>,
    pub(super) tables: Tables,
    pub(super) conntrack: Conntrack,
    pub(super) sockets: DiagPoller,
    pub(super) killer: Killer,
    pub(super) nudger: Nudger,
    pub(super) next_site: Instant,
    pub(super) next_ways: Instant,
    pub(super) next_flows: Instant,
    pub(super) next_sockets: Instant,
    /// Why the kernel's rules are not what they are to be.
    pub(super) trouble: Option<String>,
    /// When the whole table is to be made anew.
    pub(super) rules_at: Option<Instant>,
    pub(super) askers: Vec<Asker>,
    next_alive: Instant,
    next_show: Instant,
    orders: Receiver<Order>,
    bell: Bell,
    shown: Arc<Mutex<api::Uplinks>>,
}

impl Driver {
    /// Opens all that it needs, and puts the first rules in force.
    pub(super) fn open(work: Work) -> anyhow::Result<Self> {
        let Work { config, settings, namespace, journal, orders, bell, shown } = work;
        let (begun, marks) = (now(), settings.marks);
        let salt = weirgate_linux::clock::unix().as_nanos() ^ u64::from(std::process::id()) << 40;
        let asker = |(place, uplink): (usize, &crate::config::uplinks::Uplink)| {
            // The upper bits are the echoes' identifier.
            Asker::new(&uplink.device, marks.own(place), salt.rotate_left(24) ^ (place as u64) << 48)
        };
        let mut driver = Self {
            askers: config.uplinks.iter().enumerate().map(asker).collect(),
            targets: vec![<[Vec<Target>; 2]>::default(); config.uplinks.len()],
            devices: vec![None; config.uplinks.len()],
            ways: Ways { table: config.table, priority: config.priority, mask: marks.names() },
            ways_in_force: Vec::new(),
            fleet: Fleet::new(begun, settings),
            ns: Netns::current().context("the network namespace")?,
            flags_by: UdpSocket::bind("127.0.0.1:0").or_else(|_| UdpSocket::bind("[::]:0"))?,
            loosened: HashSet::new(),
            doubtful: HashSet::new(),
            tables: Tables::open().context("nftables")?,
            conntrack: Conntrack::open().context("conntrack")?,
            sockets: DiagPoller::with_extensions(Extensions::INFO),
            killer: Killer::open().context("sock_diag")?,
            nudger: Nudger::new(marks.untracked()),
            next_site: begun,
            next_ways: begun,
            next_flows: begun,
            next_sockets: begun + SOCKETS,
            next_alive: begun,
            next_show: begun,
            trouble: None,
            rules_at: None,
            config,
            namespace,
            journal,
            orders,
            bell,
            shown,
        };
        driver.look_at_sites(begun)?;
        driver.conntrack_marks().context("connections are not tracked here (`modprobe nf_conntrack_netlink`)")?;
        // What cannot be put in force at the start is refused; later it is tried again.
        nft::run(&driver.fleet.ruleset().whole().to_string())?;
        driver.look_at_flows(begun);
        driver.act(begun);
        driver.show(begun);
        Ok(driver)
    }

    /// Runs until it is told to stop.
    pub(super) fn run(mut self) {
        while !self.bell.is_stopped() {
            let begun = now();
            let answered = self.take_orders();
            // What came while the thread was busy, before anybody's patience ends.
            self.hear();
            self.look(begun);
            if begun >= self.next_site
                && let Err(error) = self.look_at_sites(begun)
            {
                self.note(Some(format!("{error:#}")));
            }
            if begun >= self.next_flows {
                self.look_at_flows(begun);
            }
            self.fleet.handle_time(now());
            // Before what takes long.
            self.ask();
            self.act(now());
            if begun >= self.next_alive {
                self.sign(begun);
            }
            if begun >= self.next_show || !answered.is_empty() {
                self.show(begun);
            }
            // What was asked for is in force, and shown.
            for done in answered {
                // Who asked may have gone.
                let _ = done.send(());
            }
            self.wait(begun + LOOK);
        }
    }

    fn take_orders(&mut self) -> Vec<Sender<()>> {
        let mut answered = Vec::new();
        while let Ok(Order::Drain(place, is_drained, done)) = self.orders.try_recv() {
            self.fleet.handle_drain(place, is_drained);
            answered.push(done);
        }
        answered
    }

    /// Does what is to be done.
    fn act(&mut self, at: Instant) {
        let mut changed = Vec::new();
        while let Some(act) = self.fleet.poll_act() {
            // What is decided is shown at once.
            self.next_show = Instant::ZERO;
            match act {
                Act::Rules => self.rules_at = Some(at),
                Act::Orders(orders) => {
                    changed.extend(orders.into_iter().filter(|one| !changed.contains(one)).collect::<Vec<_>>())
                }
                Act::GiveUp(place, family) => {
                    // First nothing goes there any more.
                    self.put_in_force(at, &mut changed);
                    self.give_up(place, Doom::Family(family));
                }
                Act::Leave(place, addresses) => self.give_up(place, Doom::Addresses(&addresses)),
                Act::Say(said, true) => tracing::info!("{said}"),
                Act::Say(said, false) => tracing::debug!("{said}"),
            }
        }
        self.put_in_force(at, &mut changed);
    }

    /// Has the kernel take what changed.
    fn put_in_force(&mut self, at: Instant, changed: &mut Vec<(usize, crate::uplink::Kind)>) {
        let done = if self.rules_at.is_some_and(|due| at >= due) {
            nft::run(&self.fleet.ruleset().whole().to_string())
        } else if !changed.is_empty() {
            nft::run(&self.fleet.ruleset().reorder(changed).to_string())
        } else {
            return;
        };
        changed.clear();
        match done {
            Ok(()) if self.rules_at.take_if(|due| at >= *due).is_some() => self.note(None),
            Ok(()) => {}
            // Somebody may have flushed all tables: then this one is made again.
            Err(error) => {
                self.note(Some(error.to_string()));
                self.rules_at = Some(at + RETRY);
            }
        }
    }

    fn sign(&mut self, at: Instant) {
        self.next_alive = at + Duration::from_nanos(ALIVE.as_nanos() / 3);
        if let Err(error) = nft::run(&sign_of_life().to_string()) {
            self.note(Some(error.to_string()));
            self.rules_at = Some(at);
        }
    }

    /// Puts questions to targets.
    fn ask(&mut self) {
        let at = now();
        while let Some((place, family, ask)) = self.fleet.poll_ask(at) {
            let targets = &self.targets[place][family as usize];
            let Some(Target { address, port }) = targets.get(ask.target) else { continue };
            if let Err(error) = self.askers[place].ask(*address, *port, ask.serial) {
                tracing::debug!("uplink `{}`: {address} cannot be asked: {error}", self.config.uplinks[place].name);
            }
        }
        if let Some(place) = self.fleet.poll_train(at) {
            let targets = &self.targets[place][self.fleet.uplinks()[place].best() as usize];
            let target = targets.iter().find(|target| target.port.is_none());
            let address: Option<IpAddr> = target.map(|target| target.address);
            if let Some(Err(error)) = address.map(|address| self.askers[place].send_train(address)) {
                tracing::debug!("uplink `{}`: no train: {error}", self.config.uplinks[place].name);
            }
        }
    }

    fn hear(&mut self) {
        for (place, asker) in self.askers.iter_mut().enumerate() {
            let fleet = &mut self.fleet;
            asker.answers(&mut |answer| match answer {
                Answer::Heard(serial) => fleet.handle_answer(now(), place, serial),
                Answer::Train(rate) => fleet.handle_train(place, rate),
            });
        }
    }

    /// Sleeps until something comes, or until then.
    fn wait(&self, until: Instant) {
        let due = self.fleet.poll_at().map_or(until, |due| due.min(until));
        let left = due.saturating_since(now());
        let timeout = Timespec { tv_sec: 0, tv_nsec: left.as_nanos().min(999_999_999) as i64 };
        let mut fds = vec![PollFd::from_borrowed_fd(self.bell.as_fd(), PollFlags::IN)];
        let asked = self.askers.iter().flat_map(Asker::fds);
        fds.extend(asked.map(|(fd, flags)| PollFd::from_borrowed_fd(fd, flags)));
        // A signal ends the wait as well.
        let _ = poll(&mut fds, Some(&timeout));
        drop(fds);
        self.bell.clear();
    }

    fn show(&mut self, at: Instant) {
        self.next_show = at + SHOW;
        let rows = (0..self.config.uplinks.len()).map(|place| self.row(at, place)).collect();
        let picture = api::Uplinks { now_ms: 0, uplinks: rows, problem: self.trouble.clone() };
        *self.shown.lock().unwrap_or_else(PoisonError::into_inner) = picture;
    }

    /// Notes what is wrong, or no longer wrong; logged when it changes.
    pub(super) fn note(&mut self, trouble: Option<String>) {
        match (&self.trouble, &trouble) {
            (None, Some(text)) => tracing::warn!("uplinks: {text}"),
            (Some(_), None) => tracing::info!("uplinks: in order again"),
            (Some(before), Some(text)) if before != text => tracing::warn!("uplinks: {text}"),
            _ => {}
        }
        self.trouble = trouble;
    }

    /// What an uplink is called.
    pub(super) fn name(&self, place: Place) -> &str {
        &self.config.uplinks[place].name
    }
}
