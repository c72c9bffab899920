//! `weirgate limit`: the running daemon's rate limits.

use std::time::Instant;

use clap::{Args, Subcommand};
use serde_json::{Value, json};
use weirgate_units::{BitRate, Duration};

use super::output::Output;
use super::{Common, Failure, ask};
use crate::config::unknown;
use crate::control::Request;
use crate::watch::text;

#[derive(Debug, Args)]
pub(super) struct Limit {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, Subcommand)]
enum What {
    /// All limits: rate, what passed, what waits, what was dropped
    List {
        /// What passes from now on for so long, as "5 s", and how long that waits, in place of all since the daemon began
        #[arg(long, value_name = "TIME", conflicts_with = "json")]
        over: Option<Duration>,
        #[command(flatten)]
        plain: Plain,
    },
    /// One limit: everything counted, and how long packets waited
    Show {
        /// Its name in the configuration
        name: String,
        #[command(flatten)]
        plain: Plain,
    },
    /// Change a limit's rate while it runs, until the daemon ends; nothing is lost
    Set {
        /// Its name in the configuration
        name: String,
        /// The new rate, as "200 Mbit/s"
        #[arg(allow_hyphen_values = true)]
        rate: BitRate,
        #[command(flatten)]
        plain: Plain,
    },
}

#[derive(Debug, Args)]
struct Plain {
    #[command(flatten)]
    common: Common,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

impl Limit {
    pub(super) fn run(self, out: &mut Output) -> Result<(), Failure> {
        match self.what {
            What::List { over, plain } => {
                let config = plain.common.load()?;
                let mut answer = ask(&config, &Request::LimitList)?;
                if plain.json {
                    return Ok(out.json(&answer)?);
                }
                if let Some(over) = over {
                    let (before, began) = (answer, Instant::now());
                    std::thread::sleep(std::time::Duration::from_nanos(over.as_nanos()));
                    answer = ask(&config, &Request::LimitList)?;
                    let seconds = began.elapsed().as_secs_f64();
                    let limits = answer["limits"].as_array_mut().map_or(&mut [][..], Vec::as_mut_slice);
                    limits.iter_mut().for_each(|limit| subtract(limit, &before, seconds));
                }
                let limits = answer["limits"].as_array().map_or(&[][..], Vec::as_slice);
                if limits.is_empty() {
                    out.line("no limits: write [[port]], [[limit]] and [[class]] into the configuration")?;
                    return ports(&answer, out);
                }
                table(limits, out)?;
                ports(&answer, out)
            }
            What::Show { name, plain } => {
                let answer = ask(&plain.common.load()?, &Request::LimitList)?;
                let limit = named(&answer, &name)?;
                if plain.json { Ok(out.json(limit)?) } else { show(limit, out) }
            }
            What::Set { name, rate, plain } => {
                let config = plain.common.load()?;
                named(&ask(&config, &Request::LimitList)?, &name)?;
                let answer = ask(&config, &Request::LimitSet { name, rate: rate.to_string() })?;
                if plain.json { Ok(out.json(&answer)?) } else { table(&[answer], out) }
            }
        }
    }
}

/// The limit called `name` of what the daemon listed.
fn named<'a>(answer: &'a Value, name: &str) -> Result<&'a Value, Failure> {
    let limits = answer["limits"].as_array().map_or(&[][..], Vec::as_slice);
    limits.iter().find(|limit| limit["name"] == name).ok_or_else(|| {
        let known: Vec<&str> = limits.iter().filter_map(|limit| limit["name"].as_str()).collect();
        Failure::Usage(anyhow::anyhow!(unknown("limit", name, &known)))
    })
}

/// Leaves of a limit's counters what they grew by since the daemon had listed `before`, so many seconds ago.
fn subtract(limit: &mut Value, before: &Value, seconds: f64) {
    let nothing = Value::Null;
    let earlier = before["limits"].as_array().and_then(|all| all.iter().find(|other| other["name"] == limit["name"]));
    let earlier = earlier.unwrap_or(&nothing);
    for key in ["passed_bytes", "marked", "dropped_rate", "dropped_room", "dropped_codel"] {
        limit[key] = number(limit, key).saturating_sub(number(earlier, key)).into();
    }
    let slots = |of: &Value| of["delays"].as_array().cloned().unwrap_or_default();
    let packets = |slots: &[Value], bound: &Value| {
        slots.iter().find(|slot| slot["below_us"] == *bound).map_or(0, |slot| number(slot, "packets"))
    };
    let had = slots(earlier);
    let grown = slots(limit).into_iter().map(|slot| {
        let bound = slot["below_us"].clone();
        (number(&slot, "packets").saturating_sub(packets(&had, &bound)), bound)
    });
    let grown: Vec<(u64, Value)> = grown.collect();
    let all: u64 = grown.iter().map(|(packets, _)| packets).sum();
    let mut so_far = 0;
    let mut reaches = |packets: &u64| {
        so_far += packets;
        all > 0 && so_far * 100 >= all * 99
    };
    let p99 = grown.iter().find(|(packets, _)| reaches(packets)).map_or(Value::Null, |(_, bound)| bound.clone());
    limit["delay_p99_us"] = p99;
    limit["passed_bits_per_s"] = json!(number(limit, "passed_bytes") as f64 * 8.0 / seconds.max(1e-9));
}

fn number(limit: &Value, key: &str) -> u64 {
    limit[key].as_u64().unwrap_or(0)
}

fn rate(limit: &Value) -> String {
    BitRate::from_bits_per_sec(number(limit, "rate_bits_per_s")).to_string()
}

/// A bound, as people say times: to three digits, and not less than it is.
fn wait(us: &Value) -> String {
    let Some(us) = us.as_u64() else { return "-".to_owned() };
    let (unit, name) = match us {
        0..1_000 => return format!("{us} us"),
        1_000..1_000_000 => (1_000, "ms"),
        _ => (1_000_000, "s"),
    };
    let digits = match us / unit {
        0..10 => 2,
        10..100 => 1,
        _ => 0,
    };
    let rounded = (us * 10_u64.pow(digits)).div_ceil(unit) as f64 / f64::from(10_u32.pow(digits));
    format!("{rounded:.0$} {name}", digits as usize)
}

fn dropped(limit: &Value) -> u64 {
    ["dropped_rate", "dropped_room", "dropped_codel"].iter().map(|key| number(limit, key)).sum()
}

fn table(limits: &[Value], out: &mut Output) -> Result<(), Failure> {
    out.line(&format!(
        "{:<20} {:>6} {:>12} {:>14} {:>10} {:>9} {:>9}",
        "limit", "mode", "rate", "passed", "p99 wait", "dropped", "marked"
    ))?;
    for limit in limits {
        out.line(&line(limit))?;
    }
    Ok(())
}

fn line(limit: &Value) -> String {
    let passed = match limit["passed_bits_per_s"].as_f64() {
        Some(rate) => text::rate(Some(rate as u64)),
        None => text::size(number(limit, "passed_bytes")),
    };
    format!(
        "{:<20} {:>6} {:>12} {:>14} {:>10} {:>9} {:>9}",
        limit["name"].as_str().unwrap_or("?"),
        limit["mode"].as_str().unwrap_or("?"),
        rate(limit),
        passed,
        wait(&limit["delay_p99_us"]),
        dropped(limit),
        number(limit, "marked"),
    )
}

fn ports(answer: &Value, out: &mut Output) -> Result<(), Failure> {
    let ports = answer["ports"].as_array().map_or(&[][..], Vec::as_slice);
    if ports.is_empty() {
        return Ok(());
    }
    out.line(&format!("\n{:<20} {:>19} {:>13} {:>13} {:>9}", "port", "kind", "received", "sent", "dropped"))?;
    for port in ports {
        let dropped: u64 = ["lost", "malformed", "refused", "unsent"].iter().map(|key| number(port, key)).sum();
        let word = |key: &str| port[key].as_str().unwrap_or("?");
        let (received, sent) = (number(port, "received"), number(port, "sent"));
        out.line(&format!("{:<20} {:>19} {received:>13} {sent:>13} {dropped:>9}", word("name"), word("kind")))?;
        if let Some(why) = port["failed"].as_str() {
            out.line(&format!("  {}: {why}", word("name")))?;
        }
    }
    Ok(())
}

fn show(limit: &Value, out: &mut Output) -> Result<(), Failure> {
    let n = |key: &str| number(limit, key);
    out.line(&format!("limit      {}", limit["name"].as_str().unwrap_or("?")))?;
    out.line(&format!(
        "rate       {} of {}, by `{}`",
        rate(limit),
        limit["layer"].as_str().unwrap_or("?"),
        limit["mode"].as_str().unwrap_or("?")
    ))?;
    let more = match n("overhead") {
        0 => String::new(),
        bytes => format!("; {bytes} bytes more are counted for each packet"),
    };
    out.line(&format!("burst      {} bytes{more}", n("burst_bytes")))?;
    out.line(&format!("passed     {} packets, {} bytes", n("passed_packets"), n("passed_bytes")))?;
    out.line(&format!("delayed    {} packets of these", n("delayed")))?;
    out.line(&format!("waiting    {} packets; throttled for {:.1} s", n("waiting"), n("throttled_ms") as f64 / 1e3))?;
    out.line(&format!(
        "missed     {} bytes, while the machine was away for longer than the burst lasts",
        n("missed_bytes")
    ))?;
    out.line(&format!("marked     {} packets (ECN)", n("marked")))?;
    out.line(&format!(
        "dropped    {} too early, {} for want of room, {} queued too long (CoDel)",
        n("dropped_rate"),
        n("dropped_room"),
        n("dropped_codel")
    ))?;
    let waits = limit["delays"].as_array().map_or(&[][..], Vec::as_slice);
    let most = waits.iter().map(|slot| number(slot, "packets")).max().unwrap_or(0);
    if most > 0 {
        out.line("waited     packets")?;
    }
    for slot in waits.iter().filter(|slot| number(slot, "packets") > 0) {
        let packets = number(slot, "packets");
        let below = slot["below_us"].as_u64().map_or("longer".to_owned(), |_| format!("< {}", wait(&slot["below_us"])));
        let bar = "#".repeat((packets * 40).div_ceil(most) as usize);
        out.line(&format!("  {below:<9}{packets:>9} {bar}"))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_passed_meanwhile_is_told_from_what_had_before() {
        let listed = |bytes: u64, codel: u64, slots: [u64; 3]| {
            let delays: Vec<Value> = [Some(1_024), Some(2_048), None]
                .iter()
                .zip(slots)
                .map(|(bound, packets)| json!({ "below_us": bound, "packets": packets }))
                .collect();
            json!({ "name": "a", "mode": "pace", "rate_bits_per_s": 8_000_000, "passed_bytes": bytes, "dropped_rate": 0,
                    "dropped_room": 0, "dropped_codel": codel, "marked": 0, "delay_p99_us": 2_048, "delays": delays })
        };
        let before = json!({ "limits": [listed(1_000_000, 5, [10, 500, 0])] });
        let after = |bytes, codel, slots| {
            let mut limit = listed(bytes, codel, slots);
            subtract(&mut limit, &before, 2.0);
            line(&limit).split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(after(2_000_000, 7, [109, 501, 0]), "a pace 8 Mbit/s 4.00 Mbit/s 1.03 ms 2 0");
        assert_eq!(after(1_000_000, 5, [10, 500, 0]), "a pace 8 Mbit/s 0 bit/s - 0 0", "nothing");
        assert_eq!(after(1_000_000, 5, [10, 500, 9]), "a pace 8 Mbit/s 0 bit/s - 0 0", "longer than any bound");
        subtract(&mut listed(1, 0, [0; 3]), &Value::Null, 1.0);
    }

    #[test]
    fn a_bound_is_rounded_up() {
        let said = [1, 512, 1_024, 16_384, 32_768, 131_072, 1_048_576, 33_554_432].map(|us: u64| wait(&us.into()));
        assert_eq!(said, ["1 us", "512 us", "1.03 ms", "16.4 ms", "32.8 ms", "132 ms", "1.05 s", "33.6 s"]);
        assert_eq!((wait(&2_000_000.into()), wait(&Value::Null)), ("2.00 s".to_owned(), "-".to_owned()));
    }
}
