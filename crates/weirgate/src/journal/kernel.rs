//! The kernel that the journal is undone on.

use std::path::{Path, PathBuf};
use std::{fs, io};

use weirgate_linux::netns::Netns;

use super::undo::{Kernel, KernelError};
use super::{Object, PRESENT};

/// This host's. Needs the privileges that the changes needed.
#[derive(Debug, Default)]
pub struct HostKernel;

impl Kernel for HostKernel {
    fn read(&mut self, object: &Object) -> Result<Option<String>, KernelError> {
        match object {
            Object::Pins { dir, .. } => {
                let pinned = fs::read_dir(dir).is_ok_and(|mut entries| entries.next().is_some());
                Ok(pinned.then(|| PRESENT.to_owned()))
            }
            Object::Sysctl { namespace, name } => {
                let path = sysctl(name)?;
                within(namespace, || fs::read_to_string(&path))?
                    .map(|value| Some(value.trim_end().to_owned()))
                    .or_else(|error| if error.kind() == io::ErrorKind::NotFound { Ok(None) } else { Err(error) })
                    .map_err(|error| KernelError(format!("{}: {error}", path.display())))
            }
            Object::Policy { .. } | Object::Unknown => Err(KernelError("not an object that stands alone".to_owned())),
        }
    }

    fn write(&mut self, object: &Object, value: Option<&str>) -> Result<(), KernelError> {
        match (object, value) {
            (Object::Sysctl { namespace, name }, Some(value)) => {
                let path = sysctl(name)?;
                within(namespace, || fs::write(&path, value))?
                    .map_err(|error| KernelError(format!("{}: {error}; run as root", path.display())))
            }
            _ => Err(KernelError("cannot be set to that".to_owned())),
        }
    }
}

/// The file of a sysctl. A name that leads elsewhere is refused: the journal may have been written by anybody's hand.
fn sysctl(name: &str) -> Result<PathBuf, KernelError> {
    let plain = |part: &str| {
        !part.is_empty() && part != ".." && part.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-/".contains(&b))
    };
    if !name.split('.').all(plain) {
        return Err(KernelError(format!("`{name}` is not the name of a sysctl")));
    }
    Ok(Path::new("/proc/sys").join(name.replace('.', "/")))
}

fn within<T>(namespace: &Path, f: impl FnOnce() -> T) -> Result<T, KernelError> {
    if namespace.as_os_str().is_empty() {
        return Ok(f());
    }
    let fail = |error: io::Error| KernelError(format!("the network namespace {}: {error}", namespace.display()));
    Netns::open(namespace, &namespace.to_string_lossy()).map_err(fail)?.within(f).map_err(fail)
}
