//! A network namespace and a control group of one test's own, so that tests can run in parallel and on a busy host.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};
use std::{fs, io};

use weirgate_linux::cgroup;
use weirgate_linux::netns::Netns;

/// The calling thread, moved into a new network namespace (with `lo` up) and a new control group. Its sockets and the
/// processes that it starts belong to both. The namespace ends with the thread and its sockets, the group is removed.
pub(crate) struct Place {
    group: PathBuf,
    ns: Netns,
}

impl Place {
    /// Moves the calling thread. `None`, with the reason printed, where that is not possible.
    pub(crate) fn enter() -> Option<Self> {
        Self::try_enter().map_err(|e| println!("SKIPPED: needs root and a cgroup v2 tree: {e}")).ok()
    }

    fn try_enter() -> io::Result<Self> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let number = NUMBER.fetch_add(1, Ordering::Relaxed);
        let root = cgroup::root().map_err(io::Error::other)?;
        let own = fs::read_to_string("/proc/self/cgroup")?;
        let own = own.lines().find_map(|l| l.strip_prefix("0::/")).unwrap_or_default().to_owned();
        let group = root.join(own).join(format!("weirgate-test-{}-{number}", std::process::id()));
        fs::create_dir(&group)?;
        // Only a threaded group takes single threads.
        fs::write(group.join("cgroup.type"), "threaded")?;
        // SAFETY: no pointers; affects the calling thread's namespaces only.
        if unsafe { libc::unshare(libc::CLONE_NEWNET) } != 0 {
            let _ = fs::remove_dir(&group);
            return Err(io::Error::last_os_error());
        }
        fs::write(group.join("cgroup.threads"), rustix::thread::gettid().as_raw_pid().to_string())?;
        run("ip link set lo up");
        Ok(Self { group, ns: Netns::current()? })
    }

    /// The control group's folder.
    pub(crate) fn group(&self) -> &Path {
        &self.group
    }

    /// The network namespace.
    pub(crate) fn ns(&self) -> &Netns {
        &self.ns
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // Back into the parent, so that the group is empty. Children that are still about are the test's own fault.
        if let Some(parent) = self.group.parent() {
            let _ = fs::write(parent.join("cgroup.threads"), rustix::thread::gettid().as_raw_pid().to_string());
        }
        let _ = fs::remove_dir(&self.group);
    }
}

/// Runs a command of words without quotes in the caller's namespace; panics where it fails.
pub(crate) fn run(command: &str) {
    let mut words = command.split_whitespace();
    let output = Command::new(words.next().unwrap()).args(words).output();
    let output = output.unwrap_or_else(|e| panic!("`{command}`: {e}"));
    assert!(output.status.success(), "`{command}`: {}", String::from_utf8_lossy(&output.stderr));
}
