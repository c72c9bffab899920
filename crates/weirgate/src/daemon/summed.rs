//! What connections came to, by client network, to Kafka: once a minute those that have ended since, and as a round ends all others.
//!
//! Rounds end at whole multiples of `[tune] round` since 1970, on every host, so that tallies of one round are those of one round.

use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::Origin;
use weirgate_store::export::{Exporter, Options, SpoolError, Status};
use weirgate_tune::{Config, Tallies};
use weirgate_units::{Duration, UnixTime};

const MINUTE: Duration = Duration::from_secs(60);

/// Tallies on their way.
pub(crate) struct Summed {
    tallies: Tallies,
    exporter: Exporter,
    round: Duration,
    /// When the round ends in which connections vote that end now.
    ends: UnixTime,
    /// When tallies were handed over last.
    handed: UnixTime,
    /// Connections that were in no tally: in all rounds that have ended, and in the last of them.
    missed: (u64, u64),
}

impl Summed {
    /// Counts as `config` says.
    ///
    /// # Errors
    /// Of the spool.
    pub(crate) fn open(origin: &Origin, options: Options, config: Config, now: UnixTime) -> Result<Self, SpoolError> {
        let round = config.round;
        let exporter = Exporter::open(origin, options)?;
        let (tallies, ends) = (Tallies::new(config), end_after(now, round));
        Ok(Self { tallies, exporter, round, ends, handed: now, missed: (0, 0) })
    }

    pub(crate) fn handle_progress(&mut self, progress: &Progress) {
        self.tallies.handle_progress(progress);
    }

    /// To be called every second or so.
    pub(crate) fn handle_tick(&mut self, now: UnixTime) {
        if now < self.handed || now.saturating_since(self.handed) >= MINUTE {
            self.hand_over(now);
        }
        self.exporter.handle_tick(now);
    }

    /// The round is over, and every connection has voted in it.
    pub(crate) fn end_round(&mut self, now: UnixTime) {
        self.hand_over(now);
        self.ends = next_end(now, self.round);
        let missed = self.tallies.untracked();
        self.missed = (missed, missed - self.missed.0);
    }

    /// What is wrong, for people; until a round has passed without it.
    pub(crate) fn trouble(&self) -> Option<String> {
        let (before, last) = self.missed;
        let missed = last + self.tallies.untracked() - before;
        (missed > 0).then(|| {
            format!("{missed} connections of this round and the last are in no tally: raise networks_max in [tune]")
        })
    }

    pub(crate) fn status(&self) -> Status {
        self.exporter.status()
    }

    /// Hands over what there is and closes.
    pub(crate) fn close(mut self, now: UnixTime) -> Status {
        self.hand_over(now);
        self.exporter.close()
    }

    fn hand_over(&mut self, now: UnixTime) {
        self.handed = now;
        for tally in self.tallies.take() {
            self.exporter.append_tally(&tally, self.ends, now);
        }
    }
}

/// The first end of a round after `time`.
pub(crate) fn end_after(time: UnixTime, round: Duration) -> UnixTime {
    let round = round.as_nanos().max(1);
    UnixTime::from_nanos((time.as_nanos() / round + 1).saturating_mul(round))
}

/// The end of the round that begins as one is ended at `now`: a little before the instant that was meant, or after it.
pub(crate) fn next_end(now: UnixTime, round: Duration) -> UnixTime {
    end_after(now + Duration::from_nanos(round.as_nanos() / 2), round)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Surroundings;

    #[test]
    fn rounds_end_at_the_same_instants_everywhere() {
        let round = Duration::from_secs(300);
        let at = |secs: u64| UnixTime::from_nanos(secs * 1_000_000_000);
        assert_eq!([0, 299, 300, 301].map(|secs| end_after(at(secs), round)), [300, 300, 600, 600].map(at));
        // Just before or just after the end of the round that ends at 600: the next one ends at 900.
        assert_eq!([599, 601].map(|secs| next_end(at(secs), round)), [at(900); 2]);
    }
    #[test]
    fn a_warning_goes_when_a_round_has_passed_without_its_cause() {
        let folder = tempfile::tempdir().unwrap();
        // Nobody listens there.
        let text = "[export.kafka]\nbrokers = [\"127.0.0.1:1\"]\ntallies = \"t\"\n";
        let around = Surroundings { host: "h".into(), state: folder.path().into(), run: folder.path().into() };
        let kafka = crate::config::Config::from_text(text, &around).unwrap().kafka.unwrap();
        let options = crate::daemon::export::options(&kafka, "t", &kafka.spool).unwrap();
        let origin = Origin { host: "h".into(), pop: "ams".into(), boot_id: "b".into() };
        let config = Config { networks_max: 1, ..Config::default() };
        let mut summed = Summed::open(&origin, options, config, UnixTime::default()).unwrap();
        let mut now = UnixTime::default();
        let mut round = |networks: u8| {
            for n in 0..networks {
                let client = std::net::Ipv4Addr::new(198, 51, n, 7).into();
                summed.handle_progress(&progress(client));
            }
            let during = summed.trouble();
            now = now + Duration::from_secs(300);
            summed.end_round(now);
            (during.is_some(), summed.trouble().is_some())
        };
        assert_eq!(
            [round(1), round(3), round(1), round(1)],
            [(false, false), (true, true), (true, false), (false, false)]
        );
    }

    fn progress(client: std::net::IpAddr) -> Progress {
        Progress {
            client,
            local_port: 443,
            direction: weirgate_sockets::record::Direction::Accepted,
            cc: weirgate_sockets::sample::CcName::default(),
            arm: weirgate_sockets::sample::Arm::None,
            acked: weirgate_units::Bytes::new(1_000_000),
            sent: weirgate_units::Bytes::new(1_000_000),
            retransmitted: weirgate_units::Bytes::ZERO,
            busy: Duration::from_secs(1),
            rwnd_limited: Duration::ZERO,
            sndbuf_limited: Duration::ZERO,
            delivery_rate: None,
            min_rtt: Duration::ZERO,
            closed: true,
        }
    }
}
