//! Telemetry that never was: networks of known classes with known treatment effects, from a seed.
//!
//! It closes the loop: what a network's clients measure in a round depends on the policy in force, so that a replay shows
//! what the decisions would have come to. It is a model of votes (log-normal, with what networks, clients and single
//! connections have in common), not of TCP; the lab runs TCP.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use rand_core::Rng;
use rand_pcg::Pcg64Mcg;
use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::Direction;
use weirgate_sockets::sample::{Arm, CcName};
use weirgate_units::{BitRate, Bytes, Duration, Prefix, UnixTime};

use crate::effect::below;
use crate::holdout::mix;
use crate::policy::Policy;
use crate::replay::Telemetry;

/// How the connections of a network fare.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct State {
    /// Median goodput on the default.
    pub goodput: BitRate,
    /// Smallest round-trip time.
    pub min_rtt: Duration,
    /// Share of bytes retransmitted on the default, 0..1.
    pub retransmit: f64,
    /// Goodput of treated connections over that of untreated ones.
    pub effect: f64,
    /// Share of bytes retransmitted while treated.
    pub retransmit_treated: f64,
}

/// Networks that are alike.
#[derive(Clone, Debug, PartialEq)]
pub struct Class {
    /// Its name in tables.
    pub name: &'static str,
    /// How many networks.
    pub networks: u32,
    /// How they fare.
    pub state: State,
    /// How they fare by turns, and for how many rounds each; the turns of different networks are shifted.
    pub alternates: Option<(State, u32)>,
}

/// A seeded world.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    /// Origin of every draw.
    pub seed: u64,
    /// The networks.
    pub classes: Vec<Class>,
    /// Rounds until it ends.
    pub rounds: u32,
    /// Time between rounds.
    pub round: Duration,
    /// When the first round begins.
    pub start: UnixTime,
    /// Clients of each network, 1..=200.
    pub clients: u32,
    /// Connections of each network in a round.
    pub connections: u32,
    /// Share of networks without any connection in a round, drawn anew each time.
    pub silent: f64,
    /// Standard deviation of the logarithm of goodput: between networks of a class, between clients of a network,
    /// between connections of a client, and of all networks together from round to round.
    pub spread: Spread,
    /// One network in this many is IPv6; 0: none.
    pub v6_every: u32,
    /// Whether policies are applied; if not, nothing is treated (observe mode).
    pub applied: bool,
    /// What untreated connections run on.
    pub default_cc: CcName,
}

/// Standard deviations of ln(goodput).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// Between networks of a class.
    pub networks: f64,
    /// Between clients of a network.
    pub clients: f64,
    /// Between connections of a client.
    pub connections: f64,
    /// Of all networks together, from round to round.
    pub rounds: f64,
}

/// A running [`Scenario`].
#[derive(Clone, Debug)]
pub struct Synthetic {
    scenario: Scenario,
    /// Number of the next round, from 0.
    round: u32,
    rng: Pcg64Mcg,
    /// Index of the class, by network.
    class_of: Vec<u8>,
}

impl Scenario {
    /// Half clean, the rest lossy, bufferbloated, shallow-buffered and flapping in proportions like those of the edge
    /// experiment; `networks` in all. Effects are of the order that is reported for BBR against CUBIC.
    pub fn mixed(networks: u32, rounds: u32, seed: u64) -> Self {
        let state = |mbit: u64, rtt_ms, retransmit, effect, retransmit_treated| State {
            goodput: BitRate::from_bits_per_sec(mbit * 1_000_000),
            min_rtt: Duration::from_millis(rtt_ms),
            retransmit,
            effect,
            retransmit_treated,
        };
        let clean = state(50, 15, 0.0002, 1.0, 0.0004);
        let lossy = state(3, 110, 0.01, 4.0, 0.012);
        let part = |per_cent: u32| (networks * per_cent / 100).max(1);
        let class = |name, per_cent, state, alternates| Class { name, networks: part(per_cent), state, alternates };
        Self {
            seed,
            classes: vec![
                class("clean", 52, clean, None),
                class("lossy", 14, lossy, None),
                class("bufferbloated", 14, state(17, 40, 0.003, 1.0, 0.001), None),
                class("shallow", 10, state(25, 30, 0.004, 1.3, 0.03), None),
                class("flapping", 10, clean, Some((lossy, 6))),
            ],
            rounds,
            round: Duration::from_secs(300),
            start: UnixTime::from_nanos(1_700_000_000_000_000_000),
            clients: 100,
            connections: 40,
            silent: 0.02,
            spread: Spread { networks: 0.3, clients: 0.4, connections: 0.5, rounds: 0.1 },
            v6_every: 4,
            applied: true,
            default_cc: CcName::from_kernel(b"cubic"),
        }
    }
}

impl Synthetic {
    /// Starts `scenario`.
    pub fn new(scenario: Scenario) -> Self {
        let class_of =
            scenario.classes.iter().enumerate().flat_map(|(i, c)| (0..c.networks).map(move |_| i as u8)).collect();
        let rng = Pcg64Mcg::new(u128::from(mix(scenario.seed)) << 1 | 1);
        Self { scenario, round: 0, rng, class_of }
    }

    /// All networks and the names of their classes, in order of their numbers.
    pub fn networks(&self) -> impl Iterator<Item = (Prefix, &'static str)> {
        self.class_of
            .iter()
            .enumerate()
            .map(|(i, class)| (self.prefix(i as u32), self.scenario.classes[usize::from(*class)].name))
    }

    fn is_v6(&self, network: u32) -> bool {
        self.scenario.v6_every > 0 && network.is_multiple_of(self.scenario.v6_every)
    }

    fn prefix(&self, network: u32) -> Prefix {
        Prefix::client_network(self.client(network, 0))
    }

    /// The address of a client: a /24 from 1.0.0.0 upwards, or a /56 in 2001:db8::/32 (RFC 3849), one /64 per client.
    fn client(&self, network: u32, client: u32) -> IpAddr {
        if self.is_v6(network) {
            let bits = (0x2001_0db8_u128 << 96) + (u128::from(network) << 72) + (u128::from(client) << 64) + 1;
            return Ipv6Addr::from_bits(bits).into();
        }
        Ipv4Addr::from_bits(0x0100_0000 + (network << 8) + client + 1).into()
    }

    /// How `network` fares in the present round.
    fn state(&self, network: u32) -> State {
        let class = &self.scenario.classes[usize::from(self.class_of[network as usize])];
        match class.alternates {
            Some((other, rounds)) => {
                let shift = (self.fixed(network, 1) * 2.0 * f64::from(rounds)) as u32;
                if ((self.round + shift) / rounds.max(1)).is_multiple_of(2) { class.state } else { other }
            }
            None => class.state,
        }
    }

    /// Uniform in 0..1, the same for (network, what) in every round.
    fn fixed(&self, network: u32, what: u32) -> f64 {
        let bits = mix(self.scenario.seed ^ u64::from(network) << 32 ^ u64::from(what));
        (bits >> 11) as f64 / (1u64 << 53) as f64
    }

    /// About normal, the same for (network, what) in every round.
    fn fixed_normal(&self, network: u32, what: u32) -> f64 {
        normal_of(mix(mix(self.scenario.seed ^ u64::from(network) << 32 ^ u64::from(what))))
    }
}

impl Telemetry for Synthetic {
    fn next_round(&mut self, policy: &Policy, each: &mut dyn FnMut(&Progress)) -> Option<UnixTime> {
        if self.round >= self.scenario.rounds {
            return None;
        }
        let Scenario { spread, default_cc, .. } = self.scenario;
        let common = normal(&mut self.rng) * spread.rounds;
        for network in 0..self.class_of.len() as u32 {
            if f64::from(self.rng.next_u32()) < self.scenario.silent * f64::from(u32::MAX) {
                continue;
            }
            let prefix = self.prefix(network);
            let cc = match policy.networks.binary_search_by_key(&prefix, |n| n.0) {
                Ok(at) if self.scenario.applied => Some(policy.networks[at].1),
                _ => None,
            };
            let state = self.state(network);
            let centre = (state.goodput.as_bits_per_sec() as f64).ln()
                + common
                + self.fixed_normal(network, 0) * spread.networks;
            for _ in 0..self.scenario.connections {
                let number = below(&mut self.rng, self.scenario.clients.clamp(1, 200));
                let client = self.client(network, number);
                let arm = match cc {
                    None => Arm::None,
                    Some(_) if policy.holdout.holds(client) => Arm::Holdout,
                    Some(_) => Arm::Treated,
                };
                let treated = arm == Arm::Treated && cc != Some(default_cc);
                let log = centre
                    + self.fixed_normal(network, number + 2) * spread.clients
                    + normal(&mut self.rng) * spread.connections
                    + if treated { state.effect.ln() } else { 0.0 };
                // 100 KB to 6.4 MB.
                let acked = 100_000u64 << below(&mut self.rng, 7);
                let busy = Duration::from_nanos((acked as f64 * 8e9 / log.exp()) as u64);
                let loss = if treated { state.retransmit_treated } else { state.retransmit };
                let retransmitted = (acked as f64 * loss) as u64;
                each(&Progress {
                    client,
                    local_port: 443,
                    direction: Direction::Accepted,
                    cc: cc.filter(|_| treated).unwrap_or(default_cc),
                    arm,
                    acked: Bytes::new(acked),
                    sent: Bytes::new(acked + retransmitted),
                    retransmitted: Bytes::new(retransmitted),
                    busy,
                    rwnd_limited: Duration::ZERO,
                    sndbuf_limited: Duration::ZERO,
                    delivery_rate: BitRate::of(Bytes::new(acked), busy),
                    min_rtt: state.min_rtt,
                    closed: true,
                });
            }
        }
        self.round += 1;
        Some(self.scenario.start + self.scenario.round.saturating_mul(u64::from(self.round)))
    }
}

/// About normal, mean 0, deviation 1, never beyond 3.5: the sum of four uniforms from one draw (Irwin-Hall). Votes need
/// no finer tails, and a million networks are to be drawn in seconds.
fn normal(rng: &mut Pcg64Mcg) -> f64 {
    normal_of(rng.next_u64())
}

fn normal_of(bits: u64) -> f64 {
    let sum: u64 = (0..4).map(|i| bits >> (16 * i) & 0xffff).sum();
    (sum as f64 / 65_535.0 - 2.0) * 3.0f64.sqrt()
}
