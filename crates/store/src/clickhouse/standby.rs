//! Two controllers, of which one decides: who it is, and what it knows, so that the other can take over.
//!
//! ClickHouse compares and sets nothing, so a lease is claimed in two steps: a row with the next epoch, and a look a little later whether
//! it is the first of that epoch. A server of a replicated table has other servers' rows some time after they were inserted, so it is made
//! to fetch what was inserted until now before it is asked; where it cannot, nobody decides by it. What an insert was acknowledged for is
//! in Keeper's log, whatever server has it, so that whoever claims and then looks sees all claims before his own.
//!
//! `insert_quorum` with `select_sequential_consistency` would do as well, but of two servers both had to be up for each renewal; this way
//! the one that is left goes on when it has all rows. A KeeperMap could compare and set, where each server's configuration allows for one.
//!
//! Nothing that is published rests on there being one who decides: an edge obeys the newer of two policies, whoever has made it.

use weirgate_units::{Duration, UnixTime};

use super::client::{Server, ServerError};
use super::tables::quoted;

/// A claim is looked at again after this: the server tells time in seconds, and an insert takes less.
pub const CLAIM: Duration = Duration::from_secs(3);

/// For so long a server may take to fetch other servers' rows. It would try for 300 s, or, before 23.10, for ever.
const MEET: core::time::Duration = core::time::Duration::from_secs(5);

/// A version of a memory is the epoch above so many bits, and the last round's end in seconds.
const ENDED_BITS: u32 = 40;

/// The version of what is known in `epoch` after the round that ended at `ended`: above those of all earlier epochs.
pub fn version(epoch: u64, ended: UnixTime) -> u64 {
    epoch << ENDED_BITS | ended.as_secs()
}

/// Who decides for some points of presence.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The database that [`super::init`] has made.
    pub database: String,
    /// What is decided for, separated by commas: the same for controllers of which one is to decide. Who asks for other names, of which
    /// some are the same, gets it not while the earlier one holds his.
    pub name: String,
    /// Who asks: another name each time that a controller is started.
    pub holder: String,
    /// For how long a holder that is not heard of keeps the lease, in whole seconds.
    pub length: Duration,
}

/// Who has a lease.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Holder {
    /// Who asks has it, in this epoch, and has just renewed it.
    We(u64),
    /// Who asks has claimed it just now, and knows in a moment.
    Perhaps,
    /// Another, who is named.
    Other(String),
    /// Another, who is named, decides for some of it, and for all that is named.
    Part(String, String),
}

/// A row of what was claimed.
struct Claim {
    epoch: u64,
    holder: String,
    /// When it was claimed, in seconds of the server's clock.
    since: u64,
    /// For how long it is claimed.
    age: Duration,
    /// For how long it has not been renewed.
    idle: Duration,
}

/// The server's time, as the lease's columns have it.
const NOW: &str = "toUInt32(now())";

impl Lease {
    /// Who has the lease now. Renews it where it is ours, and claims it where it is nobody's.
    ///
    /// # Errors
    /// What the server says. It is not known then who has the lease.
    pub fn look(&self, server: &Server) -> Result<Holder, ServerError> {
        let last = self.last(server)?;
        let ours = last.as_ref().filter(|claim| claim.holder == self.holder && claim.idle <= self.length);
        if let Some((holder, name)) = self.part(server, ours.map(|claim| claim.since))? {
            return Ok(Holder::Part(holder, name));
        }
        let epoch = last.as_ref().map_or(0, |claim| claim.epoch);
        match last.filter(|claim| claim.idle <= self.length) {
            Some(claim) if claim.holder != self.holder => Ok(Holder::Other(claim.holder)),
            Some(claim) if claim.age < CLAIM => Ok(Holder::Perhaps),
            Some(claim) => {
                let since = format!("toUInt32({})", claim.since);
                self.write(server, claim.epoch, &self.holder, (&since, NOW))?;
                Ok(Holder::We(claim.epoch))
            }
            None => {
                // What is known may be of another lease: of other points of presence, or of a table that is gone.
                let known =
                    memories(server, &self.database)?.into_iter().map(|(_, version)| version >> ENDED_BITS).max();
                let epoch = epoch.max(known.unwrap_or(0));
                self.write(server, epoch + 1, &self.holder, (NOW, NOW))?;
                Ok(Holder::Perhaps)
            }
        }
    }

    /// Gives the lease of `epoch`, which is ours, to whoever asks next.
    ///
    /// # Errors
    /// What the server says. The lease expires then.
    pub fn give_back(&self, server: &Server, epoch: u64) -> Result<(), ServerError> {
        self.write(server, epoch + 1, "", ("toUInt32(0)", "toUInt32(0)"))
    }

    /// Who holds another lease for some of what this one is for, and for what: where we hold ours since some time, one who was there before.
    fn part(&self, server: &Server, ours_since: Option<u64>) -> Result<Option<(String, String)>, ServerError> {
        let (database, name, seconds) = (&self.database, quoted(&self.name), self.length.as_secs());
        let before =
            ours_since.map_or(String::new(), |since| format!("AND (began, name) < (toUInt32({since}), {name})"));
        let answer = server.ask(&format!(
            "SELECT holder, name FROM (SELECT name, epoch, holder, min(since) AS began, max(renewed) AS heard \
             FROM {database}.controller_lease GROUP BY name, epoch, holder ORDER BY epoch DESC, began, holder LIMIT 1 BY name) \
             WHERE name != {name} AND hasAny(splitByChar(',', name), splitByChar(',', {name})) \
             AND heard + {seconds} >= {NOW} {before} ORDER BY began, name LIMIT 1"
        ))?;
        let Some(line) = answer.lines().next() else { return Ok(None) };
        let (holder, name) = line.split_once('\t').ok_or_else(|| ServerError::stranger(server, &answer))?;
        Ok(Some((holder.to_owned(), name.to_owned())))
    }

    /// The first claim of the last epoch.
    fn last(&self, server: &Server) -> Result<Option<Claim>, ServerError> {
        let (database, name) = (&self.database, quoted(&self.name));
        meet(server, MEET, database, "controller_lease")?;
        let answer = server.ask(&format!(
            "SELECT epoch, min(since), max(renewed), {NOW}, holder \
             FROM {database}.controller_lease WHERE name = {name} AND epoch IN \
             (SELECT max(epoch) FROM {database}.controller_lease WHERE name = {name}) \
             GROUP BY epoch, holder ORDER BY min(since), holder LIMIT 1"
        ))?;
        let Some(line) = answer.lines().next() else { return Ok(None) };
        let fields: Option<Vec<u64>> = line.split('\t').take(4).map(|field| field.parse().ok()).collect();
        let (Some(&[epoch, since, renewed, now]), Some(holder)) = (fields.as_deref(), line.split('\t').nth(4)) else {
            return Err(ServerError::stranger(server, &answer));
        };
        let [age, idle] = [since, renewed].map(|then| Duration::from_secs(now.saturating_sub(then)));
        Ok(Some(Claim { epoch, holder: holder.to_owned(), since, age, idle }))
    }

    /// `since` and `renewed` are expressions.
    fn write(
        &self,
        server: &Server,
        epoch: u64,
        holder: &str,
        (since, renewed): (&str, &str),
    ) -> Result<(), ServerError> {
        let (database, name, holder) = (&self.database, quoted(&self.name), quoted(holder));
        server
            .ask(&format!(
                "INSERT INTO {database}.controller_lease SELECT {name}, {epoch}, {holder}, {since}, {renewed}"
            ))
            .map(|_| ())
    }
}

/// Waits until `server` has the rows of `table` that any server of its replicas was told before now, for `limit` at most.
pub(super) fn meet(
    server: &Server,
    limit: core::time::Duration,
    database: &str,
    table: &str,
) -> Result<(), ServerError> {
    let engine = server.ask(&format!(
        "SELECT engine FROM system.tables WHERE database = {} AND name = {}",
        quoted(database),
        quoted(table)
    ))?;
    if !engine.starts_with("Replicated") {
        return Ok(());
    }
    server.ask_within(limit, &format!("SYSTEM SYNC REPLICA {database}.{table}")).map(|_| ())
}

/// What is known of the points of presence, each with its version; those of which nothing is known are left out.
///
/// # Errors
/// What the server says.
pub fn memories(server: &Server, database: &str) -> Result<Vec<(String, u64)>, ServerError> {
    meet(server, MEET, database, "controller_memory")?;
    let answer = server.ask(&format!("SELECT pop, max(version) FROM {database}.controller_memory GROUP BY pop"))?;
    let row = |line: &str| {
        let (pop, version) = line.split_once('\t')?;
        Some((pop.to_owned(), version.parse().ok()?))
    };
    answer.lines().map(|line| row(line).ok_or_else(|| ServerError::stranger(server, line))).collect()
}

/// The newest of what is known of `pop`.
///
/// # Errors
/// What the server says.
pub fn recall(server: &Server, database: &str, pop: &str) -> Result<Option<Vec<u8>>, ServerError> {
    let statement =
        format!("SELECT argMax(memory, version) FROM {database}.controller_memory WHERE pop = {}", quoted(pop));
    let mut answer = Vec::new();
    server
        .ask_for_bytes(&statement, |bytes| bytes.read_to_end(&mut answer))?
        .map_err(|error| ServerError::stranger(server, &format!("a memory that breaks off: {error}")))?;
    let digits = answer.trim_ascii();
    if digits.is_empty() {
        return Ok(None);
    }
    let byte = |two: &[u8]| u8::from_str_radix(core::str::from_utf8(two).ok()?, 16).ok();
    let bytes: Option<Vec<u8>> = digits.chunks(2).map(byte).collect();
    bytes.map(Some).ok_or_else(|| ServerError::stranger(server, "digits of a memory that are none"))
}

/// Keeps `memory` of `pop`, in the place of all of lower versions.
///
/// # Errors
/// What the server says. It may have been kept.
pub fn remember(
    server: &Server,
    database: &str,
    (pop, version): (&str, u64),
    memory: &[u8],
) -> Result<(), ServerError> {
    let mut statement = format!(
        "INSERT INTO {database}.controller_memory (pop, version, memory) VALUES ({}, {version}, '",
        quoted(pop)
    );
    statement.reserve(memory.len() * 2 + 2);
    let digit = |nibble: u8| char::from_digit(nibble.into(), 16).unwrap_or('0');
    memory.iter().for_each(|byte| statement.extend([digit(byte >> 4), digit(byte & 15)]));
    statement.push_str("')");
    server.ask(&statement).map(|_| ())
}
