//! How open sockets are read and closes are learnt of here: the best way that works, and why it is this one.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use weirgate_linux::bpf::close::CloseCounters;
use weirgate_linux::bpf::{Closes, IterPoller};
use weirgate_linux::cgroup;
use weirgate_linux::diag::{DestroyListener, DiagPoller};
use weirgate_linux::netns::Netns;
use weirgate_linux::poll::{Filter, PollStats};
use weirgate_sockets::sample::Sample;

use crate::config::{self, Close, Source};
use crate::view::api;

/// What the configuration insists on and this host cannot do. The daemon does not start then.
#[derive(Debug, thiserror::Error)]
#[error("[sockets] {key} = \"{value}\" cannot work here: {why}; `weirgate doctor` shows what can, \"auto\" takes it")]
pub(crate) struct SourceError {
    key: &'static str,
    value: String,
    why: String,
}

/// The sources, open.
pub(crate) struct Sources {
    poller: Poller,
    closer: Closer,
    /// Close counters of attachments that were replaced.
    earlier: CloseCounters,
    /// For people.
    pub(crate) polls: api::Source,
    /// For people.
    pub(crate) closes: api::Source,
}

enum Poller {
    Iter(Box<IterPoller>),
    Netlink(Box<DiagPoller>),
}

enum Closer {
    Counted(Box<Closes>),
    /// One per namespace, with its inode.
    Heard(Vec<(u32, DestroyListener)>),
    Off,
}

impl Sources {
    /// Opens the sources that `config` asks for. `conns` is the map that steering remembers connections in, where it runs.
    pub(crate) fn open(config: &config::Sockets, conns: Option<BorrowedFd<'_>>) -> Result<Self, SourceError> {
        let (closer, closes) = open_closer(config, conns)?;
        let shared = match &closer {
            Closer::Counted(counted) => Some(counted.conns()),
            _ => conns,
        };
        let (poller, polls) = open_poller(config, shared)?;
        Ok(Self { poller, closer, earlier: CloseCounters::default(), polls, closes })
    }

    /// The same sources, from now on sharing `conns` with steering. What waits in the old ones is handed to `each` first.
    pub(crate) fn share(
        &mut self,
        config: &config::Sockets,
        conns: BorrowedFd<'_>,
        each: &mut dyn FnMut(&Sample),
    ) -> Result<(), SourceError> {
        // Attached beside the old one for a moment: the ledger knows a close that is reported twice.
        let mut new = Self::open(config, Some(conns))?;
        self.drain(&config.filter, each);
        let counters = self.counters();
        new.earlier = counters;
        *self = new;
        Ok(())
    }

    /// Restricts closes to what polls see. To be called whenever a namespace came or went.
    pub(crate) fn set_filter(&mut self, filter: &Filter, namespaces: &[Netns]) -> Option<String> {
        match &mut self.closer {
            Closer::Counted(closes) => closes.set_filter(filter, Some(namespaces)).err().map(|error| error.to_string()),
            Closer::Heard(_) | Closer::Off => None,
        }
    }

    /// Begins to look at a namespace; what is not possible there, in a sentence.
    pub(crate) fn handle_new(&mut self, ns: &Netns) -> Option<String> {
        match &mut self.closer {
            Closer::Counted(closes) => closes.arm_open(ns).err().map(|error| error.to_string()),
            Closer::Heard(listeners) => match DestroyListener::open(ns) {
                Ok(listener) => {
                    listeners.push((ns.inode(), listener));
                    None
                }
                Err(error) => Some(error.to_string()),
            },
            Closer::Off => None,
        }
    }

    /// Lets go of a namespace.
    pub(crate) fn handle_gone(&mut self, inode: u32) {
        if let Poller::Netlink(poller) = &mut self.poller {
            poller.forget(inode);
        }
        if let Closer::Heard(listeners) = &mut self.closer {
            listeners.retain(|(at, _)| *at != inode);
        }
    }

    /// Reads every socket of `ns` that `filter` wants.
    pub(crate) fn poll(
        &mut self,
        ns: &Netns,
        filter: &Filter,
        each: &mut dyn FnMut(&Sample),
    ) -> Result<PollStats, String> {
        match &mut self.poller {
            Poller::Iter(poller) => poller.poll(ns, filter, each).map_err(|error| error.to_string()),
            Poller::Netlink(poller) => poller.poll(ns, filter, each).map_err(|error| error.to_string()),
        }
    }

    /// Hands over the closes that wait; what went wrong, in a sentence.
    pub(crate) fn drain(&mut self, filter: &Filter, each: &mut dyn FnMut(&Sample)) -> Option<String> {
        match &mut self.closer {
            Closer::Counted(closes) => {
                closes.drain(each);
                None
            }
            Closer::Heard(listeners) => {
                let mut wanted = |sample: &Sample| {
                    if is_wanted(filter, sample) {
                        each(sample);
                    }
                };
                let failed = listeners.iter_mut().filter_map(|(_, listener)| listener.drain(&mut wanted).err());
                failed.last().map(|error| error.to_string())
            }
            Closer::Off => None,
        }
    }

    /// What the counted source counted; zeros where there is none.
    pub(crate) fn counters(&self) -> CloseCounters {
        let now = match &self.closer {
            Closer::Counted(closes) => closes.counters(),
            _ => CloseCounters::default(),
        };
        CloseCounters {
            seen: self.earlier.seen + now.seen,
            ring_failures: self.earlier.ring_failures + now.ring_failures,
        }
    }

    /// Of the uncounted source: how often the kernel said that it dropped something, and closes that made no sense.
    pub(crate) fn known_drops(&self) -> u64 {
        match &self.closer {
            Closer::Heard(listeners) => listeners.iter().map(|(_, l)| l.stats().overruns + l.stats().malformed).sum(),
            _ => 0,
        }
    }

    /// What becomes readable when closes wait.
    pub(crate) fn fds(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        let (counted, heard) = match &self.closer {
            Closer::Counted(closes) => (Some(closes.fd()), None),
            Closer::Heard(listeners) => (None, Some(listeners.iter().map(|(_, listener)| listener.as_fd()))),
            Closer::Off => (None, None),
        };
        counted.into_iter().chain(heard.into_iter().flatten())
    }
}

fn open_poller(config: &config::Sockets, conns: Option<BorrowedFd<'_>>) -> Result<(Poller, api::Source), SourceError> {
    let netlink = |why: String| {
        let source = api::Source { name: "inet_diag netlink".into(), why, counted: true };
        (Poller::Netlink(Box::new(DiagPoller::new())), source)
    };
    if config.source == Source::Netlink {
        return Ok(netlink("the configuration says so".into()));
    }
    let loaded = match conns {
        Some(conns) => IterPoller::load_sharing(conns),
        None => IterPoller::load(),
    };
    match (loaded, config.source) {
        (Ok(poller), _) => {
            let why = "the kernel has it; it takes about a third less processor time than netlink".into();
            let source = api::Source { name: "BPF iterator (iter/tcp)".into(), why, counted: true };
            Ok((Poller::Iter(Box::new(poller)), source))
        }
        (Err(error), Source::Iter) => {
            Err(SourceError { key: "source", value: config.source.to_string(), why: error.to_string() })
        }
        (Err(error), _) => Ok(netlink(format!("the iterator does not work here: {error}"))),
    }
}

fn open_closer(config: &config::Sockets, conns: Option<BorrowedFd<'_>>) -> Result<(Closer, api::Source), SourceError> {
    let heard = |why: String| {
        let name = "destroy multicast, uncounted".into();
        (Closer::Heard(Vec::new()), api::Source { name, why, counted: false })
    };
    match config.close {
        Close::Off => {
            let why = "the configuration says so: connections shorter than the interval are missed".into();
            Ok((Closer::Off, api::Source { name: "off".into(), why, counted: false }))
        }
        Close::Destroy => Ok(heard("the configuration says so".into())),
        Close::Auto | Close::Sockops => match attach(config, conns) {
            Ok(closes) => {
                let why = "the kernel and these privileges allow it, and it counts what it loses".into();
                let source = api::Source { name: "sockops program".into(), why, counted: true };
                Ok((Closer::Counted(Box::new(closes)), source))
            }
            Err(why) if config.close == Close::Sockops => {
                Err(SourceError { key: "close", value: config.close.to_string(), why })
            }
            Err(why) => Ok(heard(format!("the sockops program does not work here: {why}"))),
        },
    }
}

/// What the kernel asks elsewhere: announcements come unfiltered.
fn is_wanted(filter: &Filter, sample: &Sample) -> bool {
    let remote = sample.remote().ip();
    let within = |networks: &[weirgate_units::Prefix]| networks.iter().any(|network| network.contains(remote));
    (filter.local_ports.is_empty() || filter.local_ports.contains(&sample.local_port))
        && (filter.remote.is_empty() || within(&filter.remote))
        && !within(&filter.remote_not)
}

fn attach(config: &config::Sockets, conns: Option<BorrowedFd<'_>>) -> Result<Closes, String> {
    let cgroup = cgroup_of(config)?;
    Closes::attach(&cgroup, config.ring, conns).map_err(|error| error.to_string())
}

/// The cgroup that programs are attached to.
pub(crate) fn cgroup_of(config: &config::Sockets) -> Result<PathBuf, String> {
    cgroup::place(config.cgroup.as_deref()).map_err(|error| error.to_string())
}
