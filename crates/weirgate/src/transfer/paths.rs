//! From where this host reaches another one: its interfaces' addresses, which may come and go.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};

use anyhow::{Context, Result, bail, ensure};
use weirgate_linux::interface::Interface;
use weirgate_linux::netns::Netns;
use weirgate_linux::route;
use weirgate_linux::udp::Udp;
use weirgate_spray::Connection;
use weirgate_spray::connection::PATHS_MAX;
use weirgate_spray::wire::{PathId, Status};
use weirgate_units::{Duration, Instant};

/// How often it is looked what came and went.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The other side is said to be silent after this: on a path that works it is heard each second.
const SILENT_AFTER: Duration = Duration::from_secs(3);

/// A path that works has been heard on by then: it is asked four times.
const PROVEN_WITHIN: Duration = Duration::from_secs(3);

/// An interface's address.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// `None`: the address was named, and may be anywhere.
    device: Option<(String, u32)>,
    ip: IpAddr,
}

/// A path's place, and whether it is there.
#[derive(Debug)]
struct Known {
    place: Place,
    path: PathId,
    is_there: bool,
    /// When it could have begun to work, and whether it was looked at then whether it works.
    since: Instant,
    is_looked_at: bool,
}

impl Known {
    const fn new(now: Instant, place: Place, path: PathId) -> Self {
        Self { place, path, is_there: true, since: now, is_looked_at: false }
    }
}

/// From where a connection's paths may begin.
#[derive(Clone, Debug, Default)]
pub struct Selection {
    /// Interfaces and addresses that were named; none: all that are up.
    pub from: Vec<String>,
    /// An interface that is none of them: what it takes goes through this connection.
    pub except: Option<String>,
    /// Whether those that were named may come later.
    pub may_lack: bool,
}

/// The paths of a connection from this host.
#[derive(Debug)]
pub struct Paths {
    selection: Selection,
    remote: SocketAddr,
    known: Vec<Known>,
    looked: Instant,
    /// Sockets that the loop does not have yet, and where those are bound that it needs no more.
    new: Vec<Udp>,
    gone: Vec<SocketAddr>,
    /// Why something could not be sent from an address, the last time.
    unsent: BTreeMap<SocketAddr, io::Error>,
    /// Whether it was said that the other side is silent.
    is_silent: bool,
    /// Whether it was said that there are more than a connection can have.
    is_full: bool,
}

impl Paths {
    /// From what is there now: a socket for each path, to begin a connection with, in the order of its paths.
    ///
    /// # Errors
    /// Something named is not there; nothing is; there are more than a connection can have.
    pub fn open(now: Instant, selection: Selection, remote: SocketAddr) -> Result<(Self, Vec<Udp>)> {
        let places = places(&selection, remote)?;
        let named = || selection.from.iter().filter(|name| name.parse::<IpAddr>().is_err());
        for name in named() {
            let is_it = |place: &Place| place.device.as_ref().is_some_and(|(device, _)| device == name);
            let why = "no such interface, or it is down, or has no address of the receiver's family";
            match places.iter().find(|place| is_it(place)) {
                Some(place) if place.has_no_route(remote.ip()) => tracing::warn!(
                    "{name}: no route to {} leads by it: only who is on its link is reached so",
                    remote.ip()
                ),
                Some(_) => {}
                None if selection.may_lack => tracing::warn!("{name}: {why}; it is a path once it has"),
                None => bail!("{name}: {why}"),
            }
        }
        ensure!(
            !places.is_empty(),
            "there is no route to {0} by any interface: `ip route get {0}`; what has none is a path where --from names it",
            remote.ip()
        );
        // Two uplinks may have the same address.
        if let Some(again) = (0..places.len()).find(|at| places[..*at].contains(&places[*at])) {
            bail!("{}: it is named twice, and is one path", places[again]);
        }
        ensure!(
            places.len() <= PATHS_MAX,
            "{} interfaces can be sent from, and a connection has {PATHS_MAX} paths at most: name its own with --from",
            places.len()
        );
        let bound = places.into_iter().map(|place| Ok((place.bind()?, place)));
        // One that cannot be had now is looked for again, like those that come later.
        let bound: Vec<(Udp, Place)> =
            bound.filter(|one: &Result<_>| one.is_ok() || !selection.may_lack).collect::<Result<_>>()?;
        ensure!(!bound.is_empty(), "none of its addresses can be sent from now");
        let (sockets, places): (Vec<_>, Vec<_>) = bound.into_iter().unzip();
        let known = (0..).zip(places).map(|(at, place)| Known::new(now, place, PathId(at))).collect();
        Ok((
            Self {
                selection,
                remote,
                known,
                looked: now,
                new: Vec::new(),
                gone: Vec::new(),
                unsent: BTreeMap::new(),
                is_silent: false,
                is_full: false,
            },
            sockets,
        ))
    }

    /// Where paths begin and end, of these sockets.
    pub fn ends(&self, sockets: &[Udp]) -> Vec<(SocketAddr, SocketAddr)> {
        sockets.iter().map(|socket| (socket.local(), self.remote)).collect()
    }

    /// Looks, now and then, what came and went, and tells the connection.
    pub fn look(&mut self, now: Instant, connection: &mut Connection) {
        if now.saturating_since(self.looked) < LOOK_EVERY {
            return;
        }
        self.looked = now;
        self.warn(now, connection);
        // What cannot be listed is taken for unchanged.
        let Ok(places) = places(&self.selection, self.remote) else { return };
        for known in self.known.iter_mut().filter(|known| known.place.device.is_some()) {
            // One that is only down for a while is found again by the connection itself.
            known.is_there = places.contains(&known.place);
        }
        for place in places {
            // An address that was named is on no interface while its own is down.
            let is_one = |known: &Place| *known == place || (place.device.is_none() && known.ip == place.ip);
            if self.known.iter().any(|known| is_one(&known.place)) {
                continue;
            }
            let socket = match place.bind() {
                Ok(socket) => socket,
                Err(problem) => {
                    tracing::debug!("{}: {problem:#}", place.ip);
                    continue;
                }
            };
            let mut path = connection.add_path(now, socket.local(), self.remote);
            if path.is_none() {
                // There are enough: those that are not there now make room.
                self.give_up(now, connection, |_| true);
                path = connection.add_path(now, socket.local(), self.remote);
            }
            let Some(path) = path else {
                if !std::mem::replace(&mut self.is_full, true) {
                    tracing::warn!("{place}: not a path: a connection has {PATHS_MAX} at most");
                }
                continue;
            };
            // It is in the place of those whose addresses its interface has no more.
            let name = |place: &Place| place.device.as_ref().map(|(name, _)| name.clone());
            self.give_up(now, connection, |known| name(known).is_some() && name(known) == name(&place));
            self.new.push(socket);
            self.known.push(Known::new(now, place, path));
        }
    }

    /// Those of these places that are not there are paths no more.
    fn give_up(&mut self, now: Instant, connection: &mut Connection, is_one: impl Fn(&Place) -> bool) {
        self.known.retain(|known| {
            let is_gone = !known.is_there && is_one(&known.place);
            if is_gone {
                connection.set_status(now, known.path, Status::Gone);
                self.gone.extend(connection.paths().find(|path| path.path == known.path).map(|path| path.local));
            }
            !is_gone
        });
    }

    /// Something could not be sent.
    pub fn handle_unsent(&mut self, local: SocketAddr, problem: io::Error) {
        self.unsent.insert(local, problem);
    }

    /// From where something could not be sent, and why, for people; nothing, if all could.
    pub fn unsent(&self) -> String {
        self.unsent.iter().map(|(local, problem)| format!("; from {}: {problem}", local.ip())).collect()
    }

    /// Says that nothing comes from the other side, and when it does again; and of each path, once, by which nothing comes back while others
    /// work.
    fn warn(&mut self, now: Instant, connection: &Connection) {
        let silence = now.saturating_since(connection.last_received());
        let is_silent = connection.has_peer() && silence >= SILENT_AFTER;
        match (std::mem::replace(&mut self.is_silent, is_silent), is_silent) {
            (false, true) => tracing::warn!(
                "nothing has come from {} for {SILENT_AFTER}, on any path: it is given up after {}",
                self.remote,
                connection.idle_max()
            ),
            (true, false) => tracing::warn!("{} is heard again", self.remote),
            _ => {}
        }
        for known in self.known.iter_mut().filter(|known| known.is_there && !known.is_looked_at) {
            if !connection.has_peer() {
                // None does yet.
                known.since = now;
            }
            if now.saturating_since(known.since) < PROVEN_WITHIN {
                continue;
            }
            known.is_looked_at = true;
            let Some(path) = connection.paths().find(|path| path.path == known.path) else { continue };
            if path.counts.packets_in == 0 {
                let from = known.place.to_string();
                let problem = self.unsent.get(&path.local).map_or_else(String::new, |problem| format!(" ({problem})"));
                tracing::warn!(
                    "nothing comes back that is sent from {from}{problem}: the other side is not reached by it"
                );
            }
        }
    }

    /// Sockets of paths that were added.
    pub fn take_sockets(&mut self) -> Vec<Udp> {
        std::mem::take(&mut self.new)
    }

    /// Where sockets are bound whose paths are no more.
    pub fn take_gone(&mut self) -> Vec<SocketAddr> {
        std::mem::take(&mut self.gone)
    }

    /// When to [`look`](Self::look) again.
    pub fn poll_at(&self) -> Instant {
        self.looked + LOOK_EVERY
    }
}

impl Place {
    fn bind(&self) -> Result<Udp> {
        let device = self.device.as_ref().map(|(name, _)| name.as_str());
        Udp::bind(SocketAddr::new(self.ip, 0), device).with_context(|| self.to_string())
    }

    /// Whether it is known that no route leads from there to `remote`.
    fn has_no_route(&self, remote: IpAddr) -> bool {
        self.device.as_ref().is_some_and(|(_, index)| matches!(route::is_by(*index, self.ip, remote), Ok(false)))
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {}", self.ip, self.device.as_ref().map_or("this host", |(name, _)| name))
    }
}

/// Which addresses there are to reach `remote` from: those that were named; where none was, one of each interface that has a route to it.
fn places(selection: &Selection, remote: SocketAddr) -> Result<Vec<Place>> {
    let Selection { from, except, .. } = selection;
    let is_wanted = |ip: IpAddr| {
        let is_local = ip.is_loopback() || matches!(ip, IpAddr::V6(v6) if v6.is_unicast_link_local());
        ip.is_ipv4() == remote.is_ipv4() && is_local == remote.ip().is_loopback()
    };
    let mut here = Netns::current().and_then(|here| Interface::all(&here)).context("this host's interfaces")?;
    here.retain(|interface| except.as_ref() != Some(&interface.name));
    let of = |interface: &Interface, ip| Place { device: Some((interface.name.clone(), interface.index)), ip };
    let first = |interface: &Interface| {
        let ip = interface.addresses.iter().copied().find(|ip| is_wanted(*ip))?;
        Some(of(interface, ip))
    };
    // By the other end of a point-to-point link IPv4 goes without a route.
    let has_route = |interface: &Interface, place: &Place| {
        let is_sent = !interface.has_neighbours && remote.is_ipv4();
        is_sent || !place.has_no_route(remote.ip())
    };
    let mut places: Vec<Place> = Vec::new();
    for name in from {
        match name.parse::<IpAddr>() {
            // It leaves by the interface whose address it is; one that is no interface's own, such as an anycast address, by any.
            Ok(ip) => {
                let owner = here.iter().find(|one| one.up && one.addresses.contains(&ip));
                let place = owner.map(|owner| (owner, of(owner, ip))).filter(|(owner, place)| has_route(owner, place));
                places.push(place.map_or(Place { device: None, ip }, |(_, place)| place));
            }
            Err(_) => places.extend(here.iter().filter(|one| one.up && one.name == *name).find_map(first)),
        }
    }
    if from.is_empty() {
        let up = here.iter().filter(|one| one.up).filter_map(|one| Some((one, first(one)?)));
        places.extend(up.filter(|(one, place)| has_route(one, place)).map(|(_, place)| place));
    }
    Ok(places)
}
