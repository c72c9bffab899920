//! The experiment `edge`: does choosing the congestion control per client network pay?
//!
//! One edge (a real nginx, the real daemon) and 20 client networks behind emulated links, as `experiments/edge.toml` has
//! them. Every arm gets a copy of all of it, with the same seeds. Two arms run at a time, those that a bound compares
//! together: what disturbs the machine disturbs them alike, and it has room for both. What counts is taken at the clients ([`load`]) and by
//! a [witness](weirgate_linux::bpf::witness) that shares nothing with the program that switches.

mod arm;
mod findings;
mod load;
mod plan;
mod present;
mod records;
mod table;

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use anyhow::{Context, Result, bail};
use weirgate_linux::diag::DiagPoller;
use weirgate_linux::poll::Filter;
use weirgate_sockets::sample::state;
use weirgate_units::Duration;

use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::machine::CpuTimes;
use crate::net::{AllowedCongestion, Emulator, LinkId, Topology};
use crate::report::Report;
use arm::{Arm, Places, Treatment};
use load::{Client, Load, Outcome, Response};
use table::{EDGE_TOML, Table};

/// The arms that the bounds are about, then the others: each pair runs at one time.
const PAIRS: [&[Treatment]; 2] =
    [&[Treatment::All("cubic"), Treatment::Chosen], &[Treatment::ChosenStaying, Treatment::All("bbr")]];

/// What a run came to, before it is judged.
struct Raw {
    treatments: Vec<Treatment>,
    outcome: Outcome,
    /// Share of the processors that was idle in the measured phase, in percent; where there were several, the least.
    idle_pct: f64,
    /// Per arm: bytes of streams that left under another congestion control than the arm's default.
    segments: Vec<Vec<weirgate_linux::bpf::witness::Segment>>,
    /// Per arm: what the daemon's store has.
    records: Vec<records::Records>,
    /// Per arm: bytes and seconds of nginx's access log.
    logs: Vec<Vec<crate::nginx::Logged>>,
    nginx_alerts: usize,
    /// Of each pair of arms.
    emulators: Vec<crate::net::Counters>,
}

impl Raw {
    /// Adds the arms of another run with the same seeds.
    fn append(&mut self, other: Self) {
        let before = self.treatments.len() as u8;
        let moved =
            other.outcome.responses.into_iter().map(|response| Response { arm: response.arm + before, ..response });
        self.outcome.responses.extend(moved);
        self.outcome.failures += other.outcome.failures;
        self.outcome.unsent += other.outcome.unsent;
        self.treatments.extend(other.treatments);
        self.idle_pct = self.idle_pct.min(other.idle_pct);
        self.segments.extend(other.segments);
        self.records.extend(other.records);
        self.logs.extend(other.logs);
        self.nginx_alerts += other.nginx_alerts;
        self.emulators.extend(other.emulators);
    }
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let table = Table::read(EDGE_TOML, options.form.name())?;
    let title = "Choosing the congestion control per client network: an edge and 20 networks";
    let report = Report::begin(options, "edge", title);
    let _allowed = AllowedCongestion::widen(&["reno", "cubic", "bbr"])?;
    let mut raw = measure(options, &table, PAIRS[0])?;
    if options.form == Form::Full {
        raw.append(measure(options, &table, PAIRS[1])?);
    }
    let findings = findings::find(&table, &raw, options.seed)?;
    write_responses(&options.dir("edge")?.join("responses.csv"), &table, &raw)?;
    let mut expectations = Expectations::of("edge")?;
    findings.judge(options.form, &mut expectations)?;
    present::finish(report, options.form, &table, &raw, &findings, expectations)
}

fn measure(options: &Options, table: &Table, treatments: &'static [Treatment]) -> Result<Raw> {
    let dir = options.dir("edge")?;
    options.say(format!(
        "{} arms of {} networks, {} clients each",
        treatments.len(),
        table.networks.len(),
        table.clients_per_network
    ));
    let places: Vec<Places> = treatments.iter().map(|t| Places::create(*t, table)).collect::<Result<_>>()?;
    let mut topology = Topology::new(options.seed);
    let links: Vec<Vec<LinkId>> = places.iter().map(|p| p.link(&mut topology, table)).collect();
    let emulator = Emulator::start(topology)?;
    let start = |(treatment, places): (&Treatment, &Places)| Arm::start(options, &dir, *treatment, places, table);
    let mut arms: Vec<Arm> = treatments.iter().zip(&places).map(start).collect::<Result<_>>()?;

    let phases = table.phases;
    let planned = phases.warm_up.saturating_add(phases.measured);
    let clients = clients(table, treatments.len(), options.seed, planned);
    let files = table.objects.iter().map(|o| o.file.clone()).collect();
    let namespace = Box::new(|arm: u8, network: u8| places[usize::from(arm)].client(usize::from(network)));
    let load = Load::new(clients, files, table.requests_per_connection, namespace)?;
    let (mut checked, mut cpu_start, mut idle_pct, mut phase) = (false, None, f64::NAN, usize::MAX);
    let outcome = load.run(planned.saturating_add(phases.drain_max), |now| {
        for arm in &mut arms {
            arm.handle_tick()?;
        }
        flap(table, &emulator, &links, now, &mut phase)?;
        if !checked && now >= Duration::from_secs(8) {
            checked = true;
            treatments.iter().zip(&places).try_for_each(|(t, p)| check_congestion_control(*t, p))?;
        }
        if cpu_start.is_none() && now >= phases.warm_up {
            cpu_start = Some(CpuTimes::now());
            options.say("warm-up is over, measuring");
        }
        if idle_pct.is_nan() && now >= planned {
            idle_pct = cpu_start.map_or(f64::NAN, |start| CpuTimes::now().since(&start).idle_pct());
            options.say("waiting for what is still under way");
        }
        Ok(())
    })?;
    let Outcome { responses, failures, unsent, clients } = outcome;
    drop(clients);
    // The clients' connections close now: two polls for the last close records.
    std::thread::sleep(table.poll.saturating_mul(2).to_std());
    let (mut segments, mut records, mut logs, mut nginx_alerts) = (Vec::new(), Vec::new(), Vec::new(), 0);
    for mut arm in arms {
        arm.handle_tick()?;
        segments.push(arm.segments()?.0.iter().filter(|s| s.netns == arm.netns).copied().collect());
        arm.daemon.stop()?;
        records.push(records::read(&arm.daemon.store()).with_context(|| format!("arm {}", arm.treatment.name()))?);
        nginx_alerts += arm.nginx.alerts();
        logs.push(arm.nginx.stop_and_read_log()?);
    }
    let emulator = emulator.stop()?;
    let outcome = Outcome { responses, failures, unsent, clients: Vec::new() };
    Ok(Raw {
        treatments: treatments.to_vec(),
        outcome,
        idle_pct,
        segments,
        records,
        logs,
        nginx_alerts,
        emulators: vec![emulator],
    })
}

fn clients(table: &Table, arms: usize, seed: u64, end: Duration) -> Vec<Client> {
    let mut clients = Vec::new();
    for arm in 0..arms {
        for (index, network) in table.networks.iter().enumerate() {
            for client in 0..table.clients_per_network {
                let source = network.client(client);
                let server = SocketAddr::new(arm::SERVER[usize::from(source.is_ipv6())], 80);
                let plan = plan::requests(table, seed, index, client, end);
                clients.push(Client::new(arm as u8, index as u8, client, source, server, plan));
            }
        }
    }
    clients
}

/// Sets the flapping networks' links for the time `now`; every second one is lossy while the others are clean.
fn flap(table: &Table, emulator: &Emulator, links: &[Vec<LinkId>], now: Duration, phase: &mut usize) -> Result<()> {
    let half = (table.flapping_period.as_nanos() / 2).max(1);
    let current = (now.as_nanos() / half) as usize;
    if current == *phase {
        return Ok(());
    }
    *phase = current;
    let flapping = table.networks.iter().enumerate().filter_map(|(i, n)| Some((i, n, n.lossy_phase.as_ref()?)));
    for (nth, (index, network, lossy)) in flapping.enumerate() {
        let setting = if (current + nth).is_multiple_of(2) { &network.link } else { lossy };
        for arm in links {
            emulator.set(arm[index], arm::settings(setting))?;
        }
    }
    Ok(())
}

/// Reads the congestion control back from accepted sockets: a namespace's sysctl can be refused or ignored.
fn check_congestion_control(treatment: Treatment, places: &Places) -> Result<()> {
    let Treatment::All(expected) = treatment else { return Ok(()) };
    let filter = Filter { states: 1 << state::ESTABLISHED, local_ports: vec![80], ..Filter::default() };
    let (mut seen, mut wrong) = (0, None);
    DiagPoller::new().poll(places.edge(), &filter, &mut |sample| {
        seen += 1;
        if sample.cc.as_str() != expected {
            wrong = Some(sample.cc);
        }
    })?;
    match wrong {
        Some(cc) => bail!("accepted sockets of the arm `{expected}` run `{cc}`"),
        None if seen == 0 => bail!("the arm `{expected}` has no accepted socket after 8 s"),
        None => Ok(()),
    }
}

/// Every response of every arm, for whoever wants to ask another question of the run. Times since its beginning.
fn write_responses(path: &Path, table: &Table, raw: &Raw) -> Result<()> {
    let mut csv = String::from(
        "arm,network,class,client,client_port,body_bytes,due_s,sent_s,first_byte_s,last_byte_s,finished\n",
    );
    for r in &raw.outcome.responses {
        let network = &table.networks[usize::from(r.network)];
        let [due, sent, first, done] = [r.due, r.sent, r.first, r.done].map(Duration::as_secs_f64);
        writeln!(
            csv,
            "\"{}\",{},{},{},{},{},{due:.6},{sent:.6},{first:.6},{done:.6},{}",
            raw.treatments[usize::from(r.arm)].name(),
            network.prefix,
            network.class,
            network.client(r.client),
            r.local_port,
            r.body,
            r.finished
        )?;
    }
    std::fs::write(path, csv).with_context(|| format!("cannot write {}", path.display()))
}

/// The index of the network that holds `address`.
fn network_of(table: &Table, address: IpAddr) -> Option<usize> {
    table.networks.iter().position(|n| n.prefix.contains(address))
}
