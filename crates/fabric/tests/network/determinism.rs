use weirgate_balance::Looks;
use weirgate_fabric::verify::crowd;
use weirgate_fabric::{Scheme, Settings};

#[test]
fn the_same_seed_gives_the_same_events() {
    let digest = |seed| crowd(Settings::new(seed, Scheme::Drill(Looks::RECOMMENDED))).digest();
    assert_eq!(digest(1), digest(1));
    assert_ne!(digest(1), digest(2));
    // On every machine: whoever changes what happens changes this with it.
    assert_eq!(format!("{:016x}", digest(1)), "a1581f7c5675c11b");
}

#[test]
fn flows_that_drill_places_once_give_the_same_events() {
    let digest = crowd(Settings::new(1, Scheme::DrillPerFlow(Looks::RECOMMENDED))).digest();
    assert_eq!(format!("{digest:016x}"), "151c9470d2c4699b");
}
