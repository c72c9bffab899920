//! Rows of ClickHouse's `RowBinary`: values one after the other, little-endian, lengths as base-128 numbers.

use std::io::{self, BufReader, Read};

use weirgate_sockets::sample::{Arm, CcName};
use weirgate_tune::sketch::Sketch;
use weirgate_tune::{ArmSum, Did, Metric, Tally, Terms};
use weirgate_units::{Bytes, Duration};

use crate::columns::ARMS;

/// No text of a tally is longer: a network, an arm, a congestion control.
const TEXT_MAX: u64 = 255;
/// No round is longer, of whoever says so: 136 years.
const MAX_SECONDS: u64 = 1 << 32;
/// No list is longer: it has an item for each number of a bin.
const LIST_MAX: u64 = 1 << 16;

/// Reads rows until there are no more, and hands over those that are tallies. Returns how many there were, and of how many others.
pub(super) fn read(bytes: &mut dyn Read, each: &mut dyn FnMut(Tally)) -> io::Result<(u64, u64)> {
    let mut values = Values(BufReader::with_capacity(1 << 16, bytes));
    let (mut rows, mut skipped) = (0, 0);
    while values.has_more()? {
        match values.row()? {
            Some(tally) => {
                each(tally);
                rows += 1;
            }
            None => skipped += 1,
        }
    }
    Ok((rows, skipped))
}

struct Values<R>(BufReader<R>);

impl<R: Read> Values<R> {
    fn has_more(&mut self) -> io::Result<bool> {
        Ok(!io::BufRead::fill_buf(&mut self.0)?.is_empty())
    }

    /// The next row, to its end in any case; `None`: it is no tally.
    fn row(&mut self) -> io::Result<Option<Tally>> {
        let [network, arm, cc] = [self.text()?, self.text()?, self.text()?];
        let mut did = Did {
            connections: self.number()?,
            acked: Bytes::new(self.number()?),
            clients: self.number()?,
            small: self.number()?,
            no_metric: self.number()?,
            limited: self.number()?,
            arm: ArmSum::default(),
        };
        did.arm.votes = narrow(self.number()?);
        did.arm.log = f64::from_bits(self.number()?);
        (did.arm.sent, did.arm.retransmitted) = (self.number()?, self.number()?);
        did.arm.rtts = narrow(self.number()?);
        did.arm.rtt_us = self.number()?;
        let bins = self.list(|values| Ok(u16::from_le_bytes(values.take()?)))?;
        let counts = self.list(|values| Ok(narrow(values.number()?)))?;
        let (round, metric) = (Duration::from_secs(self.number()?.min(MAX_SECONDS)), self.text()?);
        let meant = || {
            let network = network?.parse().ok()?;
            let arm = match arm?.as_str() {
                "" => Arm::None,
                arm if arm == ARMS[0] => Arm::Treated,
                arm if arm == ARMS[1] => Arm::Holdout,
                _ => return None,
            };
            // A host that could not tell leaves it out.
            let cc = cc.and_then(|cc| if cc.is_empty() { Some(CcName::default()) } else { CcName::new(&cc) })?;
            let fit = Some(bins.len() == counts.len()).filter(|same| *same)?;
            let fit = fit.then(|| Sketch::new(bins.into_iter().zip(counts).collect()))?.ok()?;
            did.arm.log.is_finite().then_some(())?;
            // A host of before says neither.
            let metric =
                metric.and_then(|name| if name.is_empty() { Some(Metric::default()) } else { Metric::named(&name) })?;
            Some(Tally { network, arm, cc, did, fit, terms: Terms { round, metric } })
        };
        Ok(meant())
    }

    fn take<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let mut bytes = [0; N];
        self.0.read_exact(&mut bytes)?;
        Ok(bytes)
    }

    fn number(&mut self) -> io::Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn length(&mut self) -> io::Result<u64> {
        let mut length = 0;
        for shift in (0..63).step_by(7) {
            let [byte] = self.take()?;
            length |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Ok(length);
            }
        }
        Err(io::Error::new(io::ErrorKind::InvalidData, "a length without an end"))
    }

    /// `None`: longer than any that is meant, or no UTF-8. It is read past all the same.
    fn text(&mut self) -> io::Result<Option<String>> {
        let length = self.length()?;
        if length > TEXT_MAX {
            let passed = io::copy(&mut self.0.by_ref().take(length), &mut io::sink())?;
            return if passed == length { Ok(None) } else { Err(io::ErrorKind::UnexpectedEof.into()) };
        }
        let mut text = vec![0; length as usize];
        self.0.read_exact(&mut text)?;
        Ok(String::from_utf8(text).ok())
    }

    fn list<T>(&mut self, mut item: impl FnMut(&mut Self) -> io::Result<T>) -> io::Result<Vec<T>> {
        let length = self.length()?;
        if length > LIST_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidData, format!("a list of {length}")));
        }
        (0..length).map(|_| item(self)).collect()
    }
}

fn narrow(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &[u8], out: &mut Vec<u8>) {
        let mut length = text.len();
        while length >= 0x80 {
            out.push(length as u8 | 0x80);
            length >>= 7;
        }
        out.push(length as u8);
        out.extend_from_slice(text);
    }

    fn row(network: &[u8], arm: &[u8], cc: &[u8], log: f64, bins: &[u16]) -> Vec<u8> {
        let mut out = Vec::new();
        [network, arm, cc].iter().for_each(|value| text(value, &mut out));
        for number in [3, 900_000, 5, 0, 0, 0, 1, log.to_bits(), 7, 0, 1, 20_000] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        out.push(bins.len() as u8);
        bins.iter().for_each(|bin| out.extend_from_slice(&bin.to_le_bytes()));
        out.push(bins.len() as u8);
        bins.iter().for_each(|_| out.extend_from_slice(&1_u64.to_le_bytes()));
        out.extend_from_slice(&300_u64.to_le_bytes());
        text(b"goodput", &mut out);
        out
    }

    /// The congestion controls of rows that were read, and how many were left out.
    fn all(rows: &[Vec<u8>]) -> io::Result<(Vec<String>, u64)> {
        let mut found = Vec::new();
        let (count, skipped) =
            read(&mut rows.concat().as_slice(), &mut |tally| found.push(tally.cc.as_str().to_owned()))?;
        assert_eq!(count, found.len() as u64);
        Ok((found, skipped))
    }

    #[test]
    fn one_odd_row_does_not_hold_up_the_others() {
        let good = || row(b"198.51.100.0/24", b"", b"cubic", 1.0, &[7, 9]);
        let odd = [
            row(b"", b"", b"cubic", 1.0, &[7]),
            row(b"nowhere", b"", b"cubic", 1.0, &[7]),
            row(b"198.51.100.0/24", b"both", b"cubic", 1.0, &[7]),
            row(b"198.51.100.0/24", b"\xff", b"cubic", 1.0, &[7]),
            row(b"198.51.100.0/24", b"", b"two words", 1.0, &[7]),
            row(b"198.51.100.0/24", b"", &[b'x'; 70_000], 1.0, &[7]),
            row(b"198.51.100.0/24", b"", b"cubic", f64::NAN, &[7]),
            row(b"198.51.100.0/24", b"", b"cubic", 1.0, &[9, 7]),
            row(b"198.51.100.0/24", b"", b"cubic", 1.0, &[60_000]),
        ];
        for odd in odd {
            let read = all(&[good(), odd.clone(), good()]).unwrap();
            assert_eq!(read, (vec!["cubic".to_owned(); 2], 1), "{:?}", String::from_utf8_lossy(&odd[..40]));
        }
        let unknown = row(b"198.51.100.0/24", b"", b"", 1.0, &[7]);
        assert_eq!(all(&[unknown, good()]).unwrap(), (vec![String::new(), "cubic".to_owned()], 0));
    }

    #[test]
    fn an_answer_that_breaks_off_is_an_error_wherever_it_does() {
        let whole = row(b"198.51.100.0/24", b"treated", &[b'x'; 300], 1.0, &[7, 9]);
        for end in 1..whole.len() {
            assert!(all(&[whole[..end].to_vec()]).is_err(), "{end}");
        }
        let endless = vec![0xff; 40];
        assert!(all(&[endless]).is_err());
    }
}
