//! Which engine compresses a body: by what its caller asked zlib for, by its size, by what each engine has cost for such bodies so far, and
//! by how large its output was beside zlib's.
//!
//! "Same ratio" promises that responses are not larger than zlib's at the level that was asked for, by more than a share. Whether an engine
//! holds that depends on the data, so it is looked at: the first bodies of each class, which is of a level, a size, and of a kind of data,
//! and later every so many, are compressed by all engines of the caller's thread, stock zlib among them. One whose output has been
//! too large in sum, or far too large once, goes one level up, and from the last level out of the choice; once in many bodies it goes down
//! again, or comes back. What is looked at itself is sent as zlib made it where the engine's is too large. Of those that are left the one
//! that took the shortest time for these bodies has the class. It keeps it until another one is cheaper by a good deal, so that equal
//! bodies have equal output as a rule.
//!
//! Of a device's bodies the first few are looked at, and later every so many as well. What it costs is the time for which it kept its
//! caller's thread busy, and a part of that in which it had it sleep. That changes with its load, so where there is one it is tried now
//! and then, and where it is chosen the engines beside it are.

use std::sync::atomic::{AtomicI8, AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::accelerator::Client;
use crate::count::Maker;
use crate::engine::Igzip;
use crate::qatzip::Qatzip;
pub use crate::text::Kind;

#[cfg(test)]
mod tests;

/// What an operator wants of a response.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// As long as zlib's, at less processor time.
    #[default]
    Same,
    /// At the least processor time, by levels that are about as good as zlib's level 1; only what is far larger is left.
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
    /// Whether the engines [beside](Choice::beside) it are to compress the body as well; of a device, which may not have made it,
    /// [`Choice::looks`] says so.
    pub look: bool,
}

/// What a body's class goes by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Body {
    /// zlib's level that was asked for.
    pub level: i32,
    /// Its length in bytes.
    pub len: usize,
    /// What it is, by its first bytes.
    pub kind: Kind,
}

impl Body {
    /// As many bytes as tell what it is.
    const BEGINNING: usize = 16 << 10;

    /// Of a whole body.
    pub fn of(level: i32, bytes: &[u8]) -> Self {
        Self { level, len: bytes.len(), kind: Kind::of(&bytes[..bytes.len().min(Self::BEGINNING)]) }
    }

    /// Of one that is longer than what is collected, which begins so.
    pub fn long(level: i32, begins: &[u8]) -> Self {
        Self { len: usize::MAX, ..Self::of(level, begins) }
    }
}

/// What one of the engines that compress the same body did with it.
#[derive(Clone, Copy, Debug)]
pub struct Looked {
    /// The engine.
    pub maker: Maker,
    /// At which level of its own.
    pub level: i32,
    /// What it took.
    pub nanos: u64,
    /// How long its output is.
    pub len: usize,
}

/// Shares are of so many.
const PER: u64 = 100_000;

/// Of the bodies that an engine has in a class, one of so many is looked at: a hundredth of the work, with [`Mode::Same`].
const LOOK_EVERY: u32 = 128;

/// With [`Mode::Fast`], where others take several times as long.
const LOOK_EVERY_FAST: u32 = 1_024;

/// Of a device's, and of those that are compressed by parts, the first ones all are, so that a class is not wrong for long.
const LOOK_FIRST: u32 = 4;

/// Before it is decided who has a class, so many are on end, or the engine that had none before would be the slower one, which caches and
/// predictors do not know.
const LOOK_TOGETHER: u32 = 8;

/// One of so many such turns: who has few responses shall gain as well.
const LOOK_TURN: u32 = 4;

/// Of longer ones some part is: zlib's output would take as much memory again, and all of its time in one call.
pub(crate) const LOOK_MAX: usize = 1 << 20;

/// Of the bodies of a class, one of so many goes to a device that is not the cheapest, or past one that is.
const TRY_EVERY: u32 = 64;

/// After so many bodies it is known what an engine costs.
const KNOWN_AFTER: u32 = 4;

/// The first so many bodies that are looked at do not count, by which caches and predictors come to know the engines of the caller's
/// thread; those up to so many decide among them.
const WARM_AFTER: u32 = 8;
const DECIDED_AFTER: u32 = 40;

/// Later ones do where another engine takes less than so many eighths of what the chosen one takes.
const CHEAPER: u64 = 7;

/// Bodies that are looked at after which their costs count by a moving mean.
const MEAN_OF: u32 = 32;

/// What an engine takes before its first byte is reckoned as so many bytes, or the costs of bodies of a class could not be compared: it is
/// most of what the shortest ones take.
const BEFORE: u64 = 1 << 10;

/// Bodies that are compared with zlib's after which all so far count half, as so many, so that what a class holds now decides.
const HALF_AFTER: u32 = 64;

/// No fewer of them, of those by parts all of it together, say that an engine's output is too large: one may be of a kind of its own.
const COMPARED_MIN: u32 = 4;

/// But for one that is longer than zlib's by more than one in so many bytes, and this many: data of a kind that the engine does not see, as
/// arrays of numbers, whose matches have three bytes.
const FAR: usize = 20;
const FAR_MIN: usize = 256;

/// With [`Mode::Fast`], where nothing else is too large.
const FAR_FAST: usize = 4;

/// Of so many bodies of a class one takes levels that went up one down again, and an engine that is out of the choice back: what a class
/// holds may be what it was. Where it is not, that costs some 40 looks.
const AGAIN_EVERY: u32 = 1 << 15;

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
    /// By level (1 to 9), by kind, and by size class.
    classes: [[[Class; CLASSES]; Kind::ALL.len()]; 9],
}

/// A class's state. Threads may mix their counts up: they are only means.
#[derive(Debug)]
struct Class {
    seen: AtomicU32,
    /// Bodies that engines of the caller's thread had.
    here: AtomicU32,
    /// Bodies that all of these compressed, and whose time counts, since libdeflate's level was changed.
    looks: AtomicU32,
    /// Whose bodies they are, a [`Maker`]; [`UNDECIDED`].
    chosen: AtomicU8,
    /// By [`Maker`].
    routes: [Route; Maker::ALL.len()],
}

/// No engine's number.
const UNDECIDED: u8 = u8::MAX;

/// What one engine did in a class.
#[derive(Debug)]
struct Route {
    /// Levels above the one that it began with.
    up: AtomicI8,
    /// The most that these were.
    up_max: AtomicI8,
    /// Bodies of a device, or by parts, as many as are there to be looked at; or, while there are no parts, bodies that had none.
    seen: AtomicU32,
    /// Bytes of those that are compared, and for how many these stand: half as many once they were halved.
    ours: AtomicU64,
    stock: AtomicU64,
    compared: AtomicU32,
    /// Nanoseconds of the caller's thread for 1,024 bytes, a moving mean; 0: not known.
    cost: AtomicU32,
    /// The same of those that were looked at.
    looked: AtomicU32,
    /// Of so many bodies; by parts, how often on end they were dearer than zlib.
    known: AtomicU32,
}

/// Below 512 bytes, 2 KB, 8 KB, 32 KB, 128 KB, and all others.
const CLASSES: usize = 6;

/// The last level of zlib's, which every engine is asked for in its stead.
const LEVEL_MAX: i32 = 9;

impl Choice {
    /// A choice that lets output be larger than zlib's by at most `larger_max`, a share: 0.005 is half of one per cent.
    pub const fn new(mode: Mode, larger_max: f64) -> Self {
        let classes = [const { [const { [const { Class::new() }; CLASSES] }; Kind::ALL.len()] }; 9];
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

    /// Who compresses a body.
    pub fn pick(&self, body: Body) -> Pick {
        let Some(class) = self.class(body) else { return self.stock(body.level) };
        let seen = class.seen.fetch_add(1, Ordering::Relaxed);
        if seen % AGAIN_EVERY == AGAIN_EVERY - 1 {
            class.take_back(body.level);
        }
        let all = || self.candidates(class, body, true);
        if self.offload == Offload::Always && all().any(|maker| maker == Maker::Accelerator) {
            return self.route(class, body, Maker::Accelerator);
        }
        let best = class.cheapest(all());
        if seen % TRY_EVERY < TRY_EVERY - 1 {
            return self.route(class, body, best);
        }
        let here = class.cheapest(self.candidates(class, body, false));
        let others = all().filter(|maker| *maker != best && (is_away(*maker) || is_away(best) && here == *maker));
        let turn = (seen / TRY_EVERY) as usize;
        let other = others.clone().nth(turn % others.count().max(1));
        self.route(class, body, other.unwrap_or(best))
    }

    /// Who does so where no device can.
    pub fn pick_here(&self, body: Body) -> Pick {
        let Some(class) = self.class(body) else { return self.stock(body.level) };
        let best = class.cheapest(self.candidates(class, body, false));
        self.route(class, body, best)
    }

    /// The engines of the caller's thread that could have a body beside `maker`, at the levels at which they would.
    pub fn beside(&self, body: Body, maker: Maker) -> impl Iterator<Item = Pick> {
        self.class(body).into_iter().flat_map(move |class| {
            let others = self.candidates(class, body, false).filter(move |other| *other != maker);
            others.map(move |other| self.at(class, body.level, other))
        })
    }

    /// Engines of the caller's thread, and levels, by which a body may have been compressed before, whoever has its class now.
    pub fn ways(&self, body: Body) -> impl Iterator<Item = Pick> {
        let level = body.level;
        self.class(body).into_iter().flat_map(move |class| {
            let up = i32::from(class.routes[Maker::Libdeflate as usize].up_max.load(Ordering::Relaxed));
            let levels = match self.mode {
                Mode::Same => level..=(level + up).min(LEVEL_MAX),
                Mode::Fast => 1..=1,
            };
            let igzip = (self.mode == Mode::Fast).then_some(Pick { maker: Maker::Igzip, level: 1, look: false });
            let libdeflate = levels.map(|level| Pick { maker: Maker::Libdeflate, level, look: false });
            igzip.into_iter().chain(libdeflate).chain([self.stock(level)])
        })
    }

    /// Stock zlib, where `level` was asked for.
    pub fn stock(&self, level: i32) -> Pick {
        Pick { maker: Maker::Stock, level: self.streaming(level), look: false }
    }

    /// Whether a [long](Body::long) body may be compressed part by part: not for a while after that was too large, or dearer than zlib.
    pub fn has_parts(&self, body: Body) -> bool {
        let Some(class) = self.class(body) else { return false };
        let route = &class.routes[Maker::ZlibRs as usize];
        if route.up.load(Ordering::Relaxed) == 0 {
            return true;
        }
        let has_again = route.seen.fetch_add(1, Ordering::Relaxed) >= AGAIN_EVERY;
        if has_again {
            // All at once: it has one level, and the next parts are looked at as the first ones were.
            route.go_to(0);
        }
        has_again
    }

    /// Whether the output of a long body's parts is to be [compared](Self::compare), as zlib-rs's, whoever makes it; `body`: its first one.
    pub fn looks_at_parts(&self, body: Body) -> bool {
        self.class(body).is_some_and(|class| class.routes[Maker::ZlibRs as usize].is_looked_at(self.look_every()))
    }

    /// Takes note of what a long body's parts took, and what stock zlib took for them: where these were dearer by an eighth as often on end as
    /// the first ones are looked at, such bodies have no parts for a while.
    pub fn time_parts(&self, body: Body, ours: u64, stock: u64) {
        let Some(class) = self.class(body) else { return };
        let route = &class.routes[Maker::ZlibRs as usize];
        if ours.saturating_mul(CHEAPER) <= stock.saturating_mul(8) {
            route.known.store(0, Ordering::Relaxed);
        } else if route.known.fetch_add(1, Ordering::Relaxed) + 1 >= LOOK_FIRST {
            route.go_to(1);
        }
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

    /// Takes note that a body kept its thread busy for so many nanoseconds.
    pub fn cost(&self, body: Body, maker: Maker, nanos: u64) {
        let Some(class) = self.class(body) else { return };
        let route = &class.routes[maker as usize];
        average(&route.cost, 15, cost(body.len, nanos).min(most(&route.cost)));
        route.known.fetch_add(1, Ordering::Relaxed);
    }

    /// Takes note of what the engine that had a body, and those beside it, did with it; of what they took only where `is_timed` says so.
    pub fn looked(&self, body: Body, all: &[Looked], is_timed: bool) {
        let Some(class) = self.class(body) else { return };
        if is_timed {
            let before = class.looks.fetch_add(1, Ordering::Relaxed);
            if let Some(of) = before.checked_sub(WARM_AFTER) {
                class.time(of.min(MEAN_OF - 1), body.len, all);
            }
            if before + 1 >= DECIDED_AFTER {
                self.decide(class, body);
            }
        }
        let is_stock = |one: &&Looked| one.maker == Maker::Stock;
        if let Some(stock) = all.iter().find(is_stock) {
            // Another thread's may be of a level that it has no more.
            let is_of_now = |one: &&Looked| one.level == self.at(class, body.level, one.maker).level;
            for ours in all.iter().filter(|one| !is_stock(one)).filter(is_of_now) {
                self.compare(body, ours.maker, ours.len, stock.len);
            }
        }
    }

    /// Gives a class to the engine of the caller's thread that is cheapest: for the first time, or where it is so by a good deal.
    fn decide(&self, class: &Class, body: Body) {
        let cost = |maker: Maker| u64::from(class.routes[maker as usize].looked.load(Ordering::Relaxed));
        let all = || self.candidates(class, body, false);
        let Some(best) = all().min_by_key(|maker| cost(*maker)) else { return };
        let chosen = all().find(|maker| *maker as u8 == class.chosen.load(Ordering::Relaxed));
        if chosen.is_none_or(|chosen| cost(best) * 8 < cost(chosen) * CHEAPER) {
            class.chosen.store(best as u8, Ordering::Relaxed);
        }
    }

    /// Whether a body that became `ours` long is better sent as stock zlib made it, where it did.
    pub const fn prefers_stock(&self, ours: usize, stock: usize) -> bool {
        match self.mode {
            Mode::Same => self.is_larger(ours as u64, stock as u64),
            Mode::Fast => self.is_far_larger(ours, stock),
        }
    }

    /// By more than is allowed.
    const fn is_larger(&self, ours: u64, stock: u64) -> bool {
        ours > stock.saturating_add(stock * self.larger_max / PER)
    }

    /// So that one body says enough.
    const fn is_far_larger(&self, ours: usize, stock: usize) -> bool {
        let far = if let Mode::Same = self.mode { FAR } else { FAR_FAST };
        ours > stock + stock / far + FAR_MIN
    }

    /// Takes note that a body became `ours` long by an engine, and `stock` by stock zlib: at the level that was asked for, with
    /// [`Mode::Fast`] at its first one.
    pub fn compare(&self, body: Body, maker: Maker, ours: usize, stock: usize) {
        let Some(class) = self.class(body) else { return };
        let route = &class.routes[maker as usize];
        let is_far = self.is_far_larger(ours, stock);
        if self.mode == Mode::Fast {
            if is_far {
                class.go_to(maker, LEVEL_MAX as i8);
            }
            return;
        }
        let add = |sum: &AtomicU64, more: usize| sum.fetch_add(more as u64, Ordering::Relaxed) + more as u64;
        let (ours, stock) = (add(&route.ours, ours), add(&route.stock, stock));
        let compared = route.compared.fetch_add(1, Ordering::Relaxed) + 1;
        if is_far || compared >= COMPARED_MIN && self.is_larger(ours, stock) {
            // One that has no levels makes it no smaller at another one.
            let has_levels = maker != Maker::Accelerator || self.accelerator.as_ref().is_none_or(Client::has_levels);
            let more = if has_levels { 1 } else { LEVEL_MAX as i8 };
            class.go_to(maker, route.up.load(Ordering::Relaxed).saturating_add(more));
        } else if compared >= HALF_AFTER {
            route.ours.store(ours / 2, Ordering::Relaxed);
            route.stock.store(stock / 2, Ordering::Relaxed);
            route.compared.store(compared / 2, Ordering::Relaxed);
        }
    }

    /// Engines that may have a body: those that hold the ratio, and are there. The first one is tried first.
    fn candidates<'a>(
        &'a self,
        class: &'a Class,
        Body { level, len, .. }: Body,
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

    fn route(&self, class: &Class, body: Body, maker: Maker) -> Pick {
        let pick = self.at(class, body.level, maker);
        let is_chosen_from = self.candidates(class, body, false).nth(1).is_some();
        if is_away(maker) || !is_chosen_from {
            return pick;
        }
        let here = class.here.fetch_add(1, Ordering::Relaxed);
        let look = if class.looks.load(Ordering::Relaxed) < DECIDED_AFTER {
            (here / LOOK_TOGETHER).is_multiple_of(LOOK_TURN)
        } else {
            // Alone: eight on end would have the next responses wait.
            here.is_multiple_of(self.look_every())
        };
        Pick { look, ..pick }
    }

    /// An engine at the level at which it would have a body.
    fn at(&self, class: &Class, level: i32, maker: Maker) -> Pick {
        let level = match (maker, self.mode) {
            (Maker::Stock, _) => self.streaming(level),
            (_, Mode::Fast) => 1,
            (_, Mode::Same) => level + i32::from(class.routes[maker as usize].up.load(Ordering::Relaxed)),
        };
        Pick { maker, level, look: false }
    }

    /// Whether the engines of the caller's thread are to compress a body that a device has made as well.
    pub fn looks(&self, body: Body, maker: Maker) -> bool {
        self.mode == Mode::Same
            && is_away(maker)
            && self.class(body).is_some_and(|class| class.routes[maker as usize].is_looked_at(LOOK_EVERY))
    }

    /// Of how many bodies of a class one is looked at, later.
    const fn look_every(&self) -> u32 {
        match self.mode {
            Mode::Same => LOOK_EVERY,
            Mode::Fast => LOOK_EVERY_FAST,
        }
    }

    /// `None`: there is nothing to choose at such a level.
    fn class(&self, Body { level, len, kind }: Body) -> Option<&Class> {
        let class = match len >> 9 {
            0 => 0,
            1..4 => 1,
            4..16 => 2,
            16..64 => 3,
            64..256 => 4,
            _ => 5,
        };
        self.classes.get(usize::try_from(level - 1).ok()?).map(|classes| &classes[kind as usize][class])
    }
}

/// Whether it is a device.
pub(crate) const fn is_away(maker: Maker) -> bool {
    matches!(maker, Maker::Accelerator | Maker::Qatzip)
}

/// What a body of `len` bytes took, in nanoseconds for 1,024 bytes.
const fn cost(len: usize, nanos: u64) -> u64 {
    nanos.saturating_mul(1_024) / (len as u64).saturating_add(BEFORE)
}

/// The most that a body costs, by the mean: what is several times as much is another process's interruption.
fn most(mean: &AtomicU32) -> u64 {
    match mean.load(Ordering::Relaxed) {
        0 => u64::MAX,
        mean => 4 * u64::from(mean),
    }
}

/// Adds a cost to a mean of `of` others; 0 is none.
fn average(mean: &AtomicU32, of: u32, cost: u64) {
    let (of, old) = (u64::from(of), u64::from(mean.load(Ordering::Relaxed)));
    let new = if of == 0 || old == 0 { cost } else { (old * of + cost) / (of + 1) };
    mean.store(u32::try_from(new).unwrap_or(u32::MAX).max(1), Ordering::Relaxed);
}

impl Class {
    const fn new() -> Self {
        Self {
            seen: AtomicU32::new(0),
            here: AtomicU32::new(0),
            looks: AtomicU32::new(0),
            chosen: AtomicU8::new(UNDECIDED),
            routes: [const { Route::new() }; Maker::ALL.len()],
        }
    }

    /// Has engines of whole bodies go down a level, or back into the choice, where `level` was asked for.
    fn take_back(&self, level: i32) {
        for maker in [Maker::Libdeflate, Maker::Igzip, Maker::Accelerator, Maker::Qatzip] {
            let up = i32::from(self.routes[maker as usize].up.load(Ordering::Relaxed));
            if up > 0 {
                self.go_to(maker, (up - 1).min(LEVEL_MAX - level) as i8);
            }
        }
    }

    /// From now on an engine is so many levels above the one that it began with; what was looked at with libdeflate's before does not count.
    fn go_to(&self, maker: Maker, up: i8) {
        self.routes[maker as usize].go_to(up);
        if maker == Maker::Libdeflate {
            self.looks.store(0, Ordering::Relaxed);
        }
    }

    /// Adds what engines took for one body to their means of `of` others. One that alone took several times as long as it does was
    /// interrupted; where all did, it is the body.
    fn time(&self, of: u32, len: usize, all: &[Looked]) {
        let mean = |one: &Looked| &self.routes[one.maker as usize].looked;
        let is_it_the_body = of == 0 || all.iter().all(|one| cost(len, one.nanos) > most(mean(one)));
        for one in all {
            let cost = cost(len, one.nanos);
            average(mean(one), of, if is_it_the_body { cost } else { cost.min(most(mean(one))) });
        }
    }

    /// Of the devices, and the engine of the caller's thread that has the class, the first one of which it is not known what it costs, or
    /// the one that costs the least. Where nothing is decided, that is the first one here.
    fn cheapest(&self, candidates: impl Iterator<Item = Maker> + Clone) -> Maker {
        let chosen = self.chosen.load(Ordering::Relaxed);
        let mut here = candidates.clone().filter(|maker| !is_away(*maker));
        let first = here.clone().next();
        let here = here.find(|maker| *maker as u8 == chosen).or(first);
        let away = candidates.filter(|maker| is_away(*maker));
        away.chain(here).min_by_key(|maker| self.routes[*maker as usize].known()).unwrap_or(Maker::Stock)
    }
}

impl Route {
    const fn new() -> Self {
        Self {
            up: AtomicI8::new(0),
            up_max: AtomicI8::new(0),
            seen: AtomicU32::new(0),
            ours: AtomicU64::new(0),
            stock: AtomicU64::new(0),
            compared: AtomicU32::new(0),
            cost: AtomicU32::new(0),
            looked: AtomicU32::new(0),
            known: AtomicU32::new(0),
        }
    }

    /// From now on it is so many levels above the one that it began with, of which nothing is known.
    fn go_to(&self, up: i8) {
        self.up.store(up, Ordering::Relaxed);
        self.up_max.fetch_max(up, Ordering::Relaxed);
        for counter in [&self.ours, &self.stock] {
            counter.store(0, Ordering::Relaxed);
        }
        for counter in [&self.cost, &self.known, &self.compared, &self.seen] {
            counter.store(0, Ordering::Relaxed);
        }
    }

    /// What it costs, once that is known; 0 before.
    fn known(&self) -> u32 {
        let is_known = self.known.load(Ordering::Relaxed) >= KNOWN_AFTER;
        if is_known { self.cost.load(Ordering::Relaxed) } else { 0 }
    }

    /// Whether the next body of its is looked at.
    fn is_looked_at(&self, every: u32) -> bool {
        let seen = self.seen.fetch_add(1, Ordering::Relaxed);
        seen < LOOK_FIRST || seen.is_multiple_of(every)
    }
}

impl Default for Choice {
    fn default() -> Self {
        Self::new(Mode::Same, 0.005)
    }
}
