//! Setting links up: addresses, routes, MTU. Through `ip -batch` (iproute2), one process per namespace: a lab makes a hundred
//! namespaces with ten settings each in under a second that way, and what it does can be read and typed by hand.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::IpAddr;
use std::process::{Command, Stdio};

use weirgate_units::Prefix;

use crate::netns::Netns;

/// How a layer-3 device is to be set up in its namespace.
#[derive(Clone, Debug)]
pub struct LinkSetup<'a> {
    /// The device's name.
    pub device: &'a str,
    /// The largest packet, in bytes.
    pub mtu: u16,
    /// Packets that the device's own queue holds.
    pub queue_packets: u32,
    /// Its addresses, as single hosts.
    pub addresses: &'a [IpAddr],
    /// Networks all of whose addresses are the host's own (`local` routes): any of them can be bound and answers.
    pub local: &'a [Prefix],
    /// Of its default routes: those of the device with the lowest one count.
    pub metric: u32,
}

/// The gateway that the default routes name. It is on no host: a TUN device asks nobody for a neighbour. (TEST-NET-1,
/// RFC 5737.)
pub const GATEWAY_V4: &str = "192.0.2.1";
/// The same for IPv6.
pub const GATEWAY_V6: &str = "fe80::1";

/// Why a link is not set up.
#[derive(Debug, thiserror::Error)]
pub enum LinkError {
    /// The program is not there, or the namespace cannot be entered.
    #[error("cannot run `ip`: install iproute2, and run as root")]
    Run(#[from] io::Error),
    /// It said no.
    #[error("`ip -batch` in namespace `{namespace}` refused: {said}\nThe batch was:\n{batch}")]
    Refused {
        /// The namespace's name.
        namespace: String,
        /// Its standard error.
        said: String,
        /// What it was given.
        batch: String,
    },
}

impl LinkSetup<'_> {
    /// Brings the device and the loopback up in `ns`, with addresses, local networks and default routes for both families
    /// through it.
    ///
    /// # Errors
    /// What `ip` refused, with its words.
    pub fn apply(&self, ns: &Netns) -> Result<(), LinkError> {
        let Self { device, mtu, queue_packets, addresses, local, metric } = self;
        let mut batch = String::from("link set dev lo up\n");
        // No link-local address of its own: no router solicitations on the emulated link.
        let _ = writeln!(batch, "link set dev {device} addrgenmode none");
        let _ = writeln!(batch, "link set dev {device} mtu {mtu} txqueuelen {queue_packets} up");
        for address in *addresses {
            let (len, more) = if address.is_ipv4() { (32, "") } else { (128, " nodad") };
            let _ = writeln!(batch, "addr add {address}/{len} dev {device}{more}");
        }
        for prefix in *local {
            let _ = writeln!(batch, "route add local {prefix} dev lo");
        }
        let _ = writeln!(batch, "route add default via {GATEWAY_V4} dev {device} metric {metric} onlink");
        let _ = writeln!(batch, "route add default via {GATEWAY_V6} dev {device} metric {} onlink", metric + 1);
        ip_batch(ns, &batch)
    }
}

/// Runs lines of `ip` commands in `ns`, and stops at the first that is refused.
///
/// # Errors
/// What `ip` refused, with its words.
pub fn ip_batch(ns: &Netns, batch: &str) -> Result<(), LinkError> {
    run_ip(ns, &["-batch", "-"], batch)
}

/// The same for IPv6: `ip rule` does not see from an address which family is meant.
///
/// # Errors
/// What `ip` refused, with its words.
pub fn ip_batch_v6(ns: &Netns, batch: &str) -> Result<(), LinkError> {
    run_ip(ns, &["-6", "-batch", "-"], batch)
}

fn run_ip(ns: &Netns, args: &[&str], batch: &str) -> Result<(), LinkError> {
    let mut command = Command::new("ip");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut child = ns.within(|| command.spawn())??;
    let mut stdin = child.stdin.take().expect("standard input is piped");
    // A broken pipe is `ip` that stopped early; its own words say why.
    let _ = stdin.write_all(batch.as_bytes());
    drop(stdin);
    let output = child.wait_with_output()?;
    if output.status.success() {
        return Ok(());
    }
    Err(LinkError::Refused {
        namespace: ns.name().to_owned(),
        said: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
        batch: batch.to_owned(),
    })
}

/// Packets that `device` in `ns` dropped on their way out (the TUN's full ring), from `/proc/net/dev`.
///
/// # Errors
/// Where the namespace cannot be entered or has no such device.
pub fn dropped_out(ns: &Netns, device: &str) -> io::Result<u64> {
    let table = ns.within(|| std::fs::read_to_string("/proc/thread-self/net/dev"))??;
    parse_dropped_out(&table, device)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("no device `{device}` in /proc/net/dev")))
}

/// The fourth number of the second half: bytes, packets, errs, drop (net/core/net-procfs.c).
fn parse_dropped_out(table: &str, device: &str) -> Option<u64> {
    let line = table.lines().find_map(|l| l.trim_start().strip_prefix(device)?.strip_prefix(':'))?;
    line.split_ascii_whitespace().nth(8 + 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_are_read_from_their_column() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets ...\n\
            \x20   lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
            \x20 wan0: 0 0 0 0 0 0 0 0 100 200 0 4902 0 0 0 0\n";
        assert_eq!(parse_dropped_out(table, "wan0"), Some(4_902));
        assert_eq!(parse_dropped_out(table, "lo"), Some(12));
        assert_eq!(parse_dropped_out(table, "wan"), None);
    }
}
