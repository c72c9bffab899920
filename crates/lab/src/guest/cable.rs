//! A guest's cable: its card, the switch, and a TAP device in a namespace that is the other end.

use std::path::Path;

use anyhow::Result;
use weirgate_linux::dataplane::{Dataplane, Handle, MEMORY_MAX, PortCounters, spawn};
use weirgate_linux::tap::Tap;
use weirgate_linux::vhost::{Offloads, Role, VhostOptions, VhostUser};
use weirgate_linux::{clock, link};
use weirgate_switch::bridge::{Bridge, BridgeClass, BridgePort};
use weirgate_switch::class::Rule;
use weirgate_switch::frame::Accounting;
use weirgate_switch::limits::{ClassSettings, LimitCounters, LimitId, LimitSettings, queue_max};
use weirgate_units::{BitRate, Bytes, Duration};

use super::HOST;
use crate::net::Namespace;
use crate::recorder::{Record, Recorder};

/// What was read from a port and waits before its queue is not read any more: the daemon's.
const BACKLOG_MAX: Bytes = Bytes::new(256 << 10);

/// Which of the two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// What the guest sends.
    FromGuest,
    /// What is sent to it.
    ToGuest,
}

/// The switch between a guest and a namespace. The TAP device, the card's socket and the switch go on drop; QEMU connects again to the
/// next cable's socket.
#[derive(Debug)]
pub struct Cable {
    switch: Handle,
    ports: [BridgePort; 2],
    limit: Option<LimitId>,
    /// What came from the guest, as it was read from its card.
    pub from_guest: Record,
    /// What was put into the guest.
    pub to_guest: Record,
    /// What came from the namespace.
    pub from_host: Record,
    /// What was sent to it.
    pub to_host: Record,
}

impl Cable {
    /// Makes the card's device at `socket` and a TAP device with the address [`HOST`] in `host`, with a limit on one of the ways or
    /// none. Whoever is gated by it is the port that the way begins at.
    ///
    /// # Errors
    /// Without root's rights, or where one of the two is there already.
    pub fn lay(socket: &Path, host: &Namespace, limit: Option<(Way, LimitSettings)>) -> Result<Self> {
        let now = clock::boottime();
        let rate = limit.map_or(BitRate::from_bits_per_sec(1_000_000_000), |(_, settings)| settings.rate);
        let mut bridge = Bridge::new(now, rate, rate, MEMORY_MAX, 1);
        let mut gates = [None; 2];
        let mut id = None;
        if let Some((way, settings)) = limit {
            let limit = bridge.add_limit(now, settings);
            let queue = ClassSettings { queue_max: queue_max(settings.rate), ..ClassSettings::default() };
            let class =
                bridge.add_class(&BridgeClass { limits: vec![limit], accounting: Accounting::default(), queue });
            let port = u16::from(way == Way::ToGuest);
            bridge.set_rules(vec![Rule { port: Some(port), ..Rule::any(0, class) }], vec![])?;
            gates[usize::from(port)] = settings.mode.gates().then_some(limit);
            id = Some(limit);
        }
        let options =
            VhostOptions { socket: socket.to_owned(), role: Role::Listen, queues: 1, offloads: Offloads::ALL };
        let card = Recorder::new(VhostUser::start(&options)?, now);
        let tap = Recorder::new(Tap::create(host.netns(), "tap0", 1)?, now);
        link::ip_batch(host.netns(), &format!("addr add {HOST}/24 dev tap0\nlink set tap0 up\n"))?;
        let (from_guest, to_guest) = (card.received(), card.sent());
        let (from_host, to_host) = (tap.received(), tap.sent());
        let mut dataplane = Dataplane::new(bridge)?;
        let card = dataplane.add_port(Box::new(card), gates[0], BACKLOG_MAX)?;
        let tap = dataplane.add_port(Box::new(tap), gates[1], BACKLOG_MAX)?;
        dataplane.bridge_mut().join(card, tap);
        Ok(Self {
            switch: spawn("switch", dataplane)?,
            ports: [card, tap],
            limit: id,
            from_guest,
            to_guest,
            from_host,
            to_host,
        })
    }

    /// What the limit did; nothing where there is none.
    ///
    /// # Errors
    /// Where the switch has stopped.
    pub fn counters(&self) -> Result<LimitCounters> {
        let Some(limit) = self.limit else { return Ok(LimitCounters::default()) };
        Ok(self.switch.call(move |d| d.bridge().limit_counters(limit, clock::boottime()))?)
    }

    /// What the two ports did: the card's, and the TAP device's.
    ///
    /// # Errors
    /// Where the switch has stopped.
    pub fn ports(&self) -> Result<[PortCounters; 2]> {
        let ports = self.ports;
        Ok(self.switch.call(move |dataplane| ports.map(|port| dataplane.port(port).0))?)
    }

    /// Processor time that the switch's thread has used.
    ///
    /// # Errors
    /// Where the switch has stopped.
    pub fn cpu(&self) -> Result<Duration> {
        Ok(self.switch.call(|_| clock::thread_cpu())?)
    }
}
