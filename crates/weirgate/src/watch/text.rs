//! The table as text, and numbers as people read them.

use super::Look;
use crate::view::api::{Losses, Network};

/// What stands where a number is not known.
pub(super) const UNKNOWN: &str = "-";

/// The rows' columns, by title; the first is left-aligned, numbers are right-aligned, words left.
const COLUMNS: [(&str, bool); 9] = [
    ("CONNS", true),
    ("SENDING", true),
    ("GOODPUT", true),
    ("DELIVERY RATE", true),
    ("RTT", true),
    ("MIN RTT", true),
    ("SENT AGAIN", true),
    ("CONGESTION CONTROL", false),
    ("DECISION", false),
];

/// All of it: by client network, then by congestion control.
pub(super) fn table(look: &Look) -> String {
    let (networks, totals) = (&look.networks, &look.status.totals);
    let rows: Vec<&Network> = networks.networks.iter().chain(&networks.other).collect();
    let mut out = format!("{}; from {}\n", headline(look), look.source);
    if let Some(lost) = losses(&look.status.losses) {
        out += &format!("lost: {lost}\n");
    }
    out.extend(look.status.problems.iter().map(|problem| format!("problem: {problem}\n")));
    out.push('\n');
    if rows.is_empty() {
        out += "no open connections\n";
        return out;
    }
    aligned(&mut out, "CLIENT NETWORK", &rows, &[0, 1, 2, 3, 4, 5, 6, 7, 8]);
    let shown = networks.networks.len() as u64;
    if networks.total > shown {
        out += &format!("... and {} more networks\n", networks.total - shown);
    }
    out.push('\n');
    // A connection's congestion control changes: what it delivered belongs to none of them, and is left out.
    aligned(&mut out, "CONGESTION CONTROL", &networks.congestion_controls.iter().collect::<Vec<_>>(), &[0, 1, 3, 4, 5]);
    if totals.treated + totals.holdout > 0 {
        out += &format!("\n{} treated, {} held out\n", integer(totals.treated), integer(totals.holdout));
    }
    out
}

/// The sums in a line.
pub(super) fn headline(look: &Look) -> String {
    let totals = &look.status.totals;
    format!(
        "{} connections in {} networks, {} sending, {}, {} sent again",
        integer(totals.connections),
        integer(totals.networks),
        integer(totals.sending),
        rate(totals.goodput_bits_per_s),
        percent(totals.retransmit_share),
    )
}

/// What was lost since the start, if anything.
pub(super) fn losses(losses: &Losses) -> Option<String> {
    let places = [
        (losses.close_ring_failures, "closes without room"),
        (losses.vanished.saturating_sub(losses.recovered), "connections vanished"),
        (losses.untracked, "samples untracked"),
        (losses.without_identity, "samples without identity"),
        (losses.poll_lost, "samples unread"),
        (losses.poll_failures, "polls failed"),
        (losses.store_lost, "records not stored"),
    ];
    let texts: Vec<String> = places
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{} {what}", integer(*count)))
        .collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

/// A row's cells after its name, in the order of the columns.
pub(super) fn cells(row: &Network) -> [String; 9] {
    let ccs = match row.congestion_controls.as_slice() {
        [] => UNKNOWN.to_owned(),
        [only] => only.name.clone(),
        several => {
            let each: Vec<_> = several.iter().map(|cc| format!("{} {}", cc.name, integer(cc.connections))).collect();
            each.join(", ")
        }
    };
    [
        integer(row.connections),
        integer(row.sending),
        rate(row.goodput_bits_per_s),
        rate(row.delivery_rate_bits_per_s),
        micros(row.rtt_us),
        micros(row.min_rtt_us),
        percent(row.retransmit_share),
        ccs,
        row.decision.clone().unwrap_or_else(|| UNKNOWN.to_owned()),
    ]
}

/// Writes the `columns` of `rows` under their titles.
fn aligned(out: &mut String, first: &str, rows: &[&Network], columns: &[usize]) {
    let titles = (first, COLUMNS.map(|(title, _)| title.to_owned()));
    let lines: Vec<_> = [titles].into_iter().chain(rows.iter().map(|row| (row.name.as_str(), cells(row)))).collect();
    let longest = |texts: &mut dyn Iterator<Item = &str>| texts.map(|text| text.chars().count()).max().unwrap_or(0);
    let name_width = longest(&mut lines.iter().map(|(name, _)| *name));
    let widths: Vec<usize> =
        columns.iter().map(|at| longest(&mut lines.iter().map(|(_, cells)| cells[*at].as_str()))).collect();
    for (name, cells) in &lines {
        let mut line = format!("{name:name_width$}");
        for (at, width) in columns.iter().zip(&widths) {
            let cell = &cells[*at];
            line += &if COLUMNS[*at].1 { format!("  {cell:>width$}") } else { format!("  {cell:width$}") };
        }
        *out += line.trim_end();
        out.push('\n');
    }
}

/// `1234567` as `1,234,567`.
pub(super) fn integer(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() * 4 / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// bit/s, to three digits.
pub(crate) fn rate(bits_per_s: Option<u64>) -> String {
    scaled(bits_per_s, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// Bytes, to three digits.
pub(crate) fn size(bytes: u64) -> String {
    scaled(Some(bytes), &["B", "KB", "MB", "GB", "TB"])
}

/// Microseconds, to three digits.
pub(super) fn micros(us: Option<u64>) -> String {
    scaled(us, &["us", "ms", "s"])
}

/// A share as per cent.
pub(super) fn percent(share: Option<f64>) -> String {
    match share {
        None => UNKNOWN.to_owned(),
        Some(share) if share > 0.0 && share < 0.000_1 => "< 0.01 %".to_owned(),
        Some(share) => format!("{:.2} %", share * 100.0),
    }
}

/// Three significant digits and the largest unit that leaves a number of at least 1.
fn scaled(value: Option<u64>, units: &[&str]) -> String {
    let Some(value) = value else { return UNKNOWN.to_owned() };
    let mut value = value as f64;
    let mut unit = 0;
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1_000.0;
        unit += 1;
    }
    let digits = match value {
        _ if unit == 0 => 0,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.digits$} {}", units[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::api::{Networks, Share, Status, Totals};

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        let rates = [0, 999, 1_000, 9_996_000, 12_340_000, 999_400_000, 999_600_000, u64::MAX];
        let texts = rates.map(|bits| rate(Some(bits)));
        let expected =
            ["0 bit/s", "999 bit/s", "1.00 kbit/s", "10.0 Mbit/s", "12.3 Mbit/s", "999 Mbit/s", "1.00 Gbit/s"];
        assert_eq!(texts[..7], expected);
        assert_eq!(texts[7], "18446744 Tbit/s");
        assert_eq!([0, 45_300, 700_000_000].map(size), ["0 B", "45.3 KB", "700 MB"]);
        assert_eq!((micros(Some(20_500)), micros(None)), ("20.5 ms".to_owned(), "-".to_owned()));
        assert_eq!((percent(Some(0.000_01)), percent(Some(0.0123))), ("< 0.01 %".to_owned(), "1.23 %".to_owned()));
        assert_eq!([0, 999, 1_000, 1_234_567].map(integer), ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn the_table_is_by_network_and_by_congestion_control() {
        let cc = |name: &str, connections| Share { name: name.to_owned(), connections };
        let network = |name: &str, connections: u64, ccs: Vec<Share>| Network {
            name: name.to_owned(),
            connections,
            sending: 1,
            goodput_bits_per_s: Some(connections * 1_000_000),
            retransmit_share: Some(0.01),
            rtt_us: Some(20_000),
            min_rtt_us: Some(9_000),
            congestion_controls: ccs,
            ..Network::default()
        };
        let look = Look {
            source: "a test".to_owned(),
            status: Status {
                totals: Totals { connections: 1_003, networks: 2, sending: 2, ..Totals::default() },
                losses: Losses { vanished: 3, recovered: 1, ..Losses::default() },
                ..Status::default()
            },
            networks: Networks {
                total: 12,
                networks: vec![
                    network("192.0.2.0/24", 1_000, vec![cc("bbr", 600), cc("cubic", 400)]),
                    network("2001:db8::/56", 3, vec![cc("cubic", 3)]),
                ],
                congestion_controls: vec![network("cubic", 403, vec![cc("cubic", 403)])],
                ..Networks::default()
            },
        };
        let expected = "\
1,003 connections in 2 networks, 2 sending, -, - sent again; from a test
lost: 2 connections vanished

CLIENT NETWORK  CONNS  SENDING      GOODPUT  DELIVERY RATE      RTT  MIN RTT  SENT AGAIN  CONGESTION CONTROL  DECISION
192.0.2.0/24    1,000        1  1.00 Gbit/s              -  20.0 ms  9.00 ms      1.00 %  bbr 600, cubic 400  -
2001:db8::/56       3        1  3.00 Mbit/s              -  20.0 ms  9.00 ms      1.00 %  cubic               -
... and 10 more networks

CONGESTION CONTROL  CONNS  SENDING  DELIVERY RATE      RTT  MIN RTT
cubic                 403        1              -  20.0 ms  9.00 ms
";
        assert_eq!(table(&look), expected);
    }

    #[test]
    fn a_host_without_connections_says_so() {
        assert!(table(&Look::default()).ends_with("\nno open connections\n"));
    }
}
