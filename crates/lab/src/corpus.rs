//! Bodies like those that web servers send: pages, scripts and API answers, made from a seed, without files or a network.
//!
//! A compressor is meant to find in them what it finds in real ones: words by Zipf's law (G. K. Zipf, Human Behavior and the Principle of
//! Least Effort, 1949) of which a body has favourites, markup and idioms that come back with other contents, and numbers and hashes that
//! do not come back. The tests hold this to zlib's ratios on real pages, by kind and size.
//!
//! A body's seed first chooses its templates (which parts a card has and with which classes, which keys a record has, which idioms a
//! script likes) and then fills them in until the size is reached, so bodies of one kind differ as sites do.
//!
//! A template is text with slots, `%` and a character; `Text::slot` lists them.

mod html;
mod js;
mod json;
mod words;

use rand_core::Rng;
use rand_pcg::Pcg64;

use words::{COMMON, TERMS, capital, rare, spread};

/// What a body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A page.
    Html,
    /// A script, readable or minified.
    Js,
    /// An answer of an API: records of a few kinds.
    Json,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Html, Self::Js, Self::Json];

    /// Its name in tables, and what the names of its files end in.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Html => "html",
            Self::Js => "js",
            Self::Json => "json",
        }
    }
}

/// A body of exactly `size` bytes of UTF-8, the same for the same arguments on any machine. It ends wherever the size is reached; a
/// character that this would cut is spaces. Meant for sizes of 1 kB to 1 MB; the time is in proportion to the size.
pub fn body(kind: Kind, seed: u64, size: usize) -> Vec<u8> {
    let mut text = Text::new(kind, seed, size);
    match kind {
        Kind::Html => text.page(),
        Kind::Js => text.script(),
        Kind::Json => text.answer(),
    }
    text.out.truncate(text.out.floor_char_boundary(size));
    let mut body = text.out.into_bytes();
    body.resize(size, b' ');
    body
}

/// What is drawn from the seed.
struct Chance(Pcg64);

impl Chance {
    /// A number below `bound`, which is at least 1 and at most 2^32.
    fn below(&mut self, bound: usize) -> usize {
        ((u64::from(self.0.next_u32()) * bound as u64) >> 32) as usize
    }

    /// A rank below 2^octaves - 1 by Zipf's law, in steps of an octave: logarithms differ between machines.
    fn zipf(&mut self, octaves: u32) -> usize {
        let octave = self.below(octaves as usize);
        (1 << octave) - 1 + self.below(1 << octave)
    }

    /// One of `all`, each as often as the others.
    fn any<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// One of `all`, of which there are 2^n - 1, by Zipf's law: the first is the most frequent.
    fn favourite<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.zipf((all.len() + 1).ilog2())]
    }

    /// So many lines of `all`, or all of them, in an order of their own.
    fn some<'a>(&mut self, all: &'a str, count: usize) -> Vec<&'a str> {
        let mut left: Vec<_> = all.lines().collect();
        (0..count.min(left.len())).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}

/// A body in the making.
struct Text {
    out: String,
    /// What `out` is to grow to, bytes.
    size: usize,
    chance: Chance,
    /// How deep a line is indented, spaces; `None`: the body is one line.
    indent: Option<usize>,
    /// Ranks of the words that the body is about, and of the last word.
    topic: Vec<usize>,
    rank: usize,
    /// What it calls people, products and places.
    names: Vec<String>,
    /// Classes of a page, properties of a script.
    labels: Vec<String>,
    /// Variables of a script's present function, and the last that was named.
    variables: Vec<String>,
    variable: String,
    /// The last time, seconds since the year began.
    clock: usize,
    /// The present record's number and title.
    serial: usize,
    title: String,
    /// Statements and expressions that a script likes, the most frequent first.
    statements: Vec<String>,
    expressions: Vec<String>,
    /// How many blocks and expressions the present one is in.
    nesting: usize,
}

impl Text {
    fn new(kind: Kind, seed: u64, size: usize) -> Self {
        let mut text = Self {
            out: String::with_capacity(size + 4096),
            size,
            chance: Chance(Pcg64::new(seed.into(), kind as u128)),
            indent: None,
            topic: Vec::new(),
            rank: 0,
            names: Vec::new(),
            labels: Vec::new(),
            variables: Vec::new(),
            variable: String::new(),
            serial: 0,
            clock: 0,
            title: String::new(),
            statements: Vec::new(),
            expressions: Vec::new(),
            nesting: 0,
        };
        text.indent = (text.chance.below(3) > 0).then_some(0);
        text.serial = text.chance.below(1 << 20);
        text.clock = text.chance.below(1 << 24);
        text.topic = (0..31).map(|_| COMMON.len() + text.chance.zipf(11)).collect();
        text.names = (0..31).map(|_| text.name()).collect();
        text.title = text.title();
        text
    }

    /// A word: what often follows the one before, what the body is about, or any.
    fn word(&mut self) -> String {
        let rank = match self.chance.below(8) {
            0..2 => spread(4 * self.rank + self.chance.zipf(2)) % 512,
            2..4 => {
                // What a body is about changes as it goes on.
                let at = self.chance.zipf(5);
                if self.chance.below(8) == 0 {
                    self.topic[at] = COMMON.len() + self.chance.zipf(12);
                }
                self.topic[at]
            }
            _ => self.chance.zipf(12),
        };
        self.rank = rank;
        COMMON.get(rank).map_or_else(|| rare(rank), |word| (*word).to_owned())
    }

    /// One word with a capital, to three.
    fn name(&mut self) -> String {
        let words: Vec<_> = (0..1 + self.chance.zipf(2)).map(|_| capital(&rare(self.chance.below(4096)))).collect();
        words.join(" ")
    }

    fn title(&mut self) -> String {
        let words: Vec<_> = (0..3 + self.chance.below(6)).map(|_| self.word()).collect();
        capital(&words.join(" "))
    }

    fn sentence(&mut self) {
        let first = capital(&self.word());
        self.out += &first;
        for _ in 0..5 + self.chance.below(8) + self.chance.below(10) {
            self.out += [", ", " – ", "’s "].get(self.chance.below(24)).unwrap_or(&" ");
            let next = if self.chance.below(16) == 0 { "%N" } else { "%w" };
            self.fill(next);
        }
        self.out.push('.');
    }

    /// What identifiers and classes are made of.
    fn term(&mut self) -> &'static str {
        TERMS[self.chance.zipf(7) % TERMS.len()]
    }

    /// Two terms or one, as in a script.
    fn identifier(&mut self) -> String {
        let term = self.term().to_owned();
        if self.chance.below(2) == 0 { term } else { term + &capital(self.term()) }
    }

    /// Appends `template`, its slots filled and its lines indented.
    fn fill(&mut self, template: &str) {
        let mut parts = template.split('%');
        self.out += parts.next().unwrap_or_default();
        for part in parts {
            let mut rest = part.chars();
            self.slot(rest.next().unwrap_or('%'));
            self.out += rest.as_str();
        }
    }

    /// Appends what goes into a slot.
    fn slot(&mut self, slot: char) {
        let text = match slot {
            // Words, in ascending order of length, and names.
            'w' => self.word(),
            't' => self.title(),
            's' => return self.sentence(),
            'p' => return (0..1 + self.chance.below(5)).for_each(|_| self.fill("%s ")),
            'N' => self.chance.favourite(&self.names).clone(),
            'q' => self.term().to_owned(),
            'l' => self.chance.favourite(&self.labels).clone(),
            // The next record's number; the present one's, its title, and that as a part of a path.
            'i' => {
                self.serial += 1 + self.chance.zipf(3);
                self.title = self.title();
                self.serial.to_string()
            }
            'I' => self.serial.to_string(),
            'r' => self.title.clone(),
            'u' => self.title.to_lowercase().replace(' ', "-"),
            // Numbers of one digit, of one to six, a measure of pixels, a fraction, hashes.
            '0' => self.chance.zipf(3).to_string(),
            'n' => self.chance.zipf(20).to_string(),
            '3' => (100 + 20 * self.chance.below(24)).to_string(),
            'f' => format!("{}.{}", self.chance.zipf(7), self.chance.below(1000)),
            'h' => format!("{:08x}", self.chance.0.next_u32()),
            'H' => format!("{:016x}{:016x}", self.chance.0.next_u64(), self.chance.0.next_u64()),
            // A time, later than the one before; what is true or not, a state.
            'd' => {
                self.clock += self.chance.zipf(18);
                let (day, hour, minute, second) =
                    (self.clock / 86_400, self.clock / 3_600 % 24, self.clock / 60 % 60, self.clock % 60);
                format!("2024-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}", 1 + day / 28 % 12, 1 + day % 28)
            }
            'b' => ["true", "false"][self.chance.zipf(2) % 2].to_owned(),
            'o' => ["active", "pending", "closed"][self.chance.zipf(2)].to_owned(),
            // A variable, the same again; an expression; a block of statements.
            'v' => {
                if self.chance.below(3) > 0 {
                    self.variable.clone_from(self.chance.favourite(&self.variables));
                }
                self.variable.clone()
            }
            'V' => self.variable.clone(),
            'E' => return self.expression(),
            'B' => return self.block(),
            // A line's end, where there are lines.
            '/' => return self.line(),
            _ => unreachable!("no template has a slot %{slot}"),
        };
        self.out += &text;
    }

    /// What [`fill`](Self::fill) would append.
    fn filled(&mut self, template: &str) -> String {
        let start = self.out.len();
        self.fill(template);
        self.out.split_off(start)
    }

    fn line(&mut self) {
        if let Some(indent) = self.indent {
            self.out.push('\n');
            self.out.extend(core::iter::repeat_n(' ', indent));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use flate2::Compression;
    use flate2::write::ZlibEncoder;

    use super::*;
    use crate::stats::mean;

    fn compressed(body: &[u8]) -> usize {
        let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(6));
        encoder.write_all(body).unwrap();
        encoder.finish().unwrap().len()
    }

    #[test]
    fn a_body_has_its_size_and_is_text() {
        for kind in Kind::ALL {
            // Among so many sizes some would cut a dash of three bytes.
            for size in (0..10).chain(20_000..20_200).chain([1_000_000]) {
                let body = body(kind, size as u64 % 5, size);
                assert_eq!(body.len(), size);
                assert!(str::from_utf8(&body).is_ok(), "{kind:?}, {size} bytes");
            }
        }
    }

    #[test]
    fn a_seed_is_a_body() {
        // FNV-1a, of what was made when the generator was last changed: results on other bodies are other results.
        let digest = |kind| {
            body(kind, 1, 50_000)
                .iter()
                .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
        };
        let digests = [0xf7ec_dc1a_0b5a_eede, 0x8763_2c57_09b0_73d7, 0xc5b8_b472_0e21_d972];
        assert_eq!(Kind::ALL.map(digest), digests);
    }

    #[test]
    fn bodies_of_two_seeds_have_little_in_common() {
        for kind in Kind::ALL {
            for seed in 0..10 {
                let (one, other) = (body(kind, seed, 12_000), body(kind, seed + 1, 12_000));
                let apart = compressed(&one) + compressed(&other);
                let together = compressed(&[one, other].concat());
                assert!(together * 10 > apart * 8, "{kind:?}, seed {seed}: {together} of {apart}");
            }
        }
    }

    /// The ratios are those of real pages: stock zlib's at level 6, of each page by itself, in the mean over pages of about these sizes.
    /// What compresses here is zlib-rs, whose ratios on these bodies are those of zlib 1.2.13 to 0.5 %, for JSON 3 % higher.
    #[test]
    fn bodies_compress_as_real_pages_do() {
        const SEEDS: usize = 40;
        for (kind, smallest, largest, ratio) in [
            (Kind::Html, 2_000.0_f64, 8_000.0_f64, 2.45),
            (Kind::Html, 16_000.0, 64_000.0, 4.2),
            (Kind::Html, 88_000.0, 88_000.0, 4.9),
            (Kind::Js, 16_000.0, 64_000.0, 3.96),
            (Kind::Json, 16_000.0, 64_000.0, 7.8),
        ] {
            let ratios = (0..SEEDS).map(|seed| {
                let size = smallest * (largest / smallest).powf(seed as f64 / (SEEDS - 1) as f64);
                size / compressed(&body(kind, seed as u64, size as usize)) as f64
            });
            let mean = mean(ratios);
            assert!(
                (mean / ratio - 1.0).abs() < 0.1,
                "{kind:?} of {smallest} to {largest} bytes: {mean:.2}, not {ratio}"
            );
        }
    }
}
