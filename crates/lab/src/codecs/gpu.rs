//! A GPU on given bodies: so many at a time, since one by one it is slow.

use std::mem::MaybeUninit;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use weirgate_deflate::engine::{Engine as _, Stock, bound};
use weirgate_deflate::nvcomp::{Batch, Body, Nvcomp};
use weirgate_linux::clock::thread_cpu;

use crate::experiment::Options;
use crate::report::{Table, number};
use crate::stats::median;

/// Pieces at a time.
const BATCHES: [usize; 4] = [1, 8, 64, 1_024];

/// At most so long, of a body.
struct Piece<'a> {
    bytes: &'a [u8],
    /// What zlib makes of it at its levels 1 and 6.
    zlib: [usize; 2],
    /// Of the processor, at level 6.
    time: Duration,
}

/// A batch, again and again.
struct Measured {
    bytes_out: usize,
    /// Seconds: the median.
    time: f64,
    /// Seconds of the thread that asks: the median.
    cpu: f64,
}

/// Every algorithm at every size of batch, each for `each`. `None`: there is no GPU.
pub(super) fn table(options: &Options, bodies: &[(String, Vec<u8>)], each: Duration) -> Result<Option<Table>> {
    let most = BATCHES.into_iter().max().unwrap_or(1);
    let (mut pieces, mut table) = (Vec::new(), None);
    for algorithm in 0..=Nvcomp::ALGORITHM_MAX {
        let Some(mut gpu) = Nvcomp::load(algorithm, most) else { break };
        options.say(format!("nvcomp {algorithm}"));
        if pieces.is_empty() {
            pieces = cut(bodies)?;
        }
        table.get_or_insert_with(empty).rows.extend(rows(&mut gpu, algorithm, &pieces, each)?);
    }
    Ok(table)
}

fn empty() -> Table {
    let columns = ["algorithm", "at a time", "MB/s", "ms", "ratio", "CPU over zlib 6", "larger than zlib 1, %", "6, %"];
    Table::new("The GPU, by nvCOMP: the files in pieces of at most 64 KB, so many at a time", &columns)
}

/// Pieces as an accelerator for a GPU gets them.
fn cut(bodies: &[(String, Vec<u8>)]) -> Result<Vec<Piece<'_>>> {
    let one = |bytes| {
        let mut out = vec![MaybeUninit::uninit(); bound(Nvcomp::INPUT_MAX)];
        let mut zlib = |level| Stock::new(level).compress(bytes, &mut out).context("zlib failed");
        let fast = zlib(1)?;
        let began = thread_cpu();
        let usual = zlib(6)?;
        Ok(Piece { bytes, zlib: [fast, usual], time: thread_cpu().saturating_sub(began).to_std() })
    };
    bodies.iter().flat_map(|(_, bytes)| bytes.chunks(Nvcomp::INPUT_MAX)).map(one).collect()
}

fn rows(gpu: &mut impl Batch, algorithm: i32, pieces: &[Piece<'_>], each: Duration) -> Result<Vec<Vec<String>>> {
    let one = |batch: usize| -> Result<Vec<String>> {
        let of = || pieces.iter().cycle().take(batch);
        let inputs: Vec<&[u8]> = of().map(|piece| piece.bytes).collect();
        let measured = measure(gpu, &inputs, each)
            .with_context(|| format!("nvCOMP's algorithm {algorithm}, {batch} pieces at a time"))?;
        let bytes_in = inputs.iter().map(|input| input.len()).sum::<usize>() as f64;
        let bytes_out = measured.bytes_out as f64;
        let larger =
            |level: usize| (bytes_out / of().map(|piece| piece.zlib[level]).sum::<usize>() as f64 - 1.0) * 100.0;
        let usual = of().map(|piece| piece.time).sum::<Duration>().as_secs_f64();
        let Measured { time, cpu, .. } = measured;
        let cells = [bytes_in / 1e6 / time, time * 1e3, bytes_in / bytes_out, cpu / usual, larger(0), larger(1)];
        Ok([vec![algorithm.to_string(), batch.to_string()], cells.map(number).to_vec()].concat())
    };
    BATCHES.into_iter().map(one).collect()
}

fn measure(gpu: &mut impl Batch, inputs: &[&[u8]], each: Duration) -> Result<Measured> {
    let mut outs: Vec<_> = inputs.iter().map(|input| vec![MaybeUninit::uninit(); bound(input.len())]).collect();
    let (mut times, mut cpus, mut bytes_out) = (Vec::new(), Vec::new(), 0);
    let started = Instant::now();
    while times.len() < 3 || started.elapsed() < each {
        let pairs = inputs.iter().zip(&mut outs);
        let mut bodies: Vec<Body<'_>> = pairs.map(|(input, out)| Body { input, out, len: None }).collect();
        let (began, before) = (Instant::now(), thread_cpu());
        gpu.compress(&mut bodies);
        times.push(began.elapsed().as_secs_f64());
        cpus.push(thread_cpu().saturating_sub(before).to_std().as_secs_f64());
        bytes_out = bodies.iter().map(|body| body.len).sum::<Option<usize>>().context("a piece was not compressed")?;
        if times.len() == 1 {
            ensure!(bodies.iter().all(Body::is_right), "what a piece became is not that piece");
        }
    }
    Ok(Measured { bytes_out, time: median(times), cpu: median(cpus) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::{Kind, body};

    /// Stock zlib at a level, as though it were a GPU.
    struct Slow(i32);

    impl Batch for Slow {
        fn compress(&mut self, bodies: &mut [Body<'_>]) {
            for body in bodies {
                body.len = Stock::new(self.0).compress(body.input, body.out);
            }
        }
    }

    #[test]
    fn a_row_for_each_size_of_batch_says_how_large_the_output_is() {
        let bodies = [("page".to_owned(), body(Kind::Html, 1, 70_000)), ("none".to_owned(), Vec::new())];
        let pieces = cut(&bodies).unwrap();
        assert_eq!(pieces.iter().map(|piece| piece.bytes.len()).collect::<Vec<_>>(), [65_536, 4_464]);
        let rows = rows(&mut Slow(6), 5, &pieces, Duration::ZERO).unwrap();
        assert_eq!(rows.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["1", "8", "64", "1024"]);
        for row in rows {
            assert_eq!((row[0].as_str(), row[7].as_str(), row.len()), ("5", "0", 8));
            assert!(row[6].starts_with('-'), "smaller than level 1's: {row:?}");
        }
    }

    /// One that answers with something else.
    struct Wrong;

    impl Batch for Wrong {
        fn compress(&mut self, bodies: &mut [Body<'_>]) {
            Slow(1).compress(bodies);
            bodies.iter_mut().for_each(|body| body.len = body.len.map(|len| len - 1));
        }
    }

    #[test]
    fn what_is_wrong_is_no_result() {
        let inputs = [&b"some text"[..]];
        assert!(measure(&mut Wrong, &inputs, Duration::ZERO).is_err());
        assert!(measure(&mut Slow(1), &inputs, Duration::ZERO).is_ok());
    }
}
