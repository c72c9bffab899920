//! Open vSwitch's user-space datapath in the switch's place: Debian's package, in a namespace and a folder of its own.
//!
//! Its policer there is an OpenFlow meter: `ingress_policing_rate` goes by tc's police action, in the kernel, also for this datapath. Read
//! first: ovs-vsctl(8), ovs-ofctl(8) (`add-meter`), ovs-vswitchd.conf.db(5) (`ingress_policing_burst`).

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration as StdDuration, Instant};

use anyhow::{Context, Result, ensure};
use rustix::process::{Pid, Signal, kill_process};
use weirgate_units::{BitRate, Duration};

use crate::net::Namespace;

/// What is there after Debian's package was installed.
const SCHEMA: &str = "/usr/share/openvswitch/vswitch.ovsschema";

/// A running Open vSwitch with two ports. Gone when dropped.
#[derive(Debug)]
pub(super) struct Ovs {
    ns: Namespace,
    dir: PathBuf,
    /// The database server, then the switch.
    children: Vec<Child>,
}

impl Ovs {
    /// The burst with which TCP comes closer to the rate, as ovs-vswitchd.conf.db(5) says: 80 % of the rate's number, that is 800 ms.
    pub(super) const ADVISED_BURST_MS: u64 = 800;

    /// A bridge with a TAP device `wg0` in each of two namespaces; what comes from the first is held to a rate by `policer`, if there
    /// is one: with a burst of so much time at the rate.
    ///
    /// # Errors
    /// Where Open vSwitch is not installed, or says no.
    pub(super) fn start(from: &Namespace, to: &Namespace, policer: Option<(BitRate, Duration)>) -> Result<Self> {
        let ns = Namespace::create("ovs")?;
        let dir = std::env::temp_dir().join(ns.name());
        fs::create_dir(&dir).with_context(|| format!("cannot make {}", dir.display()))?;
        let mut ovs = Self { ns, dir, children: Vec::new() };
        let dir = ovs.dir.display().to_string();
        ovs.tell(&format!("ovsdb-tool create {dir}/conf.db {SCHEMA}"))?;
        ovs.run(&format!(
            "ovsdb-server {dir}/conf.db --remote=punix:{dir}/db.sock --unixctl={dir}/db.ctl -vconsole:off --log-file={dir}/db.log"
        ))?;
        let vsctl = format!("ovs-vsctl --retry --timeout=20 --db=unix:{dir}/db.sock");
        ovs.tell(&format!("{vsctl} --no-wait init"))?;
        ovs.run(&format!(
            "ovs-vswitchd unix:{dir}/db.sock --unixctl={dir}/switch.ctl -vconsole:off --log-file={dir}/switch.log"
        ))?;
        ovs.tell(&format!(
            "{vsctl} add-br br -- set bridge br datapath_type=netdev protocols=OpenFlow13 fail_mode=secure \
             -- add-port br one -- set interface one type=tap ofport_request=1 \
             -- add-port br two -- set interface two type=tap ofport_request=2"
        ))?;
        for (device, side) in [("one", from), ("two", to)] {
            ovs.tell(&format!("ip -n {} link set {device} netns {} name wg0", ovs.ns.name(), side.name()))?;
        }
        let mut actions = "output:2".to_owned();
        if let Some((rate, burst)) = policer {
            let kbit = |bytes: u64| bytes * 8 / 1_000;
            let (rate, burst) = (rate.as_bits_per_sec() / 1_000, kbit(rate.bytes_in(burst).as_u64()));
            let band = format!("type=drop,rate={rate},burst_size={burst}");
            ovs.openflow("add-meter", &format!("meter=1,kbps,burst,stats,bands={band}"))?;
            actions = "meter:1,output:2".to_owned();
        }
        ovs.openflow("add-flow", &format!("in_port=1,actions={actions}"))?;
        ovs.openflow("add-flow", "in_port=2,actions=output:1")?;
        Ok(ovs)
    }

    /// The processor time of the switch, all its threads, the kernel's work for it included; in steps of 10 ms.
    pub(super) fn cpu(&self) -> Result<Duration> {
        let switch = self.children.last().context("the switch was started")?;
        let stat = fs::read_to_string(format!("/proc/{}/stat", switch.id()))?;
        ticks(&stat).map(|ticks| Duration::from_millis(ticks * 10)).context("/proc/PID/stat")
    }

    /// Packets that its policer dropped.
    pub(super) fn policed(&self) -> Result<u64> {
        let said = self.openflow("meter-stats", "meter=1")?;
        let of_the_band = said.split("\n0: packet_count:").nth(1).unwrap_or("0");
        Ok(of_the_band.split_whitespace().next().unwrap_or("0").parse()?)
    }

    /// What the installed one calls itself.
    pub(super) fn version() -> Result<String> {
        let output = Command::new("ovs-vswitchd").arg("--version").output();
        let output = output.context("ovs-vswitchd cannot be run: run `make setup`")?;
        Ok(String::from_utf8_lossy(&output.stdout).lines().next().unwrap_or_default().to_owned())
    }

    fn openflow(&self, what: &str, argument: &str) -> Result<String> {
        self.tell(&format!("ovs-ofctl -O OpenFlow13 {what} {}/br.mgmt {argument}", self.dir.display()))
    }

    /// Runs a command to its end; what it prints.
    fn tell(&self, line: &str) -> Result<String> {
        let mut words = line.split_whitespace();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).env("OVS_RUNDIR", &self.dir);
        let output = command.output().with_context(|| format!("`{line}` cannot be run: run `make setup`"))?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "{line}: {}\n{}", said.trim(), self.log());
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a server in the namespace, with the priority that the switch's own thread has. Debian's service gives it less, -10
    /// (ovs-ctl(8), `--ovs-vswitchd-priority`).
    fn run(&mut self, line: &str) -> Result<()> {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", self.ns.name(), "nice", "-n", "-20"]).args(line.split_whitespace());
        for variable in ["OVS_RUNDIR", "OVS_LOGDIR", "OVS_DBDIR", "OVS_SYSCONFDIR"] {
            command.env(variable, &self.dir);
        }
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        self.children.push(command.spawn().with_context(|| format!("`{line}` cannot be run"))?);
        Ok(())
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.join("switch.log")).unwrap_or_default()
    }
}

impl Drop for Ovs {
    fn drop(&mut self) {
        while let Some(mut child) = self.children.pop() {
            if let Some(pid) = Pid::from_raw(child.id() as i32) {
                let _ = kill_process(pid, Signal::TERM);
            }
            let deadline = Instant::now() + StdDuration::from_secs(5);
            while Instant::now() < deadline && !matches!(child.try_wait(), Ok(Some(_))) {
                sleep(StdDuration::from_millis(20));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        if let Err(e) = fs::remove_dir_all(&self.dir) {
            tracing::warn!("{} stays: {e}", self.dir.display());
        }
    }
}

/// User and system time of `/proc/PID/stat`, in 1/100 s: proc_pid_stat(5). The name before may hold anything, blanks and brackets too.
fn ticks(stat: &str) -> Option<u64> {
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace().skip(11);
    let mut next = || fields.next()?.parse::<u64>().ok();
    Some(next()? + next()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_found_behind_any_name() {
        let stat = "7 (a b) c) S 1 2 3 4 5 6 7 8 9 10 221 33 0 0 20 0";
        assert_eq!(ticks(stat), Some(254));
        assert_eq!(ticks("7 (a) S 1"), None);
    }
}
