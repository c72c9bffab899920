//! `[balance]`: how load is balanced.

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

/// Reads the section; what is wrong goes to `problems`, and DRILL comes back.
pub(super) fn scheme(section: &mut Section<'_>, problems: &mut Vec<Problem>) -> Scheme {
    let d = section.integer("d", 1, 32).map_or(2, |d| d.value as usize);
    let m = section.integer("m", 0, 32).map_or(1, |m| m.value as usize);
    let quantum = section.parsed::<Bytes>("quantum").map_or(1_538, |bytes| bytes.value.as_u64().max(1));
    let conga = CongaSettings::default();
    let gap = section.parsed::<Duration>("gap").map_or(conga.gap, |gap| gap.value);
    let flowlets = section.integer("flowlets", 1, 1 << 24).map_or(conga.flowlets, |places| places.value as u32);
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
        "conga" => Scheme::Conga(CongaSettings { gap, flowlets, ..conga }),
        "letflow" => Scheme::LetFlow { gap: Span::from(gap), places: flowlets },
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
