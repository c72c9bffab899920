//! Which congestion controls a namespace may be given.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::{Read as _, Seek as _, Write as _};
use std::path::Path;

use anyhow::{Context, Result, bail};
use rustix::fs::{FlockOperation, flock};

const SYSCTL: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";

/// Who widened the list, and what it was before: processes share it, and only the last puts it back.
const REGISTER: &str = "/run/weirgate-lab-allowed-congestion";

/// The initial namespace's list of allowed congestion controls, widened until this is dropped.
///
/// The kernel lets a namespace have only those algorithms that the initial namespace allows to everybody (EPERM otherwise).
/// Several labs may widen at once: the first notes what the list was, the last puts it back. One that was killed counts no
/// more once its process is gone.
#[derive(Debug)]
pub struct AllowedCongestion {
    serial: u64,
}

impl AllowedCongestion {
    /// Adds `names` to the list. Their modules must be loaded (`modprobe tcp_bbr`).
    ///
    /// # Errors
    /// Where the kernel has no such algorithm, or the process may not change the list.
    pub fn widen(names: &[&str]) -> Result<Self> {
        let available = std::fs::read_to_string(AVAILABLE)?;
        if let Some(name) = names.iter().find(|n| !available.split_ascii_whitespace().any(|a| a == **n)) {
            bail!(
                "this kernel has no congestion control `{name}`: try `modprobe tcp_{name}`; it has {}",
                available.trim()
            );
        }
        let mut register = Register::open()?;
        let mut allowed = read_list(Path::new(SYSCTL))?;
        if register.holders.is_empty() {
            register.before = allowed.clone();
        }
        allowed.extend(names.iter().map(|n| (*n).to_owned()));
        write_list(&allowed)?;
        let serial = register.add()?;
        Ok(Self { serial })
    }
}

impl Drop for AllowedCongestion {
    fn drop(&mut self) {
        let result = Register::open().and_then(|mut register| {
            register.holders.remove(&(std::process::id(), self.serial));
            if register.holders.is_empty() {
                write_list(&register.before)?;
            }
            register.write()
        });
        if let Err(e) = result {
            tracing::warn!("tcp_allowed_congestion_control is not put back: {e:#}");
        }
    }
}

/// Puts the list back where everybody who widened it was killed.
pub(super) fn sweep() -> Result<()> {
    if Path::new(REGISTER).exists() { Register::open().map(drop) } else { Ok(()) }
}

/// The register, locked while this lives: a line with the list as it was, then a line `PID SERIAL` for each holder.
struct Register {
    file: File,
    before: Vec<String>,
    holders: BTreeMap<(u32, u64), ()>,
}

impl Register {
    fn open() -> Result<Self> {
        let mut options = OpenOptions::new();
        let mut file = options.read(true).write(true).create(true).truncate(false).open(REGISTER)?;
        flock(&file, FlockOperation::LockExclusive).with_context(|| format!("cannot lock {REGISTER}"))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let mut lines = text.lines();
        let before = lines.next().unwrap_or("").split_ascii_whitespace().map(str::to_owned).collect();
        let holders = lines
            .filter_map(|line| {
                let (pid, serial) = line.split_once(' ')?;
                let pid: u32 = pid.parse().ok()?;
                let alive = Path::new("/proc").join(pid.to_string()).exists();
                alive.then_some(((pid, serial.parse().ok()?), ()))
            })
            .collect::<BTreeMap<_, _>>();
        let mut register = Self { file, before, holders };
        if register.holders.is_empty() && !register.before.is_empty() {
            // Its holders were killed: put back what they could not, once.
            write_list(&register.before)?;
            register.before.clear();
            register.write()?;
        }
        Ok(register)
    }

    fn add(&mut self) -> Result<u64> {
        let serial = self.holders.keys().map(|(_, serial)| serial + 1).max().unwrap_or(0);
        self.holders.insert((std::process::id(), serial), ());
        self.write()?;
        Ok(serial)
    }

    /// Writes it; the lock goes with the file.
    fn write(&mut self) -> Result<()> {
        let mut text = String::new();
        if !self.holders.is_empty() {
            text = self.before.join(" ") + "\n";
            for (pid, serial) in self.holders.keys() {
                text += &format!("{pid} {serial}\n");
            }
        }
        self.file.rewind()?;
        self.file.set_len(0)?;
        Ok(self.file.write_all(text.as_bytes())?)
    }
}

fn read_list(path: &Path) -> Result<Vec<String>> {
    Ok(std::fs::read_to_string(path)?.split_ascii_whitespace().map(str::to_owned).collect())
}

fn write_list(names: &[String]) -> Result<()> {
    let mut names = names.to_vec();
    names.sort();
    names.dedup();
    std::fs::write(SYSCTL, names.join(" ")).with_context(|| format!("cannot write {SYSCTL}: it needs root"))
}
