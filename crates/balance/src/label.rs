//! Balancers of the host: it keeps a label in the packets of a connection (IPv6's flow label, a UDP source port), which switches hash,
//! and changes it when its path is congested. Read first: Qureshi et al., "PLB: congestion signals are simple and effective for network
//! load balancing" (SIGCOMM 2022), and Linux's net/ipv4/tcp_plb.c; Kabbani et al., "FlowBender" (CoNEXT 2014).

use weirgate_units::{Duration, Instant};

use crate::Sampler;

/// When a connection takes another path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LabelSettings {
    /// A round trip is congested if this share of its acknowledged bytes was marked with ECN, or more, in per mille.
    pub congested_permille: u16,
    /// After so many congested round trips in a row.
    pub rounds: u8,
    /// After so many already if nothing is in flight, where nothing can be overtaken; more than `rounds`: never.
    pub idle_rounds: u8,
    /// After a timeout, which has changed the path as well, it stays for so long, and up to twice that.
    pub timeout_pause: Duration,
}

impl LabelSettings {
    /// PLB, as Linux 6.2 and later have it.
    pub const PLB: Self =
        Self { congested_permille: 500, rounds: 12, idle_rounds: 3, timeout_pause: Duration::from_secs(60) };
    /// FlowBender: at once, when a twentieth was marked.
    pub const FLOW_BENDER: Self =
        Self { congested_permille: 50, rounds: 1, idle_rounds: u8::MAX, timeout_pause: Duration::ZERO };
}

/// A connection's label.
#[derive(Clone, Copy, Debug)]
pub struct Label {
    label: u32,
    congested: u8,
    stays_until: Instant,
}

impl Label {
    /// A connection's first.
    pub fn new(sampler: &mut impl Sampler) -> Self {
        Self { label: sampler.below(1 << 20), congested: 0, stays_until: Instant::ZERO }
    }

    /// 20 bits, as IPv6's.
    pub const fn get(&self) -> u32 {
        self.label
    }

    /// A round trip has passed in which so many bytes were acknowledged, and so many of them marked; whether something is in flight still.
    /// True: the label has changed.
    pub fn handle_round(
        &mut self,
        now: Instant,
        settings: &LabelSettings,
        acked: u64,
        marked: u64,
        is_idle: bool,
        sampler: &mut impl Sampler,
    ) -> bool {
        let share = u128::from(acked) * u128::from(settings.congested_permille);
        let is_congested = acked > 0 && u128::from(marked) * 1_000 >= share;
        self.congested = if is_congested { self.congested.saturating_add(1) } else { 0 };
        let is_enough = self.congested >= settings.rounds || (is_idle && self.congested >= settings.idle_rounds.max(1));
        if !is_enough || now < self.stays_until {
            return false;
        }
        self.change(sampler);
        true
    }

    /// The connection's timer has run out: whatever was on its path is lost, and perhaps the path.
    pub fn handle_timeout(&mut self, now: Instant, settings: &LabelSettings, sampler: &mut impl Sampler) {
        self.change(sampler);
        let pause = settings.timeout_pause;
        // In steps of 1/1024.
        let more = pause.as_nanos() / 1_024 * u64::from(sampler.below(1_024));
        self.stays_until = now + pause + Duration::from_nanos(more);
    }

    fn change(&mut self, sampler: &mut impl Sampler) {
        // Any but the one that it has.
        let other = sampler.below((1 << 20) - 1);
        self.label = if other >= self.label { other + 1 } else { other };
        self.congested = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::Pcg;

    #[test]
    fn plb_waits_for_twelve_rounds_or_three_and_a_pause() {
        let (mut sampler, settings, now) = (Pcg::new(1), LabelSettings::PLB, Instant::ZERO);
        let mut label = Label::new(&mut sampler);
        let first = label.get();
        let mut round = |label: &mut Label, marked, is_idle| {
            label.handle_round(now, &settings, 1_000, marked, is_idle, &mut sampler)
        };
        assert!((0..11).all(|_| !round(&mut label, 500, false)));
        assert!(!round(&mut label, 499, false), "less than half");
        assert!((0..11).all(|_| !round(&mut label, 500, false)) && label.get() == first);
        assert!(round(&mut label, 500, false) && label.get() != first);
        assert!(!round(&mut label, 1_000, false) && !round(&mut label, 1_000, false) && round(&mut label, 1_000, true));
    }

    #[test]
    fn a_timeout_changes_the_path_and_then_it_stays() {
        let (mut sampler, settings) = (Pcg::new(1), LabelSettings::PLB);
        let mut label = Label::new(&mut sampler);
        let first = label.get();
        label.handle_timeout(Instant::ZERO, &settings, &mut sampler);
        let second = label.get();
        assert_ne!(first, second);
        let mut at = |secs| {
            let now = Instant::ZERO + Duration::from_secs(secs);
            (0..12).any(|_| label.handle_round(now, &settings, 1, 1, false, &mut sampler))
        };
        assert!(!at(59) && at(120));
    }

    #[test]
    fn flow_bender_bends_at_once() {
        let (mut sampler, settings, now) = (Pcg::new(1), LabelSettings::FLOW_BENDER, Instant::ZERO);
        let mut label = Label::new(&mut sampler);
        assert!(!label.handle_round(now, &settings, 100, 4, true, &mut sampler));
        assert!(label.handle_round(now, &settings, 100, 5, false, &mut sampler));
        assert!(!label.handle_round(now, &settings, 0, 0, true, &mut sampler), "nothing was acknowledged");
    }
}
