//! `Nvcomp` against a library that stands in for the CUDA driver and nvCOMP.
#![allow(clippy::disallowed_methods, reason = "it builds the library")]

mod fixture;

use std::mem::MaybeUninit;

use fixture::{Fixture, is_of, text};
use weirgate_deflate::nvcomp::{Batch, Body, Nvcomp};

const SOURCE: &str = include_str!("nvcomp/nvcomp.c");

fn load(library: &Fixture, batch: usize) -> Option<Nvcomp> {
    Nvcomp::load_from(library.path(), library.path(), 4, batch)
}

/// Compresses bodies with so much more room than they are long: what became of each.
fn compress(engine: &mut Nvcomp, bodies: &[Vec<u8>], more: usize) -> Vec<Option<Vec<u8>>> {
    let mut outs = bodies.iter().map(|body| vec![MaybeUninit::uninit(); body.len() + more]).collect::<Vec<_>>();
    // As though an earlier batch had set them.
    let pairs = bodies.iter().zip(&mut outs);
    let mut batch = pairs.map(|(input, out)| Body::new(input, out)).collect::<Vec<_>>();
    batch.iter_mut().for_each(|body| body.set(Some(b"-")));
    engine.compress(&mut batch);
    assert!(batch.iter().all(|body| body.is_right() == body.output().is_some()));
    batch.iter().map(|body| body.output().map(<[u8]>::to_vec)).collect()
}

/// Contexts, streams and allocations.
fn held(library: &Fixture) -> [i32; 3] {
    [c"contexts", c"streams", c"allocations"].map(|name| library.read(name))
}

#[test]
fn each_body_of_a_batch_is_a_stream_of_its_own() {
    let library = Fixture::build(SOURCE, &[]);
    let mut engine = load(&library, 8).expect("it loads");
    let bodies = [1, 5, 1000, 30_000, 65_535, Nvcomp::INPUT_MAX].map(|len| text(len, len)).to_vec();
    let deflated = compress(&mut engine, &bodies, 100);
    for (body, deflated) in bodies.iter().zip(deflated) {
        assert!(deflated.is_some_and(|deflated| is_of(body, &deflated)), "{} bytes", body.len());
    }
    assert_eq!([c"launched", c"algorithm"].map(|name| library.read(name)), [6, 4]);
    assert_eq!(held(&library), [1, 1, 12]);
    assert_eq!(engine.device(), ("a stand-in".to_owned(), 13_000));
    drop(engine);
    assert_eq!(held(&library), [0; 3]);
}

#[test]
fn more_bodies_than_a_batch_has_are_done_in_several_goes() {
    let library = Fixture::build(SOURCE, &[]);
    let mut engine = load(&library, 3).expect("it loads");
    let before = library.read(c"launches");
    let bodies = (0..8).map(|seed| text(900 + seed, seed)).collect::<Vec<_>>();
    let deflated = compress(&mut engine, &bodies, 5);
    assert!(bodies.iter().zip(&deflated).all(|(body, deflated)| deflated.as_ref().is_some_and(|d| is_of(body, d))));
    assert_eq!([c"launches", c"launched"].map(|name| library.read(name)), [before + 3, 2]);
    assert!(compress(&mut engine, &[], 0).is_empty());
    assert_eq!(library.read(c"launches"), before + 3);
}

#[test]
fn a_body_that_it_cannot_compress_is_none_and_the_others_are_compressed() {
    let library = Fixture::build(SOURCE, &[]);
    let mut engine = load(&library, 16).expect("it loads");
    let bodies = [
        text(100, 1),
        Vec::new(),
        text(Nvcomp::INPUT_MAX + 1, 2),
        b"! fails".to_vec(),
        text(200, 3),
        b"? says more than there is".to_vec(),
        text(300, 4),
    ];
    let deflated = compress(&mut engine, &bodies, 10);
    let whole = bodies.iter().zip(&deflated).map(|(body, deflated)| deflated.as_ref().map(|d| is_of(body, d)));
    assert_eq!(
        whole.collect::<Vec<_>>(),
        [Some(true), None, None, None, Some(true), None, Some(true)],
        "empty, long, failed and impossible ones"
    );
    assert_eq!(library.read(c"launched"), 5);
    // A stored block is five bytes longer than what is in it.
    assert_eq!(compress(&mut engine, &[text(700, 5)], 4), [None]);
    assert!(compress(&mut engine, &[text(700, 5)], 5)[0].is_some());
    assert!(!engine.has_failed());
}

#[test]
fn whichever_call_fails_nothing_leaks_and_nothing_wrong_is_some() {
    let library = Fixture::build(SOURCE, &[]);
    let bodies = (0..5).map(|seed| text(2000 + seed, seed)).collect::<Vec<_>>();
    let mut outcomes = [0; 3];
    for call in 1.. {
        library.set(c"calls", 0);
        library.set(c"fail_at", call);
        let engine = load(&library, 2);
        let outcome = if let Some(mut engine) = engine {
            let deflated = compress(&mut engine, &bodies, 50);
            let whole = bodies.iter().zip(&deflated).filter(|(body, d)| d.as_ref().is_some_and(|d| is_of(body, d)));
            assert_eq!(whole.count(), deflated.iter().flatten().count(), "call {call}");
            let is_whole = deflated.iter().all(Option::is_some);
            assert_eq!(engine.has_failed(), !is_whole, "call {call}");
            let launches = library.read(c"launches");
            library.set(c"fail_at", 0);
            let again = compress(&mut engine, &bodies, 50);
            assert_eq!(again.iter().all(Option::is_some), is_whole);
            assert_eq!(library.read(c"launches") > launches, is_whole, "it is asked again only if it has not failed");
            if is_whole { 2 } else { 1 }
        } else {
            0
        };
        outcomes[outcome] += 1;
        assert_eq!(held(&library), [0; 3], "call {call}");
        if library.read(c"calls") < call {
            break;
        }
    }
    assert!(outcomes.iter().all(|times| *times > 5), "{outcomes:?}");
}

#[test]
fn without_libraries_or_a_gpu_there_is_none() {
    let library = Fixture::build(SOURCE, &[]);
    let nowhere = c"/nowhere/library.so";
    assert!(Nvcomp::load_from(nowhere, library.path(), 4, 8).is_none());
    assert!(Nvcomp::load_from(library.path(), nowhere, 4, 8).is_none());
    let incomplete = Fixture::build("int cuInit(unsigned flags) { return (int)flags; }", &[]);
    assert!(Nvcomp::load_from(incomplete.path(), library.path(), 4, 8).is_none());
    assert!(Nvcomp::load_from(library.path(), incomplete.path(), 4, 8).is_none());
    for (algorithm, batch) in [(-1, 8), (6, 8), (4, 0), (4, usize::MAX)] {
        assert!(Nvcomp::load_from(library.path(), library.path(), algorithm, batch).is_none());
    }
    assert!(Nvcomp::load_from(library.path(), library.path(), 0, 8).is_some(), "one that works in no memory");
    assert_eq!(held(&library), [0; 3]);
}
