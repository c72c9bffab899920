//! The draw of the holdout. That its twin in C draws the same is tested on real connections: crates/linux/tests/steer/policies.rs.

use core::fmt::Write;

use weirgate_tune::Holdout;

/// Lines of `seed epoch share_ppm address held`.
fn vectors() -> String {
    let mut text = String::from(
        "# seed epoch share_ppm address held: of crates/tune/tests/holdout.rs; another draw is another experiment on every host\n",
    );
    for seed in [0u64, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
        for epoch in [0u32, 1, 4_294_967_295] {
            for share_ppm in [0u32, 100_000, 500_000, 1_000_000] {
                for address in [
                    "192.0.2.1",
                    "192.0.2.200",
                    "::ffff:192.0.2.1",
                    "2001:db8::1",
                    "2001:db8:1:2:3:4:5:6",
                    "255.255.255.255",
                ] {
                    let held = Holdout { seed, epoch, share_ppm }.holds(address.parse().unwrap());
                    writeln!(text, "{seed} {epoch} {share_ppm} {address} {}", u8::from(held)).unwrap();
                }
            }
        }
    }
    text
}

#[test]
fn the_vectors_are_those_of_the_file() {
    let expected = vectors();
    let found = include_str!("../vectors/holdout.txt");
    assert!(found == expected, "vectors/holdout.txt should be:\n{expected}");
}

#[test]
fn the_share_held_out_is_the_share_asked_for_and_changes_with_the_epoch() {
    let held = |epoch, share_ppm| -> Vec<u32> {
        let holdout = Holdout { seed: 42, epoch, share_ppm };
        (0..200_000u32).filter(|i| holdout.holds(core::net::Ipv4Addr::from_bits(0x0a00_0000 + i).into())).collect()
    };
    let (first, second) = (held(0, 100_000), held(1, 100_000));
    // Five binomial deviations of 134.
    assert!((19_330..20_670).contains(&first.len()), "{}", first.len());
    let both = first.iter().filter(|i| second.binary_search(i).is_ok()).count();
    assert!((1_790..2_210).contains(&both), "independent draws share 1 % of all: {both}");
    assert_eq!((held(0, 0).len(), held(0, 1_000_000).len()), (0, 200_000));
}
