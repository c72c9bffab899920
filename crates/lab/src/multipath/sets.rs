//! Uplinks that are not alike.

use weirgate_port::{Chance, Settings};
use weirgate_units::{BitRate, Bytes, Duration};

use crate::net::LinkSettings;

/// Those of the article that this room began with.
pub(super) const ARTICLE: &str = "article: 20/30, 50/20, 5/35";

/// A wire, and a radio link beside it.
pub(super) const FIBER: &str = "fiber 300/16, LTE 30/80 with 0.5 % lost";

/// An uplink.
#[derive(Clone, Copy, Debug)]
pub(super) struct Uplink {
    pub(super) mbit: u64,
    rtt_ms: u64,
    loss_ppm: u32,
    jitter_ms: u64,
    /// What its queue holds.
    queue_ms: u64,
}

/// A host's uplinks.
#[derive(Clone, Debug)]
pub(super) struct Set {
    pub(super) name: &'static str,
    pub(super) links: Vec<Uplink>,
    /// Whether the short form has it.
    pub(super) is_quick: bool,
    /// Whether its addresses are IPv6 ones.
    pub(super) is_v6: bool,
}

const fn link(mbit: u64, rtt_ms: u64) -> Uplink {
    Uplink { mbit, rtt_ms, loss_ppm: 0, jitter_ms: 0, queue_ms: 50 }
}

impl Uplink {
    pub(super) fn name(&self) -> String {
        format!("{} Mbit/s, {} ms", self.mbit, self.rtt_ms)
    }

    /// In both directions; what is lost, is on the way up.
    pub(super) fn settings(&self) -> LinkSettings {
        let rate = BitRate::from_bits_per_sec(self.mbit * 1_000_000);
        let clean = Settings {
            rate: Some(rate),
            queue: rate.bytes_in(Duration::from_millis(self.queue_ms)).max(Bytes::new(30_000)),
            delay: Duration::from_nanos(self.rtt_ms * 500_000),
            ..Settings::default()
        };
        let up =
            Settings { loss: Chance::from_ppm(self.loss_ppm), jitter: Duration::from_millis(self.jitter_ms), ..clean };
        LinkSettings { down: clean, up }
    }
}

impl Set {
    /// Whether its uplinks lose nothing and are even.
    pub(super) fn is_clean(&self) -> bool {
        self.links.iter().all(|link| link.loss_ppm == 0 && link.jitter_ms == 0)
    }
}

/// All of them.
pub(super) fn sets() -> Vec<Set> {
    let set = |name, links: &[Uplink], is_quick| Set { name, links: links.to_vec(), is_quick, is_v6: false };
    let lossy = |link: Uplink, loss_ppm| Uplink { loss_ppm, ..link };
    let uneven = |link: Uplink| Uplink { jitter_ms: 20, ..link };
    vec![
        set(ARTICLE, &[link(20, 30), link(50, 20), link(5, 35)], true),
        set(
            "the same, 0.5 % and 1 % lost",
            &[lossy(link(20, 30), 5_000), link(50, 20), lossy(link(5, 35), 10_000)],
            false,
        ),
        set(FIBER, &[link(300, 16), lossy(link(30, 80), 5_000)], true),
        set("equal: 50/20 twice", &[link(50, 20), link(50, 20)], false),
        set("4:1: 40/20, 10/40", &[link(40, 20), link(10, 40)], false),
        set("10:1: 100/10, 10/60", &[link(100, 10), link(10, 60)], false),
        set("jitter of 20 ms: 20/30, 50/20", &[uneven(link(20, 30)), uneven(link(50, 20))], false),
        set(
            "LTE with a queue of 300 ms: 30/60, 50/20",
            &[Uplink { queue_ms: 300, ..link(30, 60) }, link(50, 20)],
            false,
        ),
        Set { is_v6: true, ..set("the article's, IPv6", &[link(20, 30), link(50, 20), link(5, 35)], true) },
    ]
}
