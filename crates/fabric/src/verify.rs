//! Checks of the simulator against what is known without it: queueing theory, closed forms, and outcomes that can be told by hand.
//!
//! Each check is a function of a seed; two runs with one seed find the same. The short form is for tests: less is measured, so what is
//! random may be further from what is expected, as far as four standard deviations or more; what is exact is exact in both.

mod bank;
mod conserved;
mod drill;
mod ecmp;
mod paths;
mod queue;
mod reorder;
mod scene;
mod tcp;
mod unloaded;

pub use scene::{crowd, schemes};

/// How much is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A quarter of a minute for all checks, in a debug build.
    Short,
    /// A minute for all checks, in a release build: as much as it takes to see means to 1 %.
    Full,
}

impl Form {
    const fn pick<T: Copy>(self, short: T, full: T) -> T {
        match self {
            Self::Short => short,
            Self::Full => full,
        }
    }
}

/// A check.
#[derive(Clone, Copy, Debug)]
pub struct Check {
    /// Its name in results.
    pub name: &'static str,
    /// What it compares with what.
    pub compares: &'static str,
    /// Runs it, with a seed of everything random.
    pub run: fn(u64, Form) -> Finding,
}

/// What a check has found.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// What was measured, in the unit that the check's name ends in; without one, a number of things.
    pub measured: f64,
    /// What it should be.
    pub expected: f64,
    /// How far from that it may be.
    pub tolerance: f64,
    /// What it was found from; of things that must be exact, those that are not.
    pub cases: Vec<Case>,
}

/// One of several things that a check compares.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Which, and the unit.
    pub name: String,
    /// What was measured.
    pub measured: f64,
    /// What it should be.
    pub expected: f64,
    /// How far from that it may be; infinitely far, where it was left out.
    pub tolerance: f64,
}

impl Case {
    fn new(name: impl Into<String>, measured: f64, expected: f64, tolerance: f64) -> Self {
        Self { name: name.into(), measured, expected, tolerance }
    }

    /// What cannot be measured well enough to be compared.
    fn left_out(name: impl Into<String>, measured: f64, expected: f64) -> Self {
        Self::new(name, measured, expected, f64::INFINITY)
    }

    /// Whether it was not left out.
    pub const fn is_compared(&self) -> bool {
        self.tolerance.is_finite()
    }

    /// Whether it is as it should be, or was left out.
    pub fn holds(&self) -> bool {
        !self.is_compared() || (self.measured - self.expected).abs() <= self.tolerance
    }

    fn error_pct(&self) -> f64 {
        (self.measured / self.expected - 1.0).abs() * 100.0
    }
}

impl Finding {
    /// Whether it is as it should be.
    pub fn holds(&self) -> bool {
        (self.measured - self.expected).abs() <= self.tolerance
    }

    /// The largest error of all cases, relative to what is expected, in percent.
    fn error_pct(tolerance: f64, cases: Vec<Case>) -> Self {
        let measured = cases.iter().map(Case::error_pct).fold(0.0, worst);
        Self { measured, expected: 0.0, tolerance, cases }
    }

    /// The largest difference of all cases.
    fn difference(tolerance: f64, cases: Vec<Case>) -> Self {
        let measured = cases.iter().map(|case| (case.measured - case.expected).abs()).fold(0.0, worst);
        Self { measured, expected: 0.0, tolerance, cases }
    }

    /// 1 if all cases hold, and some were compared, else 0.
    fn all(cases: Vec<Case>) -> Self {
        let holds = cases.iter().any(Case::is_compared) && cases.iter().all(Case::holds);
        Self { measured: f64::from(u8::from(holds)), expected: 1.0, tolerance: 0.0, cases }
    }

    /// How many are not as they should be, of things that must be exact.
    fn misses(cases: Vec<Case>) -> Self {
        let misses: Vec<Case> = cases.into_iter().filter(|case| !case.holds()).collect();
        Self { measured: misses.len() as f64, expected: 0.0, tolerance: 0.0, cases: misses }
    }
}

/// The larger one; what is no number is larger than all, so that it holds nowhere.
fn worst(a: f64, b: f64) -> f64 {
    if b.is_nan() || b > a { b } else { a }
}

/// Of `n` things, in how many ways `k` can be drawn.
fn choose(n: u32, k: u32) -> f64 {
    (0..k).map(|at| f64::from(n - at) / f64::from(at + 1)).product()
}

/// All checks.
pub const CHECKS: &[Check] = &[
    Check {
        name: "mm1_error_pct",
        compares: "mean wait in one line, Poisson arrivals, exponential sizes: rho / (1 - rho) services",
        run: queue::mm1,
    },
    Check {
        name: "md1_error_pct",
        compares: "mean wait in one line, Poisson arrivals, equal sizes: rho / (2 (1 - rho)) services",
        run: queue::md1,
    },
    Check {
        name: "network_queue_error_pct",
        compares: "mean wait in a leaf's uplinks, single segments by chance to either: as in one line",
        run: queue::in_network,
    },
    Check {
        name: "jsq_mean_field",
        compares: "share of queues with at least i packets under DRILL(d,0): lambda^((d^i - 1)/(d - 1))",
        run: drill::mean_field,
    },
    Check {
        name: "drill_d0_unstable",
        compares: "growth of slow queues under DRILL(d,0), below and beyond lambda C(|S|,d)/C(N,d) = mu(S)",
        run: drill::unstable,
    },
    Check {
        name: "drill_11_bounded",
        compares: "growth of the same queues under DRILL(1,1), at those loads and up to 95 % of all that they can serve: none",
        run: drill::bounded,
    },
    Check {
        name: "tcp_square_root_error_pct",
        compares: "throughput of NewReno with SACK under random loss p: 1.22 MSS / (RTT sqrt(p))",
        run: tcp::square_root,
    },
    Check {
        name: "ecmp_collisions_share",
        compares: "share of links with k of n flows: balls in bins",
        run: ecmp::collisions,
    },
    Check {
        name: "conga_avoids_congestion",
        compares: "share of flows by a path that another leaf's traffic fills, and after: CONGA's none, then half; ECMP's half",
        run: paths::conga,
    },
    Check {
        name: "presto_cells_in_turn",
        compares: "packets by each path: cells in turn, and after a failure by what each path can carry",
        run: paths::presto,
    },
    Check {
        name: "letflow_moves_after_a_pause",
        compares: "paths of a flow that sends once in a round trip, with gaps just below and just above it: all, and one",
        run: paths::letflow,
    },
    Check {
        name: "unloaded_misses",
        compares: "flow completion time in an idle network, all topologies: the ideal, to the picosecond",
        run: unloaded::times,
    },
    Check {
        name: "conservation_misses",
        compares: "packets into a crowded network: those out of it and those dropped, all schemes and kinds of buffers",
        run: conserved::packets,
    },
    Check {
        name: "dup_acks_misses",
        compares: "duplicate ACKs on equal idle paths: none; of a short last segment: if tail (1/edge + 2/core) < 2 MTU/core",
        run: reorder::dup_acks,
    },
];
