//! Network namespaces and the emulated links between them, made of the project's own rooms.
//!
//! An *edge* is a namespace with one device, `wan`, and default routes through it; behind that device a switch
//! ([`weirgate_switch`]) leads to any number of client networks, each in a namespace of its own, over a link
//! ([`weirgate_port::Impair`]) with settings for each direction. So an edge sees one gateway and many unlike paths behind
//! it, as a real one does. One thread carries all links of an [`Emulator`].
//!
//! Layer 3 throughout (TUN): no ARP, no neighbour discovery, no duplicate address detection. Rates and queues count IP
//! bytes.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! use weirgate_lab::net::{Emulator, LinkSettings, Namespace, Topology};
//! use weirgate_port::{Chance, Settings};
//! use weirgate_units::{Bytes, Duration};
//!
//! let (edge, home) = (Namespace::create("edge")?, Namespace::create("home")?);
//! let mut topology = Topology::new(1);
//! let hub = topology.edge(&edge, &["10.255.0.1".parse()?, "2001:db8:ffff::1".parse()?]);
//! let clean = Settings {
//!     rate: Some("50 Mbit/s".parse()?),
//!     queue: Bytes::new(187_500),
//!     delay: Duration::from_millis(10),
//!     ..Settings::default()
//! };
//! // Every address of these networks is the client's own: bind any of them.
//! let networks = ["10.1.2.0/24".parse()?, "2001:db8:1:200::/56".parse()?];
//! let link = topology.link(hub, &home, &networks, LinkSettings { down: clean, up: clean });
//! let emulator = Emulator::start(topology)?;
//! // ... real servers in `edge.netns()`, real clients in `home.netns()` ...
//! let lossy = Settings { loss: Chance::from_ppm(10_000), ..clean };
//! emulator.set(link, LinkSettings { down: lossy, up: clean })?;
//! let counters = emulator.stop()?;
//! println!("{} packets were lost", counters.links[0].down.dropped_loss);
//! # Ok(())
//! # }
//! ```

pub mod check;
mod congestion;
mod emulator;
mod namespace;
mod topology;

pub use congestion::AllowedCongestion;
pub(crate) use emulator::device;
pub use emulator::{Counters, Emulator, Lateness, LinkCounters};
pub use namespace::{Namespace, left_behind, sweep};
pub use topology::{EdgeId, LinkId, LinkSettings, Topology};
