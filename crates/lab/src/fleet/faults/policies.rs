//! Faults of policies: a controller that is killed, snapshots that are forged, an edge that hears of none.

use std::fs;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use weirgate_linux::clock;
use weirgate_tune::snapshot::{Held, SIGNATURE, Snapshot};

use super::{FAILURES, Fleet, POP, ROUND_S};
use crate::fleet::ground::until;
use crate::fleet::round;

/// Rounds that a controller finds at first, but the last.
pub(super) const HISTORY: u32 = 12;

impl Fleet<'_> {
    /// Puts some rounds of 200 networks into the engine, the last of which has just ended.
    pub(super) fn rounds(&self) -> Result<()> {
        let now = clock::unix().as_secs() / ROUND_S * ROUND_S;
        for n in 0..=HISTORY {
            self.fill(n, now - u64::from(HISTORY - n) * ROUND_S)?;
        }
        Ok(())
    }

    /// Puts the round that ends at `end`, the `n`-th one, into the engine.
    pub(super) fn fill(&self, n: u32, end: u64) -> Result<()> {
        let size = round::Size { pops: 1, networks: 200, history: HISTORY };
        self.engine()?.ask(&round::fill(&format!("'{POP}'"), size, n, (end, ROUND_S))).map(drop)
    }

    /// Has the controller decide and the edge obey; the snapshot.
    pub(super) fn decide(&mut self) -> Result<(Snapshot, Vec<u8>)> {
        self.decider.run(0)?;
        let bytes = fs::read(self.decider.published().join("lab.snapshot"))?;
        let snapshot = Held::default().check(&bytes, POP, clock::unix(), |_, _| true)?;
        self.obeys(&snapshot, &bytes)?;
        Ok((snapshot, bytes))
    }

    /// Delivers a snapshot and waits until the edge obeys it.
    pub(super) fn obeys(&self, snapshot: &Snapshot, bytes: &[u8]) -> Result<()> {
        self.deliver(bytes)?;
        until("the edge obeys a good snapshot", || {
            Ok(self.metric("fleet_policy_version")? == Some(snapshot.version as f64))
        })
        .map(drop)
    }

    /// As whatever distributes files does it.
    pub(super) fn deliver(&self, bytes: &[u8]) -> Result<()> {
        let beside = self.policy.with_extension("coming");
        fs::write(&beside, bytes)?;
        Ok(fs::rename(beside, &self.policy)?)
    }

    pub(super) fn controller_is_killed(&mut self) -> Result<()> {
        self.rounds()?;
        let (snapshot, bytes) = self.decide()?;
        let selected = snapshot.policy.networks.len() + snapshot.first.1.len();
        ensure!(selected > 5, "few networks are selected: {selected}");
        let from = clock::unix();
        // What cannot be written is tried again, until it is killed: the round is decided, signed and kept, and not published.
        let controller = self.decider.start()?;
        until("the controller shows what it has", || Ok(controller.log()?.contains(" published ")))?;
        let hindrance = self.decider.published().join("lab.new");
        fs::create_dir(&hindrance)?;
        // Of the round that ends next.
        self.fill(HISTORY, (from.as_secs() / ROUND_S + 1) * ROUND_S)?;
        until("the controller cannot publish", || Ok(controller.log()?.contains("cannot be written")))?;
        let is_counted = until("the controller counts that", || Ok(controller.number(FAILURES)? > 0.0)).is_ok();
        let log = controller.log()?;
        let is_gone = controller.kill();
        fs::remove_dir(&hindrance)?;
        let decided = log.lines().filter(|line| line.contains(" decided ")).flat_map(str::split_whitespace);
        let last = decided.filter_map(|word| word.strip_prefix("round=")?.parse::<u64>().ok()).max();
        let is_old = fs::read(self.decider.published().join("lab.snapshot"))? == bytes;
        let version = self.metric("fleet_policy_version")?;
        let again = self.decider.run(0)?.log;
        let new = fs::read(self.decider.published().join("lab.snapshot"))?;
        let next = Held::default().check(&new, POP, clock::unix(), |_, _| true)?;
        self.obeys(&next, &new)?;
        // A round that has ended since then may have been decided after it.
        let is_what_was_signed =
            last.is_some_and(|last| next.version >= last && !again.contains(&format!("round={last} ")));
        self.note(
            "controller killed between validation and publication",
            from,
            "weirgate_controller_failures_total, then nobody answers /metrics",
            is_counted && is_gone,
        );
        let is_old = is_old && version == Some(snapshot.version as f64);
        self.policy("the last one, then what was signed", is_old && is_what_was_signed);
        Ok(())
    }

    pub(super) fn policies_are_forged(&mut self) -> Result<()> {
        self.rounds()?;
        let (good, sealed) = self.decide()?;
        let one = |version: u64| Snapshot { version: good.version + version, ..good.clone() };
        let newer = one(1);
        self.obeys(&newer, &self.sign(&newer, &self.decider.key())?)?;
        let stranger = self.ground.path("stranger.key");
        self.ground.weirgate(&["controller", "key", "--key", &stranger.display().to_string()])?;
        let mut corrupted = self.sign(&one(2), &self.decider.key())?;
        let at = corrupted.len() - 9;
        corrupted[at] ^= 0x10;
        let forged = [
            ("snapshot corrupted", "signature", corrupted),
            ("snapshot replayed", "older", sealed),
            ("snapshot signed by another key", "signature", self.sign(&one(3), &stranger)?),
        ];
        let networks = self.metric("policy_networks")?;
        for (fault, outcome, bytes) in forged {
            let from = clock::unix();
            let noticed = self.is_refused(outcome, &bytes)?;
            let obeyed = self.metric("fleet_policy_version")? == Some(newer.version as f64)
                && self.metric("policy_networks")? == networks;
            self.note(fault, from, "weirgate_fleet_policies_total by outcome, weirgate_problems", noticed);
            self.policy("the last good one", obeyed);
        }
        let last = one(4);
        self.obeys(&last, &self.sign(&last, &self.decider.key())?)?;
        until("nothing is wrong any more", || Ok(self.problems()? == 0))?;
        Ok(())
    }

    /// Delivers what is not to be obeyed; whether the edge says so.
    pub(super) fn is_refused(&self, outcome: &str, bytes: &[u8]) -> Result<bool> {
        let series = format!("fleet_policies_total{{outcome=\"{outcome}\"}}");
        let before = self.metric(&series)?;
        self.deliver(bytes)?;
        let is_counted = until("the edge counts what is wrong", || Ok(self.metric(&series)? > before)).is_ok();
        Ok(is_counted && self.problems()? > 0)
    }

    pub(super) fn policy_expires(&mut self) -> Result<()> {
        let from = clock::unix();
        let bytes = fs::read(&self.policy)?;
        let good = Held::default().check(&bytes, POP, from, |_, _| true)?;
        let life = weirgate_units::Duration::from_secs(10);
        let brief = Snapshot { version: good.version + 1, made: from, until: from + life, ..good };
        self.obeys(&brief, &self.sign(&brief, &self.decider.key())?)?;
        let networks = self.metric("policy_networks")?;
        let expired = until("the policy expires", || Ok(self.metric("fleet_policy_version")?.is_none()));
        let late = clock::unix().saturating_since(brief.until);
        let noticed = expired.is_ok() && self.problems()? > 0;
        let is_none = self.metric("policy_networks")? == Some(0.0)
            && networks > Some(5.0)
            && late < weirgate_units::Duration::from_secs(3);
        self.note(
            "edge offline past its policy's time",
            from,
            "weirgate_fleet_policy_version is gone, weirgate_problems",
            noticed,
        );
        self.policy("none, within 3 s", is_none);
        Ok(())
    }

    /// The snapshot as the key in a file of 64 hexadecimal digits signs it.
    fn sign(&self, snapshot: &Snapshot, key: &std::path::Path) -> Result<Vec<u8>> {
        let seed = fs::read_to_string(key)?;
        let seed = seed.trim();
        let byte = |at: usize| seed.get(at..at + 2).and_then(|two| u8::from_str_radix(two, 16).ok());
        let seed = (0..64).step_by(2).map(byte).collect::<Option<Vec<u8>>>().context("a key of 64 digits")?;
        // RFC 8410: a private key of Ed25519.
        let head = [0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20];
        let (der, message) = (self.ground.path("signing.der"), self.ground.path("signing.bytes"));
        fs::write(&der, [&head[..], &seed].concat())?;
        fs::write(&message, snapshot.to_bytes())?;
        let mut openssl = Command::new("openssl");
        openssl.args(["pkeyutl", "-sign", "-rawin", "-keyform", "DER", "-inkey"]).arg(&der).arg("-in").arg(&message);
        let signed = openssl.output().context("cannot run openssl")?;
        let signature: [u8; SIGNATURE] = signed.stdout.try_into().ok().context("openssl made no signature")?;
        Ok(snapshot.seal(|_| signature))
    }
}
