//! The kernel that the journal is undone on.

use std::fs;
use std::path::{Path, PathBuf};

use weirgate_linux::bpf::steer;
use weirgate_linux::netns::Netns;
use weirgate_linux::{bpffs, nft, route_cc, ways};

use super::undo::{Kernel, KernelError};
use super::{Object, PRESENT};
use crate::uplink::ruleset;

/// This host's. Needs the privileges that the changes needed.
#[derive(Debug, Default)]
pub struct HostKernel {
    /// What was done beyond what was asked, or could not be done, in sentences: connections put back, for example.
    pub notes: Vec<String>,
}

impl Kernel for HostKernel {
    fn read(&mut self, object: &Object) -> Result<Option<String>, KernelError> {
        match object {
            Object::Pins { dir, .. } => {
                let pinned = fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
                Ok(pinned.then(|| PRESENT.to_owned()))
            }
            // What was in a namespace went with it.
            Object::NftTable { namespace, .. } | Object::Ways { namespace, .. } | Object::Sysctl { namespace, .. }
                if !namespace.as_os_str().is_empty() && !namespace.exists() =>
            {
                Ok(None)
            }
            // Ours are told from others only as they are removed.
            Object::Routes { .. } | Object::Ways { .. } => Ok(Some(PRESENT.to_owned())),
            Object::NftTable { namespace, table } => {
                let has = || nft::Tables::open().and_then(|mut tables| tables.has(table));
                let has =
                    within(namespace, has)?.map_err(|error| KernelError(format!("nftables: {error}; as root")))?;
                Ok(has.then(|| PRESENT.to_owned()))
            }
            Object::Sysctl { namespace, key } => Ok(within(namespace, || sysctl(key))?),
            Object::Mount { path } if bpffs::is_mounted(path) => {
                // To unmount it would be to remove their pins.
                let what = if bpffs::holds_pins(path) { "present, with others' pins" } else { PRESENT };
                Ok(Some(what.to_owned()))
            }
            Object::Mount { .. } => Ok(None),
            Object::Policy { .. } | Object::Unknown => Err(KernelError("not an object that stands alone".to_owned())),
        }
    }

    fn write(&mut self, object: &Object, value: Option<&str>) -> Result<bool, KernelError> {
        match (object, value) {
            (Object::Pins { dir, namespaces }, None) => self.take_down(dir, namespaces),
            (Object::Routes { namespace, table, priority }, None) => {
                let ns = open(namespace)?;
                let removed =
                    route_cc::undo(&ns, *table, *priority).map_err(|error| KernelError(format!("{error}; as root")))?;
                self.notes.push(format!("{removed} routes and rules removed"));
                Ok(removed > 0)
            }
            (Object::NftTable { namespace, .. }, None) => {
                let removed = within(namespace, || nft::run(&ruleset::removal().to_string()))?;
                removed.map(|()| true).map_err(|error| KernelError(error.to_string()))
            }
            (Object::Ways { namespace, table, priority }, None) => {
                let ns = open(namespace)?;
                let removed = ways::undo(&ns, *table, *priority).map_err(|error| KernelError(error.to_string()))?;
                self.notes.push(format!("{removed} routes and rules of uplinks removed"));
                Ok(removed > 0)
            }
            (Object::Sysctl { namespace, key }, Some(value)) => {
                let set = within(namespace, || fs::write(Path::new("/proc/sys").join(key), value))?;
                set.map(|()| true).map_err(|error| KernelError(format!("{key}: {error}")))
            }
            (Object::Mount { path }, None) => {
                let done = bpffs::unmount(path);
                let why = |error| KernelError(format!("{error}; `fuser -m {}` says who uses it", path.display()));
                done.map(|()| true).map_err(why)
            }
            _ => Err(KernelError(format!("{object} cannot be set to that"))),
        }
    }
}

impl HostKernel {
    fn take_down(&mut self, dir: &Path, namespaces: &[PathBuf]) -> Result<bool, KernelError> {
        let mut open_namespaces = Vec::new();
        for path in namespaces {
            match open(path) {
                Ok(ns) => open_namespaces.push(ns),
                // Its connections went with it.
                Err(error) => self.notes.push(format!("skipped, {error}")),
            }
        }
        if namespaces.is_empty() {
            open_namespaces.push(open(Path::new(""))?);
        }
        let undone = steer::undo(dir, &open_namespaces).map_err(|error| KernelError(error.to_string()))?;
        self.notes.push(format!("{} connections put back to their own congestion control", undone.sockets_reset));
        for (name, error) in undone.unwalked {
            self.notes.push(format!("the connections of namespace `{name}` could not be put back: {error}"));
        }
        Ok(undone.found)
    }
}

/// What a setting says; `None` where there is none.
pub(crate) fn sysctl(key: &str) -> Option<String> {
    fs::read_to_string(Path::new("/proc/sys").join(key)).ok().map(|text| text.trim().to_owned())
}

/// Runs `f` in a namespace.
fn within<T>(namespace: &Path, f: impl FnOnce() -> T) -> Result<T, KernelError> {
    let entered = open(namespace)?.within(f);
    entered.map_err(|error| KernelError(format!("the network namespace {}: {error}", namespace.display())))
}

fn open(namespace: &Path) -> Result<Netns, KernelError> {
    let opened = match namespace.as_os_str().is_empty() {
        true => Netns::current(),
        false => Netns::open(namespace, &namespace.to_string_lossy()),
    };
    opened.map_err(|error| KernelError(format!("the network namespace {}: {error}", namespace.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_pin_directory_is_nothing() {
        let object = Object::Pins { dir: "/nonexistent/weirgate".into(), namespaces: Vec::new() };
        assert_eq!(HostKernel::default().read(&object).unwrap(), None);
    }

    #[test]
    fn a_mounted_file_system_goes_once() {
        let dir = tempfile::tempdir().unwrap();
        let object = Object::Mount { path: dir.path().to_owned() };
        let mut kernel = HostKernel::default();
        assert_eq!(kernel.read(&object).unwrap(), None);
        if let Err(error) = bpffs::ensure(dir.path()) {
            return println!("SKIPPED: {error}");
        }
        assert_eq!(kernel.read(&object).unwrap().as_deref(), Some(PRESENT));
        assert!(kernel.write(&object, None).unwrap());
        assert_eq!(kernel.read(&object).unwrap(), None);
    }
}
