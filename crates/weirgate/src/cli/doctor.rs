//! `weirgate doctor`: what works here, what does not, why, and what to do.

use std::net::{IpAddr, TcpListener};
use std::path::Path;

use clap::Args;
use serde::Serialize;
use weirgate_linux::bpf::Steering;
use weirgate_linux::bpf::steer::SteerOptions;
use weirgate_linux::conntrack::Conntrack;
use weirgate_linux::diag::Killer;
use weirgate_linux::facts::{Facts, holds_net_admin, not_loaded};
use weirgate_linux::netns::Netns;
use weirgate_linux::{bpffs, nft, route_cc, ways};
use weirgate_store::Geo;
use weirgate_store::export::CheckError;

use super::output::Output;
use super::{Common, Failure};
use crate::config::shaping::namespace_path;
use crate::config::shaping::notes::{too_many_threads, whole_processors};
use crate::config::{Close, Config, Mode, SYSTEM_FILE, Source, Steer, Surroundings};
use crate::control::{CallError, Request, call};
use crate::daemon::export::options;
use crate::daemon::namespaces::Namespaces;
use crate::daemon::ports::try_out;
use crate::daemon::sources::cgroup_of;
use crate::daemon::uplinks::{gateways, reached};
use crate::fleet::check::{self, Found};
use crate::folder::writable;
use crate::journal;

#[derive(Debug, Args)]
pub(super) struct Doctor {
    #[command(flatten)]
    common: Common,
    /// Print JSON, one object per check
    #[arg(long)]
    json: bool,
}

/// How a check came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Verdict {
    /// It works.
    Ok,
    /// It works less well than it could, or there is something to know.
    Note,
    /// It does not work, and nothing configured needs it.
    Missing,
    /// Something configured cannot work.
    Fails,
}

#[derive(Debug, Serialize)]
struct Check {
    what: &'static str,
    verdict: Verdict,
    /// What was found, why, and what to do.
    said: String,
}

impl Doctor {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        let mut checks = Checks(Vec::new());
        let around = Surroundings::current();
        let mut wrong = None;
        let config = match Config::load(self.common.config.as_deref(), &around) {
            Ok(config) => {
                checks.ok(
                    "configuration",
                    match &self.common.config {
                        Some(path) => path.display().to_string(),
                        None if Path::new(SYSTEM_FILE).exists() => SYSTEM_FILE.to_owned(),
                        None => "none: the defaults observe this host".to_owned(),
                    },
                );
                config
            }
            Err(error) => {
                let said = "it is wrong, see below; what follows is of the defaults";
                checks.add("configuration", Verdict::Fails, said.to_owned());
                wrong = Some(error);
                Config::defaults(&around)
            }
        };
        notes(&config, &mut checks);
        let mut namespaces = Namespaces::new(config.sockets.namespaces.clone());
        let missing = namespaces.refresh().missing;
        let facts = Facts::gather(namespaces.open(), config.sockets.cgroup.as_deref());
        let running = call(&config.control, &Request::TuneStatus);
        kernel(&facts, &mut checks);
        match missing {
            Some(missing) => checks.add("namespaces", Verdict::Fails, missing),
            None => checks.ok("namespaces", format!("{} looked at", namespaces.open().len())),
        }
        sense(&config, &facts, &mut checks);
        congestion(&config, &facts, &mut checks);
        steering(&config, &facts, running.is_ok(), &mut checks);
        daemon(&config, &running, &mut checks);
        store(&config, &mut checks);
        kafka(&config, &mut checks);
        fleet(&config, &mut checks);
        ports(&config, running.is_ok(), &mut checks);
        uplinks(&config, &mut checks);
        let Checks(checks) = checks;
        if self.json {
            for check in &checks {
                out.json(check)?;
            }
        } else {
            for check in &checks {
                let verdict = match check.verdict {
                    Verdict::Ok => "ok",
                    Verdict::Note => "note",
                    Verdict::Missing => "missing",
                    Verdict::Fails => "FAILS",
                };
                out.line(&format!("{verdict:<8} {:<16} {}", check.what, check.said))?;
            }
        }
        if let Some(error) = wrong {
            out.flush()?;
            return Err(Failure::Usage(error.into()));
        }
        if checks.iter().any(|check| check.verdict == Verdict::Fails) { Err(Failure::Check) } else { Ok(()) }
    }
}

struct Checks(Vec<Check>);

impl Checks {
    fn add(&mut self, what: &'static str, verdict: Verdict, said: String) {
        self.0.push(Check { what, verdict, said });
    }

    fn ok(&mut self, what: &'static str, said: String) {
        self.add(what, Verdict::Ok, said);
    }
}

/// What the configuration says and can hardly mean.
fn notes(config: &Config, checks: &mut Checks) {
    let shaping = &config.shaping;
    for note in shaping.notes.iter().chain(&config.uplinks.notes) {
        checks.add("configuration", Verdict::Note, note.to_string());
    }
    let processors = std::thread::available_parallelism().map_or(usize::MAX, usize::from);
    let said = [too_many_threads(shaping.threads, processors), whole_processors(shaping)];
    for said in said.into_iter().flatten() {
        checks.add("configuration", Verdict::Note, said);
    }
}

fn kernel(facts: &Facts, checks: &mut Checks) {
    checks.ok("kernel", facts.kernel_release.clone());
    let lacking: Vec<String> =
        facts.capabilities.iter().filter(|c| !c.held).map(|c| format!("{} ({})", c.name, c.purpose)).collect();
    if lacking.is_empty() {
        checks.ok("privileges", "all that are needed".to_owned());
    } else {
        let said = format!("lacking {}: run as root, or give the service these capabilities", lacking.join(", "));
        checks.add("privileges", Verdict::Missing, said);
    }
    match &facts.btf {
        Ok(()) => checks.ok("kernel types", "BTF is there: kernel programs can be fitted to it".to_owned()),
        Err(why) => checks.add("kernel types", Verdict::Missing, why.clone()),
    }
}

fn sense(config: &Config, facts: &Facts, checks: &mut Checks) {
    match (config.sockets.source, &facts.iter_tcp) {
        (Source::Netlink, _) => checks.ok("polling", "by inet_diag netlink, as configured".to_owned()),
        (_, Ok(())) => checks.ok("polling", {
            "by the BPF iterator: about a third less processor time and bytes than netlink".to_owned()
        }),
        (Source::Iter, Err(why)) => checks.add("polling", Verdict::Fails, format!("source = \"iter\": {why}")),
        (Source::Auto, Err(why)) => {
            checks.add("polling", Verdict::Note, format!("by inet_diag netlink, since the iterator fails: {why}"));
        }
    }
    match (config.sockets.close, &facts.sockops) {
        (Close::Off, _) => {
            let said = "off, as configured: connections shorter than the interval are missed".to_owned();
            checks.add("closes", Verdict::Note, said);
        }
        (Close::Destroy, _) => {
            let said = "by the destroy multicast, as configured: what the kernel drops is not counted".to_owned();
            checks.add("closes", Verdict::Note, said);
        }
        (_, Ok(())) => checks.ok("closes", "by the sockops program: what is lost is counted".to_owned()),
        (Close::Sockops, Err(why)) => checks.add("closes", Verdict::Fails, format!("close = \"sockops\": {why}")),
        (Close::Auto, Err(why)) => {
            let said = format!("by the destroy multicast, which does not count what it drops, since: {why}");
            checks.add("closes", Verdict::Note, said);
        }
    }
    if let (Ok(()), Err(why)) = (&facts.sockops, &facts.arm_open) {
        checks.add("older sockets", Verdict::Note, why.clone());
    }
}

fn congestion(config: &Config, facts: &Facts, checks: &mut Checks) {
    let tune = &config.tune.controller;
    for (namespace, congestion) in &facts.congestion {
        let place = if namespace.is_empty() { String::new() } else { format!("{namespace}: ") };
        let congestion = match congestion {
            Ok(congestion) => congestion,
            Err(why) => {
                checks.add("congestion", Verdict::Note, format!("{place}{why}"));
                continue;
            }
        };
        let names = |list: &[weirgate_sockets::sample::CcName]| {
            list.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
        };
        let said = format!("{place}default {}; loaded: {}", congestion.default, names(&congestion.available));
        checks.ok("congestion", said);
        let baseline = tune.default_cc.unwrap_or(congestion.default);
        // Who obeys or decides for others goes by another host's default.
        let is_own = config.fleet.is_none() && config.decides.is_none();
        for rule in tune.coinciding(&baseline).filter(|_| is_own) {
            let said = format!(
                "{place}rule `{}` chooses {}, which is the default anyway: it decides nothing; set [tune] default_cc, or \
                 another cc in the rule",
                rule.name, rule.cc
            );
            checks.add("choice", Verdict::Note, said);
        }
        for cc in tune.unavailable(&congestion.available) {
            let verdict = if config.tune.mode == Mode::Apply { Verdict::Fails } else { Verdict::Missing };
            checks.add("choice", verdict, format!("{place}{}", not_loaded(cc)));
        }
    }
}

fn steering(config: &Config, facts: &Facts, running: bool, checks: &mut Checks) {
    let tune = &config.tune;
    let fails = if tune.mode == Mode::Apply { Verdict::Fails } else { Verdict::Missing };
    if tune.mode == Mode::Observe {
        checks.ok("mode", "observe: decisions are shown, nothing is changed".to_owned());
    } else {
        checks.ok("mode", format!("apply, on ports {:?}", tune.controller.server_ports));
    }
    if let Err(why) = &facts.bpffs {
        checks.add("pins", if tune.steer == Steer::Routes { Verdict::Missing } else { fails }, why.clone());
    }
    if tune.steer == Steer::Routes {
        checks.add("steering", Verdict::Note, format!("by routes, as configured: {}", route_cc::LIMITS.join("; ")));
        return;
    }
    if running {
        checks.ok("steering", "not tried while the daemon runs; `weirgate tune status` says how it fares".to_owned());
        return;
    }
    match (try_steering(config), tune.steer) {
        (Ok(()), _) => checks.ok("steering", "by the sockops program: tried, and it works".to_owned()),
        (Err(why), Steer::Bpf) => checks.add("steering", fails, format!("steer = \"bpf\": {why}")),
        (Err(why), _) if holds_net_admin() => {
            let said = format!("by routes, since the program fails: {why}. {}", route_cc::LIMITS.join("; "));
            checks.add("steering", Verdict::Note, said);
        }
        (Err(why), _) => {
            checks.add("steering", fails, format!("neither by the program ({why}) nor by routes (no CAP_NET_ADMIN)"))
        }
    }
}

/// Attaches the program for a moment, on no port, where it sees nobody's connections.
fn try_steering(config: &Config) -> Result<(), String> {
    let root = cgroup_of(&config.sockets)?;
    let name = format!("weirgate-doctor-{}", std::process::id());
    let group = root.join(&name);
    let made = std::fs::create_dir(&group).is_ok();
    let options = SteerOptions {
        pin_dir: Path::new(bpffs::DEFAULT).join(&name),
        cgroup: if made { group.clone() } else { root },
        server_ports: Vec::new(),
        networks_max: 1,
    };
    let mounted = bpffs::ForNow::on(Path::new(bpffs::DEFAULT)).map_err(|error| error.to_string());
    let tried = mounted.and_then(|_while_tried| {
        let steering = Steering::attach(&options, &[]).map_err(|error| error.to_string())?;
        steering.detach(&[]).map(drop).map_err(|error| error.to_string())
    });
    if made {
        // An empty group can always be removed; a left one would be harmless.
        let _ = std::fs::remove_dir(&group);
    }
    tried
}

fn daemon(config: &Config, running: &Result<serde_json::Value, CallError>, checks: &mut Checks) {
    match running {
        Ok(status) => checks.ok("daemon", format!("runs, in mode {}", status["mode"].as_str().unwrap_or("?"))),
        Err(CallError::Nobody { .. }) => {
            checks.ok("daemon", format!("none answers at {}", config.control.display()));
            if let Some(address) = config.http {
                match TcpListener::bind(address) {
                    Ok(_) => checks.ok("page", format!("{address} is free")),
                    Err(error) => checks.add("page", Verdict::Fails, format!(
                        "{address}: {error}: stop what listens there (`ss -tlnp`), or set [http] listen to another port or \"off\""
                    )),
                }
            }
        }
        Err(error) => checks.add("daemon", Verdict::Note, error.to_string()),
    }
    match journal::read(&config.journal()) {
        Ok(reading) if reading.open.is_empty() || running.is_ok() => {
            checks.ok("journal", format!("{}: {} changes in force", config.journal().display(), reading.open.len()));
        }
        Ok(reading) => checks.add(
            "journal",
            Verdict::Note,
            format!(
                "{}: {} changes of a daemon that did not stop in order: `weirgate undo` takes them back",
                config.journal().display(),
                reading.open.len()
            ),
        ),
        Err(error) => {
            let verdict = if config.tune.mode == Mode::Apply { Verdict::Fails } else { Verdict::Missing };
            checks.add("journal", verdict, error.to_string());
        }
    }
}

fn kafka(config: &Config, checks: &mut Checks) {
    let Some(kafka) = &config.kafka else { return };
    for topic in [&kafka.topic, &kafka.tallies].into_iter().flatten() {
        let asked = options(kafka, topic, &kafka.spool).map_err(|error| (Verdict::Fails, format!("{error:#}")));
        let asked = asked.and_then(|options| {
            weirgate_store::export::check(&options).map_err(|error| match error {
                // Brokers may make it with the first message.
                CheckError::NoTopic(_) => (Verdict::Note, error.to_string()),
                _ => (Verdict::Fails, error.to_string()),
            })
        });
        match asked {
            Ok(partitions) => checks.ok("kafka", format!("topic {topic} is there, with {partitions} partitions")),
            // What is recorded waits in the spool, so the daemon starts all the same.
            Err((verdict, error)) => {
                checks.add("kafka", verdict, format!("topic {topic} at {}: {error}", kafka.brokers.join(", ")));
            }
        }
    }
    if config.host.pop.is_empty() {
        let said =
            "[host] pop is empty: what is sent belongs to no point of presence, and no controller decides from it";
        checks.add("kafka", Verdict::Note, said.to_owned());
    }
}

/// What this host obeys, and what it decides for others.
fn fleet(config: &Config, checks: &mut Checks) {
    let edge =
        config.fleet.as_ref().map_or_else(Vec::new, |fleet| check::edge(fleet, config.kafka.as_ref(), &config.host));
    let controller = config.decides.as_ref().map_or_else(Vec::new, |settings| check::controller(config, settings));
    for said in check::exposed(config) {
        checks.add("secrets", Verdict::Note, said);
    }
    for (what, found) in
        edge.into_iter().map(|found| ("fleet", found)).chain(controller.into_iter().map(|found| ("controller", found)))
    {
        match found {
            Found::Works(said) => checks.ok(what, said),
            Found::Note(said) => checks.add(what, Verdict::Note, said),
            Found::Fails(said) => checks.add(what, Verdict::Fails, said),
        }
    }
}

fn store(config: &Config, checks: &mut Checks) {
    let Some(store) = &config.store else {
        checks.ok("store", "off, as configured".to_owned());
        return;
    };
    match writable(&store.dir) {
        Err(error) => checks.add(
            "store",
            Verdict::Fails,
            format!(
                "{}: {error}: set [store] dir to a directory you can write, or enabled = false",
                store.dir.display()
            ),
        ),
        Ok(free) if free < store.keep_free.as_u64() => checks.add(
            "store",
            Verdict::Fails,
            format!(
                "{}: {} MB are free and [store] keep_free is {}: nothing would be written",
                store.dir.display(),
                free / 1_000_000,
                store.keep_free
            ),
        ),
        Ok(free) if free < store.size_max.as_u64() => checks.add(
            "store",
            Verdict::Note,
            format!(
                "{}: {} MB are free, less than [store] size_max = {}: nothing is written once less than {} are left",
                store.dir.display(),
                free / 1_000_000,
                store.size_max,
                store.keep_free
            ),
        ),
        Ok(_) => checks.ok("store", format!("{}, at most {}", store.dir.display(), store.size_max)),
    }
    match Geo::open(&store.geo) {
        Ok(_) if store.geo.is_empty() => {}
        Ok(_) => checks.ok("geo", format!("{} databases", store.geo.len())),
        Err(error) => checks.add("geo", Verdict::Fails, error.to_string()),
    }
}

fn ports(config: &Config, running: bool, checks: &mut Checks) {
    for port in &config.shaping.ports {
        let name = &port.name;
        match try_out(port, running) {
            Ok(None) => checks.ok("port", format!("{name}: can be made")),
            Ok(Some(note)) => checks.add("port", Verdict::Note, format!("{name}: {note}")),
            Err(why) => checks.add("port", Verdict::Fails, format!("{name}: {why:#}")),
        }
    }
}

/// What steering needs, and what there is of each uplink.
fn uplinks(config: &Config, checks: &mut Checks) {
    let uplinks = &config.uplinks.uplinks;
    if uplinks.is_empty() {
        return;
    }
    match nft::version() {
        Ok(version) => checks.ok("nftables", version),
        Err(error) => checks.add("nftables", Verdict::Fails, error.to_string()),
    }
    let path = namespace_path(&config.uplinks.namespace);
    let ns = match &path {
        None => Netns::current(),
        Some(path) => Netns::open(path, &path.to_string_lossy()),
    };
    let looked = ns.and_then(|ns| {
        ns.within(|| {
            let tracked = Conntrack::open().and_then(|mut table| table.flows(Some([1, u32::MAX]), &mut |_| ()));
            let killed = Killer::open().and_then(|mut killer| killer.check());
            let asked: Vec<_> = uplinks.iter().map(|uplink| (uplink.device.as_str(), reached(uplink))).collect();
            (tracked, killed, ways::devices(&asked))
        })
    });
    let (tracked, killed, found) = match looked {
        Ok(looked) => looked,
        Err(error) => {
            let at = path.unwrap_or_default();
            return checks.add("uplinks", Verdict::Fails, format!("[steering] namespace {}: {error}", at.display()));
        }
    };
    match tracked {
        Ok(()) => checks.ok("conntrack", "connections are tracked".to_owned()),
        Err(error) => {
            let said = format!("connections are not tracked: {error}: `modprobe nf_conntrack_netlink`, as root");
            checks.add("conntrack", Verdict::Fails, said);
        }
    }
    match killed {
        Ok(()) => checks.ok("SOCK_DESTROY", "connections over a silent uplink can be ended".to_owned()),
        Err(error) => {
            let said = format!(
                "{error}: this host's own connections over an uplink that falls silent hang until TCP gives them up \
                 (CONFIG_INET_DIAG_DESTROY)"
            );
            checks.add("SOCK_DESTROY", Verdict::Note, said);
        }
    }
    let found = match found {
        Ok(found) => found,
        Err(error) => return checks.add("uplinks", Verdict::Fails, error.to_string()),
    };
    for (uplink, device) in uplinks.iter().zip(found) {
        let name = &uplink.name;
        match device {
            None => checks.add("uplink", Verdict::Note, format!("{name}: there is no device `{}` now", uplink.device)),
            Some(device) if !device.is_up => {
                let said = format!("{name}: `{}` is down, or nothing is connected to it", uplink.device);
                checks.add("uplink", Verdict::Note, said);
            }
            Some(device) => {
                let ways = gateways(uplink, &device, &reached(uplink));
                let ways: Vec<String> = ways.iter().flatten().map(by).collect();
                if ways.is_empty() {
                    let said = format!(
                        "{name}: no way by `{}`: no address, or no default route: write its `gateway`",
                        uplink.device
                    );
                    checks.add("uplink", Verdict::Note, said);
                } else {
                    checks.ok("uplink", format!("{name}: `{}` is up, {}", uplink.device, ways.join(", ")));
                }
                for target in uplink.targets.iter().filter(|target| is_on_link(&device, target.address)) {
                    let said =
                        format!("{name}: {} is on its own link, and says nothing of what is beyond", target.address);
                    checks.add("uplink", Verdict::Note, said);
                }
            }
        }
    }
}

fn by(gateway: &Option<IpAddr>) -> String {
    gateway.map_or_else(|| "to its other end".to_owned(), |gateway| format!("by {gateway}"))
}

fn is_on_link(device: &ways::Device, target: IpAddr) -> bool {
    device.networks.iter().any(|network| network.contains(target))
}
