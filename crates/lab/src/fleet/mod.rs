//! The experiment `fleet`: what records of a fleet cost on their way to a decision, and what is lost when anything on it fails.

mod controller;
mod edges;
mod exporter;
mod faults;
mod generator;
mod ground;
mod intake;
mod round;
mod traffic;

use anyhow::{Result, anyhow};
use serde_json::json;

use self::exporter::Cost;
use self::generator::Generator;
use self::ground::Ground;
use self::intake::Intake;
use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::report::{Report, Table, number};

/// How much of everything.
struct Size {
    /// Clients of each of ten networks, and seconds for which they are recorded.
    recorded: (u8, u64),
    /// Looks at all sockets.
    polls: u32,
    round: round::Size,
    faults: faults::Size,
}

impl Size {
    const fn of(form: Form) -> Self {
        match form {
            Form::Full => Self {
                recorded: (16, 40),
                polls: 9,
                round: round::Size { pops: 200, networks: 5_000, history: 36 },
                faults: faults::Size { per_s: 200, away_s: 60, spread_s: 15, delays: 5 },
            },
            // The same load of the exporter and the same points of presence, of which there are fewer.
            Form::Quick | Form::Demo => Self {
                recorded: (10, 8),
                polls: 1,
                round: round::Size { pops: 10, networks: 5_000, history: 28 },
                faults: faults::Size { per_s: 100, away_s: 5, spread_s: 3, delays: 2 },
            },
        }
    }
}

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let size = Size::of(options.form);
    let report = Report::begin(options, "fleet", "A fleet's records, from the socket to the decision");
    let dir = options.dir("fleet")?.join("ground");
    options.say("recording connections over emulated links");
    let recorded = traffic::record(options.seed, size.recorded.0, size.recorded.1)?;
    let samples = recorded.len();
    let mut generator = Generator::new(recorded, exporter::NETWORKS, options.seed);
    let entropy = generator.table();
    let ground = Ground::open(&dir, &options.weirgate)?;
    options.say(format!("exporting {} records from {samples} recorded ones", exporter::SOCKETS * size.polls));
    let cost = exporter::cost(&ground, &mut generator, size.polls)?;
    options.say(format!("exporter: {:.2} % of a core, {:.1} B a record", cost.core_pct, cost.wire_bytes));
    let intake = intake::intake(&ground, cost.records, options.seed)?;
    options.say(format!("the engine takes {:.0} records a second in", intake.records_per_s));
    let say = |what: String| options.say(what);
    let sent = edges::send(&ground, size.round)?;
    say(format!("{} edges have sent {} tallies in {:.0} s", size.round.pops, sent.tallies, sent.took.as_secs_f64()));
    let rounds = || {
        say(format!("filling {} rounds of {} networks", size.round.history, size.round.pops * size.round.networks));
        round::run(&ground, size.round, sent, &say)
    };
    let ((faults, delay), round) = match options.form {
        Form::Full => (faults::run(&ground, &size.faults, &say)?, rounds()?),
        // Most of the faults is waiting.
        Form::Quick | Form::Demo => std::thread::scope(|scope| -> Result<_> {
            let rounds = scope.spawn(rounds);
            let faults = faults::run(&ground, &size.faults, &say);
            let rounds = rounds.join().map_err(|_| anyhow!("the thread of the rounds ended by a fault of its own"))?;
            Ok((faults?, rounds?))
        })?,
    };

    let networks = size.round.pops * size.round.networks;
    let mut expectations = Expectations::of("fleet")?;
    expectations.measured("exporter_core_pct", cost.core_pct)?;
    expectations.measured("wire_bytes_per_record", cost.wire_bytes)?.explanation =
        Some(format!("{:.0} B before compression, keys included", cost.plain_bytes));
    expectations.measured("acknowledged_lost", faults.acknowledged_lost as f64)?;
    // The short form has fewer, and says nothing of a million.
    if networks >= 1_000_000 {
        expectations.measured("million_network_round_s", round.round_s)?.explanation = Some(format!(
            "the median of three; {networks} networks of {} points of presence, {} rows, {} votes",
            size.round.pops, round.rows, round.votes
        ));
    } else {
        expectations.not_measured("million_network_round_s");
    }
    expectations.measured("exporter_rss_mb", cost.added_mb)?;
    expectations.measured("encode_us_per_record", cost.encode_us)?;
    expectations.measured("controller_rss_mb", round.controller_mb)?;
    expectations.measured("fields_per_record", cost.fields as f64)?;
    expectations.measured("batch_age_s", cost.oldest_s)?.explanation =
        Some("until the last record of a look at all sockets was acknowledged".into());
    expectations.measured("faults_unnoticed", faults.unnoticed as f64)?;
    expectations.measured("unverified_or_stale_policies_applied", faults.misapplied as f64)?;

    let apart = Generator::apart(&entropy);
    let tables = vec![
        faults.table,
        delay.table(),
        exporter_table(&cost),
        intake_table(&intake),
        round_table(&round, networks),
        entropy,
    ];
    let settings = json!({
        "form": options.form.name(),
        "sockets": exporter::SOCKETS,
        "poll_s": exporter::EVERY.as_secs(),
        "client_networks": exporter::NETWORKS,
        "partitions": exporter::PARTITIONS,
        "pops": size.round.pops,
        "networks_per_pop": size.round.networks,
        "rounds_before": size.round.history,
        "votes_per_network": round::VOTES,
        "recorded_samples": samples,
        "closes_per_s": size.faults.per_s,
        "clickhouse_away_s": size.faults.away_s,
    });
    let mut report = report.finish(method(&size, samples), settings, expectations, tables)?;
    report.add_numbers([
        ("entropy_apart_bits", json!(apart)),
        ("exporter_rss_mb", json!(cost.added_mb)),
        ("plain_bytes_per_record", json!(cost.plain_bytes)),
        ("controller_cpu_s", json!(round.controller_cpu_s)),
        ("database_peak_mb", json!(round.engine_mb)),
        ("database_before_mb", json!(round.engine_before_mb)),
        ("records_taken_in_per_s", json!(intake.records_per_s)),
        ("tallies_taken_in_per_s", json!(round.taken_in_per_s)),
        ("stored_bytes_per_record", json!(intake.stored_bytes_per_record)),
        ("wire_bytes_per_tally", json!(intake.wire_bytes_per_tally)),
        ("stored_bytes_per_tally", json!(intake.stored_bytes_per_tally)),
        ("tallies_bytes_per_row", json!(round.stored_bytes as f64 / round.stored_rows as f64)),
        ("rounds_s", json!(round.rounds_s)),
        ("end_to_end_s", json!(delay.sum())),
    ]);
    Ok(report)
}

fn method(size: &Size, samples: usize) -> String {
    format!(
        "Records are drawn from {samples} that were recorded of active connections over ten emulated links (3 to 100 Mbit/s, 8 to 180 ms, \
         losses up to 2 %), so that the entropy of each column is theirs; addresses, ports and cookies are of 100,000 clients in 5,000 \
         networks. The exporter's cost is the processor time of a process that makes 100,000 of them every ten seconds and exports \
         them, less that of the same process without the exporter, to Kafka on this host by TLS, SCRAM and zstd, idempotent, acks=all, \
         into {} partitions; bytes are those of the broker's log files. Kafka has one broker, so acks=all is one acknowledgement. \
         The round's history, {} rounds of {} networks in each of {} points of presence, is made inside ClickHouse's server of 25.8 by SQL and \
         decided by `weirgate controller run`. The last round's tallies are summed up from connections by as many edges, one a point of presence, each \
         of which sends them by an exporter of its own to Kafka, where that server reads them; that round is then decided three times from the same \
         memory, from the controller's first query to its last signed snapshot. In the matrix of faults connections are real, in a namespace of their own, the daemon, the broker and both \
         ClickHouses are real processes, and killed means SIGKILL. ClickHouse's server of 25.8 reads Kafka itself; Debian's 18.16 \
         cannot read these messages, and is fed by HTTP with what the other one's second group has read. What is in Kafka's log is known \
         from a third group, after the last fault, and what was to be sent from the edge's own store. Clocks that are ahead are so by faketime's library. Two controllers share a lease in the server of 25.8 and answer an edge of their own by \
         HTTPS; the other edge's snapshots are files. What one table takes in is timed from its making, with its way into the group and its waits for full blocks, to the last of all that the \
         exporter sent, in another server of 25.8; tallies are those of one edge in a minute, of synthetic connections. Not measured: several brokers, several ClickHouses, \
         a network between the machines.",
        exporter::PARTITIONS,
        size.round.history,
        size.round.networks,
        size.round.pops,
    )
}

/// A number beside each of its names.
fn numbers(caption: &str, columns: [&str; 2], rows: &[(&str, f64)]) -> Table {
    let mut table = Table::new(caption, &columns);
    table.rows.extend(rows.iter().map(|(name, value)| vec![(*name).to_owned(), number(*value)]));
    table
}

fn exporter_table(cost: &Cost) -> Table {
    numbers(
        "The exporter at 100,000 sockets in 10 s",
        ["", "measured"],
        &[
            ("processor time with the exporter, s", cost.with_s),
            ("without it, s", cost.without_s),
            ("of one core, %", cost.core_pct),
            ("memory added, MB", cost.added_mb),
            ("encoding, us per record", cost.encode_us),
            ("records", cost.records as f64),
            ("fields per record", cost.fields as f64),
            ("bytes per record before compression, keys included", cost.plain_bytes),
            ("bytes per record in the broker's log", cost.wire_bytes),
            ("until a look was acknowledged, s", cost.oldest_s),
        ],
    )
}

fn intake_table(found: &Intake) -> Table {
    numbers(
        "From the broker into ClickHouse's current engine",
        ["", "measured"],
        &[
            ("records that one table takes in, 1/s", found.records_per_s),
            ("bytes stored for a record", found.stored_bytes_per_record),
            ("tallies of an edge in a minute", found.tallies as f64),
            ("votes in a tally", found.votes),
            ("bytes per tally in the broker's log", found.wire_bytes_per_tally),
            ("bytes stored for a tally", found.stored_bytes_per_tally),
        ],
    )
}

fn round_table(found: &round::Found, networks: u32) -> Table {
    numbers(
        "A round of all points of presence",
        ["", "measured"],
        &[
            ("client networks", f64::from(networks)),
            ("all edges' tallies that one table takes in from Kafka, 1/s", found.taken_in_per_s),
            ("rows read", found.rows as f64),
            ("votes", found.votes as f64),
            ("selected networks", found.selected as f64),
            ("first query to last snapshot, s (median of three)", found.round_s),
            ("controller's processor time, s", found.controller_cpu_s),
            ("controller's peak memory, MB", found.controller_mb),
            ("database's memory before, MB", found.engine_before_mb),
            ("database's peak memory, MB", found.engine_mb),
            ("rows stored", found.stored_rows as f64),
            ("bytes stored for a row", found.stored_bytes as f64 / found.stored_rows as f64),
            ("controller's memory on the disk, MB", found.state_bytes as f64 / 1e6),
            ("snapshots of all points of presence, MB", found.snapshot_bytes as f64 / 1e6),
            ("making the rounds in the engine, s", found.fill_s),
            ("deciding the history, s", found.history_s),
        ],
    )
}
