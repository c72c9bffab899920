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

/// The files in pieces as an accelerator for a GPU gets them, again and again until there are as many as the largest batch has.
struct Pieces<'a> {
    all: Vec<&'a [u8]>,
    bytes: usize,
    /// What zlib makes of them at its levels 1 and 6.
    zlib: [usize; 2],
    /// Seconds of the processor, at level 6.
    time: f64,
}

/// All pieces, so many at a time, again and again.
struct Measured {
    bytes_out: usize,
    /// Seconds for all of them, of the wall's and of the thread that asks: medians.
    time: f64,
    cpu: f64,
}

/// Every algorithm at every size of batch, each for `each`. `None`: there is no GPU.
pub(super) fn table(options: &Options, bodies: &[(String, Vec<u8>)], each: Duration) -> Result<Option<Table>> {
    let most = BATCHES.into_iter().max().unwrap_or(1);
    let (mut pieces, mut table) = (None, None);
    for algorithm in 0..=Nvcomp::ALGORITHM_MAX {
        let Some(mut gpu) = Nvcomp::load(algorithm, most) else {
            ensure!(table.is_none(), "nvCOMP's algorithm {algorithm} does not load, where those before it did");
            break;
        };
        options.say(format!("nvcomp {algorithm}"));
        let pieces = match &pieces {
            Some(pieces) => pieces,
            None => pieces.insert(cut(bodies, most)?),
        };
        let table = table.get_or_insert_with(|| empty(&gpu));
        table.rows.extend(rows(&mut gpu, algorithm, pieces, each)?);
    }
    Ok(table)
}

fn empty(gpu: &Nvcomp) -> Table {
    let (name, version) = gpu.device();
    let (major, minor) = (version / 1_000, version % 1_000 / 10);
    let title =
        format!("{name}, CUDA {major}.{minor}, by nvCOMP: the files in pieces of at most 64 KB, so many at a time");
    let columns = ["algorithm", "at a time", "MB/s", "ms", "ratio", "CPU over zlib 6", "larger than zlib 1, %", "6, %"];
    Table::new(&title, &columns)
}

fn cut(bodies: &[(String, Vec<u8>)], most: usize) -> Result<Pieces<'_>> {
    let once: Vec<&[u8]> = bodies.iter().flat_map(|(_, bytes)| bytes.chunks(Nvcomp::INPUT_MAX)).collect();
    ensure!(most > 0 && !once.is_empty(), "the files are empty");
    let all: Vec<&[u8]> = once.into_iter().cycle().take(most).collect();
    let mut out = vec![MaybeUninit::uninit(); bound(Nvcomp::INPUT_MAX)];
    let mut zlib = |level| {
        let mut engine = Stock::new(level);
        let mut compress = |piece: &[u8]| engine.compress(piece, &mut out).ok().context("zlib failed");
        // The first piece has its memory brought in.
        compress(all[0])?;
        let began = thread_cpu();
        let bytes = all.iter().map(|piece| compress(piece)).sum::<Result<usize>>()?;
        anyhow::Ok((bytes, thread_cpu().saturating_sub(began).to_std().as_secs_f64()))
    };
    let ((fast, _), (usual, time)) = (zlib(1)?, zlib(6)?);
    Ok(Pieces { bytes: all.iter().map(|piece| piece.len()).sum(), zlib: [fast, usual], time, all })
}

fn rows(gpu: &mut impl Batch, algorithm: i32, pieces: &Pieces<'_>, each: Duration) -> Result<Vec<Vec<String>>> {
    let one = |batch: usize| -> Result<Vec<String>> {
        let Measured { bytes_out, time, cpu } = measure(gpu, &pieces.all, batch, each)
            .with_context(|| format!("nvCOMP's algorithm {algorithm}, {batch} pieces at a time"))?;
        let (bytes_in, bytes_out) = (pieces.bytes as f64, bytes_out as f64);
        let larger = |level: usize| (bytes_out / pieces.zlib[level] as f64 - 1.0) * 100.0;
        let batches = pieces.all.len().div_ceil(batch) as f64;
        let ms = time / batches * 1e3;
        let cells = [bytes_in / 1e6 / time, ms, bytes_in / bytes_out, cpu / pieces.time, larger(0), larger(1)];
        Ok([vec![algorithm.to_string(), batch.to_string()], cells.map(number).to_vec()].concat())
    };
    BATCHES.into_iter().map(one).collect()
}

fn measure(gpu: &mut impl Batch, inputs: &[&[u8]], batch: usize, each: Duration) -> Result<Measured> {
    let mut outs: Vec<_> = inputs.iter().map(|input| vec![MaybeUninit::uninit(); bound(input.len())]).collect();
    let (mut times, mut cpus, mut bytes_out) = (Vec::new(), Vec::new(), 0);
    let started = Instant::now();
    while times.is_empty() || started.elapsed() < each {
        let pairs = inputs.iter().zip(&mut outs);
        let mut bodies: Vec<Body<'_>> = pairs.map(|(input, out)| Body::new(input, out)).collect();
        let (began, before) = (Instant::now(), thread_cpu());
        bodies.chunks_mut(batch).for_each(|bodies| gpu.compress(bodies));
        times.push(began.elapsed().as_secs_f64());
        cpus.push(thread_cpu().saturating_sub(before).to_std().as_secs_f64());
        let lens = bodies.iter().map(|body| body.output().map(<[u8]>::len));
        bytes_out = lens.sum::<Option<usize>>().context("a piece was not compressed")?;
        if times.len() == 1 {
            ensure!(bodies.iter().all(Body::is_right), "what a piece became is not that piece");
        }
    }
    Ok(Measured { bytes_out, time: median(times), cpu: median(cpus) })
}

#[cfg(test)]
mod tests {
    use flate2::Compression;
    use flate2::write::DeflateEncoder;

    use super::*;
    use crate::corpus::{Kind, body};

    /// Of the processor, as though it were a GPU.
    struct Slow {
        cuts: usize,
    }

    impl Batch for Slow {
        fn compress(&mut self, bodies: &mut [Body<'_>]) {
            for body in bodies {
                let mut encoder = DeflateEncoder::new(Vec::new(), Compression::new(9));
                std::io::Write::write_all(&mut encoder, body.input()).unwrap();
                let out = encoder.finish().unwrap();
                body.set(Some(&out[..out.len() - self.cuts]));
            }
        }
    }

    #[test]
    fn a_row_for_each_size_of_batch_says_how_large_the_output_is() {
        let bodies = [("page".to_owned(), body(Kind::Html, 1, 70_000)), ("none".to_owned(), Vec::new())];
        let pieces = cut(&bodies, 3).unwrap();
        assert_eq!(pieces.all.iter().map(|piece| piece.len()).collect::<Vec<_>>(), [65_536, 4_464, 65_536]);
        let rows = rows(&mut Slow { cuts: 0 }, 5, &pieces, Duration::ZERO).unwrap();
        assert_eq!(rows.iter().map(|row| row[1].as_str()).collect::<Vec<_>>(), ["1", "8", "64", "1024"]);
        for row in &rows {
            assert_eq!((row[0].as_str(), row[4].as_str(), row.len()), ("5", rows[0][4].as_str(), 8));
            assert!(row[6].starts_with('-'), "smaller than level 1's: {row:?}");
        }
        assert!(cut(&bodies[1..], 3).is_err());
    }

    #[test]
    fn what_is_wrong_is_no_result() {
        let inputs = [&b"some text"[..]];
        assert!(measure(&mut Slow { cuts: 1 }, &inputs, 1, Duration::ZERO).is_err());
        assert!(measure(&mut Slow { cuts: 0 }, &inputs, 1, Duration::ZERO).is_ok());
    }
}
