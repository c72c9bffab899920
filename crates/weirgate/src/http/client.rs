//! A reader for the page's own documents: one GET, one answer, with limits. `sockets` and the tests ask a daemon by it.
//!
//! hyper's client would need a connector, a pool and a runtime for what is twenty lines on a loopback socket.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Answers longer than this are refused; 10,000 networks are about 5 MB.
const ANSWER_BYTES_MAX: u64 = 32 << 20;
/// A daemon that takes longer does not answer, as far as a person at a terminal is concerned.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a server answered.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// The status code.
    pub status: u16,
    /// Status line and headers, as they came.
    pub head: String,
    /// The body.
    pub body: Vec<u8>,
}

impl Answer {
    /// The value of header `name` (any case), if there is one.
    pub fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ str| line.split_once(':').is_some_and(|(key, _)| key.eq_ignore_ascii_case(name));
        self.head.lines().skip(1).find(|l| line(l)).and_then(|l| l.split_once(':')).map(|(_, value)| value.trim())
    }
}

/// Asks the server at `address` for `path`.
pub fn get(address: SocketAddr, path: &str) -> io::Result<Answer> {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"))
}

/// Sends `request` as it is and reads until the server closes.
pub(super) fn ask(address: SocketAddr, request: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&address, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    stream.write_all(request.as_bytes())?;
    let mut bytes = Vec::new();
    stream.take(ANSWER_BYTES_MAX).read_to_end(&mut bytes)?;
    parse(bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not an answer that a Weirgate daemon gives"))
}

fn parse(mut bytes: Vec<u8>) -> Option<Answer> {
    let end = bytes.windows(4).position(|w| w == b"\r\n\r\n")?;
    let body = bytes.split_off(end + 4);
    let head = String::from_utf8(bytes).ok()?;
    let status = head.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()?;
    let answer = Answer { status, head, body };
    let whole = match answer.header("content-length") {
        Some(length) => length.parse::<usize>().ok()? == answer.body.len() || answer.body.is_empty(),
        None => answer.header("transfer-encoding").is_none(),
    };
    whole.then_some(answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_cut_short_is_no_answer() {
        let answer = |text: &str| parse(text.as_bytes().to_vec());
        assert_eq!(answer("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok").unwrap().body, b"ok");
        assert_eq!(answer("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok"), None);
        assert_eq!(answer("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok"), None);
        assert_eq!(answer("SSH-2.0-OpenSSH_9.2\r\n\r\n"), None);
        assert_eq!(answer(""), None);
    }
}
