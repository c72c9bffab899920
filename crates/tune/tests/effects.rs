//! What is said of the treatment is true at the level that is stated.

mod world;

use weirgate_tune::synthetic::Scenario;
use weirgate_tune::{Config, What, Why};
use world::*;

#[test]
fn a_null_treatment_covers_zero_at_its_level_over_many_seeds() {
    let (mut pooled, mut pooled_all, mut single, mut single_all) = (0, 0, 0, 0);
    for seed in 0..120 {
        // No rollbacks here: what they take out is covered by the pool, but not by the single networks.
        let config = Config { rollback_blocks_min: 48, level: 0.9, seed, ..quick() };
        let scenario = Scenario { connections: 40, ..two_classes(4, 1.0, 60, seed) };
        let (controller, rounds, _) = run(config, scenario);
        let effect = rounds.last().unwrap().effects.pooled.unwrap();
        pooled_all += 1;
        pooled += u32::from(effect.low <= 1.0 && 1.0 <= effect.high);
        for effect in controller.network_effects().filter_map(|e| e.goodput) {
            single_all += 1;
            single += u32::from(effect.low <= 1.0 && 1.0 <= effect.high);
        }
    }
    println!(
        "90 % intervals of a null treatment hold 1.0: pooled {pooled} of {pooled_all}, single {single} of {single_all}"
    );
    let share = |n: u32, of: u32| f64::from(n) / f64::from(of);
    // Three binomial deviations around 0.9: 0.082 of 120, 0.041 of 480.
    assert!((0.81..=0.99).contains(&share(pooled, pooled_all)));
    assert!(single_all > 400 && (0.85..=0.96).contains(&share(single, single_all)));
}

#[test]
fn a_switchback_of_no_effect_covers_zero_too() {
    let (mut held, mut all) = (0, 0);
    for seed in 0..40 {
        let config = Config { rollback_blocks_min: 48, level: 0.9, seed, ..quick() };
        let scenario = Scenario { clients: 4, ..two_classes(4, 1.0, 110, seed) };
        let (controller, ..) = run(config, scenario);
        for effect in controller.network_effects().filter_map(|e| e.goodput) {
            all += 1;
            held += u32::from(effect.low <= 1.0 && 1.0 <= effect.high);
        }
    }
    println!("90 % intervals of a null switchback hold 1.0: {held} of {all}");
    assert!(all > 100 && (0.80..=0.99).contains(&(f64::from(held) / f64::from(all))));
}

#[test]
fn a_harmful_treatment_is_rolled_back_says_why_and_is_barred() {
    for clients in [100, 5] {
        let scenario = Scenario { clients, ..two_classes(6, 0.5, 240, 11) };
        let config = Config { bar_rounds: 1_000, idle_rounds: 1_000, ..quick() };
        let (controller, rounds, classes) = run(config, scenario);
        assert_eq!(count(&rounds, &classes, "slow", is_select), 6);
        assert_eq!(count(&rounds, &classes, "slow", |w| *w == What::RollBack), 6, "{clients} clients");
        for decision in rounds.iter().flat_map(|r| &r.decisions).filter(|d| d.what == What::RollBack) {
            let Why::Worse { effect } = decision.why else { panic!("{decision}") };
            assert!(effect.high < 1.0 && effect.blocks >= 6, "{decision}");
        }
        assert!(controller.policy().networks.is_empty());
        // The pool keeps those that are gone: it does not speak for the survivors alone.
        let pooled = rounds.iter().rev().find_map(|r| r.effects.pooled).unwrap();
        assert!((0.4..0.65).contains(&pooled.ratio), "{pooled}");
        let network = classes.iter().find(|c| *c.1 == "slow").unwrap().0;
        let text = controller.explain(*network).to_string();
        assert!(text.contains("barred for") && text.contains("treated did worse than held out"), "{text}");
    }
}

#[test]
fn a_true_effect_is_found_with_its_retransmissions() {
    let (mut logs, mut held_in) = (0.0, 0);
    for seed in 0..20 {
        let (controller, rounds, _) = run(Config { seed, ..quick() }, two_classes(6, 2.0, 80, seed));
        let last = rounds.last().unwrap();
        let pooled = last.effects.pooled.unwrap();
        assert!(pooled.low > 1.5 && pooled.high < 2.7, "{pooled}");
        logs += f64::from(pooled.ratio).ln();
        held_in += u32::from(pooled.low <= 2.0 && 2.0 <= pooled.high);
        let (treated, held) = (last.effects.treated.share().unwrap(), last.effects.holdout.share().unwrap());
        assert!(treated > held, "{treated} {held}");
        // All IPv4 networks of this world share 1.0.0.0/16, all IPv6 ones 2001:db8::/40: those untreated are neighbours.
        assert!(last.effects.neighbours.share().is_some());
        for effect in controller.network_effects().filter(|e| e.blocks > 0) {
            assert!(effect.retransmit_treated.unwrap() > effect.retransmit_holdout.unwrap());
        }
    }
    let mean = (logs / 20.0).exp();
    println!("a true ratio of 2: mean estimate {mean:.3}, in the 95 % interval of {held_in} of 20 seeds");
    assert!((1.97..2.03).contains(&mean) && held_in >= 16);
}

#[test]
fn observing_decides_but_measures_no_effect() {
    let scenario = Scenario { applied: false, ..two_classes(6, 4.0, 60, 2) };
    let (controller, rounds, classes) = run(quick(), scenario);
    assert_eq!(count(&rounds, &classes, "slow", is_select), 6);
    assert_eq!(count(&rounds, &classes, "slow", |w| *w == What::Release), 0);
    assert!(rounds.last().unwrap().effects.pooled.is_none());
    assert!(controller.network_effects().all(|e| e.goodput.is_none()));
}
