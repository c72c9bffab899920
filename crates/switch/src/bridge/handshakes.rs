//! The round trips of TCP connections, by their handshakes: who opens one sends its SYN, and what it sends next is a round trip
//! later, from wherever on the path one looks (what Wireshark calls iRTT): the way from here to the server and back, and from here to
//! the client and back. Nothing is kept of connections that began elsewhere or before. Connections are told apart by their addresses and
//! ports alone: of two with the same ones in two VLANs the last one is known.
//!
//! Threads have one table together, a word for each place, without a lock: of connections that meet in a place the last one is
//! known, and whoever reads a word that another thread writes finds the old one or the new one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use weirgate_units::{Duration, Instant};

use crate::frame::{FlowKey, Fragment, Frame, Ip, TcpFlags, Transport};

/// Directions of connections that are remembered: 256 KiB.
const PLACES: usize = 1 << 15;

/// Connections that a thread watches the beginning of, by their ports: nearly every frame is told from theirs by one look at these.
const OPENING: usize = 256;

/// A longer one is none: the SYN was sent again meanwhile (RFC 6298, 2.1), or an answer of the first one's came late.
const LONGEST: Duration = Duration::from_secs(1);

/// A word: a flow's tag, whether its round trip is known, and that, or else when its SYN came, in microseconds.
const TAG: u64 = !0 << 40;
const KNOWN: u64 = 1 << 39;
const MICROS: u64 = KNOWN - 1;

/// A thread's view of the table.
#[derive(Debug)]
pub(super) struct Handshakes {
    places: Arc<[AtomicU64]>,
    /// Both ports; zero: none.
    opening: Box<[u32; OPENING]>,
    seed: u64,
}

impl Handshakes {
    /// With a table of its own, of flows that are hashed with `seed`.
    pub(super) fn new(seed: u64) -> Self {
        let places = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
        Self { places, opening: Box::new([0; OPENING]), seed }
    }

    /// With the table of `other`.
    pub(super) fn with(other: &Self) -> Self {
        Self { places: Arc::clone(&other.places), opening: Box::new([0; OPENING]), seed: other.seed }
    }

    /// Takes note of a frame that came. Steps: a look for what is no part of a handshake, else two hashes.
    #[inline]
    pub(super) fn handle_frame(&mut self, now: Instant, frame: &Frame) {
        let Some(Ip { transport: Transport::Tcp { source, destination, flags, .. }, .. }) = &frame.ip else { return };
        let ports = u32::from(*source) << 16 | u32::from(*destination);
        let begins = flags.0 & (TcpFlags::SYN | TcpFlags::ACK) == TcpFlags::SYN;
        // The multiplier is 2^32 over the golden ratio (Knuth, 6.4): its product's upper bits are spread by all of the ports'.
        let opening = &mut self.opening[(ports.wrapping_mul(0x9e37_79b1) >> 24) as usize];
        if begins || *opening == ports {
            *opening = if begins { ports } else { 0 };
            self.handle_handshake(now, frame, begins);
        }
    }

    #[cold]
    fn handle_handshake(&self, now: Instant, frame: &Frame, begins: bool) {
        let whole = frame.ip.as_ref().is_some_and(|ip| ip.fragment == Fragment::Whole);
        let Some(flow) = frame.flow().filter(|_| whole) else { return };
        let hash = flow.hash(self.seed);
        let now = (now.as_nanos() / 1_000) & MICROS;
        if begins {
            self.place(hash).store(hash & TAG | now, Ordering::Relaxed);
            return;
        }
        let word = self.place(hash).load(Ordering::Relaxed);
        let rtt = now.wrapping_sub(word) & MICROS;
        if word & (TAG | KNOWN) != hash & TAG || Duration::from_micros(rtt) > LONGEST {
            return;
        }
        let back = FlowKey {
            source: flow.destination,
            destination: flow.source,
            source_port: flow.destination_port,
            destination_port: flow.source_port,
            ..flow
        };
        for hash in [hash, back.hash(self.seed)] {
            self.place(hash).store(hash & TAG | KNOWN | rtt, Ordering::Relaxed);
        }
    }

    /// The round trip of the flow with this hash, either direction of a connection, where it is known.
    #[inline]
    pub(super) fn rtt(&self, hash: u64) -> Option<Duration> {
        let word = self.place(hash).load(Ordering::Relaxed);
        (word & (TAG | KNOWN) == hash & TAG | KNOWN).then(|| Duration::from_micros(word & MICROS))
    }

    fn place(&self, hash: u64) -> &AtomicU64 {
        // Its tag is of the bits above these.
        &self.places[(hash >> 25) as usize % PLACES]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::testing::Build;
    use proptest::prelude::*;

    fn ms(n: u64) -> Instant {
        Instant::from_nanos(n * 1_000_000)
    }

    fn packet(flags: u8, ports: (u16, u16)) -> Frame {
        let build = Build { flags, ports, ..Build::default() };
        build.parse(&build.bytes())
    }

    fn rtt(handshakes: &Handshakes, frame: &Frame) -> Option<u64> {
        let flow = frame.flow().expect("it is IP");
        handshakes.rtt(flow.hash(handshakes.seed)).map(|rtt| rtt.as_nanos() / 1_000_000)
    }

    const SYN: u8 = TcpFlags::SYN;
    const ACK: u8 = TcpFlags::ACK;

    #[test]
    fn the_answer_to_a_syns_answer_comes_a_round_trip_later() {
        let mut all = Handshakes::new(7);
        let connection = packet(ACK, (50_000, 443));
        all.handle_frame(ms(1), &packet(SYN, (50_000, 443)));
        all.handle_frame(ms(31), &packet(SYN | ACK, (443, 50_000)));
        assert_eq!(rtt(&all, &connection), None, "half of it");
        all.handle_frame(ms(41), &connection);
        assert_eq!(rtt(&all, &connection), Some(40));
        all.handle_frame(ms(900), &connection);
        assert_eq!(rtt(&all, &connection), Some(40), "what comes later says nothing");
        assert_eq!(rtt(&all, &packet(ACK, (50_001, 443))), None, "of another connection");
    }

    #[test]
    fn a_syn_that_is_sent_again_counts_from_then_and_one_that_waits_for_long_not_at_all() {
        let mut all = Handshakes::new(7);
        let connection = packet(ACK, (50_000, 443));
        for begun in [0, 1_000] {
            all.handle_frame(ms(begun), &packet(SYN, (50_000, 443)));
        }
        all.handle_frame(ms(1_020), &connection);
        assert_eq!(rtt(&all, &connection), Some(20));
        all.handle_frame(ms(5_000), &packet(SYN, (50_000, 443)));
        assert_eq!(rtt(&all, &connection), None, "the ports are another connection's now");
        all.handle_frame(ms(6_001), &connection);
        assert_eq!(rtt(&all, &connection), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// Both directions know it, on another thread as well, whenever it began and whoever began meanwhile.
        #[test]
        fn both_directions_know_it(
            begun in 0_u64..1 << 50,
            micros in 0_u64..=1_000_000,
            others in prop::collection::vec(any::<(u16, u16)>(), 0..50),
        ) {
            let mut all = Handshakes::new(begun);
            let other = Handshakes::with(&all);
            let ports = (50_000, 443);
            let build = Build { flags: ACK, ports, ..Build::default() };
            let [there, back] = [build.bytes(), build.answered()].map(|bytes| build.parse(&bytes));
            let at = |nanos: u64| Instant::from_nanos(begun + nanos);
            for ports in others {
                all.handle_frame(at(0), &packet(SYN, ports));
            }
            all.handle_frame(at(0), &packet(SYN, ports));
            all.handle_frame(at(micros * 1_000), &there);
            for frame in [there, back] {
                let found = other.rtt(frame.flow().expect("it is IP").hash(begun));
                prop_assert_eq!(found, Some(Duration::from_micros(micros)));
            }
        }
    }
}
