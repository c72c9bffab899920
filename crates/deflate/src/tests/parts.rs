//! Bodies that are longer than what is staged: part by part, and what may happen between two of them.

use std::cell::Cell;
use std::mem::MaybeUninit;

use super::{Caller, SETUP, Setup, body, inflate};
use crate::Scratch;
use crate::choice::{Choice, Mode};
use crate::count::{Maker, Reason};
use crate::engine::{Effort, Engine as _, Igzip, Part, ZlibRs, bound};
use crate::stream;
use crate::zlib::{BUF_ERROR, DATA_ERROR, FINISH, FULL_FLUSH, NO_FLUSH, OK, STREAM_END, STREAM_ERROR, SYNC_FLUSH};

/// Text of words, of which some come often.
pub(super) fn words(seed: u64, len: usize) -> Vec<u8> {
    let noise = body(1, seed, 16_000);
    let word = |at: usize| &noise[at * 16..][..2 + at % 7];
    let mut out = Vec::with_capacity(len + 16);
    for pair in body(1, seed + 1, len).chunks_exact(2) {
        let (often, any) = (usize::from(pair[0]) % 32, usize::from(pair[1]) + usize::from(pair[0] / 64) * 250);
        out.extend(word(if pair[0] % 3 == 0 { often } else { any % 1_000 }).iter().map(|byte| b'a' + byte % 26));
        out.push(if pair[1] % 12 == 0 { b'\n' } else { b' ' });
        if out.len() >= len {
            break;
        }
    }
    out.truncate(len);
    out
}

#[test]
fn a_long_body_goes_part_by_part_and_is_no_larger() {
    let long = words(2, 2_000_000);
    let same = (1..=8).map(|level| (Mode::Same, level, 230_000));
    for (mode, level, len) in same.chain([(Mode::Same, 6, 2_000_000), (Mode::Fast, 6, 500_000)]) {
        let text = &long[..len];
        let mut caller = Caller::ours((level, 31, 8, 0));
        caller.choice = Choice::new(mode, 0.005);
        for part in text.chunks(32_768) {
            assert_eq!(caller.all(part, NO_FLUSH, 4_096), OK);
        }
        assert_eq!(caller.all(&[], FINISH, 4_096), STREAM_END);
        assert!(inflate(31, &[], &caller.out) == text, "{mode:?} {level} {len}");
        let mut stock = Caller::new(false, (caller.choice.streaming(level), 31, 8, 0));
        stock.all(text, FINISH, 4_096);
        // igzip's parts of pages are smaller than zlib's first level makes them; these words have no matches but words.
        let (ours, theirs) = (caller.out.len(), stock.out.len());
        let share = if mode == Mode::Same { 1_005 } else { 1_020 };
        assert!(ours * 1_000 <= theirs * share, "{mode:?} {level} {len}: {ours} of {theirs}");
        let totals = caller.counters.totals();
        assert_eq!((totals.reasons.iter().sum::<u64>(), caller.bodies(Maker::Stream)), (0, 0));
        let (rs, igzip) = (totals.made[Maker::ZlibRs as usize], totals.made[Maker::Igzip as usize]);
        assert_eq!((rs.bodies + igzip.bodies, rs.bytes_in + igzip.bytes_in), (1, len as u64));
        assert!(mode == Mode::Fast || igzip.bodies == 0);
    }
    let mut caller = Caller::ours((9, 31, 8, 0));
    caller.all(&long[..400_000], FINISH, 4_096);
    assert_eq!((caller.reasons(Reason::Long), caller.bodies(Maker::Stream)), (1, 1), "no engine does the last level");
}

#[test]
fn long_bodies_that_parts_make_too_large_are_zlibs() {
    // Matches one after the other at the same distance, which zlib's fourth level finds and zlib-rs's does not.
    let text: Vec<u8> = (0..1_000_000).map(|n| b"abcdefghijklmnopqrst"[n % 20]).collect();
    let mut caller = Caller::ours((4, 31, 8, 0));
    for _ in 0..7 {
        // SAFETY: it is the caller's own stream.
        assert_eq!(unsafe { stream::reset(&raw mut *caller.strm) }, OK);
        caller.out.clear();
        caller.all(&text, FINISH, 4_096);
        assert!(inflate(31, &[], &caller.out) == text);
    }
    let mut stock = Caller::new(false, (4, 31, 8, 0));
    stock.all(&text, FINISH, 4_096);
    assert!(caller.out.len() * 1_000 <= stock.out.len() * 1_005, "{} of {}", caller.out.len(), stock.out.len());
    // So much larger that one says it, when it is over: of that, too, each part is zlib's.
    assert_eq!([Maker::ZlibRs, Maker::Stock].map(|maker| caller.bodies(maker)), [0, 1]);
    assert_eq!([Reason::Long, Reason::Larger].map(|reason| caller.reasons(reason)), [6, 5]);
}

/// What a long body begins with may be unlike the rest, of which zlib-rs makes more than zlib does.
#[test]
fn of_a_long_body_that_is_looked_at_all_parts_count() {
    let mut level = 0_u8;
    let image = body(1, 9, 600_000).into_iter().map(|noise| {
        level = level.wrapping_add(noise % 5).wrapping_sub(2);
        level
    });
    let mixed: Vec<u8> = words(4, 230_000).into_iter().chain(image).collect();
    let mut stock = Caller::new(false, (6, 31, 8, 0));
    stock.all(&mixed, FINISH, 4_096);
    let mut caller = Caller::ours((6, 31, 8, 0));
    for n in 0..6 {
        assert_eq!((caller.reset(), caller.all(&mixed, FINISH, 4_096)), (OK, STREAM_END));
        assert!(inflate(31, &[], &caller.out) == mixed);
        let (ours, stock) = (caller.out.len(), stock.out.len());
        assert!(ours * 1_000 <= stock * 1_005, "body {n}: {ours} of {stock}");
    }
    assert!(caller.reasons(Reason::Larger) > 0, "it shows nothing");
}

#[test]
fn parts_look_no_further_back_than_their_window() {
    let text = words(5, 300_000);
    // The smallest stages that are parts, and some that are not.
    for (bits, mem) in [(9, 7), (10, 9), (12, 6), (13, 5), (14, 1), (15, 1), (15, 9), (9, 6), (13, 4)] {
        for mode in [Mode::Same, Mode::Fast] {
            let mut caller = Caller::ours((6, bits, mem, 0));
            caller.choice = Choice::new(mode, 0.005);
            caller.all(&text[..100_000], NO_FLUSH, 1_000);
            assert_eq!(caller.all(&text[100_000..], FINISH, 1_000), STREAM_END);
            assert!(inflate(bits, &[], &caller.out) == text, "{mode:?} {bits} {mem}");
            let are_parts = !matches!((bits, mem), (9, 6) | (13, 4));
            assert_eq!(caller.bodies(Maker::Stream), u64::from(!are_parts), "{bits} {mem}");
            let mut stock = Caller::new(false, (if mode == Mode::Same { 6 } else { 1 }, bits, mem, 0));
            stock.all(&text, FINISH, 1_000);
            assert!(caller.out.len() <= stock.out.len() + stock.out.len() / 100, "{mode:?} {bits} {mem}");
        }
    }
}

#[test]
fn a_threads_engine_for_parts_is_set_up_once() {
    let text = words(6, 500_000);
    let mut scratch = Scratch::default();
    let mut states = Vec::new();
    for level in [6, 1, 6, 8] {
        let mut caller = Caller::ours((level, 31, 8, 0));
        caller.scratch = std::mem::take(&mut scratch);
        caller.all(&text, FINISH, 4_096);
        assert_eq!(caller.bodies(Maker::ZlibRs), 1);
        scratch = std::mem::take(&mut caller.scratch);
        states.push(scratch.zlib_rs[6].as_ref().map(ZlibRs::state));
    }
    assert!(states[0].is_some() && states.iter().all(|state| *state == states[0]), "{states:?}");
}

/// A caller of which more than one part has come: half of the body, and all of what it gave for it.
fn halfway(text: &[u8], setup: Setup) -> Caller {
    let mut caller = Caller::ours(setup);
    assert_eq!(caller.all(&text[..text.len() / 2], NO_FLUSH, 4_096), OK);
    assert_eq!((caller.bodies(Maker::ZlibRs), caller.bodies(Maker::Stream)), (1, 0));
    caller
}

#[test]
fn between_two_parts_output_is_given_as_soon_as_it_is_asked_for() {
    let text = words(7, 600_000);
    for flush in [SYNC_FLUSH, FULL_FLUSH] {
        let mut caller = halfway(&text, SETUP);
        assert_eq!(caller.known(), text[300_000 - 32_768..300_000]);
        assert_eq!(caller.all(&[], flush, 4_096), OK);
        assert_eq!(
            (caller.reasons(Reason::Flush), caller.known().len()),
            (1, if flush == SYNC_FLUSH { 32_768 } else { 0 })
        );
        let at = caller.out.len();
        assert_eq!(caller.all(&text[300_000..], FINISH, 4_096), STREAM_END);
        assert_eq!(inflate(31, &[], &caller.out), text);
        if flush == FULL_FLUSH {
            assert_eq!(
                inflate(-15, &[], &caller.out[at..caller.out.len() - 8]),
                text[300_000..],
                "it can be read from there on"
            );
        }
    }
    // While output waits, and when it was taken and nothing has come since: the first part is as long as can be staged.
    let stage = ((1 << 18) - (1 << 15) - 128) / 9 * 8;
    for is_taken in [false, true] {
        let mut caller = Caller::ours((6, -15, 8, 0));
        assert_eq!(caller.call(&text[..stage + 1], NO_FLUSH, 10), (OK, 1), "the part is given first");
        if is_taken {
            assert_eq!(caller.call(&[], NO_FLUSH, 1 << 18), (OK, 0));
            assert_eq!(caller.call(&[], NO_FLUSH, 1 << 18), (BUF_ERROR, 0));
        }
        assert_eq!(caller.call(&[], SYNC_FLUSH, 1 << 18), (OK, 0));
        assert_eq!(caller.call(&[], SYNC_FLUSH, 1 << 18), (BUF_ERROR, 0), "there is nothing to add");
        assert_eq!(caller.out[caller.out.len() - 4..], [0, 0, 0xff, 0xff]);
        caller.all(&text[stage..], FINISH, 4_096);
        assert!(inflate(-15, &[], &caller.out) == text, "{is_taken}");
    }
}

#[test]
fn a_body_that_becomes_slow_between_two_parts_is_not_held_back() {
    let text = words(8, 600_000);
    let mut caller = halfway(&text, SETUP);
    caller.now += 5_000_001;
    let given = caller.out.len();
    caller.all(&text[300_000..310_000], NO_FLUSH, 4_096);
    assert!(caller.out.len() > given);
    assert_eq!(caller.reasons(Reason::Slow), 1);
    caller.all(&text[310_000..], FINISH, 4_096);
    assert_eq!(inflate(31, &[], &caller.out), text);
    // What an engine takes for a part is not the caller's.
    thread_local!(static NOW: Cell<u64> = const { Cell::new(0) });
    let mut caller = Caller::ours(SETUP);
    caller.clock = || {
        NOW.set(NOW.get() + 20_000_000);
        NOW.get()
    };
    for part in text.chunks(32_768) {
        caller.now = NOW.get();
        caller.all(part, NO_FLUSH, 1 << 20);
    }
    caller.all(&[], FINISH, 4_096);
    assert_eq!((caller.reasons(Reason::Slow), caller.bodies(Maker::Stream)), (0, 0));
    assert_eq!(inflate(31, &[], &caller.out), text);
}

#[test]
fn an_engine_that_fails_leaves_the_rest_to_zlib() {
    let text = words(9, 600_000);
    for sound in 0..=2 {
        let mut caller = Caller::ours(SETUP);
        for part in text[..sound * 210_000].chunks(30_000) {
            caller.all(part, NO_FLUSH, 4_096);
        }
        caller.scratch.zlib_rs = [const { Some(ZlibRs::BROKEN) }; 7];
        assert_eq!(caller.all(&text[sound * 210_000..], FINISH, 4_096), STREAM_END);
        assert_eq!((caller.reasons(Reason::Failed), caller.reasons(Reason::Long)), (1, 0));
        assert_eq!(inflate(31, &[], &caller.out), text);
    }
}

#[test]
fn between_two_parts_a_stream_can_be_copied_and_change_its_level() {
    let text = words(10, 600_000);
    let mut first = halfway(&text, SETUP);
    let mut second = first.copied();
    second.all(&text[..300_000], FINISH, 999);
    assert_eq!(inflate(31, &[], &second.out), [&text[..300_000], &text[..300_000]].concat());
    for (level, strategy) in [(9, 0), (1, 0), (0, 0), (6, 2)] {
        let mut changed = first.copied();
        assert_eq!(changed.params(level, strategy, &[]), (OK, 0));
        changed.all(&text[300_000..], FINISH, 999);
        assert_eq!(inflate(31, &[], &changed.out), text);
        assert_eq!(changed.out.len() > 400_000, level == 0, "{level}: {}", changed.out.len());
    }
    assert_eq!((first.dictionary(b"words"), first.end()), (STREAM_ERROR, DATA_ERROR), "in the middle");
}

#[test]
fn a_body_whose_end_waits_for_room_has_ended_as_with_zlib() {
    // The first part is zlib-rs's, and the last level is zlib's alone.
    let text = vec![b'x'; 102_400];
    let (mut ours, mut stock) = (Caller::ours((6, 13, 6, 0)), Caller::new(false, (6, 13, 6, 0)));
    for caller in [&mut ours, &mut stock] {
        assert_eq!(caller.call(&text, NO_FLUSH, 1 << 18), (OK, 0));
        assert_eq!((caller.params(9, 0, &[]), caller.call(b"words", FINISH, 1)), ((OK, 0), (OK, 0)));
    }
    assert_eq!((ours.bodies(Maker::ZlibRs), ours.end(), stock.end()), (1, OK, OK));
}

#[test]
fn engines_make_parts_that_fit_together() {
    type Engine = Box<dyn FnMut(&Part<'_>, &mut [MaybeUninit<u8>]) -> Option<usize>>;
    let mut engines: Vec<(String, Engine)> = Vec::new();
    for (level, effort) in (1..=8).filter_map(|level| Some((level, Effort::of(level)?))) {
        let mut engine = ZlibRs::new(15, effort).unwrap();
        // One that has failed is of no more use.
        let part = move |part: &Part<'_>, out: &mut [_]| {
            let len = engine.part(part, out).ok();
            if len.is_none() {
                engine = ZlibRs::new(15, effort).unwrap();
            }
            len
        };
        engines.push((format!("zlib-rs for {level}"), Box::new(part)));
    }
    match Igzip::load() {
        Some(mut igzip) => engines.push(("igzip".to_owned(), Box::new(move |part, out| igzip.part(part, out).ok()))),
        None => println!("SKIPPED: igzip, since libisal2 is not installed"),
    }
    let text = [words(11, 300_000), body(1, 11, 100_000), words(11, 100_000), body(2, 11, 100_000)].concat();
    for (name, engine) in &mut engines {
        for lens in [&[600_000][..], &[1, 2, 3, 40_000, 300_000, 100_000, 159_994, 0], &[200_000, 200_000, 200_000]] {
            let (mut made, mut at) = (Vec::new(), 0);
            for (n, len) in lens.iter().enumerate() {
                let (before, input) = (&text[at - at.min(32_768)..at], &text[at..at + len]);
                let part = Part { before, input, is_last: n + 1 == lens.len() };
                let mut out = vec![MaybeUninit::uninit(); bound(*len)];
                let len = engine(&part, &mut out).unwrap_or_else(|| panic!("{name} {len}"));
                // SAFETY: an engine's output is initialised.
                made.extend_from_slice(unsafe { out[..len].assume_init_ref() });
                assert_eq!(engine(&part, &mut out[..len - 1]), None, "{name}: it does not fit");
                at += input.len();
            }
            assert!(inflate(-15, &[], &made) == text, "{name} {lens:?}");
        }
    }
}
