//! The random numbers of a forwarding engine in hardware, to the bit: shift registers with linear feedback, nothing but wires and XOR gates.
//! Read first: L'Ecuyer, "Maximally Equidistributed Combined Tausworthe Generators" (1996), whose generator of three this is (taus88);
//! `hdl/drill_lfsr.v`.
//!
//! Ground rules. The registers never stop: each clock has numbers of its own, whether a packet comes or not. A word of 32 bits has two
//! numbers of 16, and each number below a bound is the upper part of a product, `number * bound >> 16`: there are 2^16 numbers, so of
//! `bound` results some come of one more than others do. Which, for 48 ports, makes some by 1/1365 likelier: one standard deviation of
//! two million decisions for each port. One shift register alone will not do (a test has one of 64 bits): its word of this clock is
//! that of two clocks ago, shifted a little and added up.

use crate::drill::LOOKS_MAX;
use crate::{FlowHash, Sampler};

/// Numbers that a word has.
const HALVES: usize = 2;

/// An engine's generators: as many as the numbers of one clock take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lfsr {
    generators: [Tausworthe; LOOKS_MAX / HALVES],
    len: u8,
    /// Numbers of this clock that were drawn.
    drawn: u8,
}

impl Lfsr {
    /// Generators for so many numbers a clock, from 1 to [`LOOKS_MAX`].
    ///
    /// # Panics
    /// Where it is another number.
    pub fn new(seed: u64, numbers: usize) -> Self {
        assert!((1..=LOOKS_MAX).contains(&numbers), "an engine draws from 1 to {LOOKS_MAX} numbers");
        // Mixed twice: seeds that differ by little would have words in common.
        let seed = FlowHash::from_u64(seed).at(0x9e37_79b9_7f4a_7c15).as_u64();
        let mut words = (0..).map(|at| (FlowHash::from_u64(at).at(seed).as_u64() >> 32) as u32 | Tausworthe::LEAST);
        let generators = core::array::from_fn(|_| Tausworthe(core::array::from_fn(|_| words.next().unwrap_or(!0))));
        let len = numbers.div_ceil(HALVES) as u8;
        // Without a clock it begins with the first one's.
        Self { generators, len, drawn: len * HALVES as u8 }
    }

    /// What the registers hold: three words of each generator.
    pub fn registers(&self) -> impl DoubleEndedIterator<Item = u32> {
        self.generators[..usize::from(self.len)].iter().flat_map(|generator| generator.0)
    }

    /// A clock passes: there are other numbers.
    pub fn clock(&mut self) {
        self.generators[..usize::from(self.len)].iter_mut().for_each(Tausworthe::step);
        self.drawn = 0;
    }
}

impl Sampler for Lfsr {
    /// The next number of this clock, or of the next one, where this one has no more. Of bounds up to 2^16, each result is as likely as any
    /// other to `bound` in 2^16.
    fn below(&mut self, bound: u32) -> u32 {
        if usize::from(self.drawn) == HALVES * usize::from(self.len) {
            self.clock();
        }
        let [at, half] = [usize::from(self.drawn) / HALVES, usize::from(self.drawn) % HALVES];
        self.drawn += 1;
        let word = self.generators[at].word();
        let number = if half == 0 { word >> 16 } else { word & 0xffff };
        ((u64::from(number) * u64::from(bound)) >> 16) as u32
    }
}

/// Three registers, whose sum without carries is the word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Tausworthe([u32; 3]);

impl Tausworthe {
    /// A register must not be 0 but for its low 1, 3 and 4 bits, which have left it at the next clock: it would stay so.
    const LEAST: u32 = 1 << 4;

    const fn step(&mut self) {
        let [a, b, c] = self.0;
        self.0 = [
            ((a & !0b1) << 12) ^ (((a << 13) ^ a) >> 19),
            ((b & !0b111) << 4) ^ (((b << 2) ^ b) >> 25),
            ((c & !0b1111) << 17) ^ (((c << 3) ^ c) >> 11),
        ];
    }

    const fn word(self) -> u32 {
        self.0[0] ^ self.0[1] ^ self.0[2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Looks, Memory, Port};

    /// The sum over `counts` of the squared distances from what is expected, over that; and how many standard deviations it is from its
    /// mean.
    fn chi_square(counts: &[u64]) -> (f64, f64) {
        let expected = counts.iter().sum::<u64>() as f64 / counts.len() as f64;
        let sum = counts.iter().map(|count| (*count as f64 - expected).powi(2) / expected).sum::<f64>();
        let freedom = (counts.len() - 1) as f64;
        (sum, (sum - freedom) / (2.0 * freedom).sqrt())
    }

    #[track_caller]
    fn is_even(what: &str, counts: &[u64]) {
        let (sum, off) = chi_square(counts);
        println!("{what}: chi-square {sum:.1} of {} cells, {off:+.2} standard deviations off", counts.len());
        assert!(off.abs() < 4.5, "{what}: {off}");
    }

    /// The GNU Scientific Library's test of its `gsl_rng_taus`: seed 1, which it makes registers of so, and 10,000 words on.
    #[test]
    fn words_are_those_of_the_gnu_scientific_library() {
        let mut next = 1_u32;
        let mut generator = Tausworthe(core::array::from_fn(|_| {
            next = next.wrapping_mul(69_069);
            next
        }));
        (0..6 + 10_000).for_each(|_| generator.step());
        assert_eq!(generator.word(), 2_733_957_125);
    }

    /// Computed by another implementation: whoever changes these changes what hardware picks.
    #[test]
    fn numbers_are_those_of_every_version() {
        let mut sampler = Lfsr::new(1, 3);
        let registers: Vec<u32> = sampler.registers().collect();
        assert_eq!(registers, [0x3a3c_7f9a, 0x72b5_5816, 0x1d5b_f0ff, 0x97a4_439e, 0x3505_8e32, 0xac91_78b1]);
        let numbers: Vec<u32> = (0..8).map(|_| sampler.below(1 << 16)).collect();
        assert_eq!(numbers, [0x0d52, 0xc76b, 0xe518, 0x03dd, 0xcf2e, 0x4ac8, 0x9d1e, 0xce23]);
        sampler.clock();
        assert_eq!([48, 47].map(|bound| sampler.below(bound)), [20, 11]);
    }

    /// A clock has two numbers of each of two generators; whoever draws fewer finds the same ones at the next clock.
    #[test]
    fn a_clock_has_its_own_numbers_whatever_was_drawn() {
        let (mut all, mut few) = (Lfsr::new(7, 4), Lfsr::new(7, 3));
        assert_eq!(few.registers().count(), 6);
        for _ in 0..100 {
            all.clock();
            few.clock();
            let numbers: Vec<u32> = (0..4).map(|_| all.below(1 << 16)).collect();
            assert_eq!([1 << 16, 1 << 16].map(|bound| few.below(bound)), numbers[..2]);
        }
        // Another seed, other numbers.
        assert_ne!(Lfsr::new(8, 4).below(1 << 16), Lfsr::new(7, 4).below(1 << 16));
    }

    /// Of all 2^16 numbers: no two results of a bound differ by more than one number.
    #[test]
    fn no_result_of_a_bound_has_more_than_one_number_more() {
        let mut worst = (0.0, 0);
        for bound in 1..=64_u32 {
            let mut counts = vec![0_u32; bound as usize];
            (0..1_u32 << 16).for_each(|number| counts[((number * bound) >> 16) as usize] += 1);
            let [least, most] = [counts.iter().min().unwrap(), counts.iter().max().unwrap()];
            assert!(most - least <= 1, "{bound}: {least} to {most}");
            let bias = f64::from(most - least) * f64::from(bound) / 65_536.0;
            worst = if bias > worst.0 { (bias, bound) } else { worst };
        }
        println!(
            "the likeliest result is likelier than the least likely one by {:.5} at most, of {}",
            worst.0, worst.1
        );
        assert!(worst.0 < 0.001);
    }

    /// By half, and by pairs: a number and another one of its clock or of one to six clocks later, where a single shift register fails;
    /// numbers of two generators of an engine and of two engines, in a clock and in the next one.
    #[test]
    fn numbers_are_even_alone_and_in_pairs() {
        const BOUND: u32 = 48;
        const CLOCKS: usize = 2_000_000;
        println!("seeds 1 and 2");
        let numbers = |seed| -> Vec<[u8; 4]> {
            let mut sampler = Lfsr::new(seed, 4);
            let mut clock = || -> [u8; 4] {
                sampler.clock();
                core::array::from_fn(|_| sampler.below(BOUND) as u8)
            };
            (0..CLOCKS).map(|_| clock()).collect()
        };
        let (one, other) = (numbers(1), numbers(2));
        let cells = BOUND as usize;
        for half in 0..2 {
            let mut counts = vec![0; cells];
            one.iter().for_each(|clock| counts[usize::from(clock[half])] += 1);
            is_even(&format!("half {half}"), &counts);
        }
        let is_even_pair = |what: &str, later: &[[u8; 4]], [first, second]: [usize; 2], lag: usize| {
            let mut counts = vec![0; cells * cells];
            for (now, then) in one.iter().zip(&later[lag..]) {
                counts[usize::from(now[first]) * cells + usize::from(then[second])] += 1;
            }
            is_even(&format!("{what}, number {first} and {lag} clocks later number {second}"), &counts);
        };
        for [first, second] in [[0, 0], [0, 1], [1, 0], [1, 1]] {
            // In its own clock a number is no pair with itself, and both are one pair.
            for lag in usize::from(first >= second)..=6 {
                is_even_pair("a generator", &one, [first, second], lag);
            }
            for lag in 0..=1 {
                is_even_pair("two generators of an engine", &one, [first, 2 + second], lag);
                is_even_pair("two engines", &other, [first, second], lag);
            }
        }
    }

    /// What is measured would find it: a register of 64 bits with four taps, moved on by 32 bits a clock.
    #[test]
    fn one_register_alone_would_not_do() {
        let mut register = 0x0123_4567_89ab_cdef_u64;
        let mut number = || {
            for _ in 0..32 {
                let fed = (register >> 63) ^ (register >> 62) ^ (register >> 60) ^ (register >> 59);
                register = register << 1 | (fed & 1);
            }
            ((((register >> 16) & 0xffff) * 48) >> 16) as usize
        };
        let numbers: Vec<usize> = (0..200_000).map(|_| number()).collect();
        let mut counts = vec![0; 48 * 48];
        numbers.iter().zip(&numbers[2..]).for_each(|(now, then)| counts[now * 48 + then] += 1);
        let (_, off) = chi_square(&counts);
        println!("two clocks apart: {off:+.0} standard deviations off");
        assert!(off > 1_000.0, "{off}");
    }

    /// DRILL(2,0) over queues that are all as long: each ordered pair of distinct ports is drawn as often as any other.
    #[test]
    fn ports_are_drawn_evenly_and_no_two_alike() {
        let group: Vec<Port> = (0..48).map(Port).collect();
        let looks = Looks::new(2, 0).unwrap();
        let seed = 2;
        println!("seed {seed}");
        let (mut sampler, mut memory) = (Lfsr::new(seed, 2), Memory::default());
        let mut pairs = vec![0; 48 * 48];
        for _ in 0..2_000_000 {
            sampler.clock();
            let seen = core::cell::Cell::new((None, None));
            let even = |port: Port| {
                seen.set((seen.get().1, Some(port.0)));
                7
            };
            let first = memory.pick(looks, &group, &even, &mut sampler);
            let (Some(one), Some(other)) = seen.get() else { panic!("two ports are looked at") };
            assert!(first == Port(one) && one != other);
            pairs[usize::from(one) * 48 + usize::from(other)] += 1;
        }
        let drawn: Vec<u64> =
            pairs.iter().copied().enumerate().filter(|(at, _)| at / 48 != at % 48).map(|(_, n)| n).collect();
        is_even("ordered pairs", &drawn);
    }
}
