//! Records of connections, one after the other, as what each connection did in a round.
//!
//! The records go through the same ledger as the daemon's samples did, so that a vote is what it was then. What a poll
//! did not show is not recorded; the end of a poll is told by the gap before the next one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use weirgate_sockets::ledger::{Ledger, Options};
use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::{Origin, Record};
use weirgate_sockets::sample::{Kind, Sample, mapped};
use weirgate_units::{Duration, Instant, UnixTime};

/// Samples of one poll follow each other within microseconds; polls are at least 100 ms apart.
const GAP: Duration = Duration::from_millis(50);

/// Takes the records of one host in the order in which they were written.
pub(crate) struct Recorded {
    ledger: Ledger,
    boot: String,
    /// Namespaces that the poll under way has shown.
    shown: Vec<u32>,
    /// The last sample of the poll under way.
    polled: UnixTime,
}

impl Default for Recorded {
    fn default() -> Self {
        let ledger = Ledger::new(Options::default());
        Self { ledger, boot: String::new(), shown: Vec::new(), polled: UnixTime::default() }
    }
}

impl Recorded {
    /// Enters a record; what connections that ended with it did goes to `each`. `lens` are those of client networks, IPv4's first.
    pub(crate) fn handle_record(
        &mut self,
        record: &Record<'_>,
        origin: &Origin,
        lens: (u8, u8),
        each: &mut dyn FnMut(&Progress),
    ) {
        if self.boot != origin.boot_id {
            // Cookies begin anew with every boot.
            *self = Self { boot: origin.boot_id.clone(), ..Self::default() };
        }
        if record.sample.kind() == Kind::Poll {
            if record.time.saturating_since(self.polled) > GAP {
                self.end_poll(each);
            }
            self.polled = record.time;
            if !self.shown.contains(&record.sample.netns) {
                self.shown.push(record.sample.netns);
            }
        }
        if let Some(last) = self.ledger.handle_sample(&with_peer(record, lens)).and_then(|seen| seen.last) {
            each(&last);
        }
    }

    /// What the connections that are open did in the round that ends goes to `each`.
    pub(crate) fn end_round(&mut self, each: &mut dyn FnMut(&Progress)) {
        self.end_poll(each);
        self.ledger.take_round(each);
    }

    fn end_poll(&mut self, each: &mut dyn FnMut(&Progress)) {
        for netns in self.shown.drain(..) {
            self.ledger.handle_poll_end(netns, Instant::from_nanos(self.polled.as_nanos()), each);
        }
    }
}

/// The sample with what anonymising took from it stood in for: a port, without which the ledger takes it for a socket that
/// never had a peer, and host bits, by which a network's clients are counted. Connections are told apart by their cookies, so
/// each counts as a client of its own. A sample that never had a peer has no address either, and stays as it is.
fn with_peer(record: &Record<'_>, (len_v4, len_v6): (u8, u8)) -> Sample {
    let (sample, len) = (record.sample, record.network.len());
    let remote = match sample.remote().ip().to_canonical() {
        ip if sample.remote_port != 0 || ip.is_unspecified() => return *sample,
        IpAddr::V4(ip) => {
            let host = u32::MAX.checked_shr(len.max(len_v4).into()).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() | sample.cookie as u32 & host))
        }
        IpAddr::V6(ip) => {
            let host = u128::MAX.checked_shr(len.max(len_v6).into()).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() | u128::from(sample.cookie) & host))
        }
    };
    Sample { remote: mapped(remote), remote_port: 1, ..*sample }
}
