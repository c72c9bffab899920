//! `[balance]`: how load is balanced.

use std::ops::RangeInclusive;

use weirgate_balance::{CongaSettings, LabelSettings, Looks};
use weirgate_fabric::{Scheme, Span};
use weirgate_units::{Bytes, Duration};

use crate::config::read::{Problem, Section, unknown};

/// The names that `scheme` can have.
pub const SCHEMES: [&str; 14] = [
    "ecmp",
    "wcmp",
    "random",
    "rr",
    "drill",
    "drill-per-flow",
    "jsq",
    "adaptive",
    "conga",
    "letflow",
    "presto",
    "plb",
    "flowbender",
    "reps",
];

/// Periods of CONGA's estimates: in a shorter one a link of 10 Gbit/s does not send a full packet, and a longer one is longer than most
/// runs.
const PERIODS: RangeInclusive<Duration> = Duration::from_micros(1)..=Duration::from_secs(1);

/// Reads the section; what is wrong goes to `problems`, and DRILL comes back.
pub(super) fn scheme(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Scheme {
    let d = section.integer("d", 1, 32).map_or(2, |d| d.value as usize);
    let m = section.integer("m", 0, 32).map_or(1, |m| m.value as usize);
    let quantum = section.parsed::<Bytes>("quantum").map_or(1_538, |bytes| {
        let none =
            (bytes.value.as_u64() == 0).then(|| bytes.problem("queues differ by a byte at least: `jsq` goes by bytes"));
        problems.extend(none);
        bytes.value.as_u64().max(1)
    });
    let conga = conga(section, problems);
    let looks = Looks::new(d, m).unwrap_or(Looks::RECOMMENDED);
    let Some(name) = section.parsed::<String>("scheme") else { return Scheme::Drill(looks) };
    match name.value.as_str() {
        "ecmp" => Scheme::Ecmp,
        "wcmp" => Scheme::Wcmp,
        "random" => Scheme::Random,
        "rr" => Scheme::RoundRobin,
        "drill" => Scheme::Drill(looks),
        "drill-per-flow" => Scheme::DrillPerFlow(looks),
        "jsq" => Scheme::Shortest { quantum: 1 },
        "adaptive" => Scheme::Shortest { quantum },
        "conga" => Scheme::Conga(conga),
        "letflow" => Scheme::LetFlow { gap: Span::from(conga.gap), places: conga.flowlets },
        "presto" => Scheme::Presto,
        "plb" => Scheme::Label(LabelSettings::PLB),
        "flowbender" => Scheme::Label(LabelSettings::FLOW_BENDER),
        "reps" => Scheme::Reps,
        other => {
            problems.push(name.problem(unknown("scheme", other, &SCHEMES)));
            Scheme::Drill(looks)
        }
    }
}

/// CONGA's, of which LetFlow has the flowlets as well.
fn conga(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> CongaSettings {
    let CongaSettings { period, decay, bits, age_max, gap, flowlets } = CongaSettings::default();
    let said = section.parsed::<Duration>("period");
    let unfit = said.as_ref().filter(|period| !PERIODS.contains(&period.value));
    problems.extend(unfit.map(|period| period.problem("must be a time of 1 us to 1 s, as \"40 us\"")));
    CongaSettings {
        period: said.map_or(period, |period| period.value),
        decay: section.integer("decay", 1, 8).map_or(decay, |decay| decay.value as u32),
        bits: section.integer("bits", 1, 8).map_or(bits, |bits| bits.value as u32),
        age_max: section.parsed::<Duration>("age_max").map_or(age_max, |age| age.value),
        gap: section.parsed::<Duration>("gap").map_or(gap, |gap| gap.value),
        flowlets: section.integer("flowlets", 1, 1 << 24).map_or(flowlets, |places| places.value as u32),
    }
}
