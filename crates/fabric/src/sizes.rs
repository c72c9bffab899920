//! How large flows are: distributions, published as knots of cumulative ones.

use core::fmt;

use crate::chance::Chance;

/// The distributions that come with the program, by name: published ones, each with its source in its head.
pub const PUBLISHED: [(&str, &str); 6] = [
    ("alistorage", include_str!("../../../workloads/alistorage.csv")),
    ("datamining", include_str!("../../../workloads/datamining.csv")),
    ("facebook_cache_follower", include_str!("../../../workloads/facebook_cache_follower.csv")),
    ("facebook_hadoop", include_str!("../../../workloads/facebook_hadoop.csv")),
    ("facebook_web_server", include_str!("../../../workloads/facebook_web_server.csv")),
    ("websearch", include_str!("../../../workloads/websearch.csv")),
];

/// A distribution of flow sizes, linear between knots.
#[derive(Clone, Debug, PartialEq)]
pub struct Sizes {
    /// Bytes, and the share of flows that are no larger.
    knots: Vec<(u64, f64)>,
}

/// Why knots are no distribution, with the number of the knot, from 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SizesError {
    /// There are fewer than two.
    Few,
    /// A share is not from 0 to 1.
    Share(usize, f64),
    /// Bytes or shares are less than those before.
    Falls(usize),
    /// The last share is not 1: are they percent, or is the end missing?
    End(f64),
    /// The largest flow has no bytes, or more than a petabyte: is that the unit?
    Bytes(u64),
}

impl fmt::Display for SizesError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Few => f.write_str("a distribution needs two knots at least, `bytes,share` each"),
            Self::Share(at, share) => write!(f, "knot {at}: a share of {share}; shares go from 0 to 1"),
            Self::Falls(at) => write!(f, "knot {at}: less than the knot before; bytes and shares rise"),
            Self::End(share) => write!(f, "the last share is {share}, and must be 1: are they percent?"),
            Self::Bytes(bytes) => write!(f, "the largest flow has {bytes} bytes: are sizes written in bytes?"),
        }
    }
}

impl core::error::Error for SizesError {}

/// Why a text is no distribution: the line, from 1, and what is wrong there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizesTextError {
    /// The line; the last one, where it is about all of them.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for SizesTextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl core::error::Error for SizesTextError {}

impl Sizes {
    /// All flows of one size, 1 byte at least.
    pub fn fixed(bytes: u64) -> Self {
        Self { knots: vec![(bytes.max(1), 0.0), (bytes.max(1), 1.0)] }
    }

    /// By its knots: bytes, and the share of flows that are no larger.
    ///
    /// # Errors
    /// [`SizesError`].
    pub fn new(knots: Vec<(u64, f64)>) -> Result<Self, SizesError> {
        if knots.len() < 2 {
            return Err(SizesError::Few);
        }
        for (at, (_, share)) in knots.iter().enumerate() {
            if !(0.0..=1.0).contains(share) {
                return Err(SizesError::Share(at + 1, *share));
            }
        }
        if let Some(at) = knots.windows(2).position(|pair| pair[1].0 < pair[0].0 || pair[1].1 < pair[0].1) {
            return Err(SizesError::Falls(at + 2));
        }
        let (bytes, share) = knots[knots.len() - 1];
        if share != 1.0 {
            return Err(SizesError::End(share));
        }
        if !(1..=1_000_000_000_000_000).contains(&bytes) {
            return Err(SizesError::Bytes(bytes));
        }
        Ok(Self { knots })
    }

    /// By a text of lines `bytes,share`; those that are empty or begin with `#` are skipped.
    ///
    /// # Errors
    /// The first line that is wrong.
    pub fn parse(text: &str) -> Result<Self, SizesTextError> {
        let mut knots = Vec::new();
        let mut lines = Vec::new();
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        let meant = || text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
        for (at, line) in meant() {
            let knot = line.split_once(',').and_then(|(bytes, share)| {
                Some((bytes.trim().parse::<u64>().ok()?, share.trim().parse::<f64>().ok()?))
            });
            let Some(knot) = knot else {
                let what = format!(
                    "`{}` is not `bytes,share`, numbers as `10000,0.5`; a line of words begins with `#`",
                    shown(line)
                );
                return Err(SizesTextError { line: at + 1, what });
            };
            knots.push(knot);
            lines.push(at + 1);
        }
        Self::new(knots).map_err(|error| {
            let at = match error {
                SizesError::Share(at, _) | SizesError::Falls(at) => at,
                SizesError::Few | SizesError::End(_) | SizesError::Bytes(_) => lines.len(),
            };
            SizesTextError { line: lines.get(at.wrapping_sub(1)).copied().unwrap_or(1), what: error.to_string() }
        })
    }

    /// One of [`PUBLISHED`].
    pub fn published(name: &str) -> Option<Self> {
        let (_, text) = PUBLISHED.iter().find(|(other, _)| *other == name)?;
        Some(Self::parse(text).expect("what is published is a distribution: a test reads them all"))
    }

    /// The same with sizes so many times as large.
    ///
    /// # Errors
    /// [`SizesError::Bytes`], where that is too large, or nothing.
    pub fn scaled(self, by: u64) -> Result<Self, SizesError> {
        Self::new(self.knots.into_iter().map(|(bytes, share)| (bytes.saturating_mul(by), share)).collect())
    }

    /// The largest flow.
    pub fn largest(&self) -> u64 {
        self.knots[self.knots.len() - 1].0
    }

    /// The size that this share of flows does not exceed, 1 byte at least.
    pub fn quantile(&self, share: f64) -> u64 {
        let after = self.knots.partition_point(|(_, knot)| *knot <= share).min(self.knots.len() - 1);
        let (bytes, high) = self.knots[after];
        let Some((low_bytes, low)) = after.checked_sub(1).map(|at| self.knots[at]) else { return bytes.max(1) };
        let part = if high > low { ((share - low) / (high - low)).clamp(0.0, 1.0) } else { 1.0 };
        (low_bytes + ((bytes - low_bytes) as f64 * part) as u64).max(1)
    }

    /// Draws one.
    pub fn draw(&self, chance: &mut Chance) -> u64 {
        self.quantile(chance.unit())
    }

    /// The mean of what is made of the sizes, by an integral over so many shares.
    pub fn mean(&self, of: impl Fn(u64) -> u64) -> f64 {
        const STEPS: u32 = 100_000;
        let sum: f64 =
            (0..STEPS).map(|step| of(self.quantile((f64::from(step) + 0.5) / f64::from(STEPS))) as f64).sum();
        sum / f64::from(STEPS)
    }
}

/// The most characters of a line that a message shows.
const SHOWN_MAX: usize = 80;

/// A line of a file, as a message shows it: not too much of it, and nothing that a terminal would obey.
pub fn shown(line: &str) -> String {
    let shown: String = line.chars().take(SHOWN_MAX).flat_map(char::escape_debug).collect();
    if line.chars().nth(SHOWN_MAX).is_some() { format!("{shown}...") } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_linear_between_knots_and_jump_at_two_of_one_size() {
        let sizes = Sizes::new(vec![(100, 0.1), (100, 0.5), (200, 1.0)]).unwrap();
        assert_eq!([0.0, 0.1, 0.49, 0.5, 0.75, 1.0].map(|share| sizes.quantile(share)), [100, 100, 100, 100, 150, 200]);
        assert!((sizes.mean(|bytes| bytes) - 124.75).abs() < 0.01, "rounded down");
        assert_eq!(Sizes::fixed(7).draw(&mut Chance::new(1, 1)), 7);
    }

    #[test]
    fn sizes_in_packets_are_scaled() {
        let packets = Sizes::new(vec![(0, 0.0), (10, 0.5), (20_000, 1.0)]).unwrap();
        let sizes = packets.clone().scaled(1_460).unwrap();
        assert_eq!((sizes.quantile(0.25), sizes.quantile(0.5), sizes.largest()), (7_300, 14_600, 29_200_000));
        assert_eq!(packets.scaled(u64::MAX), Err(SizesError::Bytes(u64::MAX)));
    }

    /// The means of the same digitised files, as others have computed them, to a tenth: 62,874 bytes for web servers, of finer knots.
    #[test]
    fn what_is_published_is_read() {
        let mean = |name| Sizes::published(name).unwrap().mean(|bytes| bytes);
        assert!(PUBLISHED.iter().all(|(name, _)| mean(name) > 1_000.0));
        assert!((55_000.0..70_000.0).contains(&mean("facebook_web_server")), "{}", mean("facebook_web_server"));
    }

    #[test]
    fn a_wrong_line_is_named() {
        let wrong = |text: &str| Sizes::parse(text).unwrap_err().to_string();
        assert_eq!(
            wrong("# head\n1,0\n2;1\n"),
            "line 3: `2;1` is not `bytes,share`, numbers as `10000,0.5`; a line of words begins with `#`"
        );
        assert_eq!(wrong("1,0\n\n3,0.5\n2,1\n"), "line 4: knot 3: less than the knot before; bytes and shares rise");
        assert_eq!(wrong("1,0\n2,0.5\n"), "line 2: the last share is 0.5, and must be 1: are they percent?");
        assert!(wrong("").starts_with("line 1: a distribution needs two knots"));
    }

    #[test]
    fn what_is_no_distribution_is_refused() {
        let refused = |knots: &[(u64, f64)]| Sizes::new(knots.to_vec()).unwrap_err();
        assert_eq!(refused(&[(1, 1.0)]), SizesError::Few);
        assert_eq!(refused(&[(1, 0.0), (2, 50.0), (3, 100.0)]), SizesError::Share(2, 50.0));
        assert!(matches!(refused(&[(1, f64::NAN), (2, 1.0)]), SizesError::Share(1, _)));
        assert_eq!(refused(&[(1, 0.0), (3, 0.5), (2, 1.0)]), SizesError::Falls(3));
        assert_eq!(refused(&[(1, 0.0), (2, 0.9)]), SizesError::End(0.9));
        assert_eq!(refused(&[(0, 0.0), (0, 1.0)]), SizesError::Bytes(0));
    }

    #[test]
    fn lines_are_shown_short_and_without_what_a_terminal_obeys() {
        assert_eq!(shown("a\u{1b}[2J"), "a\\u{1b}[2J");
        assert_eq!(shown(&"x".repeat(2_000_000)), format!("{}...", "x".repeat(80)));
    }
}
