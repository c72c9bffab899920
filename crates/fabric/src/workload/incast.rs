//! Many answer at once.

use super::{Hosts, Start, Workload};
use crate::Time;
use crate::chance::Chance;

/// At random times (a Poisson process), random clients each ask the same random servers, which all answer at once. Its flows are of
/// class 1.
#[derive(Clone, Debug)]
pub struct Incast {
    hosts: Hosts,
    clients: u32,
    servers: u32,
    bytes: u64,
    mean_secs: f64,
    next: Time,
    until: Time,
    /// What has still to begin.
    open: Vec<Start>,
    chance: Chance,
}

impl Incast {
    /// Until a time, `per_sec` times a second, so many clients ask so many servers for so many bytes each. Clients and servers are
    /// different hosts.
    ///
    /// # Panics
    /// Where there are not so many hosts, or `per_sec` is not above 0.
    pub fn new(
        hosts: Hosts,
        [clients, servers]: [u32; 2],
        bytes: u64,
        per_sec: f64,
        until: Time,
        mut chance: Chance,
    ) -> Self {
        assert!(clients + servers <= hosts.len() && per_sec > 0.0, "clients and servers are different hosts");
        let mean_secs = 1.0 / per_sec;
        let next = Time::ZERO + chance.exponential(mean_secs);
        Self { hosts, clients, servers, bytes, mean_secs, next, until, open: Vec::new(), chance }
    }
}

impl Workload for Incast {
    fn poll(&mut self, now: Time) -> Option<Start> {
        if self.open.is_empty() && self.next <= now && self.next < self.until {
            self.next += self.chance.exponential(self.mean_secs);
            let chosen = self.hosts.some(self.clients + self.servers, &mut self.chance);
            let (clients, servers) = chosen.split_at(self.clients as usize);
            let answers = clients.iter().flat_map(|client| servers.iter().map(move |server| (*server, *client)));
            let start = |(source, destination)| Start { source, destination, bytes: self.bytes, class: 1 };
            self.open.extend(answers.map(start));
        }
        self.open.pop()
    }

    fn poll_at(&self) -> Option<Time> {
        (self.next < self.until).then_some(self.next)
    }

    /// Chance says how many.
    fn flows_left(&self) -> Option<u64> {
        None
    }
}
