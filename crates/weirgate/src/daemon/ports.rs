//! The switch's ports as they are configured: tried, and made.

use std::borrow::Cow;
use std::path::Path;

use anyhow::{Context, anyhow};
use weirgate_linux::dataplane::{Device, PortCounters, open_interface};
use weirgate_linux::interface::{Interface, InterfaceError};
use weirgate_linux::netns::Netns;
use weirgate_linux::tap::Tap;
use weirgate_linux::vhost::{Offloads, Role, VhostOptions, VhostUser};

use crate::config::shaping::{Port, PortKind, namespace_path};
use crate::config::{Namespace, nearest};
use crate::groups;
use crate::view::api;

/// A port's device.
pub(super) struct Opened {
    /// A part for each thread.
    pub(super) parts: Vec<Box<dyn Device>>,
    /// What to know of it.
    pub(super) note: Option<String>,
}

/// Makes a port's device, or opens it, for so many threads.
pub(super) fn open(port: &Port, threads: usize) -> anyhow::Result<Opened> {
    let mut note = None;
    let device: Box<dyn Device> = match &port.kind {
        PortKind::Tap { device, namespace } => Box::new(Tap::create(&enter(namespace)?, device, port.queues)?),
        PortKind::Interface { device, namespace, xdp } => {
            let ns = enter(namespace)?;
            note = usable(&ns, device)?.warning();
            open_interface(&ns, device, port.queues, *xdp)?
        }
        PortKind::VhostUser { socket, group } => {
            let gid = group.as_deref().map(groups::gid).transpose()?;
            let options = VhostOptions {
                socket: socket.clone(),
                role: Role::Listen,
                queues: port.queues,
                offloads: Offloads::ALL,
            };
            let device = VhostUser::start(&options)?;
            if let Some(gid) = gid {
                groups::admit(socket, gid)?;
            }
            Box::new(device)
        }
    };
    let parts = if threads == 1 { vec![device] } else { device.split(threads)? };
    Ok(Opened { parts, note })
}

/// The number of the namespace that a port's device is in, or would be; `None`: the daemon's own, or it cannot be opened.
pub(super) fn namespace_of(port: &Port) -> Option<u32> {
    let (PortKind::Tap { namespace, .. } | PortKind::Interface { namespace, .. }) = &port.kind else { return None };
    let path = namespace_path(namespace)?;
    Netns::open(&path, "").ok().map(|ns| ns.inode())
}

/// What its device is called.
pub(super) fn device_name(port: &Port) -> Cow<'_, str> {
    match &port.kind {
        PortKind::Tap { device, .. } | PortKind::Interface { device, .. } => device.into(),
        PortKind::VhostUser { socket, .. } => socket.to_string_lossy(),
    }
}

/// Whether a port could be made, and what to know of it, without taking anybody's frames. A TAP is made for a moment, unless the
/// daemon runs and has it.
pub(crate) fn try_out(port: &Port, running: bool) -> anyhow::Result<Option<String>> {
    match &port.kind {
        PortKind::Tap { device, namespace } => {
            let ns = enter(namespace)?;
            if running {
                return Ok(Some("not tried while the daemon runs".to_owned()));
            }
            Tap::create(&ns, device, port.queues)?;
            Ok(None)
        }
        PortKind::Interface { device, namespace, .. } => Ok(usable(&enter(namespace)?, device)?.warning()),
        PortKind::VhostUser { socket, group } => {
            group.as_deref().map(groups::gid).transpose()?;
            let folder = socket.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
            rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).with_context(|| {
                format!("its socket cannot be made in {0}: `mkdir -p {0}`, writable for the daemon", folder.display())
            })?;
            Ok(None)
        }
    }
}

/// What it did, as it is shown.
pub(super) fn row(port: &Port, counted: PortCounters, gone: u64, failed: Option<String>) -> api::Port {
    let PortCounters { received, sent, malformed, filtered, refused, unsent, lost } = counted;
    let kind = match port.kind {
        PortKind::Tap { .. } => "tap",
        PortKind::Interface { xdp: false, .. } => "interface",
        PortKind::Interface { xdp: true, .. } => "interface by AF_XDP",
        PortKind::VhostUser { .. } => "vhost-user",
    };
    let (name, kind) = (port.name.clone(), kind.to_owned());
    api::Port { name, kind, failed, gone, received, sent, lost, malformed, filtered, refused, unsent }
}

fn enter(namespace: &Namespace) -> anyhow::Result<Netns> {
    match namespace_path(namespace) {
        None => Ok(Netns::current()?),
        Some(path) => Netns::open(&path, &path.display().to_string()).with_context(|| {
            format!("the namespace {} cannot be opened: `ip netns` shows those that are there", path.display())
        }),
    }
}

fn usable(ns: &Netns, device: &str) -> anyhow::Result<Interface> {
    Interface::usable(ns, device).map_err(|error| {
        let InterfaceError::Missing { name, known } = &error else { return error.into() };
        let known: Vec<&str> = known.iter().map(String::as_str).collect();
        match nearest(name, &known) {
            Some(near) => anyhow!("there is no interface `{name}`; did you mean `{near}`?"),
            None => anyhow!("there is no interface `{name}`: there are {}", known.join(", ")),
        }
    })
}
