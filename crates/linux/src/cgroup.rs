//! Control groups, version 2: where the tree is, and the numbers by which records name its folders.
//! Read first: cgroups(7), proc_pid_mountinfo(5).

use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

/// No cgroup v2 tree.
#[derive(Debug, thiserror::Error)]
pub enum CgroupError {
    /// The list of mounts cannot be read.
    #[error("cannot read /proc/self/mountinfo: {0}; is /proc mounted?")]
    Mountinfo(io::Error),
    /// Nothing of type cgroup2 is mounted here.
    #[error(
        "no cgroup v2 tree is mounted, so that the kernel's per-connection programs have nothing to be attached to; \
         mount one beside cgroup v1 with \
         `mkdir -p /sys/fs/cgroup/unified && mount -t cgroup2 none /sys/fs/cgroup/unified`"
    )]
    NotMounted,
}

/// The root of the cgroup v2 tree as this process sees it: `/sys/fs/cgroup` where v2 is alone, usually
/// `/sys/fs/cgroup/unified` where v1 is beside it.
pub fn root() -> Result<PathBuf, CgroupError> {
    let mounts = fs::read("/proc/self/mountinfo").map_err(CgroupError::Mountinfo)?;
    root_in(&mounts).ok_or(CgroupError::NotMounted)
}

/// The number of the control group at `path`, as records carry it: the inode of its folder.
pub fn id(path: &Path) -> io::Result<u64> {
    Ok(fs::metadata(path)?.ino())
}

/// The mount that shows the tree from its root, else the first that shows a part of it (in a container).
fn root_in(mountinfo: &[u8]) -> Option<PathBuf> {
    let mut part = None;
    for line in mountinfo.split(|b| *b == b'\n') {
        // 36 35 0:30 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw: any number of tags before the dash.
        let mut fields = line.split(|b| *b == b' ');
        let (Some(shown), Some(place)) = (fields.nth(3), fields.next()) else { continue };
        let kind = fields.skip_while(|f| *f != b"-").nth(1);
        if kind != Some(b"cgroup2") {
            continue;
        }
        let place = PathBuf::from(std::ffi::OsString::from_vec(unescape(place)));
        if shown == b"/" {
            return Some(place);
        }
        part.get_or_insert(place);
    }
    part
}

/// Blanks and backslashes stand as `\040`: three octal digits.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, tail)) = rest.split_first() {
        let digits = tail.get(..3).and_then(|d| u8::from_str_radix(std::str::from_utf8(d).ok()?, 8).ok());
        if let (b'\\', Some(byte)) = (first, digits) {
            out.push(byte);
            rest = &tail[3..];
        } else {
            out.push(first);
            rest = tail;
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_is_found_beside_version_one() {
        let mounts = b"30 24 0:26 / /sys/fs/cgroup ro - tmpfs tmpfs ro\n\
            31 30 0:27 / /sys/fs/cgroup/cpu rw shared:9 - cgroup cgroup rw,cpu\n\
            32 30 0:28 /docker/ab /other rw - cgroup2 cgroup2 rw\n\
            33 30 0:28 / /sys/fs/cgroup/uni\\040fied rw shared:9 master:3 - cgroup2 cgroup2 rw\n";
        assert_eq!(root_in(mounts), Some("/sys/fs/cgroup/uni fied".into()));
    }

    #[test]
    fn a_part_of_the_tree_is_better_than_none() {
        assert_eq!(root_in(b"32 30 0:28 /docker/ab /other rw - cgroup2 cgroup2 rw\n"), Some("/other".into()));
        assert_eq!(root_in(b"31 30 0:27 / /cpu rw - cgroup cgroup rw\n\n garbage - \\9"), None);
    }

    #[test]
    fn this_host_has_one() {
        match root() {
            Ok(root) => assert!(root.join("cgroup.procs").exists() && id(&root).unwrap() > 0),
            Err(e) => println!("SKIPPED: {e}"),
        }
    }
}
