//! A body that is compressed twice, the second time into as much as the first time made of it.

use std::mem::MaybeUninit;

use super::parts::words;
use super::{Caller, inflate};
use crate::count::Maker;
use crate::stream::With;
use crate::zlib::{FINISH, STREAM_END};

/// [`With::again`] into so much room.
fn again(level: i32, input: &[u8], room: usize) -> Option<Vec<u8>> {
    let mut caller = Caller::ours((level, 15, 8, 0));
    let Caller { scratch, choice, counters, clock, now, .. } = &mut caller;
    let mut with = With { scratch, choice, counters, clock: *clock, now: *now };
    let mut out = vec![MaybeUninit::uninit(); room];
    let len = with.again(level, input, &mut out)?;
    // SAFETY: it wrote that much.
    Some(unsafe { out[..len].assume_init_ref() }.to_vec())
}

#[test]
fn whatever_engine_had_it_first_there_is_room_again() {
    for (seed, len) in (0..20).flat_map(|seed| [1, 30, 300, 1_000, 5_000, 30_000, 90_000].map(|len| (seed, len))) {
        let text = words(seed, len);
        for level in [1, 6, 9] {
            for by_zlib in [false, true] {
                let mut first = Caller::ours((level, 15, 8, 0));
                if by_zlib {
                    first.choice.lacks(Maker::Libdeflate);
                }
                assert_eq!(first.all(&text, FINISH, 200_000), STREAM_END);
                let made = again(level, &text, first.out.len()).expect("as much as before is enough");
                assert!(
                    made.len() <= first.out.len() && inflate(15, &[], &made) == text,
                    "{seed} {len} {level} {by_zlib}"
                );
            }
        }
    }
}

#[test]
fn what_no_engine_makes_so_small_does_not_fit() {
    let text = words(1, 5_000);
    let fits = (0..5_000).find(|room| again(6, &text, *room).is_some()).unwrap();
    let mut stock = Caller::new(false, (6, 15, 8, 0));
    stock.all(&text, FINISH, 10_000);
    assert!((stock.out.len() * 9 / 10..=stock.out.len()).contains(&fits), "{fits} of {}", stock.out.len());
    assert!((fits..fits + 500).all(|room| again(6, &text, room).is_some_and(|made| made.len() <= room)));
    assert_eq!((again(0, &text, 10_000), again(6, &words(1, (1 << 20) + 1), 2 << 20)), (None, None));
}
