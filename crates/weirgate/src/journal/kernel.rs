//! The kernel that the journal is undone on.

use std::path::{Path, PathBuf};
use std::{fs, io};

use weirgate_linux::bpf::steer;
use weirgate_linux::netns::Netns;
use weirgate_linux::route_cc;

use super::undo::{Kernel, KernelError};
use super::{Object, PRESENT};

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
            // Ours are told from others only as they are removed.
            Object::Routes { .. } => Ok(Some(PRESENT.to_owned())),
            Object::Sysctl { namespace, name } => {
                let path = sysctl(name)?;
                match within(namespace, || fs::read_to_string(&path))? {
                    Ok(value) => Ok(Some(value.trim_end().to_owned())),
                    Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
                    Err(error) => Err(KernelError(format!("{}: {error}", path.display()))),
                }
            }
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
            (Object::Sysctl { namespace, name }, Some(value)) => {
                let path = sysctl(name)?;
                within(namespace, || fs::write(&path, value))?
                    .map_err(|error| KernelError(format!("{}: {error}; run as root", path.display())))?;
                Ok(true)
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

/// The file of a sysctl. A name that leads elsewhere is refused: a journal may have been written by anybody's hand.
fn sysctl(name: &str) -> Result<PathBuf, KernelError> {
    let plain = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-".contains(&b));
    if !name.split('.').all(plain) {
        return Err(KernelError(format!("`{name}` is not the name of a sysctl")));
    }
    Ok(Path::new("/proc/sys").join(name.replace('.', "/")))
}

fn open(namespace: &Path) -> Result<Netns, KernelError> {
    let opened = match namespace.as_os_str().is_empty() {
        true => Netns::current(),
        false => Netns::open(namespace, &namespace.to_string_lossy()),
    };
    opened.map_err(|error| KernelError(format!("the network namespace {}: {error}", namespace.display())))
}

fn within<T>(namespace: &Path, f: impl FnOnce() -> T) -> Result<T, KernelError> {
    if namespace.as_os_str().is_empty() {
        return Ok(f());
    }
    let fail = |error: io::Error| KernelError(format!("the network namespace {}: {error}", namespace.display()));
    open(namespace)?.within(f).map_err(fail)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sysctl_s_name_leads_nowhere_else() {
        for name in ["", "net..x", "net./etc/passwd", "..", "a.../b", "net/ipv4/x"] {
            assert!(sysctl(name).is_err(), "{name}");
        }
        assert_eq!(
            sysctl("net.ipv4.tcp_congestion_control").unwrap(),
            Path::new("/proc/sys/net/ipv4/tcp_congestion_control")
        );
    }

    #[test]
    fn a_missing_pin_directory_is_nothing() {
        let object = Object::Pins { dir: "/nonexistent/weirgate".into(), namespaces: Vec::new() };
        assert_eq!(HostKernel::default().read(&object).unwrap(), None);
    }
}
