//! The software switch as it is configured: its devices, its limits, and what is asked and changed of them while it runs.

use std::io;
use std::sync::Arc;

use anyhow::{Context, bail};
use weirgate_linux::clock;
use weirgate_linux::dataplane::{Dataplane, Handle, MEMORY_MAX, spawn};
use weirgate_switch::bridge::{Bridge, BridgeClass, BridgePort, ClassRef, Direction};
use weirgate_switch::limits::{ClassSettings, LimitCounters, LimitId, LimitSettings, Mode, SharedLimit, queue_max};
use weirgate_units::{BitRate, Bytes, Duration, Instant};

use super::keeper::Keeper;
use super::ports;
use crate::config::shaping::{Class, Limit, Port, Shaping, gate};
use crate::config::unknown;
use crate::random;
use crate::view::api;

/// Of what was read from a queue that can be held back, as much may wait.
const BACKLOG_MAX: Bytes = Bytes::new(256 << 10);

/// The running switch.
#[derive(Debug)]
pub(crate) struct Shaper {
    // Before the threads, which it calls.
    keeper: Keeper,
    threads: Arc<[Handle]>,
    limits: Vec<(Limit, LimitId)>,
    ports: Vec<(Port, BridgePort)>,
    /// Classes whose queue goes by the rates of their limits.
    classes: Vec<(ClassRef, Vec<LimitId>)>,
    coalesce: Duration,
}

impl Shaper {
    /// Makes the devices and starts to switch; `None` where no port is configured.
    pub(crate) fn open(shaping: &Shaping) -> anyhow::Result<Option<Self>> {
        if shaping.ports.is_empty() {
            return Ok(None);
        }
        let now = clock::boottime();
        let rates = || shaping.limits.iter().map(|limit| limit.rate).filter(|rate| *rate != BitRate::ZERO);
        let slowest = rates().min().unwrap_or(BitRate::from_bits_per_sec(1_000_000));
        let fastest = rates().max().unwrap_or(BitRate::from_bits_per_sec(1_000_000_000));
        let seed = u64::from_ne_bytes(random::bytes()?);
        let count = usize::from(shaping.threads.max(1));
        let memory = Bytes::new(MEMORY_MAX.as_u64() / count as u64);
        let mut bridges: Vec<Bridge> = (0..count).map(|_| Bridge::new(now, slowest, fastest, memory, seed)).collect();
        if let Some((first, others)) = bridges.split_first_mut() {
            others.iter_mut().for_each(|other| other.learn_with(first));
        }
        let mut limits = Vec::new();
        for limit in &shaping.limits {
            let settings = LimitSettings {
                rate: limit.rate,
                burst: limit.burst_at(limit.rate, shaping.coalesce),
                mode: limit.mode,
            };
            limits.push((limit.clone(), add_limit(now, settings, &mut bridges)));
        }
        // Where there are too few for all, the scheduler divides them better.
        let has_cores = count > 1 && std::thread::available_parallelism().is_ok_and(|cores| cores.get() >= count);
        let make = |(at, bridge)| {
            let one = Dataplane::new(bridge)?.coalescing(shaping.coalesce);
            let one = if shaping.poll { one.polling() } else { one };
            Ok(if has_cores { one.on_core(at) } else { one })
        };
        let mut dataplanes = bridges.into_iter().enumerate().map(make).collect::<io::Result<Vec<_>>>()?;
        let mut ports = Vec::new();
        for (at, port) in shaping.ports.iter().enumerate() {
            let gate = gate_of(shaping, at).map(|limit| limits[limit].1);
            let id = add_port(&mut dataplanes, port, gate)
                .with_context(|| format!("port `{}` cannot be made", port.name))?;
            ports.push((port.clone(), id));
        }
        let mut classes = Vec::new();
        for dataplane in &mut dataplanes {
            let bridge = dataplane.bridge_mut();
            for (port, id) in &ports {
                if let Some(peer) = port.peer {
                    bridge.join(*id, ports[peer].1);
                }
                for mac in &port.macs {
                    bridge.set_address(*mac, *id)?;
                }
            }
            classes = set_classes(bridge, shaping, &limits, &ports)?;
        }
        let threads = dataplanes.into_iter().enumerate().map(|(at, one)| spawn(&format!("switch-{at}"), one));
        let threads: Arc<[Handle]> = threads.collect::<Result<_, _>>()?;
        let keeper = Keeper::start(Arc::clone(&threads), &ports)?;
        Ok(Some(Self { keeper, threads, limits, ports, classes, coalesce: shaping.coalesce }))
    }

    /// Whether all its threads run.
    pub(crate) fn is_running(&self) -> bool {
        self.threads.iter().all(Handle::is_running)
    }

    /// What every limit and port did; empty where the switch has stopped.
    pub(crate) fn look(&self) -> api::Switch {
        let ids: Vec<LimitId> = self.limits.iter().map(|(_, id)| *id).collect();
        let ports: Vec<BridgePort> = self.ports.iter().map(|(_, id)| *id).collect();
        let look = move |dataplane: &mut Dataplane| {
            let (bridge, now) = (dataplane.bridge(), clock::boottime());
            let limits: Vec<_> = ids.into_iter().map(|id| (bridge.rate(id), bridge.limit_counters(id, now))).collect();
            let ports: Vec<_> = ports
                .into_iter()
                .map(|id| {
                    let (counters, failed) = dataplane.port(id);
                    (counters, failed.map(ToString::to_string))
                })
                .collect();
            (limits, ports, *dataplane.bridge().counters())
        };
        let looked = self.threads.iter().map(|thread| thread.call(look.clone()).unwrap_or_default());
        let all = looked.reduce(|(limits, ports, frames), more| {
            let limits = limits.into_iter().zip(more.0).map(|((rate, all), (_, one))| (rate, all.and(&one)));
            let ports =
                ports.into_iter().zip(more.1).map(|((all, failed), (one, why))| (all.and(&one), failed.or(why)));
            (limits.collect(), ports.collect(), frames.and(&more.2))
        });
        let (limits, ports, frames) = all.unwrap_or_default();
        let rows = self.limits.iter().zip(limits);
        api::Switch {
            now_ms: 0,
            frames: api::Frames { cut: frames.cut, marked: frames.marked },
            limits: rows.map(|((limit, _), (rate, counters))| row(limit, rate, self.coalesce, &counters)).collect(),
            ports: self
                .ports
                .iter()
                .zip(ports)
                .zip(self.keeper.gone())
                .map(|(((port, _), (counted, failed)), gone)| ports::row(port, counted, gone, failed))
                .collect(),
        }
    }

    /// Changes a limit's rate, for what waits as well; its new row.
    pub(crate) fn set(&self, name: &str, rate: BitRate) -> anyhow::Result<api::Limit> {
        let Some((limit, id)) = self.limits.iter().find(|(limit, _)| limit.name == name) else {
            let known: Vec<&str> = self.limits.iter().map(|(limit, _)| limit.name.as_str()).collect();
            bail!(unknown("limit", name, &known));
        };
        let id = *id;
        let burst = limit.burst_at(rate, self.coalesce);
        let classes: Vec<_> = self.classes.iter().filter(|(_, chain)| chain.contains(&id)).cloned().collect();
        for (at, thread) in self.threads.iter().enumerate() {
            let classes = classes.clone();
            thread.call(move |dataplane| {
                let (bridge, now) = (dataplane.bridge_mut(), clock::boottime());
                // The first thread tells the others.
                if at == 0 {
                    bridge.set_rate(now, id, rate);
                } else {
                    bridge.balance(now);
                }
                bridge.set_burst(now, id, burst);
                for (class, chain) in classes {
                    let lowest = chain.iter().map(|limit| bridge.rate(*limit)).min().unwrap_or(rate);
                    bridge.set_queue_max(class, queue_max(lowest));
                }
            })?;
        }
        self.look().limits.into_iter().find(|limit| limit.name == name).context("the switch has stopped")
    }
}

/// Adds a limit to all threads, which keep it together; it has the same number in each.
fn add_limit(now: Instant, settings: LimitSettings, bridges: &mut [Bridge]) -> LimitId {
    if let [only] = bridges {
        return only.add_limit(now, settings);
    }
    let shared = Arc::new(SharedLimit::new(now, settings, bridges.len()));
    let add = |(member, bridge): (usize, &mut Bridge)| bridge.add_shared_limit(now, &shared, member);
    bridges.iter_mut().enumerate().map(add).collect::<Vec<_>>()[0]
}

/// Makes a port's device and gives each thread its part; the port has the same number in each.
fn add_port(dataplanes: &mut [Dataplane], port: &Port, gate: Option<LimitId>) -> anyhow::Result<BridgePort> {
    let ports::Opened { parts, note } = ports::open(port, dataplanes.len())?;
    if let Some(note) = note {
        tracing::warn!("port `{}`: {note}", port.name);
    }
    let mut id = None;
    for (dataplane, part) in dataplanes.iter_mut().zip(parts) {
        id = Some(dataplane.add_port(part, gate, BACKLOG_MAX)?);
    }
    id.context("the switch has no thread")
}

fn set_classes(
    bridge: &mut Bridge,
    shaping: &Shaping,
    limits: &[(Limit, LimitId)],
    ports: &[(Port, BridgePort)],
) -> anyhow::Result<Vec<(ClassRef, Vec<LimitId>)>> {
    let (mut from, mut to, mut by_rate) = (Vec::new(), Vec::new(), Vec::new());
    for class in &shaping.classes {
        let rules = if class.direction == Direction::From { &mut from } else { &mut to };
        let chain: Vec<LimitId> = class.limits.iter().map(|limit| limits[*limit].1).collect();
        let accounting = class.limits.first().map(|limit| limits[*limit].0.accounting).unwrap_or_default();
        let lowest = class.limits.iter().map(|limit| limits[*limit].0.rate).min().unwrap_or(BitRate::ZERO);
        let queue = queue(class, lowest);
        let known = bridge.add_class(&BridgeClass { limits: chain.clone(), accounting, queue });
        if class.queue.is_none() {
            by_rate.push((known, chain));
        }
        rules.push(class.matches.rule(ports[class.port].1.index() as u16, known));
    }
    bridge.set_rules(from, to).context("the classes cannot be told apart")?;
    Ok(by_rate)
}

/// The limit that gates what comes by port number `port`.
fn gate_of(shaping: &Shaping, port: usize) -> Option<usize> {
    let gates = shaping.classes.iter().filter_map(|class| gate(class, &shaping.limits, &shaping.ports));
    gates.filter(|(_, by)| *by == Some(port)).map(|(limit, _)| limit).next()
}

fn queue(class: &Class, lowest: BitRate) -> ClassSettings {
    ClassSettings {
        queue_max: class.queue.unwrap_or_else(|| queue_max(lowest)),
        codel: class.codel,
        by_flow_rtt: class.by_flow_rtt,
        mark_above: class.mark_above,
        ..ClassSettings::default()
    }
}

fn row(limit: &Limit, rate: BitRate, coalesce: Duration, counters: &LimitCounters) -> api::Limit {
    let us = |q: f64| counters.delays.quantile(q).map(|delay| delay.as_nanos() / 1_000);
    api::Limit {
        name: limit.name.clone(),
        mode: mode_name(limit.mode).to_owned(),
        layer: format!("{:?}", limit.accounting.layer),
        overhead: limit.accounting.overhead,
        rate_bits_per_s: rate.as_bits_per_sec(),
        burst_bytes: limit.burst_at(rate, coalesce).as_u64(),
        passed_packets: counters.passed_packets,
        passed_bytes: counters.passed_bytes,
        delayed: counters.delayed,
        waiting: counters.waiting,
        throttled_ms: counters.throttled.as_nanos() / 1_000_000,
        missed_bytes: counters.missed_bytes,
        marked: counters.marked,
        dropped_rate: counters.dropped_rate,
        dropped_room: counters.dropped_room,
        dropped_codel: counters.dropped_codel,
        delay_p50_us: us(0.5),
        delay_p99_us: us(0.99),
        delays: counters
            .delays
            .slots()
            .map(|(below, packets)| api::Delay { below_us: below.map(|d| d.as_nanos() / 1_000), packets })
            .collect(),
    }
}

const fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Pace => "pace",
        Mode::Gate => "gate",
        Mode::Borrow => "borrow",
        Mode::Drop => "drop",
    }
}
