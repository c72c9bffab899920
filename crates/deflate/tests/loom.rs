//! Every way in which a process, another one and the device can interleave on an instance's word. `make test-loom`; without `--cfg loom`
//! this is empty.
#![cfg(loom)]

use std::sync::Arc;

use loom::sync::atomic::{self, AtomicU32, Ordering};
use loom::thread;

use self::word::{Hold, State, Word};

#[allow(dead_code, reason = "the tests have no device that looks after instances")]
#[path = "../src/accelerator/word.rs"]
mod word;

/// An instance, and what stands for its memory.
struct Instance {
    word: Word,
    body: AtomicU32,
    answer: AtomicU32,
}

fn instance() -> Arc<Instance> {
    Arc::new(Instance { word: Word::default(), body: AtomicU32::new(0), answer: AtomicU32::new(0) })
}

/// Posts a body, if the instance is free; whose it is then.
fn post(instance: &Instance, body: u32) -> Option<Hold> {
    let hold = instance.word.take()?;
    if !instance.word.change(hold, State::Held, State::Filling) {
        return None;
    }
    instance.body.store(body, Ordering::Relaxed);
    instance.word.change(hold, State::Filling, State::Posted).then_some(hold)
}

/// Answers what is posted, if anything is: with a number that says what the body was.
fn serve(instance: &Instance) {
    let (hold, state) = instance.word.look();
    if state == Some(State::Posted) && instance.word.change(hold, State::Posted, State::Running) {
        let body = instance.body.load(Ordering::Relaxed);
        instance.answer.store(body + 100, Ordering::Relaxed);
        if !instance.word.change(hold, State::Running, State::Done) {
            assert!(instance.word.change(hold, State::Dropped, State::Held), "nobody else changes what runs");
        }
    }
}

/// Looks once for the answer, and waits no longer: the answer, if it was there.
fn fetch(instance: &Instance, hold: Hold) -> Option<u32> {
    if instance.word.look() != (hold, Some(State::Done)) {
        let is_left = instance.word.change(hold, State::Posted, State::Held)
            || instance.word.change(hold, State::Running, State::Dropped);
        if is_left {
            return None;
        }
    }
    let answer = instance.answer.load(Ordering::Relaxed);
    instance.word.change(hold, State::Done, State::Held).then_some(answer)
}

#[test]
fn two_processes_have_an_instance_one_after_the_other_and_each_its_own_answer() {
    loom::model(|| {
        let shared = instance();
        let work = |body: u32| {
            let shared = shared.clone();
            move || {
                let Some(hold) = post(&shared, body) else { return false };
                if let Some(answer) = fetch(&shared, hold) {
                    assert_eq!(answer, body + 100);
                }
                true
            }
        };
        let (first, second) = (thread::spawn(work(1)), thread::spawn(work(2)));
        serve(&shared);
        assert!(first.join().unwrap() || second.join().unwrap(), "one of them has it");
    });
}

#[test]
fn who_lost_its_instance_does_not_take_the_next_ones_answer() {
    loom::model(|| {
        let shared = instance();
        let hold = shared.word.take().unwrap();
        let device = {
            let shared = shared.clone();
            thread::spawn(move || {
                // The lease is over, and another process comes.
                if shared.word.free(hold, State::Held) {
                    let other = post(&shared, 2).expect("it is nobody's");
                    serve(&shared);
                    return fetch(&shared, other);
                }
                None
            })
        };
        let is_mine = shared.word.change(hold, State::Held, State::Filling);
        if is_mine {
            shared.body.store(1, Ordering::Relaxed);
            assert!(shared.word.change(hold, State::Filling, State::Posted));
            serve(&shared);
            assert_eq!(fetch(&shared, hold), Some(101));
        } else {
            assert!(!shared.word.change(hold, State::Filling, State::Posted));
            assert_eq!(fetch(&shared, hold), None);
        }
        let others = device.join().unwrap();
        // When this one has its answer, its lease may still be over.
        assert!(others == Some(102) || (is_mine && others.is_none()), "{others:?}");
    });
}

#[test]
fn an_answer_that_comes_too_late_leaves_the_instance_to_its_holder() {
    loom::model(|| {
        let shared = instance();
        let hold = post(&shared, 1).unwrap();
        let device = {
            let shared = shared.clone();
            thread::spawn(move || serve(&shared))
        };
        let answer = fetch(&shared, hold);
        device.join().unwrap();
        assert!(answer.is_none_or(|answer| answer == 101));
        assert_eq!(shared.word.look(), (hold, Some(State::Held)));
    });
}
