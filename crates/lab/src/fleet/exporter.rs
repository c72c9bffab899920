//! What the exporter costs: the same records with it and without it, to a real broker by TLS.

use std::hint::black_box;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use weirgate_linux::clock;
use weirgate_sockets::network::ClientNetworks;
use weirgate_sockets::record::{Direction, Origin, Record};
use weirgate_store::Anonymise;
use weirgate_store::export::{Compression, Exporter, Form, Options, ProtobufEncoder, Sasl, Security, Status};
use weirgate_tune::Tally;
use weirgate_units::{Bytes, UnixTime};

use super::generator::Generator;
use super::ground::{Ground, until};
use super::traffic::Recorded;
use crate::process::memory_mb;

/// Connections, each of which is looked at once in [`EVERY`].
pub(super) const SOCKETS: u32 = 100_000;
/// How often all of them are looked at.
pub(super) const EVERY: Duration = Duration::from_secs(10);
/// Client networks of those connections.
pub(super) const NETWORKS: u32 = 5_000;
/// How fast a look brings them: 100,000 in 125 ms, the median of `sockets-scale` (docs/results/2026-11-22-sockets-scale.json, `iter_ms`).
const LOOKED_AT_ONCE: u32 = 2_000;
const LOOK: Duration = Duration::from_micros(2_500);
pub(super) const TOPIC: &str = "weirgate.cost";
/// Partitions of the topic: what is written at once is divided among them.
pub(super) const PARTITIONS: u32 = 8;

/// What was found.
pub(super) struct Cost {
    pub(super) core_pct: f64,
    pub(super) added_mb: f64,
    pub(super) encode_us: f64,
    pub(super) wire_bytes: f64,
    /// Bytes of keys and payloads for each record, before compression.
    pub(super) plain_bytes: f64,
    pub(super) fields: usize,
    pub(super) records: u64,
    /// Processor time with it and without it, in seconds.
    pub(super) with_s: f64,
    pub(super) without_s: f64,
    /// The oldest that a record was when its batch was handed over.
    pub(super) oldest_s: f64,
}

/// A topic that nobody sends to.
pub(super) const NOTHING: &str = "weirgate.none";

pub(super) fn origin() -> Origin {
    let boot_id = "4b6f8a1e-3f0c-4c57-9d43-0d6b0a7f5f21".to_owned();
    Origin { host: "edge-17.ams.example".into(), pop: "ams".into(), boot_id }
}

/// Exports `polls` looks at all sockets.
pub(super) fn cost(ground: &Ground, generator: &mut Generator, polls: u32) -> Result<Cost> {
    ground.start("kafka", "KAFKA")?;
    ground.topic(&address(ground, "KAFKA")?, TOPIC, PARTITIONS)?;
    let records: Vec<Recorded> = (0..SOCKETS).map(|n| generator.draw(n)).collect();
    let networks = ClientNetworks::default();

    let before = clock::process_cpu();
    for poll in 0..polls {
        each(&records, &networks, poll, clock::unix(), &mut |record| {
            black_box(record);
        });
    }
    let without = clock::process_cpu().saturating_sub(before);
    let encode_us = encode(&records, &networks);

    let rss = memory_mb(std::process::id(), "RssAnon")?;
    let (before, start) = (clock::process_cpu(), Instant::now());
    let mut exporter = Exporter::open(&origin(), options(ground, TOPIC)?)?;
    let (mut peak, mut oldest) = (rss, Duration::ZERO);
    for poll in 0..polls {
        let appended = Instant::now();
        let mut handed = 0u32;
        each(&records, &networks, poll, clock::unix(), &mut |record| {
            exporter.append(record);
            handed += 1;
            if handed.is_multiple_of(LOOKED_AT_ONCE) {
                std::thread::sleep(LOOK);
            }
        });
        let mut waits = true;
        while start.elapsed() < EVERY * (poll + 1) {
            // As the daemon's loop does; and its memory is looked at as often.
            std::thread::sleep(Duration::from_millis(250));
            exporter.handle_tick(clock::unix());
            peak = peak.max(memory_mb(std::process::id(), "RssAnon")?);
            if waits && exporter.status().acknowledged >= u64::from(SOCKETS) * u64::from(poll + 1) {
                (waits, oldest) = (false, oldest.max(appended.elapsed()));
            }
        }
    }
    let took = start.elapsed();
    let all = u64::from(SOCKETS) * u64::from(polls);
    exporter.handle_tick(clock::unix());
    until("all records are acknowledged", || Ok(exporter.status().acknowledged == all))?;
    let with = clock::process_cpu().saturating_sub(before);
    let status: Status = exporter.close();
    ensure!(status.acknowledged == all && status.lost == 0, "the exporter lost records: {status:?}");
    let seconds = |d: weirgate_units::Duration| d.as_secs_f64();
    Ok(Cost {
        core_pct: (seconds(with) - seconds(without)) / took.as_secs_f64() * 100.0,
        added_mb: peak - rss,
        encode_us,
        wire_bytes: ground.log_bytes(TOPIC)? as f64 / all as f64,
        plain_bytes: status.bytes as f64 / all as f64,
        fields: fields(&records[0], &networks)?,
        records: all,
        with_s: seconds(with),
        without_s: seconds(without),
        oldest_s: oldest.as_secs_f64(),
    })
}

/// Sends tallies of the round that ended at `end`, all of them.
pub(super) fn send_tallies(origin: &Origin, options: Options, tallies: &[Tally], end: UnixTime) -> Result<()> {
    let mut exporter = Exporter::open(origin, options)?;
    tallies.iter().for_each(|tally| exporter.append_tally(tally, end, clock::unix()));
    until("all tallies are acknowledged", || {
        exporter.handle_tick(clock::unix());
        Ok(exporter.status().acknowledged == tallies.len() as u64)
    })?;
    let status = exporter.close();
    ensure!(status.lost == 0 && status.waiting == 0, "tallies were lost: {status:?}");
    Ok(())
}

/// Where a service listens, by its name.
pub(super) fn address(ground: &Ground, key: &str) -> Result<String> {
    let env = std::fs::read_to_string(ground.path("servers/env"))?;
    let value = env.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix('='));
    Ok(value.with_context(|| format!("no {key} runs"))?.to_owned())
}

/// To a topic, by TLS, SCRAM and zstd.
pub(super) fn options(ground: &Ground, topic: &str) -> Result<Options> {
    let password = std::fs::read_to_string(ground.path("servers/password"))?.trim().to_owned();
    let sasl = Some(Sasl { mechanism: "SCRAM-SHA-512", user: "weirgate".into(), password });
    Ok(Options {
        brokers: vec![address(ground, "KAFKA_TLS")?],
        topic: topic.to_owned(),
        form: Form::Delimited,
        all_fields: false,
        compression: Compression::Zstd,
        security: Security { tls: true, ca: Some(ground.path("servers/ca.pem")), certificate: None, sasl },
        spool: ground.path("spool").join(topic),
        spool_max: Bytes::new(1_000_000_000),
        interval: weirgate_units::Duration::from_millis(3_500),
        anonymise: Anonymise::Off,
    })
}

/// One look at all connections.
fn each(
    records: &[Recorded],
    networks: &ClientNetworks,
    poll: u32,
    time: UnixTime,
    handle: &mut dyn FnMut(&Record<'_>),
) {
    for recorded in records {
        handle(&record(recorded, networks, poll, time));
    }
}

fn record<'a>(recorded: &'a Recorded, networks: &ClientNetworks, poll: u32, time: UnixTime) -> Record<'a> {
    let sample = &recorded.sample;
    Record {
        sample,
        time,
        sequence: recorded.sequence + poll,
        direction: Direction::Accepted,
        listener_port: sample.local_port,
        network: networks.of(sample.remote().ip()),
        asn: 0,
        delivery_rate_max: recorded.delivery_rate_max,
        country: [0; 2],
    }
}

/// Processor time of this thread for a record, in microseconds: the median of eleven.
fn encode(records: &[Recorded], networks: &ClientNetworks) -> f64 {
    let mut encoder = ProtobufEncoder::new(&origin(), Anonymise::Off, true);
    let ready: Vec<Record<'_>> = records.iter().map(|r| record(r, networks, 0, clock::unix())).collect();
    let mut out = Vec::with_capacity(SOCKETS as usize * 400);
    let times = (0..11).map(|_| {
        out.clear();
        let start = clock::thread_cpu();
        for record in &ready {
            encoder.push(record, 1, &mut out);
        }
        clock::thread_cpu().saturating_sub(start).as_secs_f64() * 1e6 / f64::from(SOCKETS)
    });
    crate::stats::median(times.collect::<Vec<_>>())
}

/// Fields of a message, counted on the wire.
fn fields(recorded: &Recorded, networks: &ClientNetworks) -> Result<usize> {
    let mut out = Vec::new();
    ProtobufEncoder::new(&origin(), Anonymise::Off, true).push(
        &record(recorded, networks, 0, clock::unix()),
        1,
        &mut out,
    );
    let mut rest = out.as_slice();
    let varint = |rest: &mut &[u8]| -> Result<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (byte, after) = rest.split_first().ok_or_else(|| anyhow::anyhow!("a message ends too early"))?;
            *rest = after;
            number |= u64::from(byte & 0x7f) << shift;
            if *byte < 0x80 {
                break;
            }
        }
        Ok(number)
    };
    ensure!(varint(&mut rest)? as usize == rest.len(), "the length that a message begins with is another");
    let mut fields = 0;
    while !rest.is_empty() {
        let key = varint(&mut rest)?;
        let value = varint(&mut rest)?;
        match key & 7 {
            0 => {}
            2 => rest = rest.get(value as usize..).unwrap_or_default(),
            other => anyhow::bail!("a field of wire type {other}"),
        }
        fields += 1;
    }
    Ok(fields)
}
