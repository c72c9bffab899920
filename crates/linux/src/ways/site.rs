//! What there is of an uplink: its device, its addresses, and who forwards what leaves by it.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsRawFd;

use futures::TryStreamExt;
use rtnetlink::packet_route::AddressFamily;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::LinkFlags;
use rtnetlink::packet_route::route::{RouteAddress, RouteAttribute, RouteFlags, RouteMessage, RouteType};
use weirgate_units::Prefix;

use super::netlink::{Kernel, io_error, refused, run};
use super::{PROTOCOL, WaysError};

/// A device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its number.
    pub interface: u32,
    /// Whether it is up, and what it is connected to as well.
    pub is_up: bool,
    /// Whether there is one other end, so that it takes no gateway.
    pub is_point_to_point: bool,
    /// Its addresses, without those that hold on the link only.
    pub addresses: Vec<IpAddr>,
    /// The networks of its addresses.
    pub networks: Vec<Prefix>,
    /// By the order of the addresses asked for: how one is reached by this device by a default route that is not ours.
    pub ways: Vec<Option<Option<IpAddr>>>,
}

/// The devices of these names, in the calling thread's namespace; of each, how its addresses are reached by it. `None`: there is none.
/// Blocks for a millisecond or so; not for async threads.
///
/// # Errors
/// [`WaysError`].
pub fn devices(of: &[(&str, Vec<IpAddr>)]) -> Result<Vec<Option<Device>>, WaysError> {
    run(async |kernel| {
        let mut found = Vec::new();
        for (name, reached) in of {
            found.push(kernel.device(name, reached).await?);
        }
        kernel.add_addresses(&mut found).await?;
        Ok(found)
    })
}

impl Kernel {
    async fn device(&self, name: &str, reached: &[IpAddr]) -> Result<Option<Device>, WaysError> {
        let link = match self.0.link().get().match_name(name).execute().try_next().await.map_err(io_error) {
            Ok(Some(link)) => link,
            Ok(None) => return Ok(None),
            Err(error) if error.raw_os_error() == Some(libc::ENODEV) => return Ok(None),
            Err(source) => return Err(WaysError::Refused { what: format!("say what `{name}` is"), source }),
        };
        let flags = link.header.flags;
        let interface = link.header.index;
        let mut ways = Vec::new();
        for address in reached {
            ways.push(self.way(interface, *address).await);
        }
        Ok(Some(Device {
            interface,
            is_up: flags.contains(LinkFlags::Up | LinkFlags::Running),
            is_point_to_point: flags.contains(LinkFlags::Pointopoint),
            addresses: Vec::new(),
            networks: Vec::new(),
            ways,
        }))
    }

    async fn add_addresses(&self, devices: &mut [Option<Device>]) -> Result<(), WaysError> {
        let mut dump = self.0.address().get().execute();
        while let Some(message) = dump.try_next().await.map_err(refused(|| "list addresses".to_owned()))? {
            let its = devices.iter_mut().flatten().find(|device| device.interface == message.header.index);
            let Some(device) = its else { continue };
            let local = message.attributes.iter().find_map(|a| match a {
                AddressAttribute::Local(address) => Some(*address),
                _ => None,
            });
            let address = message.attributes.iter().find_map(|a| match a {
                AddressAttribute::Address(address) => Some(*address),
                _ => None,
            });
            let Some(own) = local.or(address) else { continue };
            device.networks.push(Prefix::of(address.unwrap_or(own), message.header.prefix_len));
            let is_near = matches!(own, IpAddr::V6(own) if own.is_unicast_link_local());
            if !is_near {
                device.addresses.push(own);
            }
        }
        Ok(())
    }

    /// Who forwards what goes to `address` by this device, by a default route that is not ours; `None`: there is no way, or one of its own.
    async fn way(&self, interface: u32, address: IpAddr) -> Option<Option<IpAddr>> {
        let mut request = RouteMessage::default();
        request.header.address_family = if address.is_ipv4() { AddressFamily::Inet } else { AddressFamily::Inet6 };
        request.header.destination_prefix_length = if address.is_ipv4() { 32 } else { 128 };
        request.header.flags = RouteFlags::FibMatch;
        request.attributes = vec![RouteAttribute::Destination(address.into()), RouteAttribute::Oif(interface)];
        let route = self.0.route().get(request).execute().try_next().await.ok()??;
        let is_default = route.header.destination_prefix_length == 0;
        if u8::from(route.header.protocol) == PROTOCOL || route.header.kind != RouteType::Unicast || !is_default {
            return None;
        }
        let own = |hop: &RouteAttribute| match hop {
            RouteAttribute::Gateway(RouteAddress::Inet(gateway)) => Some(IpAddr::from(*gateway)),
            RouteAttribute::Gateway(RouteAddress::Inet6(gateway)) => Some(IpAddr::from(*gateway)),
            _ => None,
        };
        let hops = route.attributes.iter().find_map(|a| match a {
            RouteAttribute::MultiPath(hops) => Some(hops),
            _ => None,
        });
        let by_device = hops.and_then(|hops| hops.iter().find(|hop| hop.interface_index == interface));
        Some(match by_device {
            Some(hop) => hop.attributes.iter().find_map(own),
            None => route.attributes.iter().find_map(own),
        })
    }
}

/// What a device's flags say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags {
    /// Its number: another one where it was made anew.
    pub interface: u32,
    /// Whether it is up, and what it is connected to as well.
    pub is_up: bool,
}

/// The flags of a device, in the namespace in which `socket`, any one, was made; `None`: there is none. Two calls of the system: for looking
/// often. Read first: netdevice(7).
pub fn flags(socket: &impl AsRawFd, name: &str) -> Option<Flags> {
    // SAFETY: an `ifreq` is plain old data, for which zeros are a value.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    if name.len() >= request.ifr_name.len() {
        return None;
    }
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes()) {
        *to = from.cast_signed();
    }
    let ask = |what, request: &mut libc::ifreq| -> io::Result<()> {
        // SAFETY: the kernel reads and writes one `ifreq`, which lives as long as the call.
        let done = unsafe { libc::ioctl(socket.as_raw_fd(), what, std::ptr::from_mut(request)) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    ask(libc::SIOCGIFINDEX, &mut request).ok()?;
    // SAFETY: SIOCGIFINDEX has filled in the index.
    let interface = unsafe { request.ifr_ifru.ifru_ifindex }.cast_unsigned();
    ask(libc::SIOCGIFFLAGS, &mut request).ok()?;
    // SAFETY: SIOCGIFFLAGS has filled in the flags.
    let flags = i32::from(unsafe { request.ifr_ifru.ifru_flags });
    let wanted = libc::IFF_UP | libc::IFF_RUNNING;
    Some(Flags { interface, is_up: flags & wanted == wanted })
}
