//! One request, and when what of its answer came.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// A whole answer.
#[derive(Debug)]
pub(super) struct Answer {
    /// Its body as it was sent, without the transfer's chunks.
    pub(super) body: Vec<u8>,
    /// Until the first byte of the body.
    pub(super) first_byte: Duration,
}

/// Asks for `path`, compressed by gzip.
pub(super) fn get(port: u16, path: &str) -> Result<Answer> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(Duration::from_secs(30)))?;
    let asked = Instant::now();
    write!(stream, "GET /{path} HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n")?;
    let (mut bytes, mut part, mut head) = (Vec::new(), vec![0; 64 << 10], None);
    let mut first_byte = None;
    loop {
        let len = stream.read(&mut part).with_context(|| format!("/{path}"))?;
        if len == 0 {
            break;
        }
        bytes.extend_from_slice(&part[..len]);
        if head.is_none() {
            head = bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4);
        }
        if head.is_some_and(|head| bytes.len() > head) {
            first_byte.get_or_insert_with(|| asked.elapsed());
        }
    }
    let head = head.with_context(|| format!("/{path}: no answer"))?;
    let text = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
    ensure!(text.starts_with("http/1.1 200 ") && text.contains("content-encoding: gzip"), "/{path}: {text}");
    let body =
        if text.contains("transfer-encoding: chunked") { joined(&bytes[head..])? } else { bytes[head..].to_vec() };
    Ok(Answer { body, first_byte: first_byte.unwrap_or_default() })
}

/// The chunks of a chunked body (RFC 9112, 7.1), one after the other.
fn joined(mut chunked: &[u8]) -> Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let Ok(httparse::Status::Complete((head, len))) = httparse::parse_chunk_size(chunked) else {
            bail!("a chunk without a length after {} bytes", body.len());
        };
        let end = head + usize::try_from(len)?;
        if len == 0 {
            return Ok(body);
        }
        body.extend_from_slice(chunked.get(head..end).context("a chunk that ends early")?);
        chunked = chunked.get(end + 2..).context("a chunk without an end")?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunks_are_joined() {
        assert_eq!(joined(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\n\r\n").unwrap(), b"abcde");
        assert!(joined(b"5\r\nabc").is_err());
        assert!(joined(b"").is_err());
    }
}
