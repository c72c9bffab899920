//! The other published distributions of flow sizes: what a page says of the article's, said of each of them.

use anyhow::Result;
use weirgate_fabric::{PUBLISHED, Sizes};
use weirgate_lab::report::Table;

use super::Bench;
use super::arm::Arm;
use super::ratios::with_interval;
use super::variants::Said;
use crate::fabric::scenario::{Scenario, Traffic};

/// The same ratios with the other distributions, for as many bytes; none, where flows do not begin as they come. A flow that lasts longer
/// than warm-up and arrivals do leaves links less full than the load says.
pub(super) fn table(bench: &Bench, what: &str, arms: &[Arm], said: &[Said<'_>]) -> Result<Option<Table>> {
    let mut places: Vec<usize> = said.iter().flat_map(|said| [said.one, said.other]).collect();
    places.sort_unstable();
    places.dedup();
    // The short form has one of smaller flows, and one of larger ones.
    let is_in = |name: &&str| !bench.is_quick() || ["facebook_hadoop", "websearch"].contains(name);
    let (mut names, mut others) = (Vec::new(), Vec::new());
    for name in PUBLISHED.iter().map(|(name, _)| *name).filter(is_in) {
        let other = |at: &usize| Some(Arm::new(arms[*at].name.clone(), with(&arms[*at].scenario, name)?).aside());
        let Some(all) = places.iter().map(other).collect::<Option<Vec<Arm>>>() else { continue };
        names.push(name);
        others.extend(all);
    }
    if names.is_empty() {
        return Ok(None);
    }
    let observed = bench.observe(&others)?;
    let mut table = Table::new(&format!("Other distributions{what}"), &["distribution", "ratio"]);
    for (name, runs) in names.iter().zip(observed.chunks(places.len())) {
        let of = |at: usize| &runs[places.binary_search(&at).expect("all that is said of is there")];
        for Said { what, one, other, of: ratio, .. } in said {
            table.rows.push(vec![format!("{name}, {what}"), with_interval(ratio(of(*one), of(*other)))]);
        }
    }
    Ok(Some(table))
}

/// A scenario with another distribution; none, where it is its own, or nothing is drawn.
fn with(scenario: &Scenario, name: &str) -> Option<Scenario> {
    let mut scenario = scenario.clone();
    let Traffic::Poisson { sizes, .. } = &mut scenario.traffic else { return None };
    let other = Sizes::published(name).filter(|other| other != sizes)?;
    let means = sizes.mean(|bytes| bytes) / other.mean(|bytes| bytes);
    *sizes = other;
    scenario.run.flows = ((scenario.run.flows as f64 * means) as u64).max(500);
    Some(scenario)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use weirgate_fabric::Scheme;
    use weirgate_lab::experiment::{Form, Options};
    use weirgate_lab::stats::Interval;

    use super::super::arm::Observed;
    use super::*;

    const NETWORK: &str = "[topology]\nspines = 2\nleaves = 2\nhosts = 4\n";

    /// Web servers' flows of 62,874 bytes in the mean are about half of Hadoop's 127,797.
    #[test]
    fn other_flows_are_as_many_bytes_in_all() {
        let text = format!("{NETWORK}[workload]\nload = 0.3\n[run]\nflows = 10_000\n");
        let scenario = Scenario::parse(&text, Path::new("")).unwrap();
        assert!((4_800..5_100).contains(&with(&scenario, "facebook_hadoop").unwrap().run.flows));
        assert!(with(&scenario, "facebook_web_server").is_none(), "it is the scenario's own");
        let text = format!("{NETWORK}[workload]\nkind = \"ring\"\nbytes = \"1 MB\"\n");
        assert!(with(&Scenario::parse(&text, Path::new("")).unwrap(), "facebook_hadoop").is_none());
    }

    #[test]
    fn what_is_said_is_said_of_each() {
        let folder = tempfile::tempdir().unwrap();
        let (out, weirgate) = (folder.path().to_owned(), "weirgate".into());
        let bench = Bench::new(&Options { form: Form::Quick, seed: 1, out, weirgate, chatty: false }, 2).unwrap();
        let text = format!("{NETWORK}[workload]\nload = 0.3\n[run]\nwarm_up = \"0 s\"\nflows = 50\n");
        let scenario = Scenario::parse(&text, Path::new("")).unwrap();
        let arms = [Scheme::Ecmp, Scheme::RoundRobin, Scheme::Random].map(|scheme| Arm::of(scheme, &scenario));
        let flows = |one: &[Observed], other: &[Observed]| {
            (one[0].times.len() as f64 / other[0].times.len() as f64, Interval { low: 0.0, high: 9.0 })
        };
        // The second arm is not asked for, and not run.
        let said = [Said { what: "flows", article: None, one: 2, other: 0, of: &flows }];
        let table = table(&bench, "", &arms, &said).unwrap().unwrap();
        let one = "1 [0 to 9]".to_owned();
        let rows = ["facebook_hadoop, flows", "websearch, flows"].map(|what| vec![what.to_owned(), one.clone()]);
        assert_eq!(table.rows, rows);
        assert_eq!(std::fs::read_dir(folder.path().join("fabric-runs")).unwrap().count(), 4);
    }
}
