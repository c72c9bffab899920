//! Recorded telemetry, cut into the rounds that the controller would have seen.
//!
//! The records go through the same ledger as the daemon's samples did, so that a vote is what it was then. What a poll
//! did not show is not recorded; the end of a poll is told by the gap before the next one.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use weirgate_sockets::ledger::{Ledger, Options};
use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{Arm, CcName, Field, Kind, Sample, mapped};
use weirgate_store::{ReadError, TimeRange, for_each_record};
use weirgate_tune::replay::Summary;
use weirgate_tune::{Config, Controller, Round};
use weirgate_units::{Duration, Instant, UnixTime};

/// Samples of one poll follow each other within microseconds; polls are at least 100 ms apart.
const GAP: Duration = Duration::from_millis(50);

/// Records that say what the host's default was: half an hour of 500 connections at the default interval, read in a second.
const DEFAULT_FROM: u32 = 100_000;

/// What most of the untreated connections of clients in `store` ran on, in its first records that say so; `None` where none
/// does.
pub(super) fn default_cc(store: &Path) -> Result<Option<CcName>, ReadError> {
    let mut counts: Vec<(CcName, u32)> = Vec::new();
    let mut left = DEFAULT_FROM;
    for_each_record(store, TimeRange::ALL, &mut |record, _| {
        let sample = record.sample;
        if record.direction == Direction::Accepted && sample.arm() == Arm::None && sample.has(Field::Cc) {
            match counts.iter_mut().find(|(cc, _)| *cc == sample.cc) {
                Some((_, count)) => *count += 1,
                None => counts.push((sample.cc, 1)),
            }
            left -= 1;
        }
        left > 0
    })?;
    Ok(counts.into_iter().max_by_key(|(_, count)| *count).map(|(cc, _)| cc))
}

/// The sample with what anonymising took from it stood in for: a port, without which the ledger takes it for a socket that
/// never had a peer, and host bits, by which a network's clients are counted. Connections are told apart by their cookies, so
/// each counts as a client of its own. A sample that never had a peer has no address either, and stays as it is.
fn with_peer(record: &Record<'_>, config: &Config) -> Sample {
    let (sample, len) = (record.sample, record.network.len());
    let remote = match sample.remote().ip().to_canonical() {
        ip if sample.remote_port != 0 || ip.is_unspecified() => return *sample,
        IpAddr::V4(ip) => {
            let host = u32::MAX.checked_shr(len.max(config.network_len_v4).into()).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() | sample.cookie as u32 & host))
        }
        IpAddr::V6(ip) => {
            let host = u128::MAX.checked_shr(len.max(config.network_len_v6).into()).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() | u128::from(sample.cookie) & host))
        }
    };
    Sample { remote: mapped(remote), remote_port: 1, ..*sample }
}

/// Takes records in the order in which they were written.
pub(super) struct Records {
    ledger: Ledger,
    controller: Controller,
    boot: String,
    /// Namespaces that the poll under way has shown.
    shown: Vec<u32>,
    /// The last sample of the poll under way.
    polled: UnixTime,
    newest: Option<UnixTime>,
    /// The end of the round under way; `None` before the first record.
    end: Option<UnixTime>,
    pub(super) summary: Summary,
}

impl Records {
    pub(super) fn new(controller: Controller) -> Self {
        Self {
            ledger: Ledger::new(Options::default()),
            controller,
            boot: String::new(),
            shown: Vec::new(),
            polled: UnixTime::default(),
            newest: None,
            end: None,
            summary: Summary::default(),
        }
    }

    /// Enters a record, after the rounds that ended before it.
    pub(super) fn handle_record(
        &mut self,
        record: &Record<'_>,
        origin: &Origin,
        each: &mut dyn FnMut(&Round) -> io::Result<()>,
    ) -> io::Result<()> {
        let round = self.controller.config().round;
        let end = *self.end.get_or_insert(record.time + round);
        if record.time >= end {
            self.end_round(end, each)?;
            // Rounds without any record are not held: the controller counts them by the time.
            let missed = record.time.saturating_since(end).as_nanos() / round.as_nanos();
            self.end = Some(end + round.saturating_mul(missed + 1));
        }
        if self.boot != origin.boot_id {
            // Cookies begin anew with every boot.
            self.ledger = Ledger::new(Options::default());
            self.boot.clone_from(&origin.boot_id);
            self.shown.clear();
        }
        if record.sample.kind() == Kind::Poll {
            if record.time.saturating_since(self.polled) > GAP {
                self.end_poll();
            }
            self.polled = record.time;
            if !self.shown.contains(&record.sample.netns) {
                self.shown.push(record.sample.netns);
            }
        }
        self.newest = self.newest.max(Some(record.time));
        if let Some(last) =
            self.ledger.handle_sample(&with_peer(record, self.controller.config())).and_then(|seen| seen.last)
        {
            self.controller.handle_progress(&last);
        }
        Ok(())
    }

    /// Ends the last round.
    pub(super) fn finish(&mut self, each: &mut dyn FnMut(&Round) -> io::Result<()>) -> io::Result<()> {
        match self.end {
            Some(end) => self.end_round(end, each),
            None => Ok(()),
        }
    }

    fn end_poll(&mut self) {
        let (ledger, controller) = (&mut self.ledger, &mut self.controller);
        for netns in self.shown.drain(..) {
            let now = Instant::from_nanos(self.polled.as_nanos());
            ledger.handle_poll_end(netns, now, &mut |progress| controller.handle_progress(progress));
        }
    }

    fn end_round(&mut self, end: UnixTime, each: &mut dyn FnMut(&Round) -> io::Result<()>) -> io::Result<()> {
        self.end_poll();
        let (ledger, controller) = (&mut self.ledger, &mut self.controller);
        ledger.take_round(&mut |progress| controller.handle_progress(progress));
        let round = self.controller.end_round(end, self.newest.take());
        self.summary.add(&round);
        each(&round)
    }
}

#[cfg(test)]
mod tests {
    use weirgate_sockets::sample::{flag, state};
    use weirgate_tune::Host;

    use super::*;

    fn at(ms: u64) -> UnixTime {
        UnixTime::from_nanos(1_700_000_000_000_000_000 + ms * 1_000_000)
    }

    fn sample(cookie: u64, kind: Kind, ms: u64, acked: u64) -> Sample {
        let mut sample = Sample {
            kind: kind as u8,
            state: state::ESTABLISHED,
            flags: flag::ACCEPTED,
            family: 4,
            local_port: 443,
            remote_port: 4_000,
            local: mapped([192, 0, 2, 1].into()),
            remote: mapped([198, 51, 100, cookie as u8].into()),
            cookie,
            netns: 1,
            time_ns: at(ms).as_nanos(),
            cc: CcName::from_kernel(b"cubic"),
            bytes_acked: acked,
            busy_us: acked / 10,
            ..Sample::default()
        };
        for field in [Field::TcpInfo, Field::BytesAcked, Field::BusyUs, Field::Cc] {
            sample.set_given(field);
        }
        sample
    }

    #[test]
    fn every_connection_votes_once_a_round() {
        let config = Config { round: Duration::from_secs(10), ..Config::default() };
        let host =
            Host { available_cc: vec![CcName::from_kernel(b"bbr")], system_cc: Some(CcName::from_kernel(b"cubic")) };
        let mut records = Records::new(Controller::new(config, host).unwrap());
        let origin = Origin { host: "h".into(), pop: String::new(), boot_id: "b".into() };
        let mut rounds = Vec::new();
        let mut enter = |sample: Sample, ms| {
            let record = Record {
                sample: &sample,
                time: at(ms),
                sequence: 0,
                direction: Direction::Accepted,
                listener_port: 443,
                delivery_rate_max: 0,
                network: weirgate_units::Prefix::client_network(sample.remote().ip()),
                asn: 0,
                country: [0; 2],
            };
            let mut each = |round: &Round| {
                rounds.push((round.stats.connections, round.stats.acked.as_u64()));
                Ok(())
            };
            records.handle_record(&record, &origin, &mut each).unwrap();
        };
        // The first poll is what was there before; then one connection goes on, one closes, one comes and goes.
        for poll in 0..25 {
            let ms = poll * 1_000;
            enter(sample(1, Kind::Poll, ms, 1_000_000 * (poll + 1)), ms);
            if poll < 5 {
                enter(sample(2, Kind::Poll, ms, 500_000), ms);
            }
            if poll == 5 {
                enter(sample(2, Kind::Close, ms + 100, 700_000), ms + 100);
                enter(sample(3, Kind::Close, ms + 200, 300_000), ms + 200);
            }
        }
        // Round 1: nine steps of the first, 200,000 and 300,000 of the others; round 2: ten steps of the first alone.
        assert_eq!(rounds, [(3, 9_500_000), (1, 10_000_000)]);
    }
}
