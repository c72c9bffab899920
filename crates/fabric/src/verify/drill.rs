//! DRILL without memory is join-the-shortest-of-d, of which theory knows how long queues are, and when they grow for ever. Read first:
//! Mitzenmacher, "The power of two choices in randomized load balancing" (2001); Ghorbani et al., "DRILL" (SIGCOMM 2017), theorems 1 and 2.

use weirgate_balance::Looks;

use super::bank::Bank;
use super::{Case, Finding, Form, choose};

fn looks(d: usize, m: usize) -> Looks {
    Looks::new(d, m).expect("some are drawn")
}

/// Parts of a run whose means are compared: how far they differ says how far the mean of all is off.
const PARTS: u32 = 20;

/// Where there are many equal queues. What theory says is of infinitely many: errors fall with the number of queues (Gast and Van Houdt, "A
/// refined mean field approximation", 2017), and the rarer a length is the larger they are. Of 1,000 queues, under DRILL(3,0) at a load of
/// 0.9, 8 % too many have 4 packets or more; of 10,000 less than 1 %.
pub(super) fn mean_field(seed: u64, form: Form) -> Finding {
    let queues = form.pick(1_000, 10_000);
    let steps = form.pick(1_500_000, 100_000_000);
    let mut cases = Vec::new();
    for (d, load) in [(2, 0.7), (2, 0.9), (3, 0.9)] {
        let mut bank = Bank::new(seed, looks(d, 0), 0, 0.0, queues, load * f64::from(queues));
        // 100 services of each queue at least: by then they are as they stay.
        (0..queues * 200).for_each(|_| bank.step());
        let mut shares = [(); 5].map(|()| Vec::new());
        for _ in 0..PARTS {
            let mut sums = [0_u64; 5];
            for _ in 0..steps / PARTS {
                bank.step();
                for (sum, queues) in sums.iter_mut().zip(&bank.at_least[1..]) {
                    *sum += u64::from(*queues);
                }
            }
            let share = |sum: u64| sum as f64 / f64::from(steps / PARTS) / f64::from(queues);
            shares.iter_mut().zip(sums).for_each(|(shares, sum)| shares.push(share(sum)));
        }
        for (at, shares) in shares.iter().enumerate() {
            let packets = at as i32 + 1;
            let exponent = (d.pow(packets as u32) - 1) / (d - 1);
            let expected = load.powi(exponent as i32);
            let name = format!("DRILL({d},0), load {load}: share with {packets} or more");
            // A service is one of 1 + load steps of each queue, and a queue is about so long as it is for a service.
            let visits = expected * f64::from(steps) / (1.0 + load);
            cases.push(share(name, shares, expected, visits));
        }
    }
    Finding::all(cases)
}

/// Visits that are enough: were they independent, five standard errors of their number would be a quarter of it.
const VISITS: f64 = 400.0;

/// A share of queues, measured in several parts of a run, in which as many visits to such lengths are expected: within five standard errors
/// or 5 %, whichever is more. One that is expected too seldom is left out.
fn share(name: String, shares: &[f64], expected: f64, visits: f64) -> Case {
    let parts = shares.len() as f64;
    let mean = shares.iter().sum::<f64>() / parts;
    if visits < VISITS {
        return Case::left_out(format!("{name}, about {visits:.0} times in all"), mean, expected);
    }
    let variance = shares.iter().map(|share| (share - mean).powi(2)).sum::<f64>() / (parts - 1.0);
    Case::new(name, mean, expected, (5.0 * (variance / parts).sqrt()).max(0.05 * expected))
}

/// Half of the queues are slow.
const SLOW: u32 = 4;
const FAST: u32 = 4;
const SLOW_RATE: f64 = 0.05;
const DRAWN: [usize; 3] = [1, 2, 3];

/// Of the boundary.
const LOADS: [f64; 4] = [0.8, 0.9, 1.1, 1.2];

/// Growth that is none: how many packets there are at two times differs by some tens in any case, up to 0.02 and 0.002 of the services
/// between.
const fn none(form: Form) -> f64 {
    form.pick(0.02, 0.002)
}

/// The chance that all that are drawn are slow: those packets go to a slow queue, however many wait there.
fn all_slow(d: usize) -> f64 {
    choose(SLOW, d as u32) / choose(SLOW + FAST, d as u32)
}

/// The arrivals beyond which slow queues get more than they serve.
fn boundary(d: usize) -> f64 {
    f64::from(SLOW) * SLOW_RATE / all_slow(d)
}

/// How many packets there are more with each service that the slow queues have, from when half of the time is over on.
fn growth(seed: u64, form: Form, looks: Looks, arrivals: f64) -> f64 {
    let mut bank = Bank::new(seed, looks, SLOW, SLOW_RATE, FAST, arrivals);
    let services = form.pick(40_000.0, 1_000_000.0);
    let times = services / (f64::from(SLOW) * SLOW_RATE);
    let half = (times / 2.0 * bank.steps_per_time()) as u64;
    (0..half).for_each(|_| bank.step());
    let before = bank.packets() as f64;
    (0..half).for_each(|_| bank.step());
    (bank.packets() as f64 - before) / (services / 2.0)
}

/// Without memory: slow queues do not grow below the boundary, and beyond it they grow by what they get too much.
pub(super) fn unstable(seed: u64, form: Form) -> Finding {
    // Beyond it, the difference of two Poisson processes: four standard deviations of it.
    let tolerance = 4.0 * (2.2 / form.pick(20_000.0, 500_000.0_f64)).sqrt();
    let mut cases = Vec::new();
    for d in DRAWN {
        for load in LOADS {
            let arrivals = load * boundary(d);
            let measured = growth(seed, form, looks(d, 0), arrivals);
            let (expected, tolerance) = if load > 1.0 { (load - 1.0, tolerance) } else { (0.0, none(form)) };
            let name = format!("DRILL({d},0), {load} of the boundary: packets more with each service");
            cases.push(Case::new(name, measured, expected, tolerance));
        }
    }
    Finding::all(cases)
}

/// With memory: they do not grow, there and up to all that they can serve.
pub(super) fn bounded(seed: u64, form: Form) -> Finding {
    let capacity = f64::from(SLOW) * SLOW_RATE + f64::from(FAST);
    let beyond = DRAWN.map(|d| 1.2 * boundary(d) / capacity);
    let case = |load| {
        let measured = growth(seed, form, looks(1, 1), load * capacity);
        Case::new(format!("DRILL(1,1), load {load:.3}: packets more with each service"), measured, 0.0, none(form))
    };
    Finding::all(beyond.into_iter().chain([0.9, 0.95]).map(case).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tails_are_compared_with_what_they_should_be() {
        let case = |shares: [f64; 4], visits| share("share".into(), &shares, 1e-5, visits);
        assert!(case([1e-5; 4], 400.0).holds() && case([1.04e-5; 4], 400.0).holds());
        assert!(
            !case([2e-5; 4], 400.0).holds() && !case([0.0; 4], 400.0).holds() && !case([f64::NAN; 4], 400.0).holds()
        );
        // A standard error of 0.1e-5.
        let spread = case([1.1e-5, 1.3e-5, 1.5e-5, 1.1e-5], 400.0);
        assert!(spread.holds() && spread.is_compared() && spread.tolerance < 0.5e-5, "{spread:?}");
        let seldom = case([0.0; 4], 399.0);
        assert!(!seldom.is_compared() && seldom.holds());
        assert!(!Finding::all(vec![seldom]).holds(), "nothing was compared");
    }
}
