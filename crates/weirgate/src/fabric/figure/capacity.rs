//! How much more load DRILL carries at the tail that another balancer has at a lower one.

use anyhow::Result;
use weirgate_fabric::Scheme;
use weirgate_lab::report::{Table, number};

use super::Bench;
use super::arm::Arm;
use super::grid::{DRILL, at_load};
use super::ratios::{TOO_SHORT, What};
use crate::fabric::scenario::Scenario;

/// The load that the article's operators hold their networks at.
const HELD_AT: f64 = 0.25;

const TAIL: What = What::Quantile(0.9999);

/// `others`: each with what the article says of it. Arms that a figure has run are not run again.
pub(super) fn table(bench: &Bench, base: &Scenario, loads: &[f64], others: &[(Scheme, f64)]) -> Result<Table> {
    let tails = |scheme: Scheme| -> Result<Vec<(f64, f64)>> {
        let arms: Vec<Arm> = loads.iter().map(|load| Arm::of(scheme, &at_load(base, *load))).collect();
        Ok(loads.iter().copied().zip(bench.observe(&arms)?.iter().map(|runs| TAIL.of_runs(runs))).collect())
    };
    let drill = tails(DRILL)?;
    let caption = format!(
        "Load that DRILL(2,1) carries at the {} that another has at {} % load, over that; between the loads that were run by a straight line",
        TAIL.name(),
        number(100.0 * HELD_AT)
    );
    let mut table = Table::new(&caption, &["", "article", "here"]);
    for (scheme, article) in others {
        let carried = tail_at(&tails(*scheme)?, HELD_AT).and_then(|tail| load_of(&drill, tail));
        let here = carried.map_or_else(|| TOO_SHORT.to_owned(), |load| number(load / HELD_AT));
        table.rows.push(vec![scheme.name(), article.to_string(), here]);
    }
    Ok(table)
}

/// The tail at a load.
fn tail_at(tails: &[(f64, f64)], load: f64) -> Option<f64> {
    tails.windows(2).find_map(|pair| {
        let [(from, low), (to, high)] = pair else { return None };
        let is_between = (*from..=*to).contains(&load) && low.is_finite() && high.is_finite();
        is_between.then(|| low + (high - low) * (load - from) / (to - from))
    })
}

/// The load from which on the tail is longer than that; where it never is, the highest.
fn load_of(tails: &[(f64, f64)], tail: f64) -> Option<f64> {
    if tails.iter().any(|(_, tail)| !tail.is_finite()) {
        return None;
    }
    let at = tails.iter().position(|(_, longer)| *longer > tail);
    let Some(at) = at else { return tails.last().map(|(load, _)| *load) };
    let ((to, high), (from, low)) = (tails[at], tails[at.checked_sub(1)?]);
    Some(from + (to - from) * (tail - low) / (high - low))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_found_between_those_that_were_run() {
        let ecmp = [(0.1, 1.0), (0.2, 2.0), (0.3, 4.0), (0.4, 9.0)];
        let drill = [(0.1, 0.5), (0.2, 1.0), (0.3, 2.0), (0.4, 4.0)];
        assert_eq!(tail_at(&ecmp, 0.25), Some(3.0));
        assert!((load_of(&drill, 3.0).unwrap() - 0.35).abs() < 1e-9);
        assert_eq!(load_of(&drill, 5.0), Some(0.4), "all of them");
        assert_eq!(load_of(&drill, 0.1), None, "none of them");
        assert_eq!(tail_at(&ecmp, 0.5), None);
        assert_eq!(load_of(&[(0.1, f64::NAN), (0.2, 3.0)], 1.0), None);
    }
}
