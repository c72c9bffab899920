//! CONGA: each flowlet by the uplink whose path to the destination's leaf is least congested, as that leaf says. Read first: Alizadeh et
//! al., "CONGA: distributed congestion-aware load balancing for datacenters" (SIGCOMM 2014), section 3.
//!
//! A packet between leaves carries, in its overlay header, the uplink that it was sent by ([`Header::uplink`]) and the congestion that
//! it met: every link on the way raises it to its own ([`Estimator::mark`]). The leaf that it comes to keeps both, and tells the leaf
//! that it came from with the next packet that goes there ([`Header::feedback`]).

use alloc::vec;
use alloc::vec::Vec;

use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::flowlet::{Flowlets, Known};
use crate::spread::least;
use crate::{FlowHash, Port, Sampler};

/// What the article leaves to be set; the default is what it says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CongaSettings {
    /// How often an estimate decays (`T_dre`). With a `decay` of 2 it is of the last four of them: 160 us, the article's time constant.
    pub period: Duration,
    /// What an estimate loses each period, as 1 / 2^this: 1 to 8.
    pub decay: u32,
    /// Bits of a congestion metric, 1 to 8.
    pub bits: u32,
    /// A metric that nobody has told for so long is as good as zero, and one that no packet has met for so long is not told. Zero: a leaf
    /// goes by its own uplinks alone.
    pub age_max: Duration,
    /// The pause after which a flowlet is over.
    pub gap: Duration,
    /// Places in the table of flowlets.
    pub flowlets: u32,
}

impl Default for CongaSettings {
    fn default() -> Self {
        Self {
            period: Duration::from_micros(40),
            decay: 2,
            bits: 3,
            age_max: Duration::from_millis(10),
            gap: Duration::from_micros(500),
            flowlets: 65_536,
        }
    }
}

/// The discounting rate estimator (DRE) of a link: what it sent lately, as a share of what it could have. Steps of a call: the periods since
/// the last one in which something was left, at most some 30 times 2^[`decay`](CongaSettings::decay).
#[derive(Clone, Copy, Debug)]
pub struct Estimator {
    /// Bytes, discounted, as of the period that `periods` ended.
    sent: u64,
    periods: u64,
    /// What `sent` is where the link is full all the time.
    full: u64,
    settings: CongaSettings,
}

impl Estimator {
    /// Of a link of this rate.
    pub fn new(rate: BitRate, settings: CongaSettings) -> Self {
        // What comes in each period is full * 2^-decay: then what is lost is what comes.
        let full = rate.bytes_in(settings.period).as_u64() << settings.decay;
        Self { sent: 0, periods: 0, full: full.max(1), settings }
    }

    /// So much is sent.
    pub fn handle_sent(&mut self, now: Instant, size: Bytes) {
        self.advance(now);
        self.sent = self.sent.saturating_add(size.as_u64());
    }

    /// The link's congestion now, from 0 to the highest of the bits.
    pub fn metric(&mut self, now: Instant) -> u8 {
        self.advance(now);
        let highest = (1_u64 << self.settings.bits.clamp(1, 8)) - 1;
        (u128::from(self.sent) * u128::from(highest + 1) / u128::from(self.full)).min(u128::from(highest)) as u8
    }

    /// Raises what a packet that passes has met to the link's own.
    pub fn mark(&mut self, now: Instant, header: &mut Header) {
        header.congestion = header.congestion.max(self.metric(now));
    }

    fn advance(&mut self, now: Instant) {
        let periods = now.as_nanos() / self.settings.period.as_nanos().max(1);
        let passed = periods.saturating_sub(self.periods);
        self.periods = periods.max(self.periods);
        // After some periods nothing is left; each takes its share, rounded up, so that it does come to nothing.
        for _ in 0..passed {
            if self.sent == 0 {
                break;
            }
            self.sent -= self.sent.div_ceil(1 << self.settings.decay);
        }
    }
}

/// What a packet carries between leaves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The place of the uplink that it was sent by, among its leaf's (LBTag).
    pub uplink: u8,
    /// The most congested link that it met (CE).
    pub congestion: u8,
    /// Of the other way, what was met lately: the place of an uplink of the leaf that this goes to, and its path's congestion.
    pub feedback: Option<(u8, u8)>,
}

/// A leaf switch. Leaves are numbered from 0, and so are the places of each leaf's uplinks, the same in the whole network.
#[derive(Clone, Debug)]
pub struct Conga {
    settings: CongaSettings,
    uplinks: Vec<Port>,
    estimators: Vec<Estimator>,
    flowlets: Flowlets,
    leaves: Vec<Leaf>,
}

/// What a leaf knows of another one.
#[derive(Clone, Debug)]
struct Leaf {
    /// By own uplink: what that leaf says of the path to it, and when it said so.
    to: Vec<(u8, Instant)>,
    /// By that leaf's uplink: what its packets have met.
    from: Vec<Met>,
    /// The uplink that it is told of next.
    turn: usize,
}

#[derive(Clone, Copy, Debug, Default)]
struct Met {
    congestion: u8,
    /// When it was; nothing: never.
    at: Option<Instant>,
    /// Not told yet.
    is_news: bool,
}

impl Met {
    /// What was met too long ago is not told: it would keep its path from being tried again for as long as there is traffic by others.
    fn is_known(&self, now: Instant, age_max: Duration) -> bool {
        self.at.is_some_and(|at| now.saturating_since(at) < age_max)
    }
}

impl Conga {
    /// The most uplinks of a leaf: a header has a byte for them.
    pub const UPLINKS_MAX: usize = 256;

    /// Bytes that a leaf with so many uplinks takes, where all leaves together have so many.
    pub fn memory(settings: CongaSettings, leaves: usize, uplinks: usize, uplinks_of_all: usize) -> u64 {
        let told = leaves * (size_of::<Leaf>() + uplinks * size_of::<(u8, Instant)>());
        Flowlets::memory(settings.flowlets) + (told + uplinks_of_all * size_of::<Met>()) as u64
    }

    /// A leaf with these uplinks, among leaves that have so many of them each, by their numbers.
    ///
    /// # Panics
    /// Past [`UPLINKS_MAX`](Self::UPLINKS_MAX) uplinks.
    pub fn new(settings: CongaSettings, uplinks: &[(Port, BitRate)], leaves: &[usize]) -> Self {
        let most = leaves.iter().copied().fold(uplinks.len(), usize::max);
        assert!(most <= Self::UPLINKS_MAX, "a leaf has 256 uplinks at most");
        let leaf = |theirs: &usize| Leaf {
            to: vec![(0, Instant::ZERO); uplinks.len()],
            from: vec![Met::default(); *theirs],
            turn: 0,
        };
        Self {
            settings,
            uplinks: uplinks.iter().map(|(port, _)| *port).collect(),
            estimators: uplinks.iter().map(|(_, rate)| Estimator::new(*rate, settings)).collect(),
            flowlets: Flowlets::new(settings.flowlets, settings.gap),
            leaves: leaves.iter().map(leaf).collect(),
        }
    }

    /// The port of `group` for a packet of `flow` that goes to a leaf, and the header that it carries there. The least congested path
    /// takes a new flowlet: the more congested of the uplink itself and the path behind it. Of several, the one that the flow had
    /// before, else any. Steps: the uplinks.
    ///
    /// # Panics
    /// Where none of `group` is an uplink, or there is no such leaf.
    pub fn pick(
        &mut self,
        now: Instant,
        leaf: usize,
        flow: FlowHash,
        group: &[Port],
        sampler: &mut impl Sampler,
    ) -> (Port, Header) {
        let known = self.flowlets.know(now, flow);
        let port = match known {
            Known::Flowlet(port) if group.contains(&port) => port,
            _ => self.least_congested(now, leaf, known, group, sampler),
        };
        self.flowlets.note(now, flow, port);
        let uplink = self.uplinks.iter().position(|uplink| *uplink == port).expect("a group is of uplinks") as u8;
        (port, Header { uplink, congestion: 0, feedback: self.feedback(now, leaf) })
    }

    /// A packet leaves by an uplink: its estimate rises, and the header is marked with it.
    pub fn handle_sent(&mut self, now: Instant, port: Port, size: Bytes, header: &mut Header) {
        if let Some(uplink) = self.uplinks.iter().position(|uplink| *uplink == port) {
            self.estimators[uplink].handle_sent(now, size);
            self.estimators[uplink].mark(now, header);
        }
    }

    /// A packet has come from a leaf, with this header; what it says of uplinks that there are not is nothing.
    ///
    /// # Panics
    /// Where there is no such leaf.
    pub fn handle_received(&mut self, now: Instant, leaf: usize, header: &Header) {
        let leaf = &mut self.leaves[leaf];
        if let Some(met) = leaf.from.get_mut(usize::from(header.uplink)) {
            let is_news = met.is_news || met.at.is_none() || met.congestion != header.congestion;
            *met = Met { congestion: header.congestion, at: Some(now), is_news };
        }
        if let Some((uplink, congestion)) = header.feedback
            && let Some(to) = leaf.to.get_mut(usize::from(uplink))
        {
            *to = (congestion, now);
        }
    }

    /// The congestion of the path to a leaf by an uplink: of the uplink itself, and as far as that leaf has said lately.
    fn congestion(&mut self, now: Instant, leaf: usize, uplink: usize) -> u8 {
        let (said, at) = self.leaves[leaf].to[uplink];
        let said = if now.saturating_since(at) < self.settings.age_max { said } else { 0 };
        said.max(self.estimators[uplink].metric(now))
    }

    fn least_congested(
        &mut self,
        now: Instant,
        leaf: usize,
        known: Known,
        group: &[Port],
        sampler: &mut impl Sampler,
    ) -> Port {
        let kept = if let Known::Paused(port) = known { Some(port) } else { None };
        let candidates = (0..self.uplinks.len()).filter_map(|at| {
            let port = self.uplinks[at];
            group.contains(&port).then(|| (self.congestion(now, leaf, at), port))
        });
        least(candidates, kept, sampler).expect("a group has an uplink")
    }

    /// What a leaf is told next: in turn, of what is news first.
    fn feedback(&mut self, now: Instant, leaf: usize) -> Option<(u8, u8)> {
        let age_max = self.settings.age_max;
        let leaf = &mut self.leaves[leaf];
        let turns = || {
            let turns = (0..leaf.from.len()).map(|at| (leaf.turn + at) % leaf.from.len());
            turns.filter(|at| leaf.from[*at].is_known(now, age_max))
        };
        let at = turns().find(|at| leaf.from[*at].is_news).or_else(|| turns().next())?;
        leaf.turn = at + 1;
        leaf.from[at].is_news = false;
        Some((at as u8, leaf.from[at].congestion))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Pcg, Told};

    const RATE: BitRate = BitRate::from_bits_per_sec(10_000_000_000);

    fn at(micros: u64) -> Instant {
        Instant::ZERO + Duration::from_micros(micros)
    }

    #[test]
    fn an_estimate_follows_what_is_sent() {
        let mut estimator = Estimator::new(RATE, CongaSettings::default());
        // 50,000 B a period of 40 us are the whole of 10 Gbit/s.
        let send = |estimator: &mut Estimator, periods: core::ops::Range<u64>, size| {
            for period in periods {
                estimator.handle_sent(at(period * 40), Bytes::new(size));
            }
        };
        send(&mut estimator, 1..40, 50_000);
        assert_eq!(estimator.metric(at(39 * 40)), 7, "the highest of three bits");
        send(&mut estimator, 40..80, 25_000);
        assert_eq!(estimator.metric(at(79 * 40)), 4, "half");
        assert_eq!(estimator.metric(at(90 * 40)), 0, "nothing for ten periods");
    }

    #[test]
    fn an_estimate_has_its_decay_and_a_metric_its_bits() {
        for (decay, bits, half, highest) in [(1, 1, 1, 1), (2, 3, 4, 7), (4, 5, 16, 31), (8, 8, 128, 255)] {
            let settings = CongaSettings { period: Duration::from_micros(10), decay, bits, ..CongaSettings::default() };
            let mut estimator = Estimator::new(RATE, settings);
            // 12,500 B a period of 10 us are the whole of 10 Gbit/s.
            let send = |estimator: &mut Estimator, periods: core::ops::Range<u64>, size| {
                for period in periods {
                    estimator.handle_sent(at(period * 10), Bytes::new(size));
                }
            };
            send(&mut estimator, 1..4_000, 12_500);
            assert_eq!(estimator.metric(at(39_990)), highest, "decay {decay}");
            send(&mut estimator, 4_000..8_000, 6_250);
            assert_eq!(estimator.metric(at(79_990)), half, "decay {decay}");
            // (1 - 2^-decay)^(2^decay) is left after 2^decay periods: 1/4 with 1, towards 1/e with more.
            let had = estimator.sent as f64;
            estimator.metric(at((7_999 + (1 << decay)) * 10));
            let left = estimator.sent as f64 / had;
            assert!((0.249..0.368).contains(&left), "decay {decay}: {left}");
        }
    }

    #[test]
    fn feedback_says_where_not_to_go() {
        let uplinks = [(Port(4), RATE), (Port(5), RATE)];
        let [mut here, mut there] = [0; 2].map(|_| Conga::new(CongaSettings::default(), &uplinks, &[2, 2]));
        let (group, mut sampler) = ([Port(4), Port(5)], Pcg::new(1));
        // Leaf 0's packet by its first uplink has met 6 on the way.
        let (port, mut header) = here.pick(at(0), 1, FlowHash::from_u64(0), &group, &mut Told(vec![1]));
        assert_eq!((port, header), (Port(4), Header::default()));
        header.congestion = 6;
        there.handle_received(at(5), 0, &header);
        // Leaf 1 says so with its next one.
        let (_, back) = there.pick(at(10), 0, FlowHash::from_u64(1), &group, &mut sampler);
        assert_eq!(back.feedback, Some((0, 6)));
        here.handle_received(at(15), 1, &back);
        for flow in 1..50 {
            assert_eq!(here.pick(at(20), 1, FlowHash::from_u64(flow), &group, &mut sampler).0, Port(5));
        }
        // The first flow's flowlet goes on; and after 10 ms nobody believes it any more.
        assert_eq!(here.pick(at(30), 1, FlowHash::from_u64(0), &group, &mut sampler).0, Port(4));
        assert_eq!(
            here.pick(at(10_100), 1, FlowHash::from_u64(0), &group, &mut sampler).0,
            Port(4),
            "of two, the one it had"
        );
    }

    #[test]
    fn what_is_too_old_at_once_is_neither_told_nor_believed() {
        let uplinks = [(Port(4), RATE), (Port(5), RATE)];
        let settings = CongaSettings { age_max: Duration::ZERO, ..CongaSettings::default() };
        let mut leaf = Conga::new(settings, &uplinks, &[2, 2]);
        leaf.handle_received(at(5), 1, &Header { uplink: 0, congestion: 6, feedback: Some((0, 7)) });
        let (port, header) = leaf.pick(at(5), 1, FlowHash::from_u64(0), &[Port(4), Port(5)], &mut Told(vec![1]));
        assert_eq!((port, header.feedback), (Port(4), None));
    }

    /// The other leaf has one uplink more than this one, and no fourth.
    #[test]
    fn leaves_may_have_more_uplinks_than_this_one() {
        let uplinks = [(Port(4), RATE), (Port(5), RATE)];
        let mut leaf = Conga::new(CongaSettings::default(), &uplinks, &[2, 3]);
        leaf.handle_received(at(0), 1, &Header { uplink: 3, congestion: 5, feedback: Some((2, 7)) });
        assert_eq!(leaf.feedback(at(0), 1), None);
        leaf.handle_received(at(0), 1, &Header { uplink: 2, congestion: 5, feedback: Some((1, 7)) });
        assert_eq!(leaf.feedback(at(0), 1), Some((2, 5)));
        let (port, _) = leaf.pick(at(1), 1, FlowHash::from_u64(0), &[Port(4), Port(5)], &mut Pcg::new(1));
        assert_eq!(port, Port(4), "it has said that the second one's path is full");
    }

    #[test]
    fn a_busy_uplink_is_avoided_and_marks_what_it_sends() {
        let uplinks = [(Port(4), RATE), (Port(5), RATE)];
        let mut leaf = Conga::new(CongaSettings::default(), &uplinks, &[2, 2]);
        let mut header = Header::default();
        for period in 1..20 {
            leaf.handle_sent(at(period * 40), Port(5), Bytes::new(50_000), &mut header);
        }
        assert!(header.congestion >= 6);
        let mut sampler = Pcg::new(1);
        for flow in 0..50 {
            let (port, _) = leaf.pick(at(800), 1, FlowHash::from_u64(flow), &[Port(4), Port(5)], &mut sampler);
            assert_eq!(port, Port(4));
        }
    }

    #[test]
    fn news_are_told_first_and_then_all_in_turn() {
        let uplinks = [0, 1, 2].map(|port| (Port(port), RATE));
        let mut leaf = Conga::new(CongaSettings::default(), &uplinks, &[3, 3]);
        for (uplink, congestion) in [(0, 1), (1, 2), (2, 3)] {
            leaf.handle_received(at(0), 1, &Header { uplink, congestion, feedback: None });
        }
        let told: Vec<_> = (0..5).map(|_| leaf.feedback(at(0), 1).unwrap()).collect();
        assert_eq!(told, [(0, 1), (1, 2), (2, 3), (0, 1), (1, 2)]);
        leaf.handle_received(at(1), 1, &Header { uplink: 1, congestion: 7, feedback: None });
        assert_eq!([leaf.feedback(at(1), 1), leaf.feedback(at(1), 1)], [Some((1, 7)), Some((2, 3))]);
        // After 10 ms only what was met last is worth telling, and then nothing.
        assert_eq!([10_000, 10_000, 10_001].map(|now| leaf.feedback(at(now), 1)), [Some((1, 7)), Some((1, 7)), None]);
    }
}
