//! What this kernel and these privileges offer, found by trying; for `weirgate doctor` and for choosing between two ways.

use std::path::Path;
use std::{fs, io};

use rustix::net::{AddressFamily, SocketType, socket, sockopt};
use weirgate_sockets::sample::CcName;
use weirgate_units::Bytes;

use crate::bpf::steer::is_unpacer;
use crate::bpf::{Closes, IterPoller};
use crate::netns::Netns;
use crate::{bpffs, cgroup};

/// Whether something works here, and if not, why and what to do: one line for a person.
pub type Fact = Result<(), String>;

/// What was found out about this host.
#[derive(Clone, Debug)]
pub struct Facts {
    /// As `uname -r` prints it.
    pub kernel_release: String,
    /// The kernel describes its own types, which kernel programs need.
    pub btf: Fact,
    /// Sockets can be polled by the kernel's iterator; otherwise by netlink.
    pub iter_tcp: Fact,
    /// Connections' last numbers can be had, counted; otherwise by netlink's multicast, uncounted.
    pub sockops: Fact,
    /// Connections that are open when Weirgate starts also give a record when they close.
    pub arm_open: Fact,
    /// Programs can be pinned, so that they outlive the daemon until their policy expires.
    pub bpffs: Fact,
    /// Each privilege that something needs, by name, and whether this process has it.
    pub capabilities: Vec<Capability>,
    /// By the names of the namespaces asked for.
    pub congestion: Vec<(String, Result<Congestion, String>)>,
}

/// A privilege; capabilities(7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capability {
    /// As capabilities(7) writes it.
    pub name: &'static str,
    /// What Weirgate needs it for.
    pub purpose: &'static str,
    /// Whether it is in the effective set.
    pub held: bool,
}

/// The congestion controls of one network namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Congestion {
    /// Loaded into the kernel, without those that Weirgate registers for itself. Others may exist as modules: `modprobe tcp_NAME`.
    pub available: Vec<CcName>,
    /// What a new socket has, asked of a socket.
    pub default: CcName,
}

/// What is needed, by number in include/uapi/linux/capability.h.
const CAPABILITIES: &[(u32, &str, &str)] = &[
    (12, "CAP_NET_ADMIN", "reading all sockets' details, attaching programs, routes"),
    (13, "CAP_NET_RAW", "ports of the switch on interfaces"),
    (21, "CAP_SYS_ADMIN", "entering other network namespaces, mounting the BPF file system"),
    (38, "CAP_PERFMON", "kernel programs that read kernel structures"),
    (39, "CAP_BPF", "loading kernel programs"),
];

impl Facts {
    /// Looks and tries: loads each program once (tens of milliseconds each) and attaches the close program to an empty
    /// control group of its own, below the one that is configured, for a moment.
    ///
    /// `cgroup` is where the programs are to be attached; `None` is the root of the tree.
    pub fn gather(namespaces: &[Netns], cgroup: Option<&Path>) -> Self {
        let (sockops, arm_open) = match cgroup::place(cgroup).map_err(|e| e.to_string()) {
            Ok(place) => try_closes(&place),
            Err(e) => (Err(e.clone()), Err(e)),
        };
        Self {
            kernel_release: rustix::system::uname().release().to_string_lossy().into_owned(),
            btf: btf(),
            iter_tcp: IterPoller::load().map(drop).map_err(|e| e.to_string()),
            sockops,
            arm_open,
            bpffs: bpffs::ForNow::on(Path::new(bpffs::DEFAULT)).map(drop).map_err(|e| e.to_string()),
            capabilities: capabilities(&fs::read_to_string("/proc/self/status").unwrap_or_default()),
            congestion: namespaces
                .iter()
                .map(|ns| (ns.name().to_owned(), Congestion::of(ns).map_err(|e| e.to_string())))
                .collect(),
        }
    }
}

/// What to do about a congestion control that the kernel has not loaded.
pub fn not_loaded(cc: CcName) -> String {
    format!("{cc} is not loaded: `modprobe tcp_{cc}`, and /etc/modules-load.d/ to keep it; else choose another")
}

impl Congestion {
    /// Those of `ns`.
    pub fn of(ns: &Netns) -> io::Result<Self> {
        ns.within(|| {
            Ok(Self {
                available: names("/proc/sys/net/ipv4/tcp_available_congestion_control")?
                    .into_iter()
                    .filter(|name| !is_unpacer(name.as_str()))
                    .collect(),
                default: of_new_socket()?,
            })
        })?
    }

    /// Whether the kernel has `name` loaded.
    pub fn has(&self, name: CcName) -> bool {
        self.available.contains(&name)
    }
}

/// The sysctl is what was asked for; a socket has what was granted.
fn of_new_socket() -> io::Result<CcName> {
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None)?;
    let name = sockopt::tcp_congestion(&socket)?;
    CcName::new(&name).ok_or_else(|| io::Error::other(format!("the kernel names a congestion control `{name}`")))
}

fn names(path: &str) -> io::Result<Vec<CcName>> {
    Ok(fs::read_to_string(path)?.split_ascii_whitespace().filter_map(CcName::new).collect())
}

fn btf() -> Fact {
    match fs::metadata("/sys/kernel/btf/vmlinux") {
        Ok(_) => Ok(()),
        Err(e) => Err(format!(
            "/sys/kernel/btf/vmlinux: {e}; use a kernel built with CONFIG_DEBUG_INFO_BTF=y, as Debian's are"
        )),
    }
}

fn try_closes(parent: &Path) -> (Fact, Fact) {
    // Attached to an empty group, the program sees nobody's connections.
    let group = parent.join(format!("weirgate-probe-{}", std::process::id()));
    let made = fs::create_dir(&group);
    let place = if made.is_ok() { &group } else { parent };
    let result = match Closes::attach(place, Bytes::new(4096), None) {
        Ok(mut closes) => (Ok(()), closes.can_arm_open().map_err(|e| e.to_string())),
        Err(e) => (Err(e.to_string()), Err(e.to_string())),
    };
    if made.is_ok() {
        // An empty group can always be removed; a left one would be harmless.
        let _ = fs::remove_dir(&group);
    }
    result
}

/// Whether this process may administer its network namespace: capabilities(7), CAP_NET_ADMIN.
pub fn holds_net_admin() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    capabilities(&status).iter().any(|c| c.name == "CAP_NET_ADMIN" && c.held)
}

fn capabilities(status: &str) -> Vec<Capability> {
    let effective = status
        .lines()
        .find_map(|l| l.strip_prefix("CapEff:"))
        .and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok())
        .unwrap_or(0);
    CAPABILITIES
        .iter()
        .map(|&(bit, name, purpose)| Capability { name, purpose, held: effective >> bit & 1 == 1 })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_by_their_bits() {
        let held = |status| capabilities(status).iter().map(|c| c.held).collect::<Vec<_>>();
        assert_eq!(held("Name:\tx\nCapEff:\t0000008000001000\n"), [true, false, false, false, true]);
        assert_eq!(held("CapEff:\tgarbage\n"), [false; 5]);
    }

    #[test]
    fn this_host_has_a_default_that_is_available() {
        let facts = Facts::gather(&[Netns::current().unwrap()], None);
        let congestion = facts.congestion[0].1.as_ref().unwrap();
        assert!(congestion.has(congestion.default), "{facts:?}");
    }
}
