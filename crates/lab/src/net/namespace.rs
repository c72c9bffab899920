//! Network namespaces of the lab's own.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use rustix::process::{Pid, Signal, kill_process};
use weirgate_linux::netns::Netns;

/// Names are `wg-PID-SERIAL-LABEL`, so that processes and tests beside each other never meet, and whose a left-over is can
/// be told.
const MARK: &str = "wg-";

/// A network namespace that lasts as long as this value; `ip netns` shows it.
#[derive(Debug)]
pub struct Namespace {
    netns: Netns,
}

impl Namespace {
    /// Makes one, with its loopback up.
    ///
    /// # Errors
    /// Without root's rights or iproute2.
    pub fn create(label: &str) -> Result<Self> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = format!("{MARK}{}-{serial}-{label}", std::process::id());
        ip_netns(&["add", &name])?;
        let opened = Netns::by_name(&name).with_context(|| format!("cannot open the namespace {name}"));
        let namespace = match opened {
            Ok(netns) => Self { netns },
            Err(e) => {
                ip_netns(&["del", &name])?;
                return Err(e);
            }
        };
        weirgate_linux::link::ip_batch(&namespace.netns, "link set dev lo up\n")?;
        Ok(namespace)
    }

    /// The namespace itself: run closures, and so start programs, within it.
    pub const fn netns(&self) -> &Netns {
        &self.netns
    }

    /// Its name for `ip netns`.
    pub fn name(&self) -> &str {
        self.netns.name()
    }

    /// Sets a sysctl of the namespace, such as `net.ipv4.tcp_rmem`, and makes sure that the kernel has it: some are refused
    /// or ignored in namespaces.
    ///
    /// # Errors
    /// Where the kernel refuses, or has something else than `value` afterwards.
    pub fn set_sysctl(&self, key: &str, value: &str) -> Result<()> {
        let path = sysctl_path(key);
        self.netns
            .within(|| std::fs::write(&path, value))?
            .with_context(|| format!("cannot set {key} to `{value}` in {}", self.name()))?;
        let has = self.sysctl(key)?;
        let same = has.split_ascii_whitespace().eq(value.split_ascii_whitespace());
        ensure!(same, "{key} in {} is `{has}` after it was set to `{value}`", self.name());
        Ok(())
    }

    /// What a sysctl of the namespace says.
    ///
    /// # Errors
    /// Where there is none of that name.
    pub fn sysctl(&self, key: &str) -> Result<String> {
        let text = self
            .netns
            .within(|| std::fs::read_to_string(sysctl_path(key)))?
            .with_context(|| format!("cannot read {key} in {}", self.name()))?;
        Ok(text.trim().to_owned())
    }

    /// Makes `name` the namespace's congestion control, and reads it back from a new socket there. What the initial namespace
    /// does not allow is refused: see [`super::AllowedCongestion`].
    ///
    /// # Errors
    /// Where the kernel refuses, or new sockets have another one.
    pub fn set_congestion_control(&self, name: &str) -> Result<()> {
        self.set_sysctl("net.ipv4.tcp_congestion_control", name)?;
        for family in [AddressFamily::INET, AddressFamily::INET6] {
            let has = self.netns.within(|| -> rustix::io::Result<String> {
                sockopt::tcp_congestion(rustix::net::socket(family, SocketType::STREAM, Some(ipproto::TCP))?)
            })??;
            ensure!(has == name, "a new socket in {} has {has}, not {name}", self.name());
        }
        Ok(())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        if let Err(e) = ip_netns(&["del", self.name()]) {
            tracing::warn!("{e:#}");
        }
    }
}

/// The namespaces that labs which are no longer running left behind (they were killed).
pub fn left_behind() -> Vec<String> {
    let names = std::fs::read_dir("/run/netns").into_iter().flatten().flatten().map(|entry| entry.file_name());
    let is_left = |name: &String| {
        let pid = name.strip_prefix(MARK).and_then(|rest| rest.split('-').next()?.parse::<u32>().ok());
        pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
    };
    names.map(|name| name.to_string_lossy().into_owned()).filter(is_left).collect()
}

/// Ends what still runs in those that are [`left_behind`], removes them, says which, and puts back the congestion controls that their labs
/// allowed.
///
/// # Errors
/// Where one cannot be removed.
pub fn sweep() -> Result<Vec<String>> {
    super::congestion::sweep()?;
    let swept = left_behind();
    for name in &swept {
        // Nobody else has a reason to be there.
        let pids = ip_netns(&["pids", name])?;
        for pid in pids.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)) {
            let _has_ended = kill_process(pid, Signal::KILL);
        }
        ip_netns(&["del", name])?;
    }
    Ok(swept)
}

fn sysctl_path(key: &str) -> std::path::PathBuf {
    Path::new("/proc/sys").join(key.replace('.', "/"))
}

/// What it prints.
fn ip_netns(arguments: &[&str]) -> Result<String> {
    let output =
        Command::new("ip").arg("netns").args(arguments).output().context("cannot run `ip`: install iproute2")?;
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "ip netns {}: {} (it needs root)", arguments.join(" "), said.trim());
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
