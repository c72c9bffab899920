//! Where edges ask for their policy: HTTPS with a token, a certificate or both, and an answer as soon as there is a newer one.
//!
//! `GET /v1/policy/POP` is the snapshot, signed. `If-None-Match` (RFC 9110, 13.1.2) says which ones the edge has, `Prefer: wait=SECONDS`
//! (RFC 7240, 4.3) for how long it waits for another, 55 at most. What is sent is signed, and the edge looks at nothing else: TLS and the
//! token keep others from reading which networks are treated.

use std::convert::Infallible;
use std::future::IntoFuture as _;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context as _, Result};
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use weirgate_linux::clock;

use super::board::Board;
use super::{secret, tls};
use crate::config::controller::{Controller as Settings, Serve};
use crate::http::{self, Connection, Limited};
use crate::metrics;

/// An edge waits so long at most, less than proxies and firewalls forget connections in.
const WAIT_MAX: Duration = Duration::from_secs(55);
/// A connection on which nobody says anything is closed after this.
const IDLE_MAX: Duration = Duration::from_secs(120);
/// Edges at a time, each of which holds one connection; more wait to be accepted.
const CONNECTIONS_MAX: usize = 16_384;
/// A client that takes longer to greet is no client.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How often it is looked whether a certificate was renewed.
const RENEWED: Duration = Duration::from_secs(60);
/// Who is still being answered after an end for so long is cut off.
const FAREWELL: Duration = Duration::from_secs(2);

/// A thread that answers edges, and who asks for metrics.
pub(crate) struct Serving {
    end: watch::Sender<bool>,
    thread: JoinHandle<()>,
}

impl Serving {
    /// Answers who waits that there is nothing new, and closes connections as TLS has it: what is cut off could have been so by anybody.
    pub(crate) fn end(self) {
        self.end.send_replace(true);
        if self.thread.join().is_err() {
            tracing::warn!("edges were not answered at the end");
        }
    }
}

/// Serves `board` from a thread of its own: to edges where `settings` say so, and its metrics.
///
/// # Errors
/// An address cannot be listened at, or a file cannot be used.
pub(crate) fn start(settings: &Settings, board: &Arc<Board>) -> Result<Serving> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let edges = settings.serve.as_ref().map(|serve| Edges::open(serve, board)).transpose()?;
    let edges = edges.map(|edges| Ok::<_, anyhow::Error>((runtime.block_on(bind(edges.listen, "listen"))?, edges)));
    let edges = edges.transpose()?;
    let metrics = settings.metrics.map(|address| runtime.block_on(bind(address, "metrics"))).transpose()?;
    let board = Arc::clone(board);
    let (end, ended) = watch::channel(false);
    let serve = async move {
        let metrics = async {
            match metrics {
                Some(listener) => axum::serve(Limited::new(listener), numbers(board)).await,
                None => std::future::pending().await,
            }
        };
        let edges = async {
            match edges {
                Some((listener, edges)) => edges.serve(listener, ended.clone()).await,
                None => {
                    is_ended(ended.clone()).await;
                    Ok(())
                }
            }
        };
        let is_over = async {
            is_ended(ended.clone()).await;
            sleep(FAREWELL).await;
            Ok(())
        };
        let done: io::Result<()> =
            tokio::select! { done = metrics => done, done = edges => done, done = is_over => done };
        if let Err(error) = done {
            tracing::error!("nobody is answered any more: {error}");
        }
    };
    let thread = std::thread::Builder::new().name("serve".to_owned()).spawn(move || runtime.block_on(serve))?;
    Ok(Serving { end, thread })
}

async fn is_ended(mut ended: watch::Receiver<bool>) {
    // Whoever would say so is gone: that is an end, too.
    let _ = ended.wait_for(|is_ended| *is_ended).await;
}

async fn bind(address: SocketAddr, key: &str) -> Result<TcpListener> {
    let listener = TcpListener::bind(address).await.with_context(|| {
        format!("[controller] {key}: {address} cannot be listened at: choose another, as `ss -tlnp` shows who is there")
    })?;
    tracing::info!("{key}: {}", listener.local_addr()?);
    Ok(listener)
}

/// `/metrics` on a loopback address, guarded as the daemon's page is.
fn numbers(board: Arc<Board>) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route(
            "/metrics",
            get(async |State(board): State<Arc<Board>>| {
                ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], board.metrics())
            }),
        )
        .with_state(board)
        .layer(middleware::from_fn(http::guard))
}

/// Answers edges.
struct Edges {
    listen: SocketAddr,
    serve: Serve,
    board: Arc<Board>,
    /// What a client has to send, hashed, which takes as long to compare whatever was sent.
    token: Option<Arc<RwLock<blake3::Hash>>>,
    tls: Arc<RwLock<Arc<rustls::ServerConfig>>>,
}

impl Edges {
    fn open(serve: &Serve, board: &Arc<Board>) -> Result<Self> {
        let tls = tls::server(serve).context("[controller] listen")?;
        let token = serve.token_file.as_deref().map(|_| token(serve)).transpose()?;
        Ok(Self {
            listen: serve.listen,
            serve: serve.clone(),
            board: Arc::clone(board),
            token: token.map(|token| Arc::new(RwLock::new(token))),
            tls: Arc::new(RwLock::new(Arc::new(tls))),
        })
    }

    /// Until it is `ended`.
    async fn serve(self, listener: TcpListener, ended: watch::Receiver<bool>) -> io::Result<()> {
        let accepting = Tls::new(listener, Arc::clone(&self.tls), Arc::clone(&self.board));
        let Self { board, token, tls, serve, .. } = self;
        let asked = Asked { board, token: token.clone(), ended: ended.clone() };
        let router = Router::new()
            .route("/v1/policy/{pop}", get(policy))
            .with_state(asked.clone())
            .layer(middleware::from_fn_with_state(asked, is_known));
        let renewed = async {
            loop {
                sleep(RENEWED).await;
                // A certificate that is being replaced may not fit its key yet: the old ones do until they do.
                match tls::server(&serve) {
                    Ok(new) => *tls.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(new),
                    Err(error) => tracing::warn!("[controller] listen: {error:#}; those from before are used"),
                }
                if let Some(known) = &token {
                    match self::token(&serve) {
                        Ok(new) => *known.write().unwrap_or_else(PoisonError::into_inner) = new,
                        Err(error) => tracing::warn!("{error:#}; the one from before is used"),
                    }
                }
            }
        };
        tokio::select! {
            served = axum::serve(accepting, router).with_graceful_shutdown(is_ended(ended)).into_future() => served,
            never = renewed => never,
        }
    }
}

fn token(serve: &Serve) -> Result<blake3::Hash> {
    let path = serve.token_file.as_deref().context("no token is asked for")?;
    Ok(blake3::hash(secret("[controller] token_file", path)?.as_bytes()))
}

#[derive(Clone)]
struct Asked {
    board: Arc<Board>,
    token: Option<Arc<RwLock<blake3::Hash>>>,
    ended: watch::Receiver<bool>,
}

/// Before anything is answered: whether who asks has the token, where one is wanted. Certificates were looked at before.
async fn is_known(State(asked): State<Asked>, request: Request, next: Next) -> Response {
    if let Some(token) = &asked.token {
        let sent =
            request.headers().get(header::AUTHORIZATION).and_then(|value| value.as_bytes().strip_prefix(b"Bearer "));
        let wanted = *token.read().unwrap_or_else(PoisonError::into_inner);
        if sent.is_none_or(|sent| blake3::hash(sent) != wanted) {
            asked.board.answers.refused.fetch_add(1, Ordering::Relaxed);
            let text = "no token, or another than this controller's: [fleet] token_file has to hold what [controller] token_file does\n";
            return (StatusCode::UNAUTHORIZED, [(header::WWW_AUTHENTICATE, "Bearer")], text).into_response();
        }
    }
    next.run(request).await
}

/// The snapshot of `pop`, as soon as there is one that the edge does not have.
async fn policy(
    State(Asked { board, ended, .. }): State<Asked>,
    Path(pop): Path<String>,
    headers: HeaderMap,
) -> Response {
    let answers = &board.answers;
    let Some(mut watched) = board.watch(&pop) else {
        answers.refused.fetch_add(1, Ordering::Relaxed);
        return (StatusCode::NOT_FOUND, format!("this controller decides for no `{pop}`: see [controller] pops\n"))
            .into_response();
    };
    let has = has(&headers);
    let _waiting = Waiting::new(&answers.waiting);
    let deadline = Instant::now() + wait(&headers);
    let same = loop {
        let shown = watched.borrow_and_update().clone().filter(|document| document.is_alive(clock::unix()));
        let same = match shown {
            Some(document) if has.iter().any(|etag| *etag == document.etag) => Some(document),
            None => None,
            Some(document) => {
                answers.sent.fetch_add(1, Ordering::Relaxed);
                let head = [
                    (header::ETAG, document.etag.as_str()),
                    (header::CONTENT_TYPE, "application/octet-stream"),
                    (header::CACHE_CONTROL, "no-store"),
                ];
                return (head, document.bytes.clone()).into_response();
            }
        };
        let is_changed = tokio::select! {
            changed = timeout_at(deadline, watched.changed()) => matches!(changed, Ok(Ok(()))),
            () = is_ended(ended.clone()) => false,
        };
        if !is_changed {
            break same;
        }
    };
    match same {
        Some(document) => {
            answers.unchanged.fetch_add(1, Ordering::Relaxed);
            (StatusCode::NOT_MODIFIED, [(header::ETAG, document.etag.as_str())]).into_response()
        }
        None => {
            answers.nothing.fetch_add(1, Ordering::Relaxed);
            (StatusCode::NOT_FOUND, format!("no policy of `{pop}` is alive: nothing has been decided for it lately\n"))
                .into_response()
        }
    }
}

/// Counts an edge for as long as it is answered.
struct Waiting<'a>(&'a AtomicU64);

impl<'a> Waiting<'a> {
    fn new(count: &'a AtomicU64) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self(count)
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The etags that the edge has.
fn has(headers: &HeaderMap) -> Vec<&str> {
    let lists = headers.get_all(header::IF_NONE_MATCH).iter().filter_map(|value| value.to_str().ok());
    lists.flat_map(|list| list.split(',')).map(str::trim).collect()
}

/// For how long it waits; not at all where it says nothing.
fn wait(headers: &HeaderMap) -> Duration {
    let prefers = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let seconds =
        prefers.flat_map(|list| list.split(',')).find_map(|one| one.trim().strip_prefix("wait=")?.parse().ok());
    seconds.map_or(Duration::ZERO, Duration::from_secs).min(WAIT_MAX)
}

/// Connections whose TLS is established; each is greeted in a task of its own, so that nobody waits for who is slow.
struct Tls {
    ready: mpsc::Receiver<(TlsStream<Connection>, SocketAddr)>,
    address: SocketAddr,
}

impl Tls {
    fn new(listener: TcpListener, config: Arc<RwLock<Arc<rustls::ServerConfig>>>, board: Arc<Board>) -> Self {
        let address = listener.local_addr().unwrap_or_else(|_| SocketAddr::from(([0, 0, 0, 0], 0)));
        let (sender, ready) = mpsc::channel(16);
        tokio::spawn(async move {
            let never: Result<Infallible, ()> = accept(listener, config, board, sender).await;
            never
        });
        Self { ready, address }
    }
}

async fn accept(
    listener: TcpListener,
    config: Arc<RwLock<Arc<rustls::ServerConfig>>>,
    board: Arc<Board>,
    ready: mpsc::Sender<(TlsStream<Connection>, SocketAddr)>,
) -> Result<Infallible, ()> {
    let mut limited = Limited::with(listener, CONNECTIONS_MAX, IDLE_MAX);
    loop {
        let (stream, peer) = axum::serve::Listener::accept(&mut limited).await;
        if ready.is_closed() {
            return Err(());
        }
        let (ready, board) = (ready.clone(), Arc::clone(&board));
        let config = Arc::clone(&config.read().unwrap_or_else(PoisonError::into_inner));
        tokio::spawn(async move {
            match timeout(HANDSHAKE, TlsAcceptor::from(config).accept(stream)).await {
                Ok(Ok(stream)) => return drop(ready.send((stream, peer)).await),
                Ok(Err(error)) => tracing::debug!(%peer, "no TLS: {error}"),
                Err(_) => tracing::debug!(%peer, "no TLS within {HANDSHAKE:?}"),
            }
            board.answers.no_tls.fetch_add(1, Ordering::Relaxed);
        });
    }
}

impl axum::serve::Listener for Tls {
    type Io = TlsStream<Connection>;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        match self.ready.recv().await {
            Some(accepted) => accepted,
            // The task that accepts ends only with the runtime.
            None => std::future::pending().await,
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        Ok(self.address)
    }
}

#[cfg(test)]
mod tests {
    use std::process::Command;
    use std::sync::mpsc::Receiver;

    use axum::http::HeaderValue;

    use super::super::fetch::{News, from_controllers};
    use super::super::memory::Sealed;
    use super::*;
    use crate::config::fleet::Controllers;

    #[test]
    fn an_edge_has_to_have_a_certificate_where_one_is_asked_for() {
        let dir = tempfile::tempdir().unwrap();
        let path = |name: &str| dir.path().join(name);
        // Two authorities, of which each has signed one certificate.
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/services/certificates.sh");
        for name in ["ours", "theirs"] {
            std::fs::create_dir(path(name)).unwrap();
            let made = Command::new("sh").arg(script).arg(path(name)).output().unwrap();
            assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        }

        let pops = ["ams".to_owned()];
        let board = Arc::new(Board::new(&pops));
        board.publish(
            "ams",
            &Sealed {
                version: 7,
                until: clock::unix() + weirgate_units::Duration::from_secs(60),
                bytes: b"signed".to_vec(),
            },
        );
        let serve = Serve {
            listen: ([127, 0, 0, 1], 0).into(),
            certificate: (path("ours/server.crt"), path("ours/server.key")),
            token_file: None,
            clients_ca: Some(path("ours/ca.pem")),
        };
        let edges = Edges::open(&serve, &board).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let listener = runtime.block_on(TcpListener::bind(serve.listen)).unwrap();
        let url = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let (end, ended) = watch::channel(false);
        let serving = std::thread::spawn(move || runtime.block_on(edges.serve(listener, ended)));

        let file = |name: &str, file| path(name).join(file);
        let ask = |certificate: Option<&str>| {
            let certificate = certificate.map(|name| (file(name, "server.crt"), file(name, "server.key")));
            let ca = Some(path("ours/ca.pem"));
            let controllers = Controllers { urls: vec![url.clone()], ca, token_file: None, certificate };
            from_controllers(controllers, "ams").unwrap()
        };
        let next = |news: &Receiver<News>| news.recv_timeout(Duration::from_secs(20)).unwrap();
        let edge = ask(Some("ours"));
        assert!(matches!(next(&edge), News::Snapshot(bytes) if bytes == b"signed"));
        for stranger in [Some("theirs"), None] {
            let said = next(&ask(stranger));
            assert!(matches!(said, News::Unheard(why) if why.contains(&url)), "{stranger:?}");
        }
        // A certificate that was renewed before its key is waited for.
        std::fs::create_dir(path("renewed")).unwrap();
        let renew = |name, file_name| {
            std::fs::copy(file(name, file_name), file("renewed", file_name)).unwrap();
        };
        renew("ours", "server.crt");
        renew("theirs", "server.key");
        let renewed = ask(Some("renewed"));
        let said = next(&renewed);
        assert!(matches!(&said, News::Unheard(why) if why.contains("do not fit")), "{said:?}");
        renew("ours", "server.key");
        assert!((0..20).any(|_| matches!(next(&renewed), News::Snapshot(_))));
        drop(renewed);
        // Counted after it was said.
        let soon = |is_so: &dyn Fn() -> bool| {
            (0..500).any(|_| {
                let is_so = is_so();
                if !is_so {
                    std::thread::sleep(Duration::from_millis(10));
                }
                is_so
            })
        };
        assert!(soon(&|| board.answers.no_tls.load(Ordering::Relaxed) >= 2));
        // A controller that ends lets nobody wait, and says goodbye.
        // The one whose certificate was renewed may not have noticed yet that nobody listens to it.
        assert!(soon(&|| (1..=2).contains(&board.answers.waiting.load(Ordering::Relaxed))));
        end.send_replace(true);
        assert!(matches!(next(&edge), News::Same));
        serving.join().unwrap().unwrap();
        // It may have asked while the door was closing.
        assert!((0..5).any(|_| matches!(next(&edge), News::Unheard(why) if why.contains("refused"))));
    }

    #[test]
    fn what_an_edge_has_and_how_long_it_waits_is_read() {
        let mut headers = HeaderMap::new();
        assert_eq!((has(&headers).len(), wait(&headers)), (0, Duration::ZERO));
        headers.insert(header::IF_NONE_MATCH, HeaderValue::from_static("\"a\", \"b\""));
        headers.append("prefer", HeaderValue::from_static("respond-async, wait=20"));
        assert_eq!((has(&headers), wait(&headers)), (vec!["\"a\"", "\"b\""], Duration::from_secs(20)));
        headers.insert("prefer", HeaderValue::from_static("wait=99999999999"));
        assert_eq!(wait(&headers), WAIT_MAX);
        headers.insert("prefer", HeaderValue::from_static("wait=soon"));
        assert_eq!(wait(&headers), Duration::ZERO);
    }
}
