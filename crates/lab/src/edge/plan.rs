//! Who asks for what, when: drawn once from the seed, the same in every arm.

use rand_core::Rng;
use rand_pcg::Pcg64;
use weirgate_units::Duration;

use super::table::Table;

/// One request of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Planned {
    /// When it is due, since the run began; it waits where its connection is still busy.
    pub(crate) due: Duration,
    /// Index into the table's objects.
    pub(crate) object: u8,
}

/// The requests of client `client` of network `network`, in the order they are due, until `end`.
pub(crate) fn requests(table: &Table, seed: u64, network: usize, client: u16, end: Duration) -> Vec<Planned> {
    // A stream of its own for each client.
    let mut random = Pcg64::new(u128::from(seed), (network as u128) << 16 | u128::from(client));
    // The top 53 bits as a number in (0, 1].
    let mut uniform = || ((random.next_u64() >> 11) + 1) as f64 / (1u64 << 53) as f64;
    let mut plan = Vec::new();
    let mut at = 0.0;
    loop {
        at += -uniform().ln() * table.gap_mean.as_secs_f64();
        let due = Duration::from_nanos((at * 1e9) as u64);
        if due >= end {
            return plan;
        }
        let mut left = uniform() * 100.0;
        let object = table.objects.iter().position(|o| {
            left -= f64::from(o.share_pct);
            left <= 0.0
        });
        plan.push(Planned { due, object: object.unwrap_or(table.objects.len() - 1) as u8 });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::table::EDGE_TOML;

    #[test]
    fn the_mix_and_the_gaps_are_those_of_the_table() {
        let table = Table::read(EDGE_TOML, "full").unwrap();
        let plan: Vec<_> = (0..14).flat_map(|c| requests(&table, 1, 3, c, Duration::from_secs(10_000))).collect();
        let share = |object: u8| plan.iter().filter(|p| p.object == object).count() as f64 / plan.len() as f64;
        assert!((share(0) - 0.6).abs() < 0.02 && (share(1) - 0.3).abs() < 0.02 && (share(2) - 0.1).abs() < 0.02);
        let expected = 14.0 * 10_000.0 / table.gap_mean.as_secs_f64();
        assert!((plan.len() as f64 / expected - 1.0).abs() < 0.03);
        assert_eq!(
            requests(&table, 1, 3, 0, Duration::from_secs(99)),
            requests(&table, 1, 3, 0, Duration::from_secs(99))
        );
        assert_ne!(
            requests(&table, 1, 3, 0, Duration::from_secs(99)),
            requests(&table, 1, 3, 1, Duration::from_secs(99))
        );
    }
}
