//! The network namespaces that are looked at: resolved from the configuration, looked up again before every poll.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weirgate_linux::netns::Netns;

use crate::config::Namespace;

/// Where `ip netns` keeps names.
const NAMED: &str = "/run/netns";

/// The namespaces, open.
#[derive(Debug)]
pub(crate) struct Namespaces {
    wanted: Vec<Namespace>,
    open: Vec<Netns>,
    /// Of each of `open`; empty for the daemon's own.
    paths: Vec<PathBuf>,
}

/// What changed since the last look.
#[derive(Debug, Default)]
pub(crate) struct Changes {
    /// Inodes of namespaces that are gone.
    pub(crate) gone: Vec<u32>,
    /// Inodes of namespaces that are new.
    pub(crate) new: Vec<u32>,
    /// What is wanted and cannot be opened, in a sentence.
    pub(crate) missing: Option<String>,
}

impl Namespaces {
    pub(crate) fn new(wanted: Vec<Namespace>) -> Self {
        Self { wanted, open: Vec::new(), paths: Vec::new() }
    }

    /// Opens what is new and closes what is gone. O(namespaces), one stat(2) each.
    pub(crate) fn refresh(&mut self) -> Changes {
        let mut changes = Changes::default();
        let paths = self.resolve();
        let mut open = Vec::with_capacity(paths.len());
        let mut kept_paths = Vec::with_capacity(paths.len());
        for path in paths {
            let known = self.position(&path);
            let found = match known {
                Some(at) => {
                    self.paths.swap_remove(at);
                    Ok(self.open.swap_remove(at))
                }
                None => open_at(&path),
            };
            match found {
                // Two names of one namespace.
                Ok(ns) if open.iter().any(|other: &Netns| other.inode() == ns.inode()) => {}
                Ok(ns) => {
                    if known.is_none() {
                        changes.new.push(ns.inode());
                    }
                    open.push(ns);
                    kept_paths.push(path);
                }
                Err(error) => {
                    changes.missing = Some(format!(
                        "the network namespace {} cannot be opened: {error}; it is looked for again before every poll",
                        path.display()
                    ));
                }
            }
        }
        let closed = std::mem::replace(&mut self.open, open);
        self.paths = kept_paths;
        changes.gone.extend(closed.iter().map(Netns::inode).filter(|inode| !self.holds(*inode)));
        changes
    }

    pub(crate) fn open(&self) -> &[Netns] {
        &self.open
    }

    /// Their files, by which another process can open them, after this one's end as well. Empty: whatever namespace that
    /// process runs in, where nothing else outlives the daemon.
    pub(crate) fn files(&self) -> Vec<PathBuf> {
        let file = |(ns, path): (&Netns, &PathBuf)| {
            if path.as_os_str().is_empty() { file_of(ns.inode()).unwrap_or_default() } else { path.clone() }
        };
        self.open.iter().zip(&self.paths).map(file).collect()
    }

    /// Whether the namespace with this inode is looked at. O(namespaces).
    pub(crate) fn holds(&self, inode: u32) -> bool {
        self.open.iter().any(|ns| ns.inode() == inode)
    }

    /// Where the open namespace of `path` is, if what the path names now is still that namespace.
    fn position(&self, path: &Path) -> Option<usize> {
        let at = self.paths.iter().position(|known| known == path)?;
        let same = path.as_os_str().is_empty()
            || fs::metadata(path).is_ok_and(|meta| meta.ino() == u64::from(self.open[at].inode()));
        same.then_some(at)
    }

    /// The paths wanted; the empty one is the daemon's own.
    fn resolve(&self) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for wanted in &self.wanted {
            match wanted {
                Namespace::Own => paths.push(PathBuf::new()),
                Namespace::Name(name) => paths.push(Path::new(NAMED).join(name)),
                Namespace::Path(path) => paths.push(path.clone()),
                Namespace::All => {
                    paths.push(PathBuf::new());
                    let named = fs::read_dir(NAMED).into_iter().flatten().flatten().map(|entry| entry.path());
                    let mut named: Vec<PathBuf> = named.collect();
                    named.sort();
                    paths.extend(named);
                }
            }
        }
        paths
    }
}

/// A lasting name of the namespace: that of process 1, or one that `ip netns` gave.
fn file_of(inode: u32) -> Option<PathBuf> {
    let named = fs::read_dir(NAMED).into_iter().flatten().flatten().map(|entry| entry.path());
    let is_it = |path: &PathBuf| fs::metadata(path).is_ok_and(|meta| meta.ino() == u64::from(inode));
    std::iter::once(PathBuf::from("/proc/1/ns/net")).chain(named).find(is_it)
}

fn open_at(path: &Path) -> std::io::Result<Netns> {
    if path.as_os_str().is_empty() {
        return Netns::current();
    }
    let name = path.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
    Netns::open(path, &name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_own_namespace_is_found_once() {
        let mut namespaces = Namespaces::new(vec![
            Namespace::Own,
            Namespace::Path("/proc/self/ns/net".into()),
            Namespace::Name("weirgate-no-such-namespace".into()),
        ]);
        let changes = namespaces.refresh();
        assert_eq!((changes.new.len(), changes.gone.len()), (1, 0));
        assert!(changes.missing.unwrap().contains("weirgate-no-such-namespace"));
        let again = namespaces.refresh();
        assert!(again.new.is_empty() && again.gone.is_empty());
        assert_eq!(namespaces.open().len(), 1);
        assert_eq!(namespaces.files().len(), 1);
    }
}
