//! Real servers and real clients.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use super::ground::{BACK_END_PORT, Ground, SWITCH_AFTER};
use super::witness::Witness;

/// Asks a keep-alive server for `path` and reads the answer to its end; how many bytes it had, head and body.
fn get(stream: &mut std::net::TcpStream, path: &str) -> u64 {
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: weirgate\r\n\r\n").as_bytes()).unwrap();
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).unwrap();
        head.push(byte[0]);
    }
    let text = String::from_utf8(head).unwrap();
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    let length = text.lines().find_map(|l| l.strip_prefix("Content-Length: ")).unwrap().parse::<u64>().unwrap();
    assert_eq!(std::io::copy(&mut stream.take(length), &mut std::io::sink()).unwrap(), length);
    text.len() as u64 + length
}

#[test]
fn http_1_1_keep_alive() {
    let Some(mut ground) = Ground::new(50) else { return };
    let steering = ground.steer();
    let witness = Witness::attach(&ground);
    if !ground.serve_by_nginx("") {
        return;
    }
    for server in ["10.99.0.1", "fd99::1"] {
        let mut client = ground.connect(server);
        let mut at = 0;
        for path in ["/small", "/large", "/medium", "/small", "/large", "/small"] {
            let size = get(&mut client.stream, path);
            match witness.span(client.port()) {
                Some(span) if path == "/large" => {
                    assert!(span.0 >= at + SWITCH_AFTER && span.1 <= at + size, "{span:?} of {at}..{}", at + size);
                }
                seen => assert!(seen.is_none() && path != "/large", "{path}: {seen:?}"),
            }
            at += size;
        }
    }
    assert_eq!(steering.counters().unwrap().violations, 0);
}

/// A back end that answers each connection once, with a body in parts and a pause before each but the first.
fn produce(listener: TcpListener, parts: &'static [usize]) {
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _request = stream.read(&mut [0; 4096]).unwrap();
            let length: usize = parts.iter().sum();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n").unwrap();
            for (nth, part) in parts.iter().enumerate() {
                std::thread::sleep(Duration::from_millis(if nth == 0 { 0 } else { 300 }));
                stream.write_all(&vec![b'x'; *part]).unwrap();
            }
        }
    });
}

#[test]
fn a_streaming_proxy() {
    let Some(mut ground) = Ground::new(50) else { return };
    let steering = ground.steer();
    let witness = Witness::attach(&ground);
    if !ground.serve_by_nginx("") {
        return;
    }
    let back_end = ground.server.within(|| TcpListener::bind(("127.0.0.1", BACK_END_PORT)).unwrap()).unwrap();
    produce(back_end, &[60_000, 60_000, 300_000, 60_000]);
    let mut client = ground.connect("10.99.0.1");
    let size = get(&mut client.stream, "/proxied");
    // The queue is empty in each pause, and the parts are one response all the same.
    let span = witness.span(client.port()).expect("together the parts are large");
    assert!(span.0 >= SWITCH_AFTER && span.1 <= size, "{span:?} of {size}");
    for path in ["/small", "/medium"] {
        get(&mut client.stream, path);
        assert_eq!(witness.span(client.port()), None, "{path}");
    }
    let counters = steering.counters().unwrap();
    assert_eq!((counters.boundaries, counters.violations), (2, 0), "{counters:?}");
}

#[test]
fn tls_1_3() {
    let Some(mut ground) = Ground::new(50) else { return };
    let steering = ground.steer();
    let witness = Witness::attach(&ground);
    if !ground.serve_by_nginx("ssl") {
        return;
    }
    let paths = |names: &[&str]| {
        let urls = names.iter().map(|n| format!("-o /dev/null https://10.99.0.1:8080/{n}"));
        format!("curl -sSfk --http1.1 --tlsv1.3 {}", urls.collect::<Vec<_>>().join(" "))
    };
    // One connection each; one more asked whether nginx was up.
    ground.run('c', &paths(&["small", "medium", "small", "medium"]));
    let counters = steering.counters().unwrap();
    assert_eq!(witness.spans(), []);
    assert_eq!((counters.treated, counters.switched), (2, 0), "{counters:?}");
    ground.run('c', &paths(&["small", "large", "medium", "large", "small"]));
    let counters = steering.counters().unwrap();
    assert_eq!((counters.treated, counters.switched, counters.violations), (3, 2, 0), "{counters:?}");
    let (start, end) = witness.spans()[0];
    // Not in the first small response, nor in the last; a record of 16 KB adds 22 bytes, the handshake at most 4 KB.
    assert!(start > 20_000 + SWITCH_AFTER && end < 4_116_000 + 6_000, "{start}..{end}");
}

#[test]
fn http_2_with_windows_of_64_kb() {
    let Some(mut ground) = Ground::new(50) else { return };
    let steering = ground.steer();
    let witness = Witness::attach(&ground);
    if !ground.serve_by_nginx("http2") {
        return;
    }
    if std::process::Command::new("nghttp").arg("--version").stdout(std::process::Stdio::null()).status().is_err() {
        return println!("SKIPPED: nghttp is not installed");
    }
    // nghttp's windows are 65,535 bytes by default: it sends a WINDOW_UPDATE for each half of one.
    ground.run('c', "nghttp -n http://10.99.0.1:8080/small");
    ground.run('c', "nghttp -n http://10.99.0.1:8080/medium");
    let counters = steering.counters().unwrap();
    assert_eq!(witness.spans(), []);
    assert_eq!(counters.switched, 0, "{counters:?}");
    ground.run('c', "nghttp -n http://10.99.0.1:8080/large");
    let counters = steering.counters().unwrap();
    assert!(counters.switched > 0, "window updates do not hold the switch up: {counters:?}");
    assert_eq!(counters.violations, 0, "{counters:?}");
    let (start, end) = witness.spans()[0];
    assert!(start >= SWITCH_AFTER && end < 2_010_000, "{start}..{end}");
}
