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
    /// What was named is no folder of such a tree.
    #[error("{path} is no cgroup v2 folder: {why}; `findmnt -t cgroup2` says where the tree is")]
    NotInTree {
        /// As it was named.
        path: PathBuf,
        /// What it is instead.
        why: String,
    },
}

/// `CGROUP2_SUPER_MAGIC`, include/uapi/linux/magic.h.
const MAGIC: u32 = 0x6367_7270;

/// The root of the cgroup v2 tree as this process sees it: `/sys/fs/cgroup` where v2 is alone, usually
/// `/sys/fs/cgroup/unified` where v1 is beside it.
pub fn root() -> Result<PathBuf, CgroupError> {
    let mounts = fs::read("/proc/self/mountinfo").map_err(CgroupError::Mountinfo)?;
    root_in(&mounts).ok_or(CgroupError::NotMounted)
}

/// The folder that programs are attached to: `wanted`, which has to be in the tree, else the tree's root.
pub fn place(wanted: Option<&Path>) -> Result<PathBuf, CgroupError> {
    let Some(path) = wanted else { return root() };
    let refuse = |why: String| CgroupError::NotInTree { path: path.to_owned(), why };
    let found = rustix::fs::statfs(path).map_err(|error| refuse(io::Error::from(error).to_string()))?;
    // The magic is 32 bits wide; f_type is signed and wider.
    if found.f_type as u32 != MAGIC {
        return Err(refuse("it is on another file system".to_owned()));
    }
    if !path.is_dir() {
        return Err(refuse("it is a file".to_owned()));
    }
    Ok(path.to_owned())
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
            Ok(root) => {
                assert!(root.join("cgroup.procs").exists() && id(&root).unwrap() > 0);
                assert_eq!(place(Some(&root)).unwrap(), root);
                assert!(place(Some(&root.join("cgroup.procs"))).unwrap_err().to_string().contains("it is a file"));
            }
            Err(e) => println!("SKIPPED: {e}"),
        }
    }

    #[test]
    fn a_folder_elsewhere_is_refused() {
        let said = |path: &str| place(Some(Path::new(path))).unwrap_err().to_string();
        assert!(said("/proc").contains("/proc is no cgroup v2 folder: it is on another file system"));
        assert!(said("/nonexistent/group").contains("No such file"));
    }
}
