//! `Qatzip` against a library that stands in for QATzip.
#![allow(clippy::disallowed_methods, reason = "it builds the library")]

mod fixture;

use std::mem::MaybeUninit;

use fixture::{Fixture, is_of, text};
use weirgate_deflate::count::Reason;
use weirgate_deflate::engine::Engine;
use weirgate_deflate::qatzip::Qatzip;

const SOURCE: &str = include_str!("qatzip/qatzip.c");

/// What was written.
fn written(out: &[MaybeUninit<u8>]) -> Vec<u8> {
    // SAFETY: the caller's output, up to where it was told.
    out.iter().map(|byte| unsafe { byte.assume_init() }).collect()
}

fn compress(engine: &mut Qatzip, body: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut out = vec![MaybeUninit::uninit(); room];
    let len = engine.compress(body, &mut out).ok()?;
    Some(written(&out[..len]))
}

/// Begun and ended, and sessions.
fn balance(library: &Fixture) -> [i32; 4] {
    [c"inits", c"closes", c"setups", c"teardowns"].map(|name| library.read(name))
}

#[test]
fn bodies_of_all_lengths_that_it_takes_are_one_stream() {
    let library = Fixture::build(SOURCE, &[]);
    let mut engine = Qatzip::load_from(library.path(), 6).expect("it loads");
    for len in [128, 1000, 65_535, 65_536, 65_537, 200_000, Qatzip::INPUT_MAX] {
        let body = text(len, len);
        let deflated = compress(&mut engine, &body, 2 * len).expect("it compresses");
        assert!(is_of(&body, &deflated), "{len} bytes");
    }
    assert_eq!(library.read(c"bodies"), 7);
    for len in [0, 127, Qatzip::INPUT_MAX + 1] {
        assert_eq!(compress(&mut engine, &text(len, 0), 2 << 20), None, "{len} bytes");
    }
    assert_eq!(library.read(c"bodies"), 7, "QATzip sees none that it would not give to the card as it is told");
    drop(engine);
    assert_eq!(balance(&library), [1, 1, 1, 1]);
}

#[test]
fn what_does_not_fit_is_none_and_the_next_one_is_compressed() {
    let library = Fixture::build(SOURCE, &[]);
    let mut engine = Qatzip::load_from(library.path(), 1).expect("it loads");
    let body = text(5000, 1);
    assert_eq!(compress(&mut engine, &body, 5004), None);
    assert!(compress(&mut engine, &body, 5005).is_some_and(|deflated| is_of(&body, &deflated)));
    assert!(!engine.has_failed());
}

#[test]
fn levels_are_those_that_are_done_in_hardware() {
    let library = Fixture::build(SOURCE, &[]);
    for (asked, given) in [(1, 1), (6, 6), (8, 8), (9, 8)] {
        let mut engine = Qatzip::load_from(library.path(), asked).expect("it loads");
        assert!(compress(&mut engine, &text(500, 0), 1000).is_some());
        assert_eq!(library.read(c"level"), given, "level {asked}");
    }
    for level in [-1, 0, 10] {
        assert!(Qatzip::load_from(library.path(), level).is_none(), "level {level}");
    }
    assert_eq!(balance(&library), [4, 4, 4, 4]);
}

#[test]
fn failures_after_which_nothing_is_under_way_are_none_for_one_body() {
    let library = Fixture::build(SOURCE, &[]);
    let mut engine = Qatzip::load_from(library.path(), 6).expect("it loads");
    let body = text(3000, 2);
    // QZ_PARAMS, QZ_BUF_ERROR, QZ_NOSW_NO_INST_ATTACH, QZ_NOSW_LOW_MEM.
    for code in [-1, -3, -103, -104] {
        library.set(c"compress_code", code);
        assert_eq!(compress(&mut engine, &body, 8000), None, "code {code}");
        library.set(c"compress_code", 0);
        assert!(compress(&mut engine, &body, 8000).is_some(), "after code {code}");
    }
}

#[test]
fn after_other_failures_it_is_not_asked_again() {
    let library = Fixture::build(SOURCE, &[]);
    let body = text(3000, 3);
    // QZ_FAIL, QZ_DATA_ERROR, QZ_TIMEOUT, QZ_INTEG, QZ_NOSW_NO_HW, QZ_FORCE_SW, one that is not known; then what is wrong with QZ_OK.
    let faults = [-2, -4, -5, -100, -101, 2, 77].map(|code| (c"compress_code", code));
    // Not all was taken, nothing was; there is more than there was room for, there is nothing.
    let wrong = [(c"taken_less", 1), (c"taken_less", 3000), (c"len_more", 1 << 20), (c"len_more", -3005)];
    for (name, value) in faults.into_iter().chain(wrong) {
        let mut engine = Qatzip::load_from(library.path(), 6).expect("it loads");
        library.set(name, value);
        assert_eq!(compress(&mut engine, &body, 8000), None, "{name:?} = {value}");
        assert!(engine.has_failed());
        library.set(name, 0);
        let asked = library.read(c"bodies");
        assert_eq!(compress(&mut engine, &body, 8000), None);
        assert_eq!(library.read(c"bodies"), asked);
    }
    assert_eq!(balance(&library), [11; 4]);
}

#[test]
fn a_late_answer_goes_where_nobody_looks() {
    let library = Fixture::build(SOURCE, &[]);
    let mut engine = Qatzip::load_from(library.path(), 6).expect("it loads");
    let body = text(100_000, 4);
    let mut out = vec![MaybeUninit::new(0x11); 200_000];
    library.set(c"keeps_output", 1);
    assert_eq!(engine.compress(&body, &mut out), Err(Reason::Failed));
    drop(engine);
    // Would lie where the first one's memory was, had that been given back.
    let others = vec![0x22_u8; 114_548];
    assert!(Qatzip::load_from(library.path(), 6).is_some());
    assert_eq!(library.read(c"late"), 1, "the card has written");
    assert!(written(&out).iter().all(|byte| *byte == 0x11), "the caller's room");
    assert!(others.iter().all(|byte| *byte == 0x22), "memory of others");
}

#[test]
fn without_a_library_a_card_or_a_session_there_is_none() {
    assert!(Qatzip::load_from(c"/nowhere/libqatzip.so.3", 6).is_none());
    let incomplete = Fixture::build(SOURCE, &["-DINCOMPLETE"]);
    assert!(Qatzip::load_from(incomplete.path(), 6).is_none());
    assert_eq!(incomplete.read(c"inits"), 0);

    let library = Fixture::build(SOURCE, &[]);
    // QZ_NOSW_NO_HW, QZ_NOSW_LOW_MEM, QZ_NO_HW.
    for code in [-101, -104, 11] {
        library.set(c"init_code", code);
        assert!(Qatzip::load_from(library.path(), 6).is_none(), "code {code}");
    }
    assert_eq!(balance(&library), [0; 4]);
    // QZ_DUPLICATE: another thread was first.
    library.set(c"init_code", 1);
    assert!(Qatzip::load_from(library.path(), 6).is_some());
    assert_eq!(balance(&library), [1; 4]);
    library.set(c"setup_code", -101);
    assert!(Qatzip::load_from(library.path(), 6).is_none());
    assert_eq!(balance(&library), [2, 2, 1, 1]);
    // QZ_NO_HW: it would be software's.
    library.set(c"setup_code", 0);
    library.set(c"setup_state", 11);
    assert!(Qatzip::load_from(library.path(), 6).is_none());
    assert_eq!(balance(&library), [3, 3, 2, 2]);
}
