//! Who has which body, by costs and lengths that are made up.

use super::*;

fn by(maker: Maker, level: i32) -> (Maker, i32) {
    (maker, level)
}

const fn text(level: i32, len: usize) -> Body {
    Body { level, len, kind: Kind::Text }
}

fn picked(choice: &Choice, level: i32, len: usize) -> (Maker, i32) {
    let pick = choice.pick(text(level, len));
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
        for _body in 0..COMPARED_MIN {
            assert_eq!(picked(&choice, 6, 5_000), by(Maker::Libdeflate, level));
            choice.compare(text(6, 5_000), Maker::Libdeflate, 1_005, 1_000);
        }
        assert_eq!(picked(&choice, 6, 5_000), by(Maker::Libdeflate, level), "half of a per cent is allowed");
        choice.compare(text(6, 5_000), Maker::Libdeflate, 1_010, 1_000);
    }
    assert_eq!(picked(&choice, 6, 5_000), by(Maker::Stock, 6));
    assert_eq!(picked(&choice, 6, 50_000), by(Maker::Libdeflate, 6), "other sizes are other classes");
    assert_eq!(picked(&choice, 7, 5_000), by(Maker::Libdeflate, 7), "and so are other levels");
}

#[test]
fn one_body_of_a_kind_of_its_own_says_nothing_yet() {
    let choice = usual();
    choice.compare(text(6, 5_000), Maker::Libdeflate, 64, 56);
    for _body in 0..1_000 {
        choice.compare(text(6, 5_000), Maker::Libdeflate, 1_000, 1_000);
    }
    assert_eq!(picked(&choice, 6, 5_000), by(Maker::Libdeflate, 6));
}

#[test]
fn one_that_is_far_too_large_says_so() {
    let choice = usual();
    choice.compare(text(6, 5_000), Maker::Libdeflate, 1_050 + 256, 1_000);
    assert_eq!(picked(&choice, 6, 5_000), by(Maker::Libdeflate, 6));
    choice.compare(text(6, 5_000), Maker::Libdeflate, 1_051 + 256, 1_000);
    assert_eq!(picked(&choice, 6, 5_000), by(Maker::Libdeflate, 7));
    for kind in [Kind::Numbers, Kind::Binary] {
        assert_eq!(choice.pick(Body { kind, ..text(6, 5_000) }).level, 6, "they have classes of their own");
    }
    choice.compare(text(6, usize::MAX), Maker::ZlibRs, 2_000, 1_000);
    assert!(!choice.has_parts(text(6, usize::MAX)));
}

#[test]
fn fast_leaves_what_is_far_larger_than_zlibs_first_level_to_another_engine_for_a_while() {
    let choice = Choice::new(Mode::Fast, 0.005);
    choice.lacks(Maker::Qatzip);
    let compare = |maker, ours| choice.compare(text(6, 5_000), maker, ours, 1_000);
    (0..100).for_each(|_| compare(Maker::Igzip, 1_500));
    assert_eq!(picked(&choice, 6, 5_000), by(Maker::Igzip, 1), "a quarter and 256 bytes more are no matter");
    compare(Maker::Igzip, 1_507);
    assert_eq!(picked(&choice, 6, 5_000), by(Maker::Libdeflate, 1));
    compare(Maker::Libdeflate, 1_507);
    assert_eq!(picked(&choice, 6, 5_000), by(Maker::Stock, 1));
    let later = run_of(&choice, AGAIN_EVERY as usize);
    assert_eq!(later.last(), Some(&by(Maker::Igzip, 1)));
}

#[test]
fn parts_that_cost_more_than_zlib_are_its() {
    let choice = usual();
    let long = text(6, usize::MAX);
    let time = |ours| choice.time_parts(long, ours, 1_000_000);
    for ours in [9_000_000, 1_200_000, 1_200_000, 1_100_000].repeat(100) {
        time(ours);
    }
    assert!(choice.has_parts(long), "a tenth is no matter, and three may have been interrupted");
    (0..4).for_each(|_| time(1_200_000));
    assert!(!choice.has_parts(long));
}

#[test]
fn what_a_class_lost_it_gets_back_where_what_it_holds_is_small_again() {
    let choice = usual();
    let compare = |ours| (0..100).for_each(|_| choice.compare(text(6, 5_000), Maker::Libdeflate, ours, 1_000));
    let pick_again = || run_of(&choice, AGAIN_EVERY as usize).pop().unwrap();
    compare(1_010);
    assert_eq!(picked(&choice, 6, 5_000), by(Maker::Stock, 6));
    assert_eq!(pick_again(), by(Maker::Libdeflate, 9));
    compare(1_010);
    assert_eq!(pick_again(), by(Maker::Libdeflate, 9), "it is still too large: zlib had the others");
    for level in [8, 7, 6, 6] {
        compare(1_000);
        assert_eq!(pick_again(), by(Maker::Libdeflate, level));
    }
}

#[test]
fn a_device_whose_output_was_too_large_comes_back_a_level_at_a_time() {
    let choice = Choice::default();
    let compare = |ours| (0..100).for_each(|_| choice.compare(text(6, 5_000), Maker::Qatzip, ours, 1_000));
    let by_card = |bodies| {
        let levels = run_of(&choice, bodies).into_iter().filter(|(maker, _)| *maker == Maker::Qatzip);
        levels.map(|(_, level)| level).collect::<std::collections::BTreeSet<_>>()
    };
    assert!(by_card(100).contains(&6));
    compare(1_010);
    assert_eq!(by_card(AGAIN_EVERY as usize - 101).len(), 0);
    assert!(by_card(1_000).contains(&9));
    assert_eq!(
        (0..1_000).filter(|_| choice.looks(text(6, 5_000), Maker::Qatzip)).count(),
        11,
        "the first four, and of 128 one"
    );
    compare(1_000);
    by_card(AGAIN_EVERY as usize - 1_000);
    assert!(by_card(1_000).contains(&8));
}

#[test]
fn parts_that_were_too_large_are_tried_again() {
    let choice = usual();
    let parts_of = |bodies: u32| (0..bodies).filter(|_| choice.has_parts(text(6, usize::MAX))).count();
    assert_eq!((0..LOOK_FIRST).filter(|_| choice.looks_at_parts(text(6, usize::MAX))).count(), 4);
    (0..4).for_each(|_| choice.compare(text(6, usize::MAX), Maker::ZlibRs, 1_010, 1_000));
    assert_eq!(parts_of(AGAIN_EVERY), 0);
    assert_eq!(parts_of(100), 100);
    assert!(choice.looks_at_parts(text(6, usize::MAX)), "as the first ones were");
    assert!(choice.has_parts(text(7, usize::MAX)), "other levels are others");
}

/// Who has each of so many bodies.
fn run_of(choice: &Choice, bodies: usize) -> Vec<(Maker, i32)> {
    (0..bodies).map(|_| picked(choice, 6, 5_000)).collect()
}

#[test]
fn few_are_looked_at_and_the_first_ones_all() {
    let choice = usual();
    let looks: Vec<usize> = (0..1_000).filter(|_| one(&choice, |_| 1_000).look).collect();
    let first = [0, 32, 64, 96, 128].into_iter().flat_map(|from| from..from + 8);
    assert_eq!(looks, first.chain((256..1_000).step_by(128)).collect::<Vec<_>>());
    assert_eq!((0..10_240).filter(|_| one(&choice, |_| 1_000).look).count(), 80);
}

#[test]
fn what_was_seen_long_ago_counts_less() {
    let choice = usual();
    for _table in 0..10_000 {
        choice.compare(text(6, 4_096), Maker::Libdeflate, 1_300, 1_300);
    }
    // Pages that repeat themselves: a twentieth as long, and larger by a seventh.
    let page = |_: &usize| {
        choice.compare(text(6, 4_096), Maker::Libdeflate, 64, 56);
        picked(&choice, 6, 4_096) == by(Maker::Libdeflate, 6)
    };
    assert!((1..=128).take_while(page).count() < 128);
}

#[test]
fn no_engine_stands_in_for_no_compression() {
    for mode in [Mode::Same, Mode::Fast] {
        let choice = Choice::new(mode, 0.005);
        assert_eq!((picked(&choice, 0, 5_000), choice.streaming(0)), (by(Maker::Stock, 0), 0));
    }
}

/// Has each engine take so many nanoseconds for the next body.
fn one(choice: &Choice, nanos: impl Fn(Maker) -> u64) -> Pick {
    let pick = choice.pick(text(6, 1_000));
    let looked = |pick: Pick| Looked { maker: pick.maker, level: pick.level, nanos: nanos(pick.maker), len: 300 };
    choice.cost(text(6, 1_000), pick.maker, nanos(pick.maker));
    if pick.look || is_away(pick.maker) && choice.looks(text(6, 1_000), pick.maker) {
        let beside = choice.beside(text(6, 1_000), pick.maker).map(looked);
        choice.looked(text(6, 1_000), &[looked(pick)].into_iter().chain(beside).collect::<Vec<_>>(), true);
    }
    pick
}

/// The same for each of the next bodies: who had them.
fn run(choice: &Choice, bodies: usize, nanos: impl Fn(Maker) -> u64) -> Vec<Maker> {
    (0..bodies).map(|_| one(choice, &nanos).maker).collect()
}

#[test]
fn of_engines_here_the_first_few_bodies_decide() {
    let choice = Choice::new(Mode::Fast, 0.005);
    choice.lacks(Maker::Qatzip);
    let picks = run(&choice, 1_000, |maker| if maker == Maker::Igzip { 2_000 } else { 1_000 });
    assert_eq!(picks[..136], [Maker::Igzip; 136]);
    assert_eq!(picks[136..], [Maker::Libdeflate; 864], "as cheap as zlib");
    choice.lacks(Maker::Libdeflate);
    assert_eq!(picked(&choice, 6, 1_000), by(Maker::Igzip, 1), "until that is looked at again");
    assert_eq!(
        run(&choice, 1_200, |maker| if maker == Maker::Igzip { 2_000 } else { 1_000 })[1_100..],
        [Maker::Stock; 100]
    );
}

#[test]
fn who_has_a_class_keeps_it_until_another_one_is_cheaper_by_an_eighth() {
    let choice = usual();
    let zlib = |nanos| move |maker| if maker == Maker::Stock { nanos } else { 1_000 };
    assert_eq!(run(&choice, 1_000, zlib(2_000)), [Maker::Libdeflate; 1_000]);
    // A table: the same bodies, which both compress.
    assert_eq!(run(&choice, 50_000, zlib(900)), [Maker::Libdeflate; 50_000]);
    assert_eq!(run(&choice, 50_000, zlib(400)).last(), Some(&Maker::Stock));
    assert_eq!(run(&choice, 50_000, zlib(1_100)), [Maker::Stock; 50_000]);
    assert_eq!(run(&choice, 50_000, zlib(2_000)).last(), Some(&Maker::Libdeflate));
    assert_eq!(picked(&choice, 6, 100), by(Maker::Libdeflate, 6), "another class");
}

#[test]
fn what_bodies_hold_does_not_decide_between_engines() {
    let choice = usual();
    // Pages, and then what takes both engines a tenth of the time.
    for body in 0..1_000 {
        let page = if body < 100 { 10 } else { 1 };
        let had = one(&choice, |maker| page * if maker == Maker::Stock { 1_100 } else { 1_000 });
        assert_eq!(had.maker, Maker::Libdeflate, "{body}");
    }
}

#[test]
fn a_few_long_ones_count_as_much_as_they_take() {
    let choice = usual();
    for body in 0..50_000 {
        let had = one(&choice, |maker| match (body % 10 == 3, maker) {
            (false, Maker::Stock) => 900,
            (false, _) => 1_000,
            (true, Maker::Stock) => 20_000,
            (true, _) => 10_000,
        });
        assert_eq!(had.maker, Maker::Libdeflate, "{body}");
    }
}

#[test]
fn what_was_looked_at_before_a_level_changed_does_not_count_for_the_next() {
    let choice = usual();
    let stock = Looked { maker: Maker::Stock, level: 6, nanos: 1, len: 1_000 };
    for _thread in 0..100 {
        let ours = Looked { maker: Maker::Libdeflate, len: 2_000, ..stock };
        choice.looked(text(6, 5_000), &[ours, stock], true);
    }
    assert_eq!(picked(&choice, 6, 5_000), by(Maker::Libdeflate, 7));
}

#[test]
fn what_an_engine_takes_for_its_first_bodies_does_not_count() {
    let choice = usual();
    let so_far = std::cell::Cell::new(0);
    let picks = run(&choice, 200, |maker| match maker {
        Maker::Libdeflate if so_far.replace(so_far.get() + 1) < 16 => 1_000_000,
        Maker::Stock => 1_200,
        _ => 1_000,
    });
    assert_eq!(picks, [Maker::Libdeflate; 200]);
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
    choice.cost(text(6, 1_000), Maker::Qatzip, 50_000_000);
    assert_eq!(choice.pick(text(6, 1_000)).maker, Maker::Qatzip);
}
