//! A Unix socket for a group's processes, beside its owner's.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use anyhow::{Context as _, bail};

/// Lets the processes of group `gid` connect to the socket at `path`.
///
/// # Errors
/// Where its group or its mode cannot be set: the caller has no `CAP_CHOWN`.
pub(crate) fn admit(path: &Path, gid: u32) -> anyhow::Result<()> {
    chown(path, None, Some(gid)).with_context(|| format!("{}: its group cannot be set", path.display()))?;
    fs::set_permissions(path, Permissions::from_mode(0o660)).with_context(|| path.display().to_string())
}

/// A group's number, by /etc/group.
///
/// # Errors
/// Where there is none of that name.
pub(crate) fn gid(group: &str) -> anyhow::Result<u32> {
    let groups = fs::read_to_string("/etc/group")?;
    for line in groups.lines() {
        // group(5): name, password, number, members.
        if let [name, _, gid, ..] = line.split(':').collect::<Vec<_>>()[..]
            && name == group
        {
            return gid.parse().with_context(|| format!("/etc/group: the number of {group}"));
        }
    }
    bail!("there is no group \"{group}\" in /etc/group")
}
