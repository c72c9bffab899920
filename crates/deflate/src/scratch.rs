//! What a thread keeps to compress in, from one stream to the next: no stream asks the system for memory once the thread has had a
//! few.

use std::mem::MaybeUninit;

use crate::accelerator::Holder;
use crate::cards::Cards;
use crate::choice::{Body, Choice, Kind, LOOK_MAX, Looked, Mode, Pick, is_away};
use crate::count::{Maker, Reason};
use crate::engine::{Effort, Engine, Igzip, Libdeflate, Part, Stock, ZlibRs, bound};
use crate::late::Late;
use crate::zlib::{FINISH, SYNC_FLUSH};

/// zlib's stream is smaller than its parts by one byte in so many.
const PART_COST: usize = 1_000;

/// Time asleep is this part of its length in a body's cost: others can have the processor, and a caller who has other things to do cannot do
/// them. So nobody waits for a device for more than eight times as long as its body keeps an engine here busy.
const ASLEEP: u64 = 8;

/// Of outputs that were longer than this, the room is given back.
const KEEP_MAX: usize = 1 << 20;

/// A thread's engines and its room for their output.
#[derive(Debug, Default)]
pub struct Scratch {
    libdeflate: [Option<Libdeflate>; Libdeflate::LEVEL_MAX as usize + 1],
    igzip: Library,
    stock: Stock,
    accelerator: Holder,
    cards: Cards,
    /// Levels at which bodies were looked at: a bit for each.
    looked: u16,
    /// For parts, by the bits of their window: 9 to 15.
    pub(crate) zlib_rs: [Option<ZlibRs>; 7],
    /// For an engine's output.
    out: Vec<MaybeUninit<u8>>,
    /// For that of a body that is compared.
    compared: Vec<MaybeUninit<u8>>,
    /// What comes between a stream's two ways: see [`crate::stream`].
    pub(crate) history: Vec<u8>,
    pub(crate) late: Late,
}

#[derive(Debug, Default)]
enum Library {
    #[default]
    NotLoaded,
    Missing,
    Loaded(Igzip),
}

/// What was asked zlib for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// 0 to 9.
    pub level: i32,
    /// 9 to 15.
    pub window_bits: u32,
    /// 1 to 9.
    pub mem_level: u32,
}

/// What became of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Compressed {
    pub(crate) len: usize,
    pub(crate) maker: Maker,
    /// At which level of its own.
    pub(crate) level: i32,
    /// How long it took, by the clock, in nanoseconds.
    pub(crate) nanos: u64,
    /// Why another engine did not have it.
    pub(crate) why: Option<Reason>,
    pub(crate) look: bool,
}

/// What the parts of one body that is looked at became, by what each is: bytes, and nanoseconds, of the engine and of stock zlib.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums([([usize; 2], [u64; 2]); Kind::ALL.len()]);

impl Scratch {
    /// Compresses a whole body into raw deflate, by the engine that `choice` names, and where that fails by another: what became of it.
    /// `None`: it does not fit into `out`.
    pub(crate) fn compress(
        &mut self,
        settings: &Settings,
        choice: &Choice,
        clock: fn() -> u64,
        input: &[u8],
        out: &mut [MaybeUninit<u8>],
    ) -> Option<Compressed> {
        // Engines other than zlib look back 32 KB.
        let fits = input.len() <= 1 << settings.window_bits || settings.window_bits == 15;
        let body = Body::of(settings.level, input);
        let mut pick = if fits { choice.pick(body) } else { choice.stock(settings.level) };
        let mut why = None;
        loop {
            let began = clock();
            let Pick { maker, level, look } = pick;
            match self.by(&pick, settings, choice, began, input, out) {
                Ok((len, asleep)) => {
                    let nanos = clock().saturating_sub(began);
                    choice.cost(body, maker, nanos.saturating_sub(asleep) + asleep / ASLEEP);
                    let look = look || choice.looks(body, maker);
                    return Some(Compressed { len, maker, level, nanos, why, look });
                }
                Err(_) if maker == Maker::Stock => return None,
                Err(Some(reason)) => {
                    why = why.or(Some(reason));
                    pick = if is_away(maker) { choice.pick_here(body) } else { choice.stock(settings.level) };
                }
                Err(None) => {
                    choice.lacks(maker);
                    pick = choice.pick_here(body);
                }
            }
        }
    }

    /// Has an engine compress a whole body into raw deflate, at `now`: how long it became, and for how many nanoseconds this thread slept.
    ///
    /// # Errors
    /// Why not; `None`: this host lacks the engine.
    pub(crate) fn by(
        &mut self,
        pick: &Pick,
        settings: &Settings,
        choice: &Choice,
        now: u64,
        input: &[u8],
        out: &mut [MaybeUninit<u8>],
    ) -> Result<(usize, u64), Option<Reason>> {
        let level = pick.level;
        let mut run = |engine: &mut dyn Engine| Ok((engine.compress(input, out)?, engine.asleep()));
        match pick.maker {
            Maker::Stock => run(self.stock(&Settings { level, ..*settings })),
            Maker::Libdeflate => run(self.libdeflate(level).ok_or(None)?),
            Maker::Igzip => run(self.igzip().ok_or(None)?),
            Maker::Qatzip => run(self.cards.card(level, choice, now)?),
            Maker::Accelerator => run(&mut choice.accelerator().ok_or(None)?.device(&mut self.accelerator, level)),
            Maker::ZlibRs | Maker::Stream => return Err(None),
        }
        .map_err(Some)
    }

    /// Compresses a part of a body, by igzip or zlib-rs: how long it became, and who made it. `None`: the engine has failed.
    pub(crate) fn part(
        &mut self,
        settings: &Settings,
        choice: &Choice,
        part: &Part<'_>,
        out: &mut [MaybeUninit<u8>],
    ) -> Option<(usize, Maker)> {
        // igzip looks back 32 KB.
        if choice.mode() == Mode::Fast
            && settings.window_bits == 15
            && let Some(igzip) = self.igzip()
        {
            return igzip.part(part, out).ok().map(|len| (len, Maker::Igzip));
        }
        let effort = Effort::of(choice.streaming(settings.level))?;
        let kept = self.zlib_rs.get_mut(settings.window_bits.checked_sub(9)? as usize)?;
        if kept.is_none() {
            *kept = ZlibRs::new(settings.window_bits, effort);
        }
        let engine = kept.as_mut()?;
        engine.effort = effort;
        let len = engine.part(part, out).ok();
        if len.is_none() {
            *kept = None;
        }
        len.map(|len| (len, Maker::ZlibRs))
    }

    /// Room for `len` bytes of output, to be handed back.
    pub(crate) fn room(&mut self, len: usize) -> Vec<MaybeUninit<u8>> {
        resized(&mut self.out, len)
    }

    /// Takes room back.
    pub(crate) fn keep(&mut self, out: Vec<MaybeUninit<u8>>) {
        keep(&mut self.out, out);
    }

    /// Stock zlib, with these settings.
    pub(crate) fn stock(&mut self, settings: &Settings) -> &mut Stock {
        let Settings { level, window_bits, mem_level } = *settings;
        (self.stock.level, self.stock.window_bits, self.stock.mem_level) = (level, window_bits, mem_level);
        &mut self.stock
    }

    /// Has the engines of the caller's thread that could have had a body beside the one that had it, and whose output is in `out`, compress
    /// it as well, and tells `choice` what that took and how long it became. Of a long one all have some part of it, the one that had it as
    /// well: another part each time, since what it begins with may be unlike the rest. Where stock zlib's of the whole body is what `choice`
    /// prefers, that is put there: what became of the body then.
    pub(crate) fn look(
        &mut self,
        settings: &Settings,
        choice: &Choice,
        clock: fn() -> u64,
        input: &[u8],
        out: &mut [MaybeUninit<u8>],
        had: Compressed,
    ) -> Compressed {
        let (level, len) = (settings.level, input.len().min(LOOK_MAX));
        let body = Body { len, ..Body::of(level, input) };
        let again = (len < input.len()).then_some(Pick { maker: had.maker, level: had.level, look: false });
        let from = clock() as usize % (input.len() - len + 1);
        let input = &input[from..from + len];
        let mut compared = resized(&mut self.compared, bound(len));
        let mut result = had;
        let mut all = [Looked { maker: had.maker, level: had.level, nanos: had.nanos, len: had.len }; Maker::ALL.len()];
        let mut count = usize::from(again.is_none());
        for pick in again.into_iter().chain(choice.beside(body, had.maker)) {
            let began = clock();
            if let Ok((made, _)) = self.by(&pick, settings, choice, began, input, &mut compared) {
                let nanos = clock().saturating_sub(began);
                let Pick { maker, level, .. } = pick;
                all[count] = Looked { maker, level, nanos, len: made };
                count += 1;
                if maker == Maker::Stock && again.is_none() && choice.prefers_stock(had.len, made) {
                    out[..made].copy_from_slice(&compared[..made]);
                    let why = had.why.or(Some(Reason::Larger));
                    result = Compressed { len: made, maker, level, nanos, why, ..had };
                }
            }
        }
        keep(&mut self.compared, compared);
        // An engine that the thread has just made took the time for that as well.
        let is_timed = self.looked & 1 << level != 0;
        self.looked |= 1 << level;
        choice.looked(body, &all[..count], is_timed);
        result
    }

    /// Compresses a part of a body that is looked at, which became so long in so many nanoseconds and is in `out`, by stock zlib as well, and
    /// adds it to the body's `sums`; with the last one `choice` is told of them. Where that prefers zlib's, it is put there: how long it is, and
    /// what it took.
    pub(crate) fn compare_part(
        &mut self,
        settings: &Settings,
        choice: &Choice,
        clock: fn() -> u64,
        part: &Part<'_>,
        out: &mut [MaybeUninit<u8>],
        (ours, nanos, sums): (usize, u64, &mut Sums),
    ) -> Option<(usize, u64)> {
        let mut compared = resized(&mut self.compared, bound(part.input.len()));
        let flush = if part.is_last { FINISH } else { SYNC_FLUSH };
        let streaming = Settings { level: choice.streaming(settings.level), ..*settings };
        let began = clock();
        let stock = self.stock(&streaming).flush(part.before, part.input, &mut compared, flush);
        let stock = stock.map(|len| (len, clock().saturating_sub(began)));
        if let Some((len, its)) = stock {
            let sum = &mut sums.0[Body::long(settings.level, part.input).kind as usize];
            sum.0 = [sum.0[0] + ours, sum.0[1] + len - len / PART_COST];
            sum.1 = [sum.1[0] + nanos, sum.1[1] + its];
        }
        if part.is_last {
            for (kind, (lens, nanos)) in Kind::ALL.into_iter().zip(sums.0).filter(|(_, (lens, _))| lens[1] > 0) {
                let body = Body { level: settings.level, len: usize::MAX, kind };
                choice.time_parts(body, nanos[0], nanos[1]);
                choice.compare(body, Maker::ZlibRs, lens[0], lens[1]);
            }
        }
        let preferred = stock.filter(|(len, _)| choice.prefers_stock(ours, *len));
        if let Some((len, _)) = preferred {
            out[..len].copy_from_slice(&compared[..len]);
        }
        keep(&mut self.compared, compared);
        preferred
    }

    fn libdeflate(&mut self, level: i32) -> Option<&mut dyn Engine> {
        let kept = self.libdeflate.get_mut(usize::try_from(level).ok()?)?;
        if kept.is_none() {
            *kept = Libdeflate::new(level);
        }
        kept.as_mut().map(|engine| engine as &mut dyn Engine)
    }

    fn igzip(&mut self) -> Option<&mut dyn Engine> {
        if let Library::NotLoaded = self.igzip {
            self.igzip = Igzip::load().map_or(Library::Missing, Library::Loaded);
        }
        if let Library::Loaded(igzip) = &mut self.igzip { Some(igzip as &mut dyn Engine) } else { None }
    }
}

fn resized(kept: &mut Vec<MaybeUninit<u8>>, len: usize) -> Vec<MaybeUninit<u8>> {
    let mut room = std::mem::take(kept);
    if room.capacity() < len {
        // What is in it is not worth copying.
        room.clear();
    }
    room.resize(len, MaybeUninit::uninit());
    room
}

fn keep(kept: &mut Vec<MaybeUninit<u8>>, room: Vec<MaybeUninit<u8>>) {
    if room.capacity() <= KEEP_MAX {
        *kept = room;
    }
}
