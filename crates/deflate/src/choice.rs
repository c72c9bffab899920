//! Which engine compresses a body: by what its caller asked zlib for, by its size, by what each engine has cost for such bodies so far, and
//! by how large its output was beside zlib's.
//!
//! "Same ratio" promises that responses are not larger than zlib's at the level that was asked for, by more than a share. Whether
//! an engine holds that depends on the data, so it is looked at: of the bodies of each level and size class that it has, every so many is
//! compressed by stock zlib as well, and where its output has been too large it goes one level up, and from the last level out of the
//! choice. Of those that are left, stock zlib among them, the one that kept its caller's thread busy for the shortest time is chosen; a part
//! of the time in which a device had it sleep counts as well. What a device costs changes
//! with its load, so where there is one it is tried now and then, and where it is chosen the engines beside it are; among those the first
//! few bodies decide, so that equal bodies have equal output from then on.

use std::sync::atomic::{AtomicI8, AtomicU32, AtomicU64, Ordering};

use crate::accelerator::Client;
use crate::count::Maker;
use crate::engine::Igzip;
use crate::qatzip::Qatzip;

/// What an operator wants of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As long as zlib's, at less processor time.
    #[default]
    Same,
    /// At the least processor time, by levels that are about as good as zlib's level 1; that is not looked at.
    Fast,
}

/// Whether the accelerator is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offload {
    /// Where that takes less of the caller's time.
    #[default]
    Measured,
    /// Wherever there is one.
    Always,
}

/// Who compresses a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pick {
    /// The engine.
    pub maker: Maker,
    /// The level that it is asked for, of its own.
    pub level: i32,
    /// Whether its output is to be [compared](Choice::compare); of a device, which may have none, [`Choice::looks`] says so.
    pub compare: bool,
}

/// Shares are of so many.
const PER: u64 = 100_000;

/// Of the bodies that an engine has in a class, every one of so many is compressed by zlib as well: a hundredth of the work.
const LOOK_EVERY: u32 = 128;

/// The first ones all are, so that a class is not wrong for long.
const LOOK_FIRST: u32 = 4;

/// Longer ones are not: zlib's output would take as much memory again, and all of its time in one call.
const LOOK_MAX: usize = 1 << 20;

/// Of the bodies of a class, one of so many goes to a device that is not the cheapest, or past one that is.
const TRY_EVERY: u32 = 64;

/// After so many bodies it is known what an engine costs.
const KNOWN_AFTER: u32 = 4;

/// Of the engines in the caller's thread the first so many bodies do not count, by which caches and predictors come to know them, and
/// those up to so many decide.
const WARM_AFTER: u32 = 8;
const DECIDED_AFTER: u32 = 40;

/// What an engine takes before its first byte is reckoned as so many bytes, or the costs of bodies of a class could not be compared: it is
/// most of what the shortest ones take.
const BEFORE: u64 = 1 << 10;

/// Bytes of output after which older ones count half: those of a few hundred responses.
const HALF_AT: u64 = 4 << 20;

/// The choice of one process, which its threads share.
#[derive(Debug)]
pub struct Choice {
    mode: Mode,
    /// In parts of [`PER`].
    larger_max: u64,
    offload: Offload,
    accelerator: Option<Client>,
    /// Engines that are not on this host: a bit for each [`Maker`].
    missing: AtomicU32,
    /// By level (1 to 9) and size class.
    classes: [[Class; CLASSES]; 9],
}

/// A class's state. Threads may mix their counts up: they are only means.
#[derive(Debug)]
struct Class {
    seen: AtomicU32,
    /// By [`Maker`].
    routes: [Route; Maker::ALL.len()],
}

/// What one engine did in a class.
#[derive(Debug)]
struct Route {
    /// Levels above the one that it began with.
    up: AtomicI8,
    seen: AtomicU32,
    ours: AtomicU64,
    stock: AtomicU64,
    /// Nanoseconds of the caller's thread for 1,024 bytes, a moving mean; 0: not known.
    cost: AtomicU32,
    /// The mean of those that decide.
    first: AtomicU32,
    /// Of so many bodies.
    known: AtomicU32,
}

/// Below 512 bytes, 2 KB, 8 KB, 32 KB, 128 KB, and all others.
const CLASSES: usize = 6;

/// The last level of zlib's, which every engine is asked for in its stead.
const LEVEL_MAX: i32 = 9;

impl Choice {
    /// A choice that lets output be larger than zlib's by at most `larger_max`, a share: 0.005 is half of one per cent.
    pub const fn new(mode: Mode, larger_max: f64) -> Self {
        let classes = [const { [const { Class::new() }; CLASSES] }; 9];
        Self {
            mode,
            larger_max: (larger_max * PER as f64) as u64,
            offload: Offload::Measured,
            accelerator: None,
            missing: AtomicU32::new(0),
            classes,
        }
    }

    /// With an accelerator among the engines.
    #[must_use]
    pub fn with_accelerator(self, client: Client, offload: Offload) -> Self {
        Self { offload, accelerator: Some(client), ..self }
    }

    /// The process's side of its accelerator.
    pub const fn accelerator(&self) -> Option<&Client> {
        self.accelerator.as_ref()
    }

    /// Who compresses a body of `len` bytes for which zlib's `level` was asked for.
    pub fn pick(&self, level: i32, len: usize) -> Pick {
        let Some(class) = self.class(level, len) else { return self.stock(level) };
        let all = || self.candidates(class, level, len, true);
        let seen = class.seen.fetch_add(1, Ordering::Relaxed);
        if self.offload == Offload::Always && all().any(|maker| maker == Maker::Accelerator) {
            return self.route(class, level, len, Maker::Accelerator);
        }
        let best = class.cheapest(all()).unwrap_or(Maker::Stock);
        if seen % TRY_EVERY < TRY_EVERY - 1 {
            return self.route(class, level, len, best);
        }
        let here = class.cheapest(self.candidates(class, level, len, false));
        let others = all().filter(|maker| *maker != best && (is_away(*maker) || is_away(best) && here == Some(*maker)));
        let turn = (seen / TRY_EVERY) as usize;
        let other = others.clone().nth(turn % others.count().max(1));
        self.route(class, level, len, other.unwrap_or(best))
    }

    /// Who does so where no device can.
    pub fn pick_here(&self, level: i32, len: usize) -> Pick {
        let Some(class) = self.class(level, len) else { return self.stock(level) };
        let best = class.cheapest(self.candidates(class, level, len, false));
        self.route(class, level, len, best.unwrap_or(Maker::Stock))
    }

    /// Stock zlib, where `level` was asked for.
    pub fn stock(&self, level: i32) -> Pick {
        Pick { maker: Maker::Stock, level: self.streaming(level), compare: false }
    }

    /// Whether a body that is longer than what is collected may be compressed part by part: it may until that was too large.
    pub fn has_parts(&self, level: i32) -> bool {
        let Some(class) = self.class(level, usize::MAX) else { return false };
        self.mode == Mode::Fast || class.routes[Maker::ZlibRs as usize].up.load(Ordering::Relaxed) == 0
    }

    /// Whether a part's output is to be [compared](Self::compare), as zlib-rs's of the longest bodies.
    pub fn looks_at_part(&self, level: i32) -> bool {
        let Some(class) = self.class(level, usize::MAX) else { return false };
        self.mode == Mode::Same && class.routes[Maker::ZlibRs as usize].is_looked_at()
    }

    /// The level at which stock zlib streams where `level` was asked for.
    pub fn streaming(&self, level: i32) -> i32 {
        if self.mode == Mode::Fast { level.min(1) } else { level }
    }

    /// What the operator wants.
    pub const fn mode(&self) -> Mode {
        self.mode
    }

    /// Loads the libraries of engines that are not linked in, and takes note of those that are not there: to be called while the process
    /// still has the root and the rights that it began with.
    pub fn load_libraries(&self) {
        if self.mode == Mode::Fast && !Igzip::is_there() {
            self.lacks(Maker::Igzip);
        }
        if !Qatzip::is_there() {
            self.lacks(Maker::Qatzip);
        }
    }

    /// Takes note that an engine is not on this host.
    pub fn lacks(&self, maker: Maker) {
        self.missing.fetch_or(1 << maker as u32, Ordering::Relaxed);
    }

    /// Takes note that a body of `len` bytes for which `level` was asked kept its thread busy for so many nanoseconds.
    pub fn cost(&self, level: i32, len: usize, maker: Maker, nanos: u64) {
        let Some(class) = self.class(level, len) else { return };
        let Route { cost, first, known, .. } = &class.routes[maker as usize];
        let new = nanos.saturating_mul(1_024) / (len as u64).saturating_add(BEFORE);
        let old = u64::from(cost.load(Ordering::Relaxed));
        // One that another process interrupted is not ten times as much work.
        let mean = if old == 0 { new } else { (old * 15 + new.min(old * 4)) / 16 };
        let store =
            |to: &AtomicU32, nanos: u64| to.store(u32::try_from(nanos).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
        store(cost, mean);
        let before = known.fetch_add(1, Ordering::Relaxed);
        if (WARM_AFTER..DECIDED_AFTER).contains(&before) {
            let (of, old) = (u64::from(before - WARM_AFTER), u64::from(first.load(Ordering::Relaxed)));
            store(first, if of == 0 { new } else { (old * of + new.min(old * 4)) / (of + 1) });
        }
    }

    /// Takes note that a body of `len` bytes became `ours` long by an engine, and `stock` by stock zlib at `level`.
    pub fn compare(&self, level: i32, len: usize, maker: Maker, ours: usize, stock: usize) {
        let Some(class) = self.class(level, len) else { return };
        let route = &class.routes[maker as usize];
        let add = |sum: &AtomicU64, more: usize| sum.fetch_add(more as u64, Ordering::Relaxed) + more as u64;
        let (ours, stock) = (add(&route.ours, ours), add(&route.stock, stock));
        if ours > stock.saturating_add(stock * self.larger_max / PER) {
            // One that has no levels makes it no smaller at another one.
            let has_levels = maker != Maker::Accelerator || self.accelerator.as_ref().is_none_or(Client::has_levels);
            route.up.fetch_add(if has_levels { 1 } else { LEVEL_MAX as i8 }, Ordering::Relaxed);
            for counter in [&route.ours, &route.stock] {
                counter.store(0, Ordering::Relaxed);
            }
            // At another level it costs something else.
            for counter in [&route.cost, &route.known] {
                counter.store(0, Ordering::Relaxed);
            }
        } else if stock > HALF_AT {
            route.ours.store(ours / 2, Ordering::Relaxed);
            route.stock.store(stock / 2, Ordering::Relaxed);
        }
    }

    /// Engines that may have a body: those that hold the ratio, and are there. The first one is tried first.
    fn candidates<'a>(
        &'a self,
        class: &'a Class,
        level: i32,
        len: usize,
        away: bool,
    ) -> impl Iterator<Item = Maker> + Clone + 'a {
        let all: &[Maker] = match self.mode {
            Mode::Same => &[Maker::Qatzip, Maker::Accelerator, Maker::Libdeflate, Maker::Stock],
            Mode::Fast => &[Maker::Qatzip, Maker::Accelerator, Maker::Igzip, Maker::Libdeflate, Maker::Stock],
        };
        let missing = self.missing.load(Ordering::Relaxed);
        let device = len > 0 && self.accelerator.as_ref().is_some_and(|client| client.takes(len));
        all.iter().copied().filter(move |maker| {
            let is_there = match maker {
                _ if is_away(*maker) && !away => false,
                Maker::Accelerator => device,
                Maker::Qatzip => (Qatzip::INPUT_MIN..=Qatzip::INPUT_MAX).contains(&len),
                _ => true,
            };
            let up = i32::from(class.routes[*maker as usize].up.load(Ordering::Relaxed));
            is_there && missing & 1 << *maker as u32 == 0 && level + up <= LEVEL_MAX
        })
    }

    fn route(&self, class: &Class, level: i32, len: usize, maker: Maker) -> Pick {
        if maker == Maker::Stock {
            return self.stock(level);
        }
        let route = &class.routes[maker as usize];
        let level = match self.mode {
            Mode::Fast => 1,
            Mode::Same => level + i32::from(route.up.load(Ordering::Relaxed)),
        };
        Pick { maker, level, compare: !is_away(maker) && self.compares(route, len) }
    }

    /// Whether what a device has made of a body of `len` bytes is to be [compared](Self::compare).
    pub fn looks(&self, level: i32, len: usize, maker: Maker) -> bool {
        self.class(level, len).is_some_and(|class| self.compares(&class.routes[maker as usize], len))
    }

    /// Whether the body that comes next to `route` is compressed by zlib as well.
    fn compares(&self, route: &Route, len: usize) -> bool {
        self.mode == Mode::Same && len <= LOOK_MAX && route.is_looked_at()
    }

    /// `None`: there is nothing to choose at such a level.
    fn class(&self, level: i32, len: usize) -> Option<&Class> {
        let class = match len >> 9 {
            0 => 0,
            1..4 => 1,
            4..16 => 2,
            16..64 => 3,
            64..256 => 4,
            _ => 5,
        };
        self.classes.get(usize::try_from(level - 1).ok()?).map(|classes| &classes[class])
    }
}

/// Whether it is a device.
const fn is_away(maker: Maker) -> bool {
    matches!(maker, Maker::Accelerator | Maker::Qatzip)
}

impl Class {
    const fn new() -> Self {
        Self { seen: AtomicU32::new(0), routes: [const { Route::new() }; Maker::ALL.len()] }
    }

    /// The first one of which it is not known what it costs, or the one that costs the least.
    fn cheapest(&self, candidates: impl Iterator<Item = Maker> + Clone) -> Option<Maker> {
        let of = |maker: Maker| &self.routes[maker as usize];
        let here = candidates.clone().filter(|maker| !is_away(*maker)).min_by_key(|maker| of(*maker).decided());
        let away = candidates.filter(|maker| is_away(*maker));
        away.chain(here).min_by_key(|maker| of(*maker).known())
    }
}

impl Route {
    const fn new() -> Self {
        Self {
            up: AtomicI8::new(0),
            seen: AtomicU32::new(0),
            ours: AtomicU64::new(0),
            stock: AtomicU64::new(0),
            cost: AtomicU32::new(0),
            first: AtomicU32::new(0),
            known: AtomicU32::new(0),
        }
    }

    /// What it costs, once that is known; 0 before.
    fn known(&self) -> u32 {
        let is_known = self.known.load(Ordering::Relaxed) >= KNOWN_AFTER;
        if is_known { self.cost.load(Ordering::Relaxed) } else { 0 }
    }

    /// What it cost when that was decided by; 0 before.
    fn decided(&self) -> u32 {
        let is_decided = self.known.load(Ordering::Relaxed) >= DECIDED_AFTER;
        if is_decided { self.first.load(Ordering::Relaxed) } else { 0 }
    }

    /// Whether the next body of its is compressed by zlib as well.
    fn is_looked_at(&self) -> bool {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        seen < LOOK_FIRST || seen.is_multiple_of(LOOK_EVERY)
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self::new(Mode::Same, 0.005)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn by(maker: Maker, level: i32) -> (Maker, i32) {
        (maker, level)
    }

    fn picked(choice: &Choice, level: i32, len: usize) -> (Maker, i32) {
        let pick = choice.pick(level, len);
        (pick.maker, pick.level)
    }

    /// A choice on a host without a card.
    fn usual() -> Choice {
        let choice = Choice::default();
        choice.lacks(Maker::Qatzip);
        choice
    }

    #[test]
    fn a_class_whose_output_is_too_large_goes_up_and_then_to_zlib() {
        let choice = usual();
        for level in 6..=9 {
            assert_eq!(picked(&choice, 6, 5_000), by(Maker::Libdeflate, level));
            choice.compare(6, 5_000, Maker::Libdeflate, 1_005, 1_000);
            assert_eq!(picked(&choice, 6, 5_000), by(Maker::Libdeflate, level), "half of a per cent is allowed");
            choice.compare(6, 5_000, Maker::Libdeflate, 1_010, 1_000);
        }
        assert_eq!(picked(&choice, 6, 5_000), by(Maker::Stock, 6));
        assert_eq!(picked(&choice, 6, 50_000), by(Maker::Libdeflate, 6), "other sizes are other classes");
        assert_eq!(picked(&choice, 7, 5_000), by(Maker::Libdeflate, 7), "and so are other levels");
    }

    #[test]
    fn few_are_compared_and_the_first_ones_all() {
        let choice = usual();
        let all = (0..1_000).map(|_| choice.pick(6, 100)).filter(|pick| pick.maker == Maker::Libdeflate);
        let compared: Vec<usize> = all.enumerate().filter(|(_, pick)| pick.compare).map(|(n, _)| n).collect();
        assert_eq!((compared.len(), &compared[..5]), (11, &[0, 1, 2, 3, 128][..]));
    }

    #[test]
    fn what_takes_much_memory_is_not_compared() {
        let choice = usual();
        for _ in 0..1_000 {
            assert_eq!(choice.pick(6, LOOK_MAX + 1), Pick { maker: Maker::Libdeflate, level: 6, compare: false });
        }
        assert!(choice.pick(6, LOOK_MAX).compare, "they were none of those that are seen first");
    }

    #[test]
    fn what_was_seen_long_ago_counts_less() {
        let choice = Choice::default();
        choice.compare(6, 1 << 20, Maker::Libdeflate, 5 << 20, 5 << 20);
        let route = &choice.class(6, 1 << 20).unwrap().routes[Maker::Libdeflate as usize];
        assert_eq!(route.stock.load(Ordering::Relaxed), 5 << 19);
    }

    #[test]
    fn no_engine_stands_in_for_no_compression() {
        for mode in [Mode::Same, Mode::Fast] {
            let choice = Choice::new(mode, 0.005);
            assert_eq!((picked(&choice, 0, 5_000), choice.streaming(0)), (by(Maker::Stock, 0), 0));
        }
    }

    /// Has an engine take so many nanoseconds for each of the next bodies that it is chosen for.
    fn run(choice: &Choice, bodies: usize, nanos: impl Fn(Maker) -> u64) -> Vec<Maker> {
        let one = |_| {
            let maker = choice.pick(6, 1_000).maker;
            choice.cost(6, 1_000, maker, nanos(maker));
            maker
        };
        (0..bodies).map(one).collect()
    }

    #[test]
    fn of_engines_here_the_first_few_bodies_decide() {
        let choice = Choice::new(Mode::Fast, 0.005);
        choice.lacks(Maker::Qatzip);
        let picks = run(&choice, 1_000, |maker| if maker == Maker::Igzip { 2_000 } else { 1_000 });
        assert_eq!(picks[..40], [Maker::Igzip; 40]);
        assert_eq!(picks[40..80], [Maker::Libdeflate; 40]);
        assert_eq!(picks[80..120], [Maker::Stock; 40]);
        assert_eq!(picks[120..], [Maker::Libdeflate; 880], "as cheap as zlib");
        choice.lacks(Maker::Libdeflate);
        assert_eq!(picked(&choice, 6, 1_000), by(Maker::Stock, 1));
    }

    #[test]
    fn zlib_has_what_it_does_cheapest_for_good() {
        let choice = usual();
        // Whatever it takes later, a body that is compressed again is compressed alike.
        let so_far = std::cell::Cell::new(0);
        let picks = run(&choice, 1_000, |maker| match maker {
            Maker::Stock => 2_000 + so_far.replace(so_far.get() + 50),
            _ => 5_000,
        });
        assert_eq!(picks[80..], [Maker::Stock; 920]);
        assert_eq!(picked(&choice, 6, 100), by(Maker::Libdeflate, 6), "another class");
    }

    #[test]
    fn what_an_engine_takes_for_its_first_bodies_does_not_count() {
        let choice = usual();
        let so_far = std::cell::Cell::new(0);
        let picks = run(&choice, 200, |maker| match maker {
            _ if so_far.replace(so_far.get() + 1) < 8 => 1_000_000,
            Maker::Stock => 1_200,
            _ => 1_000,
        });
        assert_eq!(picks[80..], [Maker::Libdeflate; 120]);
    }

    #[test]
    fn a_device_is_tried_now_and_then_and_left_and_taken_again() {
        let choice = Choice::default();
        let card = |nanos: u64| move |maker: Maker| if maker == Maker::Qatzip { nanos } else { 10_000 };
        let by_card = |picks: &[Maker]| picks.iter().filter(|maker| **maker == Maker::Qatzip).count();
        run(&choice, 64, card(1_000));
        assert_eq!(by_card(&run(&choice, 640, card(1_000))), 630);
        // Its load grows.
        run(&choice, 64, card(90_000));
        assert_eq!(by_card(&run(&choice, 640, card(90_000))), 10);
        run(&choice, 64 * 64, card(1_000));
        assert_eq!(by_card(&run(&choice, 640, card(1_000))), 630);
    }

    #[test]
    fn one_interruption_does_not_change_the_choice() {
        let choice = Choice::default();
        let card = |nanos: u64| move |maker: Maker| if maker == Maker::Qatzip { nanos } else { 10_000 };
        run(&choice, 20, card(5_000));
        choice.cost(6, 1_000, Maker::Qatzip, 50_000_000);
        assert_eq!(choice.pick(6, 1_000).maker, Maker::Qatzip);
    }
}
