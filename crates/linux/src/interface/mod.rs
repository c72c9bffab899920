//! Network interfaces that exist already, as ports of the switch: a physical card, one end of a veth pair. Read first: packet(7)
//! and the kernel's Documentation/networking/packet_mmap.rst; for [`XdpPort`], Documentation/networking/af_xdp.rst.
//!
//! The interface stays the kernel's and is not changed but for promiscuous mode, which ends with the port. What comes in by it
//! is seen by the port *and* by the kernel: with addresses, the kernel answers as well; as a member of a bridge, every frame
//! would be forwarded twice, which is refused.

mod mapping;
mod packet;
mod ring;
#[cfg(feature = "xdp")]
mod xdp;
#[cfg(feature = "xdp")]
mod xsk;

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::thread;

use futures::TryStreamExt;
use rtnetlink::packet_route::address::AddressAttribute;
use rtnetlink::packet_route::link::{LinkAttribute, LinkFlags, LinkMessage};
use rtnetlink::{Handle, new_connection};
use weirgate_units::Duration;

use crate::bpf::LoadError;
use crate::netns::Netns;

pub use packet::PacketPort;
pub(crate) use ring::Taken;
#[cfg(feature = "xdp")]
pub use xdp::XdpPort;

/// How often a port looks whether its interface is there: when one is removed, the kernel does not always tell.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// What the kernel says of an interface.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Interface {
    /// Its name.
    pub name: String,
    /// Its number in its namespace.
    pub index: u32,
    /// Whether it is up.
    pub up: bool,
    /// Whether neighbours are looked for on it (ARP), as on an Ethernet; else whatever is sent by it is the other end's.
    pub has_neighbours: bool,
    /// The longest packet that it sends, in bytes, from the IP header on.
    pub mtu: u32,
    /// The bridge or bond that it is a member of.
    pub controller: Option<String>,
    /// The host's own addresses on it, without those that the kernel made up (IPv6 link-local ones).
    pub addresses: Vec<IpAddr>,
}

/// Why an interface is no port.
#[derive(Debug, thiserror::Error)]
pub enum InterfaceError {
    /// There is none of that name.
    #[error("there is no interface `{name}` in its namespace: `ip link` shows what is there")]
    Missing {
        /// As it was asked for.
        name: String,
        /// Those that are there.
        known: Vec<String>,
    },
    /// Its frames are somebody else's.
    #[error(
        "`{name}` is a member of `{of}`, which forwards its frames too: `ip link set dev {name} nomaster`, or use another"
    )]
    Member {
        /// The interface.
        name: String,
        /// The bridge or bond.
        of: String,
    },
    /// The kernel did not say what is there.
    #[error("cannot ask the kernel for its interfaces")]
    Ask(#[source] io::Error),
    /// Its packets are too long for [`XdpPort`].
    #[error(
        "`{name}` has an MTU of {mtu} and AF_XDP takes at most {longest}: `ip link set dev {name} mtu {longest}`, or write xdp = false"
    )]
    Mtu {
        /// The interface.
        name: String,
        /// What it has.
        mtu: u32,
        /// What it may have.
        longest: u32,
    },
    /// The program that hands over its frames cannot be attached.
    #[error("AF_XDP does not work on it; xdp = false does without")]
    Program(#[source] LoadError),
    /// Another program has a queue of it.
    #[error(
        "queue {queue} of `{name}` has an AF_XDP socket already: stop the program that made it, or write xdp = false"
    )]
    Busy {
        /// The interface.
        name: String,
        /// Which of its queues.
        queue: u32,
    },
    /// AF_XDP is asked for where it was left out.
    #[error(
        "this program was built without AF_XDP: write xdp = false, or build it with the feature `xdp` of weirgate-linux"
    )]
    NoXdp,
    /// A call was refused.
    #[error("cannot open `{name}` as a port ({what}): run as root, or give the service CAP_NET_RAW and CAP_NET_ADMIN")]
    Open {
        /// The interface.
        name: String,
        /// Which call it was.
        what: &'static str,
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}

impl Interface {
    /// The interface `name` of `ns`, where it can be a port.
    ///
    /// # Errors
    /// [`InterfaceError::Missing`], [`InterfaceError::Member`], [`InterfaceError::Ask`].
    pub fn usable(ns: &Netns, name: &str) -> Result<Self, InterfaceError> {
        let all = Self::all(ns).map_err(InterfaceError::Ask)?;
        let Some(found) = all.iter().find(|interface| interface.name == name) else {
            let known = all.into_iter().map(|interface| interface.name).collect();
            return Err(InterfaceError::Missing { name: name.to_owned(), known });
        };
        match &found.controller {
            Some(of) => Err(InterfaceError::Member { name: name.to_owned(), of: of.clone() }),
            None => Ok(found.clone()),
        }
    }

    /// All of `ns`, in the kernel's order.
    ///
    /// # Errors
    /// Where the namespace cannot be entered, or the kernel does not answer.
    pub fn all(ns: &Netns) -> io::Result<Vec<Self>> {
        let ask = || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
            runtime.block_on(async {
                let (connection, handle, _) = new_connection()?;
                let driver = tokio::spawn(connection);
                let all = dump(&handle).await.map_err(io::Error::other);
                driver.abort();
                all
            })
        };
        // A thread of its own: the caller's may run asynchronous work already.
        thread::scope(|scope| {
            let asked = scope.spawn(|| ns.within(ask)?);
            asked.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    /// What a person should know before it is a port; `None`: nothing.
    pub fn warning(&self) -> Option<String> {
        let name = &self.name;
        if let Some(address) = self.addresses.first() {
            return Some(format!(
                "`{name}` has the address {address}, for which the kernel answers too: `ip addr flush dev {name}`, or give it to \
                 a TAP port"
            ));
        }
        (!self.up).then(|| format!("`{name}` is down: `ip link set dev {name} up`"))
    }
}

/// Sets an option of a type of C's.
fn set<T: Copy>(socket: BorrowedFd<'_>, level: libc::c_int, option: libc::c_int, value: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: setsockopt reads `len` bytes, all of `value`, which outlives the call.
    let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const *value).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Binds to an address of a type of C's.
fn bind<T: Copy>(socket: BorrowedFd<'_>, address: &T) -> io::Result<()> {
    let len = size_of::<T>() as libc::socklen_t;
    // SAFETY: bind reads `len` bytes, all of `address`, which outlives the call.
    let result = unsafe { libc::bind(socket.as_raw_fd(), (&raw const *address).cast(), len) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn gone(name: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("the interface `{name}` is gone"))
}

async fn dump(handle: &Handle) -> Result<Vec<Interface>, rtnetlink::Error> {
    let links: Vec<LinkMessage> = handle.link().get().execute().try_collect().await?;
    let mut all: Vec<Interface> = links.iter().map(|link| read(link, &links)).collect();
    let mut addresses = handle.address().get().execute();
    while let Some(message) = addresses.try_next().await? {
        let own = message.attributes.iter().find_map(|a| match a {
            AddressAttribute::Address(address) => Some(*address),
            _ => None,
        });
        let own = own.filter(|address| !matches!(address, IpAddr::V6(v6) if v6.is_unicast_link_local()));
        let interface = all.iter_mut().find(|interface| interface.index == message.header.index);
        if let (Some(address), Some(interface)) = (own, interface) {
            interface.addresses.push(address);
        }
    }
    Ok(all)
}

fn read(link: &LinkMessage, links: &[LinkMessage]) -> Interface {
    let mut interface = Interface {
        index: link.header.index,
        up: link.header.flags.contains(LinkFlags::Up),
        has_neighbours: !link.header.flags.intersects(LinkFlags::Noarp | LinkFlags::Pointopoint | LinkFlags::Loopback),
        name: name(link).unwrap_or_default(),
        ..Interface::default()
    };
    for attribute in &link.attributes {
        match attribute {
            LinkAttribute::Mtu(mtu) => interface.mtu = *mtu,
            LinkAttribute::Controller(index) => {
                let of = links.iter().find(|link| link.header.index == *index).and_then(name);
                interface.controller = Some(of.unwrap_or_else(|| format!("interface {index}")));
            }
            _ => {}
        }
    }
    interface
}

fn name(link: &LinkMessage) -> Option<String> {
    link.attributes.iter().find_map(|attribute| match attribute {
        LinkAttribute::IfName(name) => Some(name.clone()),
        _ => None,
    })
}
