//! A fleet's edges, each a point of presence of its own: what each of them has summed up in a round, by an exporter of its own, to Kafka.

use std::net::{IpAddr, Ipv4Addr};
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use weirgate_linux::clock;
use weirgate_sockets::progress::Progress;
use weirgate_sockets::record::{Direction, Origin};
use weirgate_sockets::sample::{Arm, CcName};
use weirgate_store::export::Options;
use weirgate_tune::sketch::LN_FACTOR;
use weirgate_tune::{Config, Tallies, Tally};
use weirgate_units::{Bytes, UnixTime};

use super::controller::ROUND_S;
use super::exporter::{self, PARTITIONS};
use super::ground::Ground;
use super::round::{Size, VOTES, name};

/// What they send to.
pub(super) const TALLIES: &str = "weirgate.edges.tallies";
/// Edges that send at the same time.
const AT_ONCE: u32 = 20;

/// What was sent.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    /// The end of its round.
    pub(super) end: u64,
    pub(super) tallies: u64,
    pub(super) took: Duration,
}

/// Sends what the edges have summed up in the round that ended last.
pub(super) fn send(ground: &Ground, size: Size) -> Result<Sent> {
    let brokers = exporter::address(ground, "KAFKA")?;
    ground.topic(&brokers, TALLIES, PARTITIONS)?;
    ground.topic(&brokers, exporter::NOTHING, 1)?;
    let end = clock::unix().as_secs() / ROUND_S * ROUND_S;
    let (start, mut tallies) = (Instant::now(), 0);
    for first in (0..size.pops).step_by(AT_ONCE as usize) {
        let edges = first..(first + AT_ONCE).min(size.pops);
        tallies += std::thread::scope(|scope| -> Result<u64> {
            let threads: Vec<_> = edges.map(|edge| scope.spawn(move || export(ground, size, edge, end))).collect();
            let sent = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("an edge has panicked"))?);
            sent.sum()
        })?;
    }
    Ok(Sent { end, tallies, took: start.elapsed() })
}

/// Sends one edge's tallies; how many those were.
fn export(ground: &Ground, size: Size, edge: u32, end: u64) -> Result<u64> {
    let all = summed(size, edge);
    let options = exporter::options(ground, TALLIES)?;
    let options = Options { spool: ground.path(&format!("spools/{edge}")), ..options };
    let origin = Origin { host: format!("edge-{edge}"), pop: name(edge), boot_id: "b1".into() };
    exporter::send_tallies(&origin, options, &all, UnixTime::from_nanos(end * 1_000_000_000))?;
    Ok(all.len() as u64)
}

/// What an edge's connections came to, as those of the rounds before ([`super::round::fill`]): one network in ten is slow, and treated but
/// for a holdout.
fn summed(size: Size, edge: u32) -> Vec<Tally> {
    let round = weirgate_units::Duration::from_secs(ROUND_S);
    let mut tallies = Tallies::new(Config { round, ..Config::default() });
    let [cubic, bbr] = ["cubic", "bbr"].map(|name| CcName::new(name).unwrap_or_default());
    for network in 0..size.networks {
        let number = u64::from(edge * size.networks + network);
        let arms: &[_] = if number.is_multiple_of(10) {
            &[(Arm::Treated, bbr, 730), (Arm::Holdout, cubic, 700)]
        } else {
            &[(Arm::None, cubic, 780)]
        };
        for (arm, cc, bin) in arms {
            let mut draw = mix(number << 8 | *arm as u64);
            let mut bin = bin + mix(number) % 40 + draw % 20;
            for _ in 0..VOTES {
                draw = mix(draw);
                bin += 1 + draw % 8;
                tallies.handle_progress(&connection(network, *arm, *cc, bin, draw));
            }
        }
    }
    tallies.take()
}

/// A connection of a client network whose goodput is that of a sketch's bin.
fn connection(network: u32, arm: Arm, cc: CcName, bin: u64, draw: u64) -> Progress {
    let [_, _, high, low] = network.to_be_bytes();
    let client = Ipv4Addr::new(10, high, low, 1 + (draw >> 8) as u8 % 250);
    let acked = 1_000_000 + draw % 400_000;
    let goodput = 0.99 * ((bin - 1) as f64 * LN_FACTOR).exp();
    let busy = acked as f64 * 8.0 / goodput * 1e6;
    Progress {
        client: IpAddr::V4(client),
        local_port: 443,
        direction: Direction::Accepted,
        cc,
        arm,
        acked: Bytes::new(acked),
        sent: Bytes::new(acked + draw % 9_973),
        retransmitted: Bytes::new(draw % 9_973),
        busy: weirgate_units::Duration::from_micros(busy as u64),
        rwnd_limited: weirgate_units::Duration::ZERO,
        sndbuf_limited: weirgate_units::Duration::ZERO,
        delivery_rate: None,
        min_rtt: weirgate_units::Duration::from_micros(20_000 + draw % 80_000),
        closed: true,
    }
}

/// Scatters bits (the finaliser of SplitMix64).
fn mix(n: u64) -> u64 {
    let n = n.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let n = (n ^ n >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let n = (n ^ n >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    n ^ n >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_edge_sums_up_what_the_rounds_before_have() {
        let all = summed(Size { pops: 3, networks: 200, history: 36 }, 2);
        assert_eq!(all.len(), 220, "one network in ten has two arms");
        let votes = |tally: &Tally| u64::from(tally.did.arm.votes);
        assert!(all.iter().all(|tally| votes(tally) == u64::from(VOTES) && tally.fit.len() == u64::from(VOTES)));
        let bins = |arm| {
            let of = all.iter().filter(move |tally| tally.arm == arm);
            let first = of.map(|tally| tally.fit.bins()[0].0);
            (first.clone().min().unwrap(), first.max().unwrap())
        };
        // The bins that SQL makes: a base, 40 and 20 beyond it, and a step of one to eight.
        for (arm, base) in [(Arm::None, 780), (Arm::Treated, 730), (Arm::Holdout, 700)] {
            let (least, most) = bins(arm);
            assert!(least >= base && most <= base + 68, "{arm:?}: {least} to {most}");
        }
    }
}
