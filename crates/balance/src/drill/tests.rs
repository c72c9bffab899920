use super::*;
use crate::testing::{Pcg, Told};
use proptest::prelude::*;

fn group(ports: usize) -> Vec<Port> {
    (0..ports as u16).map(|port| Port(port + 10)).collect()
}

fn of(depths: &[u64]) -> impl Fn(Port) -> u64 {
    |port| depths[usize::from(port.0) - 10]
}

fn looks(d: usize, m: usize) -> Looks {
    Looks::new(d, m).unwrap()
}

#[test]
fn the_least_loaded_is_taken_and_remembered() {
    let (group, mut memory) = (group(4), Memory::default());
    // Draws 0 and, of the three others, the last: 3.
    let port = memory.pick(Looks::RECOMMENDED, &group, &of(&[5, 1, 1, 4]), &mut Told(vec![0, 2]));
    assert_eq!((port, memory.places()), (Port(13), &[3][..]));
    // What is remembered is looked at again, at its depth now.
    let port = memory.pick(Looks::RECOMMENDED, &group, &of(&[5, 6, 1, 4]), &mut Told(vec![0, 0]));
    assert_eq!((port, memory.places()), (Port(13), &[3][..]));
    let port = memory.pick(Looks::RECOMMENDED, &group, &of(&[5, 6, 1, 9]), &mut Told(vec![0, 0]));
    assert_eq!((port, memory.places()), (Port(10), &[0][..]));
}

#[test]
fn on_a_tie_the_first_drawn_wins_and_any_drawn_before_what_is_remembered() {
    let (group, mut memory) = (group(3), Memory::default());
    let even = [7; 3];
    assert_eq!(memory.pick(looks(2, 1), &group, &of(&even), &mut Told(vec![2, 0])), Port(12));
    assert_eq!(memory.pick(looks(2, 1), &group, &of(&even), &mut Told(vec![1, 0])), Port(11));
    assert_eq!(memory.places(), [1]);
    // All of one group drawn: the memory is among them.
    assert_eq!(memory.pick(looks(3, 1), &group, &of(&even), &mut Told(vec![0, 0, 0])), Port(10));
}

#[test]
fn a_group_smaller_than_what_is_drawn_is_looked_at_whole() {
    let mut memory = Memory::default();
    assert_eq!(memory.pick(looks(20, 20), &group(2), &of(&[3, 2]), &mut Told(vec![0, 0])), Port(11));
    assert_eq!(memory.places(), [1, 0]);
    // The group has shrunk and nobody has said so.
    assert_eq!(memory.pick(looks(2, 2), &group(1), &of(&[3]), &mut Told(vec![0])), Port(10));
    assert_eq!((looks(1, 0).d(), Looks::new(0, 1), Looks::new(33, 1)), (1, Err(LooksError), Err(LooksError)));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// By the letter: all that was drawn and remembered, in order, sorted by depth; stable, so the first of equals is first.
    #[test]
    fn does_what_it_says(
        ports in 1_usize..40, d in 1_usize..24, m in 0_usize..24, seed: u64, depths in prop::collection::vec(0_u64..4, 40 * 20),
        rule in prop::sample::select(vec![Rule::Drawn, Rule::Remembered, Rule::Replacement]),
    ) {
        let (group, looks, mut memory) = (group(ports), looks(d, m).with(rule), Memory::default());
        let mut sampler = Pcg::new(seed);
        let mut again = Pcg::new(seed);
        for depths in depths.chunks(40) {
            let mut left: Vec<u16> = (0..ports as u16).collect();
            let mut seen: Vec<u16> = if rule == Rule::Replacement {
                (0..d.min(ports)).map(|_| again.below(ports as u32) as u16).collect()
            } else {
                (0..d.min(ports)).map(|_| { let at = again.below(left.len() as u32); left.remove(at as usize) }).collect()
            };
            let remembered = if rule == Rule::Remembered { 0 } else { seen.len() };
            seen.splice(remembered..remembered, memory.places().to_vec());
            let mut had = std::collections::BTreeSet::new();
            seen.retain(|place| had.insert(*place));
            seen.sort_by_key(|place| depths[usize::from(*place)]);
            let port = memory.pick(looks, &group, &of(depths), &mut sampler);
            prop_assert_eq!(port, group[usize::from(seen[0])]);
            prop_assert_eq!(memory.places(), &seen[..m.min(seen.len())]);
        }
    }
}
