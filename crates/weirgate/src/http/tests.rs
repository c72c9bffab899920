use std::net::SocketAddr;
use std::thread;

use tokio::sync::oneshot;

use super::client::{Answer, ask, get};
use super::*;
use crate::view;

/// A server on a free port, in a thread of its own, until it is dropped.
struct Running {
    address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<thread::JoinHandle<()>>,
}

impl Running {
    fn start() -> Self {
        let (_, shared) = view::new(api::Facts { host: "edge-1".to_owned(), ..api::Facts::default() });
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let server = runtime.block_on(Server::bind("127.0.0.1:0".parse().unwrap())).unwrap();
        let address = server.address();
        let (stop, stopped) = oneshot::channel();
        let serve = server.serve(shared, async {
            let _ = stopped.await;
        });
        let thread = thread::spawn(move || runtime.block_on(serve).unwrap());
        Self { address, stop: Some(stop), thread: Some(thread) }
    }

    fn get(&self, path: &str) -> Answer {
        get(self.address, path).unwrap()
    }

    fn ask(&self, line: &str, host: &str) -> Answer {
        ask(self.address, &format!("{line} HTTP/1.1\r\n{host}Connection: close\r\n\r\n")).unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.stop.take());
        self.thread.take().unwrap().join().unwrap();
    }
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.body.clone()).unwrap()
}

#[test]
fn the_documents_are_there_and_are_json() {
    let server = Running::start();
    let status: api::Status = serde_json::from_slice(&server.get("/api/v1/status").body).unwrap();
    assert_eq!(status.facts.host, "edge-1");
    assert!(status.now_ms > 1_700_000_000_000 && status.poll.is_none());
    for path in ["networks?sort=connections&limit=5", "decisions?limit=1", "history?range=day", "history", "networks"] {
        let answer = server.get(&format!("/api/v1/{path}"));
        assert_eq!((answer.status, answer.header("content-type")), (200, Some("application/json")), "{path}");
        assert_eq!(answer.header("cache-control"), Some("no-store"));
    }
    assert_eq!(text(&server.get("/healthz")), "ok\n");
    assert!(text(&server.get("/metrics")).contains("weirgate_polls_total 0\n"));
}

#[test]
fn a_query_that_is_not_understood_is_refused_and_says_why() {
    let server = Running::start();
    for path in [
        "networks?sort=size",
        "networks?limit=many",
        "networks?limit=10001",
        "decisions?limit=1001",
        "networks?sorted=rtt",
        "history?range=year",
    ] {
        let answer = server.get(&format!("/api/v1/{path}"));
        assert_eq!(answer.status, 400, "{path}");
        assert!(text(&answer).contains("docs/api.md"), "{path}: {}", text(&answer));
    }
}

#[test]
fn the_page_comes_with_headers_that_lock_it_down() {
    let server = Running::start();
    let page = server.get("/");
    assert_eq!((page.status, page.header("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(text(&page).contains("Weirgate"));
    for path in ["/", "/api/v1/status", "/metrics", "/nothing"] {
        let answer = server.get(path);
        assert!(answer.header("content-security-policy").unwrap().starts_with("default-src 'none'"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), None, "{path}");
    }
    assert_eq!(server.get("/../Cargo.toml").status, 404);
    assert_eq!(server.get("/assets/../../Cargo.toml").status, 404);
}

#[test]
fn other_names_in_the_host_header_are_refused() {
    let server = Running::start();
    for host in ["", "Host: evil.example\r\n", "Host: 127.0.0.1.evil.example\r\n", "Host: 192.0.2.1:7070\r\n"] {
        let answer = server.ask("GET /api/v1/status", host);
        // Without the header, hyper itself may refuse with 400.
        assert!(matches!(answer.status, 400 | 421), "{host:?}: {}", answer.status);
        assert!(!text(&answer).contains("edge-1"));
    }
    for host in ["localhost:8080", "LOCALHOST", "127.0.0.1", "[::1]:7070", "127.9.9.9:1"] {
        assert_eq!(server.ask("GET /healthz", &format!("Host: {host}\r\n")).status, 200, "{host}");
    }
    for host in
        ["localhost:", "localhost:x", "[::1", "[::1]x", "::1:7070", "localhost.", "a@localhost", "[localhost]:99999"]
    {
        assert!(!is_loopback_name(host), "{host}");
    }
}

#[test]
fn only_reading_is_answered() {
    let server = Running::start();
    for method in ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"] {
        let answer = server.ask(&format!("{method} /api/v1/status"), "Host: localhost\r\n");
        assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD")), "{method}");
    }
    let head = server.ask("HEAD /api/v1/status", "Host: localhost\r\n");
    assert_eq!((head.status, head.body.len()), (200, 0));
}

#[test]
fn addresses_that_others_can_reach_and_taken_ports_are_refused() {
    let server = Running::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let bind = |address: &str| runtime.block_on(Server::bind(address.parse().unwrap())).unwrap_err().to_string();
    for address in ["0.0.0.0:7070", "[::]:7070", "192.0.2.1:7070", "[::ffff:192.0.2.1]:7070"] {
        let error = bind(address);
        assert!(error.contains("is not a loopback address") && error.contains("ssh -L 7070:"), "{error}");
    }
    let error = bind(&server.address.to_string());
    assert!(error.contains("is taken by another program") && error.contains("[http]"), "{error}");
}
