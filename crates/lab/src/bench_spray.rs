//! The benchmark `bench-spray`: sealing datagrams that name their own places, by one thread and by two, beside an ordered stream of the
//! same cipher, whose records have to be sealed, or at least to be written, one after the other.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;
use weirgate_spray::Secret;
use weirgate_spray::crypto::{self, Initiator, Sealer};
use weirgate_spray::wire::{ConnectionId, HEADER_LEN, Header, PathId, TAG_LEN};

use crate::expectation::Expectations;
use crate::experiment::{Form, Options};
use crate::report::{Report, Table, number};
use crate::stats::median;

/// Bytes of a datagram, and of a long record.
const SIZES: [usize; 2] = [1_400, 16_384];

/// Datagrams that a thread takes on at a time.
const BATCH: u64 = 64;

/// The stream's bytes that are kept until somebody would send them.
const OUT_MAX: usize = 1 << 20;

/// Who seals what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arm {
    /// Any thread any datagram.
    Datagrams,
    /// Under a lock, one record after the other.
    Locked,
    /// Any thread any record, and then they are put in order.
    Ordered,
}

const ARMS: [(Arm, &str); 3] = [
    (Arm::Datagrams, "datagrams, each by itself"),
    (Arm::Locked, "a stream: sealed one after the other"),
    (Arm::Ordered, "a stream: sealed in parallel, put in order"),
];

/// Runs it.
pub(crate) fn run(options: &Options) -> Result<Report> {
    let report = Report::begin(options, "bench-spray", "Sealing by one thread and by two");
    let full = options.form == Form::Full;
    let (repeats, bytes) = if full { (9, 1 << 30) } else { (5, 1 << 27) };
    let sealer = sealer()?;
    let mut expectations = Expectations::of("bench-spray")?;
    let mut table = Table::new(
        "Sealed, Gbit/s (AES-256-GCM)",
        &["what", "bytes each", "one thread", "two threads", "two over one"],
    );
    for size in SIZES {
        options.say(format!("{size} bytes"));
        let count = (bytes / size) as u64;
        let mut rates = vec![[Vec::new(), Vec::new()]; ARMS.len()];
        for _ in 0..repeats {
            for ((arm, _), rates) in ARMS.iter().zip(&mut rates) {
                for (threads, rates) in (1..).zip(rates) {
                    let began = Instant::now();
                    seal(*arm, &sealer, threads, size, count);
                    rates.push((count * size as u64) as f64 * 8.0 / 1e9 / began.elapsed().as_secs_f64());
                }
            }
        }
        for ((arm, name), [one, two]) in ARMS.iter().zip(rates) {
            let ratio = median(one.iter().zip(&two).map(|(one, two)| two / one));
            if (*arm, size) == (Arm::Datagrams, SIZES[0]) {
                expectations.measured("datagrams_2_threads", ratio)?;
            }
            let cells = [median(one), median(two), ratio];
            table.rows.push([(*name).to_owned(), size.to_string()].into_iter().chain(cells.map(number)).collect());
        }
    }
    report.finish(
        format!(
            "Median of {repeats} interleaved runs of {} MB each. A datagram's nonce is its path and packet number, so that no thread waits \
             for another; A stream has one sequence of records: either they are sealed under \
             its lock, or by whichever thread, and wait until those before them were written. All arms take {BATCH} at a time, and copy them \
             to where they would be sent from. The program itself seals on one thread: this is what the format allows.",
            bytes >> 20
        ),
        json!({ "repeats": repeats, "bytes": bytes, "sizes": SIZES }),
        expectations,
        vec![table],
    )
}

const ID: ConnectionId = ConnectionId(7);

fn sealer() -> Result<Sealer> {
    let (near, far) = (Secret::generate(), Secret::generate());
    let (mut initiator, message) = Initiator::begin(ID, &near, &far.public(), b"")?;
    let called = crypto::answer(ID, &far, &message, b"", |_| true)?;
    Ok(initiator.finish(&called.answer)?.1.sealer)
}

fn seal(arm: Arm, sealer: &Sealer, threads: usize, size: usize, count: u64) {
    let next = AtomicU64::new(0);
    let stream = Mutex::new(Stream::default());
    thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| match arm {
                Arm::Datagrams => datagrams(sealer, &next, size, count),
                Arm::Locked => locked(sealer, &stream, size, count),
                Arm::Ordered => ordered(sealer, &next, &stream, size, count),
            });
        }
    });
}

/// A datagram of `size` bytes, in `out`.
fn one(sealer: &Sealer, number: u64, size: usize, out: &mut Vec<u8>) {
    out.clear();
    let header = Header { phase: false, connection: ID, path: PathId(0), number };
    header.put(out);
    out.resize(HEADER_LEN + size, 0x5a);
    sealer.seal_one(&header, out);
}

/// So many datagrams from a number on, behind each other in `out`, as they are sent in one call.
fn batch(sealer: &Sealer, first: u64, count: u64, size: usize, out: &mut Vec<u8>) {
    let mut record = Vec::new();
    for number in first..count.min(first + BATCH) {
        one(sealer, number, size, &mut record);
        out.extend_from_slice(&record);
    }
}

fn datagrams(sealer: &Sealer, next: &AtomicU64, size: usize, count: u64) {
    let mut out = Vec::new();
    loop {
        let first = next.fetch_add(BATCH, Ordering::Relaxed);
        if first >= count {
            return;
        }
        out.clear();
        batch(sealer, first, count, size, &mut out);
        black_box(&out);
    }
}

/// What is sent in order.
#[derive(Debug, Default)]
struct Stream {
    next: u64,
    out: Vec<u8>,
    /// Batches that came before their turn.
    early: BTreeMap<u64, Vec<u8>>,
}

impl Stream {
    /// Somebody would send it.
    fn flush(&mut self) {
        if self.out.len() >= OUT_MAX {
            black_box(&self.out);
            self.out.clear();
        }
    }
}

fn locked(sealer: &Sealer, stream: &Mutex<Stream>, size: usize, count: u64) {
    loop {
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        let Stream { next, out, .. } = &mut *stream;
        if *next >= count {
            return;
        }
        batch(sealer, *next, count, size, out);
        *next += BATCH;
        stream.flush();
    }
}

fn ordered(sealer: &Sealer, next: &AtomicU64, stream: &Mutex<Stream>, size: usize, count: u64) {
    loop {
        let first = next.fetch_add(BATCH, Ordering::Relaxed);
        if first >= count {
            return;
        }
        let mut records = Vec::with_capacity(BATCH as usize * (size + HEADER_LEN + TAG_LEN));
        batch(sealer, first, count, size, &mut records);
        let mut stream = stream.lock().unwrap_or_else(PoisonError::into_inner);
        stream.early.insert(first, records);
        while let Some(records) = {
            let next = stream.next;
            stream.early.remove(&next)
        } {
            stream.out.extend_from_slice(&records);
            stream.next += BATCH;
            stream.flush();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_record_of_a_stream_is_written_once_and_in_order() {
        let sealer = sealer().unwrap();
        for arm in [Arm::Locked, Arm::Ordered] {
            let (next, stream) = (AtomicU64::new(0), Mutex::new(Stream::default()));
            thread::scope(|scope| {
                for _ in 0..2 {
                    scope.spawn(|| match arm {
                        Arm::Locked => locked(&sealer, &stream, 100, 500),
                        _ => ordered(&sealer, &next, &stream, 100, 500),
                    });
                }
            });
            let stream = stream.into_inner().unwrap();
            assert!(stream.early.is_empty() && stream.next >= 500, "{arm:?}");
            let mut expected: Vec<u8> = Vec::new();
            let mut record = Vec::new();
            for number in 0..500 {
                one(&sealer, number, 100, &mut record);
                expected.extend(&record);
            }
            assert!(stream.out == expected, "{arm:?}");
        }
    }
}
