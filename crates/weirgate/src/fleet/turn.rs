//! Whose turn it is to decide, where several controllers can: the lease in ClickHouse, looked at in time.

use anyhow::Result;
use weirgate_linux::clock;
use weirgate_store::clickhouse::Server;
use weirgate_store::clickhouse::standby::{Holder, Lease};
use weirgate_units::{Duration, Instant};

use crate::random;

/// How often somebody who does not decide looks whether he may.
const LOOK: Duration = Duration::from_secs(1);

/// A controller's turn.
pub(super) struct Turn {
    lease: Lease,
    /// The epoch that is ours, and until when, should the database not be heard of any more.
    ours: Option<(u64, Instant)>,
    /// Who decides instead.
    other: Option<String>,
    next_look: Instant,
}

impl Turn {
    /// `host` tells people who it is; `pops` are decided for.
    pub(super) fn new(host: &str, database: &str, pops: &[String], length: Duration) -> Result<Self> {
        let draw = u32::from_le_bytes(random::bytes()?);
        let mut pops = pops.to_vec();
        pops.sort();
        let lease =
            Lease { database: database.to_owned(), name: pops.join(","), holder: format!("{host}-{draw:08x}"), length };
        Ok(Self { lease, ours: None, other: None, next_look: Instant::ZERO })
    }

    /// The epoch in which we decide now, if we do. To be asked before anything is decided or published.
    ///
    /// # Errors
    /// The database's, where it was to be asked.
    pub(super) fn handle_time(&mut self, server: &Server) -> Result<Option<u64>> {
        let now = clock::boottime();
        self.ours = self.ours.filter(|(_, until)| now < *until);
        if now >= self.next_look {
            self.next_look = now + LOOK;
            let holder = self.lease.look(server)?;
            self.other = None;
            self.ours = match holder {
                Holder::We(epoch) => {
                    self.next_look = now + Duration::from_nanos(self.lease.length.as_nanos() / 3);
                    Some((epoch, now + self.lease.length))
                }
                Holder::Perhaps => None,
                Holder::Other(name) => {
                    self.other = Some(name);
                    None
                }
                Holder::Part(name, pops) => {
                    self.other = Some(format!("{name} (for {pops}: give both controllers the same `pops`)"));
                    None
                }
            };
        }
        Ok(self.ours.map(|(epoch, _)| epoch))
    }

    /// Until when we decide, should the database not be heard of any more.
    pub(super) fn until(&self) -> Option<Instant> {
        self.ours.map(|(_, until)| until)
    }

    /// Who decides instead; `None`: that is not known yet.
    pub(super) fn other(&self) -> Option<&str> {
        self.other.as_deref()
    }

    /// Lets the next one decide at once.
    pub(super) fn give_back(&mut self, server: &Server) -> Result<()> {
        match self.ours.take() {
            Some((epoch, _)) => Ok(self.lease.give_back(server, epoch)?),
            None => Ok(()),
        }
    }
}
