//! Tables and ports, and the wheel that knows which ports are due.

use weirgate_port::{Packet, Port};
use weirgate_shape::Wheel;
use weirgate_units::{Duration, Instant};

use crate::header::destination;
use crate::table::Table;

/// An output port of a [`Switch`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PortId(u32);

impl PortId {
    /// Ports are numbered from 0 in the order in which they were added.
    pub const fn index(self) -> usize {
        self.0 as usize
    }
}

/// A routing table of a [`Switch`]: each input has one, as with VRFs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TableId(u32);

/// What a switch did with packets before a port took them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// Packets handed to a port.
    pub forwarded: u64,
    /// Packets dropped because no route leads to their destination: multicast of the hosts' own, mostly.
    pub no_route: u64,
    /// Packets dropped because they are not IP, or contradict themselves.
    pub malformed: u64,
}

/// A deadline is noticed at most this late. Short against the half millisecond that the lab promises, long enough that
/// packets of several links leave in one wake-up under load.
const TICK: Duration = Duration::from_micros(20);

/// 67 ms of ticks, which are 16 us: a power of two. A port due later comes up early, says so, and is put in again: once per
/// horizon, which costs nothing.
const SLOTS: usize = 4_096;

/// A switch over ports of one kind.
#[derive(Debug)]
pub struct Switch<P> {
    ports: Vec<Output<P>>,
    tables: Vec<Table<PortId>>,
    deadlines: Wheel<(PortId, Instant)>,
    /// The port that is being emptied.
    giving: Option<PortId>,
    counters: Counters,
}

#[derive(Debug)]
struct Output<P> {
    port: P,
    /// The earliest of its deadlines in the wheel; later ones there are stale and come up for nothing.
    armed: Option<Instant>,
}

impl<P: Port> Switch<P> {
    /// A switch without ports.
    pub fn new(now: Instant) -> Self {
        Self {
            ports: Vec::new(),
            tables: Vec::new(),
            deadlines: Wheel::new(now, TICK, SLOTS),
            giving: None,
            counters: Counters::default(),
        }
    }

    /// Adds an output port.
    ///
    /// # Panics
    /// Past 2^32 ports.
    pub fn add_port(&mut self, port: P) -> PortId {
        let id = PortId(u32::try_from(self.ports.len()).expect("fewer than 2^32 ports"));
        self.ports.push(Output { port, armed: None });
        id
    }

    /// Adds a table of routes.
    ///
    /// # Panics
    /// Past 2^32 tables.
    pub fn add_table(&mut self, table: Table<PortId>) -> TableId {
        let id = TableId(u32::try_from(self.tables.len()).expect("fewer than 2^32 tables"));
        self.tables.push(table);
        id
    }

    /// A port. An id of another switch is a mistake of the caller's and may panic.
    pub fn port(&self, id: PortId) -> &P {
        &self.ports[id.index()].port
    }

    /// Changes a port, for instance its link's settings, and looks at its deadline again.
    pub fn with_port<R>(&mut self, id: PortId, change: impl FnOnce(&mut P) -> R) -> R {
        let result = change(&mut self.ports[id.index()].port);
        self.arm(id);
        result
    }

    /// What was forwarded and what was not.
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Forwards a packet by `table`, or drops and counts it.
    pub fn handle_packet(&mut self, now: Instant, table: TableId, packet: Packet) {
        let Ok(to) = destination(packet.bytes()) else {
            self.counters.malformed += 1;
            return;
        };
        let Some(id) = self.tables[table.0 as usize].lookup(to) else {
            self.counters.no_route += 1;
            return;
        };
        self.counters.forwarded += 1;
        self.ports[id.index()].port.handle_packet(now, packet);
        self.arm(id);
    }

    /// Gives a packet that has come through a port by `now`. Call until `None`. Packets of one port come in order; of
    /// different ports, in the order of their deadlines to within a tick.
    pub fn poll_packet(&mut self, now: Instant) -> Option<(PortId, Packet)> {
        loop {
            let id = match self.giving.take() {
                Some(id) => id,
                None => {
                    let (id, at) = self.deadlines.poll(now)?;
                    let output = &mut self.ports[id.index()];
                    if output.armed != Some(at) {
                        continue;
                    }
                    output.armed = None;
                    id
                }
            };
            if let Some(packet) = self.ports[id.index()].port.poll_packet(now) {
                self.giving = Some(id);
                return Some((id, packet));
            }
            self.arm(id);
        }
    }

    /// When to call [`poll_packet`](Self::poll_packet) again, if no packet goes in before.
    pub fn poll_at(&self) -> Option<Instant> {
        if self.giving.is_some() { Some(Instant::ZERO) } else { self.deadlines.poll_at() }
    }

    /// What always holds: a port that will have something is in the wheel, in time.
    pub fn is_valid(&self) -> bool {
        self.deadlines.is_valid()
            && self.ports.iter().enumerate().all(|(at, output)| {
                let giving = self.giving.is_some_and(|id| id.index() == at);
                giving || output.port.poll_at().is_none_or(|due| output.armed.is_some_and(|armed| armed <= due))
            })
    }

    /// Puts a port's deadline into the wheel, unless an earlier one is there.
    fn arm(&mut self, id: PortId) {
        let output = &mut self.ports[id.index()];
        if let Some(due) = output.port.poll_at()
            && output.armed.is_none_or(|armed| due < armed)
        {
            output.armed = Some(due);
            self.deadlines.insert(due, (id, due));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use weirgate_port::{Impair, Settings, Wire};
    use weirgate_units::{BitRate, Bytes, Prefix};

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(nanos)
    }

    /// An IPv4 packet of `size` bytes to 10.0.`network`.1, carrying a number.
    fn packet(network: u8, size: u16, number: u32) -> Packet {
        let mut bytes = vec![0; usize::from(size)];
        bytes[0] = 0x45;
        bytes[2..4].copy_from_slice(&size.to_be_bytes());
        bytes[16..20].copy_from_slice(&[10, 0, network, 1]);
        bytes[20..24].copy_from_slice(&number.to_be_bytes());
        Packet::copy_of(&bytes)
    }

    fn number(packet: &Packet) -> u32 {
        u32::from_be_bytes(packet.bytes()[20..24].try_into().expect("four bytes"))
    }

    /// Port n has n + 1 Mbit/s and n ms, and leads to 10.0.n.0/24.
    fn switch(ports: u8) -> (Switch<Impair>, TableId) {
        let mut switch = Switch::new(at(0));
        let mut table = Table::new();
        for n in 0..ports {
            let settings = Settings {
                rate: Some(BitRate::from_bits_per_sec((u64::from(n) + 1) * 1_000_000)),
                delay: Duration::from_millis(u64::from(n)),
                queue: Bytes::new(1_000_000),
                ..Settings::default()
            };
            let port = switch.add_port(Impair::new(at(0), settings, n.into(), Wire::new()));
            table.insert(Prefix::of([10, 0, n, 0].into(), 24), port);
        }
        let table = switch.add_table(table);
        (switch, table)
    }

    #[test]
    fn what_cannot_be_forwarded_is_counted() {
        let (mut switch, table) = switch(2);
        switch.handle_packet(at(0), table, packet(7, 100, 0));
        switch.handle_packet(at(0), table, Packet::copy_of(&[0x45; 3]));
        switch.handle_packet(at(0), table, packet(1, 100, 0));
        assert_eq!(*switch.counters(), Counters { forwarded: 1, no_route: 1, malformed: 1 });
    }

    #[test]
    fn a_faster_setting_brings_the_deadline_forward() {
        let (mut switch, table) = switch(1);
        switch.handle_packet(at(0), table, packet(0, 1_000, 1));
        let due = switch.poll_at().expect("it is on the line");
        assert!(due >= at(8_000_000) && due < at(8_000_000) + TICK, "{due:?}");
        let port = PortId(0);
        switch.with_port(port, |p| p.set(at(1_000_000), Settings { rate: None, ..*p.settings() }));
        assert!(switch.is_valid());
        let due = switch.poll_at().expect("it has come through");
        assert!(due <= at(1_020_000), "{due:?}");
        let (_, packet) = switch.poll_packet(due).expect("it has come through");
        assert_eq!(packet.at(), at(1_000_000));
        assert!(switch.poll_packet(at(9_000_000)).is_none(), "the old deadline comes up for nothing");
        assert_eq!(switch.poll_at(), None);
    }

    proptest! {
        /// Every packet comes out of its port, in order, noticed at most a tick after its instant.
        #[test]
        fn every_packet_reaches_its_port(
            packets in prop::collection::vec((0_u8..8, 24_u16..1_500, 0_u64..20_000_000), 1..100),
        ) {
            let (mut switch, table) = switch(8);
            let (mut now, mut expected, mut got) = (at(0), vec![vec![]; 8], vec![vec![]; 8]);
            let mut poll = |switch: &mut Switch<Impair>, until: Instant| {
                while let Some(due) = switch.poll_at().filter(|due| *due <= until) {
                    while let Some((port, packet)) = switch.poll_packet(due) {
                        assert!(due.saturating_since(packet.at()) < TICK, "{due:?} for {packet:?}");
                        got[port.index()].push(number(&packet));
                    }
                    assert!(switch.is_valid());
                }
            };
            for (n, (network, size, wait)) in packets.into_iter().enumerate() {
                now += Duration::from_nanos(wait);
                poll(&mut switch, now);
                switch.handle_packet(now, table, packet(network, size, n as u32));
                expected[usize::from(network)].push(n as u32);
                prop_assert!(switch.is_valid());
            }
            poll(&mut switch, at(u64::MAX));
            prop_assert_eq!(got, expected);
        }
    }
}
