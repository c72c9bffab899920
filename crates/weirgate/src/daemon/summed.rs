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
}

impl Summed {
    /// Counts as `config` says.
    ///
    /// # Errors
    /// Of the spool.
    pub(crate) fn open(origin: &Origin, options: Options, config: Config, now: UnixTime) -> Result<Self, SpoolError> {
        let round = config.round;
        let exporter = Exporter::open(origin, options)?;
        Ok(Self { tallies: Tallies::new(config), exporter, round, ends: end_after(now, round), handed: now })
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
    }

    /// What is wrong, for people.
    pub(crate) fn trouble(&self) -> Option<String> {
        let lost = self.tallies.untracked();
        (lost > 0).then(|| format!("{lost} connections are in no tally: raise networks_max in [tune]"))
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

    #[test]
    fn rounds_end_at_the_same_instants_everywhere() {
        let round = Duration::from_secs(300);
        let at = |secs: u64| UnixTime::from_nanos(secs * 1_000_000_000);
        assert_eq!([0, 299, 300, 301].map(|secs| end_after(at(secs), round)), [300, 300, 600, 600].map(at));
        // Just before or just after the end of the round that ends at 600: the next one ends at 900.
        assert_eq!([599, 601].map(|secs| next_end(at(secs), round)), [at(900); 2]);
    }
}
