//! Flows from a file.

use weirgate_fabric::{Span, Start, Time, shown};

use super::{Around, problem};
use crate::config::read::{Problem, Section, read_text};

/// Reads the file of a trace: lines `microseconds,source,destination,bytes`; those that are empty or begin with `#` are skipped.
pub(super) fn read(
    section: &mut Section<'_>,
    around: Around<'_>,
    problems: &mut Vec<Problem>,
) -> Option<Vec<(Time, Start)>> {
    let Some(file) = section.parsed::<String>("file") else {
        let what = "a trace is in a file of its own: write file = \"trace.csv\"";
        problems.push(problem(0, "workload.file", what));
        return None;
    };
    let text = read_text(&around.folder.join(&file.value)).map_err(|error| error.to_string());
    let starts = text.and_then(|text| parse(&text, around.hosts));
    starts.map_err(|error| problems.push(file.problem(format!("{}: {error}", file.value)))).ok()
}

fn parse(text: &str, hosts: Option<u64>) -> Result<Vec<(Time, Start)>, String> {
    let lines = text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty() && !line.starts_with('#'));
    let flow = |(at, line): (usize, &str)| {
        let wrong = |what: String| format!("line {}: `{}` {what}", at + 1, shown(line));
        let what = "is not `microseconds,source,destination,bytes`, of two hosts and at least 1 byte";
        let (time, start) = flow(line).ok_or_else(|| wrong(what.to_owned()))?;
        let last = start.source.max(start.destination);
        match hosts {
            Some(hosts) if u64::from(last) >= hosts => {
                Err(wrong(format!("is of host {last}: there are {hosts}, numbered from 0")))
            }
            _ => Ok((time, start)),
        }
    };
    let starts = lines.map(flow).collect::<Result<Vec<_>, _>>()?;
    if starts.is_empty() {
        return Err("there is no flow in it: each is a line `microseconds,source,destination,bytes`".to_owned());
    }
    Ok(starts)
}

fn flow(line: &str) -> Option<(Time, Start)> {
    let parts: Vec<&str> = line.split(',').map(str::trim).collect();
    let [at, source, destination, bytes] = parts[..] else { return None };
    let micros: f64 = at.parse().ok().filter(|micros: &f64| (0.0..1e12).contains(micros))?;
    let (source, destination) = (source.parse().ok()?, destination.parse().ok()?);
    let bytes = bytes.parse().ok().filter(|bytes| *bytes > 0)?;
    let at = Time::ZERO + Span::from_secs_f64(micros / 1e6);
    (source != destination).then_some((at, Start { source, destination, bytes, class: 0 }))
}
