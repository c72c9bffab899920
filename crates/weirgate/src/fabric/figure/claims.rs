//! What the article says beside what is measured: ratios, what they hang on, and a sentence where they differ.

use weirgate_lab::report::{Table, number};
use weirgate_lab::stats::Interval;

use super::arm::Observed;
use super::grid::{DRILL, Grid, LAST_HOP, counts_at, per_10_000};
use super::ratios::{What, cell, ratio, with_interval};
use super::variants::variants;
use crate::fabric::outcome::HopCounts;

/// What the article says of a ratio to DRILL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    /// Under which bound it is, if under one.
    pub(super) bound: Option<&'static str>,
    /// Of which balancer.
    pub(super) of: &'static str,
    /// At which load.
    pub(super) load: f64,
    pub(super) what: What,
    /// As the article has it; none: it shows a plot and no number.
    pub(super) article: Option<f64>,
}

pub(super) const fn claim(
    bound: Option<&'static str>,
    of: &'static str,
    load: f64,
    what: What,
    article: Option<f64>,
) -> Claim {
    Claim { bound, of, load, what, article }
}

impl Grid<'_> {
    /// The claims that have a number, the article's or a bound.
    pub(super) fn said(&self) -> impl Iterator<Item = &Claim> {
        self.claims.iter().filter(|claim| claim.article.is_some() || claim.bound.is_some())
    }

    /// A sentence for each of the article's numbers that the interval here leaves out.
    pub(super) fn differences<'a>(&self, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> String {
        let mut sentences = Vec::new();
        for claim in self.claims {
            let Some(article) = claim.article else { continue };
            let Some((one, drill)) = at(claim.load, claim.of).zip(at(claim.load, &DRILL.name())) else { continue };
            let here = ratio(one, drill, claim.what);
            let Interval { low, high } = here.1;
            if low.is_finite() && !(low..=high).contains(&article) {
                sentences.push(format!(
                    "{}, {} at {} % load: {} there, {} here. {}",
                    claim.of,
                    claim.what.name(),
                    number(100.0 * claim.load),
                    number(article),
                    with_interval(here),
                    cause(claim, one, drill),
                ));
            }
        }
        if sentences.is_empty() {
            return String::new();
        }
        format!("Where this differs from the article: {} {}", sentences.join(" "), self.why)
    }

    /// What the article says beside what is measured, and how that depends on what it leaves open.
    pub(super) fn claims_table<'a>(
        &self,
        at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>,
        other: &impl Fn(f64, &str, &str) -> Option<&'a Vec<Observed>>,
    ) -> Table {
        let asides = variants(&self.base).into_iter().map(|(name, _)| name);
        let heads: Vec<&str> = ["over DRILL(2,1)", "load, %", "article", "here"].into_iter().chain(asides).collect();
        let mut table = Table::new("Ratios of flow completion times, with 95 % intervals over the seeds", &heads);
        let drill = DRILL.name();
        for Claim { of, load, what, article, .. } in self.claims {
            let Some((one, base)) = at(*load, of).zip(at(*load, &drill)) else { continue };
            let mut row = vec![
                format!("{of}, {}", what.name()),
                number(100.0 * load),
                article.map_or("a plot".into(), number),
                with_interval(ratio(one, base, *what)),
            ];
            for variant in &heads[4..] {
                let pair = other(*load, variant, of).zip(other(*load, variant, &drill));
                row.push(pair.map_or("-".into(), |(one, base)| with_interval(ratio(one, base, *what))));
            }
            table.rows.push(row);
        }
        table
    }

    /// The same, and how it depends on what the article leaves open.
    pub(super) fn evidence<'a>(
        &self,
        claim: &Claim,
        one: &[Observed],
        drill: &[Observed],
        other: &impl Fn(f64, &str, &str) -> Option<&'a Vec<Observed>>,
    ) -> String {
        let mut said = cause(claim, one, drill);
        for (variant, _) in variants(&self.base).iter().skip(2) {
            let pair = other(claim.load, variant, claim.of).zip(other(claim.load, variant, &DRILL.name()));
            if let Some((one, drill)) = pair {
                said += &format!(" With \"{variant}\" the ratio is {}.", with_interval(ratio(one, drill, claim.what)));
            }
        }
        said
    }

    /// Why DRILL's mean is lower at the highest load than at a lower one, where it is.
    pub(super) fn falling<'a>(&self, at: &impl Fn(f64, &str) -> Option<&'a Vec<Observed>>) -> Option<String> {
        let of = |load: f64| at(load, &DRILL.name());
        let mean = |load: f64| of(load).map_or(f64::NAN, |runs| What::Mean.of_runs(runs));
        let last = *self.loads.last()?;
        let most = self.loads.iter().copied().max_by(|a, b| mean(*a).total_cmp(&mean(*b)))?;
        if mean(most) <= mean(last) {
            return None;
        }
        let said = |load: f64| {
            let runs = of(load)?;
            let sum = |of: fn(&HopCounts) -> u64| counts_at(runs, LAST_HOP).map(of).sum::<u64>() as f64;
            let dropped = sum(|hop| hop.dropped);
            let share = 1e6 * dropped / (dropped + sum(|hop| hop.packets));
            Some([
                number(share),
                number(per_10_000(runs, |order| order.sent_again)),
                number(per_10_000(runs, |order| order.timeouts)),
            ])
        };
        let ([drops, again, timers], [drops_last, again_last, timers_last]) = (said(most)?, said(last)?);
        let [from, to] = [most, last].map(|load| number(100.0 * load));
        Some(format!(
            "DRILL's mean falls from {from} to {to} % load: what it loses, it loses at the last hop, where senders' bursts meet, and there the more the less they are held back. \
             With more re-ordering senders take more duplicate ACKs for losses and halve their windows: segments sent again go from {again} to {again_last} of 10,000 flows, \
             drops at the last hop from {drops} to {drops_last} of a million packets, timers that run out from {timers} to {timers_last} of 10,000 flows."
        ))
    }
}

/// What makes a ratio what it is.
fn cause(claim: &Claim, one: &[Observed], drill: &[Observed]) -> String {
    let [timers, drills] = [one, drill].map(|runs| number(per_10_000(runs, |order| order.timeouts)));
    let (median, _) = ratio(one, drill, What::Quantile(0.5));
    format!(
        "A flow whose timer runs out waits 200 ms, which is what a mean or a far quantile is made of: timers ran out {timers} times of 10,000 flows with {}, {drills} times with \
         DRILL. The ratio of the medians is {}.",
        claim.of,
        cell(median),
    )
}
