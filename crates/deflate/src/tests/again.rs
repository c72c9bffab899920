//! A body that is compressed twice, the second time into as much as the first time made of it.

use std::mem::MaybeUninit;

use super::parts::words;
use super::{Caller, inflate};
use crate::choice::{Body, Kind};
use crate::count::Maker;
use crate::zlib::{FINISH, STREAM_END};

/// [`With::again`] into so much room, where a class's output was too large so many times.
fn again(level: i32, up: usize, input: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut caller = raised(level, up, input.len());
    let (_, mut with) = caller.with();
    let mut out = vec![MaybeUninit::uninit(); room];
    let len = with.again(level, input, room + 1, &mut out)?;
    // SAFETY: it wrote that much.
    Some(unsafe { out[..len].assume_init_ref() }.to_vec())
}

/// A caller in whose process a body's class is some levels higher: four bodies say so of each.
fn raised(level: i32, up: usize, len: usize) -> Caller {
    let caller = Caller::ours((level, 15, 8, 0));
    for _ in 0..up * 4 {
        caller.choice.compare(Body { level, len, kind: Kind::Text }, Maker::Libdeflate, 2, 1);
    }
    caller
}

#[test]
fn whatever_engine_had_it_first_there_is_room_again() {
    for (seed, len) in (0..8).flat_map(|seed| [30, 300, 1_000, 5_000, 30_000, 90_000].map(|len| (seed, len))) {
        let text = words(seed, len);
        // By zlib, and by libdeflate at each level that the class has had.
        let ways = [(1, None), (1, Some(4)), (6, None), (6, Some(0)), (6, Some(3)), (9, Some(0))];
        for (level, up) in ways {
            let mut first = raised(level, up.unwrap_or(0), len);
            if up.is_none() {
                first.choice.lacks(Maker::Libdeflate);
            }
            assert_eq!(first.all(&text, FINISH, 200_000), STREAM_END);
            let made = again(level, 5, &text, first.out.len()).unwrap_or_else(|| panic!("{seed} {len} {level} {up:?}"));
            assert!(made.len() <= first.out.len() && inflate(15, &[], &made) == text, "{seed} {len} {level} {up:?}");
        }
    }
}

#[test]
fn what_no_engine_makes_so_small_does_not_fit() {
    let text = words(1, 5_000);
    let fits = (0..5_000).find(|room| again(6, 0, &text, *room).is_some()).unwrap();
    let mut stock = Caller::new(false, (6, 15, 8, 0));
    stock.all(&text, FINISH, 10_000);
    assert!((stock.out.len() * 9 / 10..=stock.out.len()).contains(&fits), "{fits} of {}", stock.out.len());
    assert!((fits..fits + 500).all(|room| again(6, 0, &text, room).is_some_and(|made| made.len() <= room)));
    assert_eq!(again(0, 0, &text, 4_000), None, "level 0 has one way");
}
