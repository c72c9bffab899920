//! Records of many connections whose columns have the entropy of recorded ones.
//!
//! Each is drawn from a recorded connection, so that columns that go together stay together. A column that is seldom the same twice is then
//! put somewhere between its value and the next higher one that was recorded, or the drawing would repeat whole records, which
//! compression would find: as often as it takes for the column to have the entropy that it had. Addresses, ports and cookies are of as many
//! clients as there are connections.

use std::collections::HashMap;

use rand_core::Rng as _;
use rand_pcg::Pcg64Mcg;
use weirgate_sockets::sample::mapped;

use super::traffic::Recorded;
use crate::report::{Table, number};

/// A column of a sample: its name, how it is read and how it is written.
struct Column {
    name: &'static str,
    get: fn(&Recorded) -> u64,
    set: fn(&mut Recorded, u64),
}

macro_rules! columns {
    ($($name:ident)*) => {
        &[$(Column {
            name: stringify!($name),
            get: |r| u64::from(r.sample.$name),
            set: |r, value| r.sample.$name = value as _,
        }),*]
    };
}

const COLUMNS: &[Column] = columns! {
    bytes_sent bytes_acked bytes_retrans bytes_received rtt_us rttvar_us min_rtt_us busy_us rwnd_limited_us sndbuf_limited_us
    delivery_rate snd_cwnd snd_mss data_segs_out lost total_retrans
};
const RATE_MAX: Column =
    Column { name: "delivery_rate_max", get: |r| r.delivery_rate_max, set: |r, value| r.delivery_rate_max = value };
/// Of connections themselves, which recorded ones have few of.
const IDENTITY: &[Column] = &[
    Column { name: "remote_port", get: |r| u64::from(r.sample.remote_port), set: |_, _| {} },
    Column { name: "sequence", get: |r| u64::from(r.sequence), set: |_, _| {} },
];

fn columns() -> impl Iterator<Item = &'static Column> {
    COLUMNS.iter().chain([&RATE_MAX])
}

/// Draws records.
pub(super) struct Generator {
    donors: Vec<Recorded>,
    /// For each column the values that were recorded, in ascending order, each once; empty where it repeats itself.
    rich: Vec<Vec<u64>>,
    /// For each column, how often a value is moved.
    moved: Vec<f64>,
    networks: u32,
    random: Pcg64Mcg,
}

impl Generator {
    /// Of what was `recorded`, for clients in so many networks of /24.
    pub(super) fn new(recorded: Vec<Recorded>, networks: u32, seed: u64) -> Self {
        let rich = columns().map(|column| {
            let mut values: Vec<u64> = recorded.iter().map(column.get).collect();
            values.sort_unstable();
            values.dedup();
            if values.len() * 8 > recorded.len() { values } else { Vec::new() }
        });
        let rich: Vec<Vec<u64>> = rich.collect();
        let moved = vec![0.0; rich.len()];
        let mut generator =
            Self { donors: recorded, rich, moved, networks, random: Pcg64Mcg::new(u128::from(seed) << 64 | 0x6e6e) };
        generator.calibrate();
        generator
    }

    /// Finds how often values have to be moved: between never and always the entropy is taken to be a straight line.
    fn calibrate(&mut self) {
        let all = self.rich.len();
        let mut drawn = |moved| {
            self.moved = vec![moved; all];
            (0..self.donors.len()).map(|n| self.draw(n as u32)).collect::<Vec<_>>()
        };
        let (never, always) = (drawn(0.0), drawn(1.0));
        let moved = columns().map(|column| {
            let [low, high, target] =
                [&never, &always, &self.donors].map(|of| entropy(&of.iter().map(column.get).collect::<Vec<u64>>()));
            if high > low { ((target - low) / (high - low)).clamp(0.0, 1.0) } else { 1.0 }
        });
        self.moved = moved.collect();
    }

    /// The record of connection `n`.
    pub(super) fn draw(&mut self, n: u32) -> Recorded {
        let Self { donors, rich, moved, networks, random } = self;
        let donor = &donors[((u64::from(random.next_u32()) * donors.len() as u64) >> 32) as usize];
        let mut drawn = Recorded { ..*donor };
        for ((column, values), moved) in columns().zip(rich).zip(moved) {
            let value = (column.get)(donor);
            let Ok(at) = values.binary_search(&value) else { continue };
            let room = values.get(at + 1).map_or(0, |next| next - value);
            // 0 is not a little of something, it is none.
            if room > 1 && value > 0 && f64::from(random.next_u32()) < *moved * 4_294_967_296.0 {
                (column.set)(&mut drawn, value + random.next_u64() % room);
            }
        }
        let (sample, of) = (&mut drawn.sample, &donor.sample);
        if of.bytes_acked + of.bytes_retrans == of.bytes_sent {
            sample.bytes_acked = sample.bytes_sent.saturating_sub(sample.bytes_retrans);
        }
        if of.bytes_acked == of.bytes_sent {
            sample.bytes_acked = sample.bytes_sent;
        }
        sample.min_rtt_us = sample.min_rtt_us.min(sample.rtt_us);
        if donor.delivery_rate_max == of.delivery_rate {
            drawn.delivery_rate_max = sample.delivery_rate;
        }
        let network = n % *networks;
        let client = 1 + random.next_u32() % 254;
        sample.remote = mapped(std::net::Ipv4Addr::from((10 << 24) + (network << 8) + client).into());
        sample.remote_port = (32_768 + random.next_u32() % 28_232) as u16;
        // The kernel hands cookies to processors by the thousand.
        sample.cookie = 1_000_000 + u64::from(n) * 2 + u64::from(n / 4_096 % 8) * 1_000_000;
        drawn
    }

    /// Bits per record of each column as it was recorded and as it is drawn, of equally many.
    pub(super) fn table(&mut self) -> Table {
        let mut table = Table::new(
            "Entropy of columns: bits per record, and mean bits that a value needs",
            &["column", "recorded", "generated", "value recorded", "value generated"],
        );
        let drawn: Vec<Recorded> = (0..self.donors.len()).map(|n| self.draw(n as u32)).collect();
        for column in columns().chain(IDENTITY) {
            let [recorded, generated] =
                [&self.donors, &drawn].map(|of| of.iter().map(column.get).collect::<Vec<u64>>());
            let cells = [entropy(&recorded), entropy(&generated), width(&recorded), width(&generated)];
            table.rows.push([column.name.to_owned()].into_iter().chain(cells.map(number)).collect());
        }
        table
    }

    /// The largest difference of a column's entropy, generated less recorded, in bits; ports and the like are not compared.
    pub(super) fn apart(table: &Table) -> f64 {
        let cell = |row: &[String], at: usize| row[at].parse::<f64>().unwrap_or(f64::NAN);
        let rows = table.rows.iter().take(COLUMNS.len() + 1);
        rows.map(|row| (cell(row, 2) - cell(row, 1)).abs()).fold(0.0, f64::max)
    }
}

/// Shannon's, of the values as they are.
fn entropy(values: &[u64]) -> f64 {
    let mut counts: HashMap<u64, u32> = HashMap::new();
    values.iter().for_each(|value| *counts.entry(*value).or_default() += 1);
    let all = values.len() as f64;
    counts.values().map(|n| f64::from(*n) / all).map(|share| -share * share.log2()).sum::<f64>().abs()
}

fn width(values: &[u64]) -> f64 {
    crate::stats::mean(values.iter().map(|value| f64::from(u64::BITS - value.leading_zeros())))
}

#[cfg(test)]
mod tests {
    use weirgate_sockets::sample::Sample;

    use super::*;

    fn recorded(n: u64) -> Recorded {
        let sample = Sample { bytes_sent: n * 1_000, bytes_acked: n * 1_000, rtt_us: 7, ..Sample::default() };
        Recorded { sample, sequence: 0, delivery_rate_max: 0 }
    }

    #[test]
    fn entropy_is_kept_and_records_are_not_repeated() {
        assert!((entropy(&[1, 1, 2, 2]) - 1.0).abs() < 1e-12 && entropy(&[5; 9]) == 0.0);
        let mut generator = Generator::new((1..=512).map(recorded).collect(), 100, 3);
        let drawn: Vec<Recorded> = (0..512).map(|n| generator.draw(n)).collect();
        let sent: Vec<u64> = drawn.iter().map(|r| r.sample.bytes_sent).collect();
        assert!(entropy(&sent) > 8.5, "{}", entropy(&sent));
        assert!(drawn.iter().all(|r| r.sample.rtt_us == 7 && r.sample.bytes_acked == r.sample.bytes_sent));
        assert!(Generator::apart(&generator.table()) < 0.5);
    }
}
