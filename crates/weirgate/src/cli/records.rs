//! Recorded telemetry, cut into the rounds that the controller would have seen.

use std::io;
use std::path::Path;

use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_sockets::sample::{Arm, CcName, Field};
use weirgate_store::{ReadError, TimeRange, for_each_record};
use weirgate_tune::replay::Summary;
use weirgate_tune::{Controller, Round};
use weirgate_units::UnixTime;

use crate::recorded::Recorded;

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

/// Takes records in the order in which they were written.
pub(super) struct Records {
    recorded: Recorded,
    controller: Controller,
    newest: Option<UnixTime>,
    /// The end of the round under way; `None` before the first record.
    end: Option<UnixTime>,
    pub(super) summary: Summary,
}

impl Records {
    pub(super) fn new(controller: Controller) -> Self {
        Self { recorded: Recorded::default(), controller, newest: None, end: None, summary: Summary::default() }
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
        self.newest = self.newest.max(Some(record.time));
        let (recorded, controller) = (&mut self.recorded, &mut self.controller);
        let lens = (controller.config().network_len_v4, controller.config().network_len_v6);
        recorded.handle_record(record, origin, lens, &mut |progress| controller.handle_progress(progress));
        Ok(())
    }

    /// Ends the last round.
    pub(super) fn finish(&mut self, each: &mut dyn FnMut(&Round) -> io::Result<()>) -> io::Result<()> {
        match self.end {
            Some(end) => self.end_round(end, each),
            None => Ok(()),
        }
    }

    fn end_round(&mut self, end: UnixTime, each: &mut dyn FnMut(&Round) -> io::Result<()>) -> io::Result<()> {
        let (recorded, controller) = (&mut self.recorded, &mut self.controller);
        recorded.end_round(&mut |progress| controller.handle_progress(progress));
        let round = self.controller.end_round(end, self.newest.take());
        self.summary.add(&round);
        each(&round)
    }
}

#[cfg(test)]
mod tests {
    use weirgate_sockets::sample::{Kind, Sample, flag, mapped, state};
    use weirgate_tune::{Config, Host};
    use weirgate_units::Duration;

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
