//! The TCP page: the dashboard, `/api/v1`, `/metrics`. It can be read, and that is all.
//!
//! Ground rules: nothing here changes anything (changes come through the control socket). It binds loopback addresses
//! only, since there is neither TLS nor a token. It answers GET and HEAD, and only where the Host header names this
//! machine by a loopback name, so that a web site cannot read it through its visitor's browser (DNS rebinding).
//! Connections, their idle time and the rows of an answer are limited.

mod limit;

pub mod client;

#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::SystemTime;

use axum::extract::{Query, Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use rust_embed::RustEmbed;
use serde::Deserialize;
use serde::de::{Deserializer, Error};
use tokio::net::TcpListener;
use weirgate_units::UnixTime;

use crate::metrics;
use crate::view::{DECISIONS_MAX, NETWORKS_MAX, Order, Shared, api};
pub(crate) use limit::{Connection, Limited};

/// Rows of an answer whose request does not say how many.
const ROWS_DEFAULT: usize = 200;

/// The page could not be served.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The address can be reached from elsewhere.
    #[error(
        "{0} is not a loopback address: the page has neither TLS nor a password, so it is served to this machine only. \
         Write 127.0.0.1:{port} and reach it by `ssh -L {port}:127.0.0.1:{port}`", port = .0.port()
    )]
    NotLoopback(SocketAddr),
    /// Somebody else listens there.
    #[error(
        "{0} is taken by another program (`ss -tlnp sport = :{port}` names it): stop it, or set `listen` in [http] to \
         another port or to \"off\"", port = .0.port()
    )]
    Taken(SocketAddr),
    /// The kernel refused for another reason.
    #[error("the page cannot listen on {address}: {error}")]
    Refused {
        /// Where it was to listen.
        address: SocketAddr,
        /// What the kernel said.
        error: io::Error,
    },
}

/// The page, bound and not yet served.
#[derive(Debug)]
pub struct Server {
    listener: TcpListener,
    address: SocketAddr,
}

impl Server {
    /// Binds `address`; port 0 is any free one.
    pub async fn bind(address: SocketAddr) -> Result<Self, BindError> {
        if !address.ip().to_canonical().is_loopback() {
            return Err(BindError::NotLoopback(address));
        }
        let refused = |error: io::Error| match error.kind() {
            io::ErrorKind::AddrInUse => BindError::Taken(address),
            _ => BindError::Refused { address, error },
        };
        let listener = TcpListener::bind(address).await.map_err(refused)?;
        let address = listener.local_addr().map_err(refused)?;
        Ok(Self { listener, address })
    }

    /// Where it is bound.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves `shared` until `shutdown` is ready; answers under way are finished.
    pub async fn serve(self, shared: Shared, shutdown: impl Future<Output = ()> + Send + 'static) -> io::Result<()> {
        axum::serve(Limited::new(self.listener), router(shared)).with_graceful_shutdown(shutdown).await
    }
}

/// What `web/dist` held when this binary was built.
#[derive(RustEmbed)]
#[folder = "../../web/dist"]
struct Dist;

fn router(shared: Shared) -> Router {
    Router::new()
        .route("/healthz", get(async || "ok\n"))
        .route("/metrics", get(show_metrics))
        .route("/api/v1/status", get(async |State(view): State<Shared>| Json(view.status(now()))))
        .route("/api/v1/networks", get(networks))
        .route("/api/v1/decisions", get(decisions))
        .route("/api/v1/history", get(history))
        .route("/api/v1/limits", get(async |State(view): State<Shared>| Json(view.switch(now()))))
        .route("/api/v1/uplinks", get(async |State(view): State<Shared>| Json(view.uplinks(now()))))
        .route("/api/v1/deflate", get(async |State(view): State<Shared>| Json(view.deflate(now()))))
        .fallback(get(file))
        .with_state(shared)
        .layer(middleware::from_fn(guard))
}

async fn show_metrics(State(view): State<Shared>) -> Response {
    ([(header::CONTENT_TYPE, metrics::CONTENT_TYPE)], metrics::text(&view, now())).into_response()
}

/// How many rows are asked for, of the `MAX` that there may be.
fn at_most<'de, D: Deserializer<'de>, const MAX: usize>(from: D) -> Result<usize, D::Error> {
    let limit = usize::deserialize(from)?;
    if limit <= MAX { Ok(limit) } else { Err(D::Error::custom(format!("limit is at most {MAX}"))) }
}

const fn rows_default() -> usize {
    ROWS_DEFAULT
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NetworksQuery {
    #[serde(default)]
    sort: Order,
    #[serde(default = "rows_default", deserialize_with = "at_most::<_, NETWORKS_MAX>")]
    limit: usize,
}

async fn networks(State(view): State<Shared>, query: Result<Query<NetworksQuery>, BadQuery>) -> Response {
    answer(query, |q| view.networks(now(), q.sort, q.limit))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DecisionsQuery {
    #[serde(default = "rows_default", deserialize_with = "at_most::<_, DECISIONS_MAX>")]
    limit: usize,
}

async fn decisions(State(view): State<Shared>, query: Result<Query<DecisionsQuery>, BadQuery>) -> Response {
    answer(query, |q| view.decisions(now(), q.limit))
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Range {
    #[default]
    Hour,
    Day,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct HistoryQuery {
    #[serde(default)]
    range: Range,
}

async fn history(State(view): State<Shared>, query: Result<Query<HistoryQuery>, BadQuery>) -> Response {
    answer(query, |q| -> api::History { view.history(now(), matches!(q.range, Range::Day)) })
}

type BadQuery = axum::extract::rejection::QueryRejection;

/// The document that a well-formed query asks for, or what is wrong with the query.
fn answer<Q, T: serde::Serialize>(query: Result<Query<Q>, BadQuery>, document: impl FnOnce(Q) -> T) -> Response {
    match query {
        Ok(Query(query)) => Json(document(query)).into_response(),
        Err(bad) => refuse(StatusCode::BAD_REQUEST, &format!("{}; see docs/api.md", bad.body_text())),
    }
}

/// A file of the page. Vite names what is below `assets/` by its content, so that it never changes.
async fn file(uri: Uri) -> Response {
    let path = match uri.path().trim_start_matches('/') {
        "" => "index.html",
        path => path,
    };
    let Some(file) = Dist::get(path) else {
        return refuse(
            StatusCode::NOT_FOUND,
            "there is nothing here; the page is at /, the API at /api/v1 (docs/api.md)",
        );
    };
    let kind = match path.rsplit_once('.').map_or("", |(_, end)| end) {
        "html" => "text/html; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "svg" => "image/svg+xml",
        "json" => "application/json",
        _ => "application/octet-stream",
    };
    let cache = if path.starts_with("assets/") { "public, max-age=31536000, immutable" } else { "no-cache" };
    ([(header::CONTENT_TYPE, kind), (header::CACHE_CONTROL, cache)], file.data).into_response()
}

fn read_only() -> Response {
    let text = "this page can only be read: change things with `weirgate tune` on the host itself";
    let mut response = refuse(StatusCode::METHOD_NOT_ALLOWED, text);
    response.headers_mut().insert(header::ALLOW, HeaderValue::from_static("GET, HEAD"));
    response
}

/// Before anything else: whose name the request was made to, and by which method. After: the security headers.
pub(crate) async fn guard(request: Request, next: Next) -> Response {
    let host = request.headers().get(header::HOST).and_then(|value| value.to_str().ok());
    let mut response = if !host.is_some_and(is_loopback_name) {
        let text = "the Host header does not name a loopback address: open the page as http://127.0.0.1 or \
                    http://localhost with its port (a tunnel may use another port)";
        refuse(StatusCode::MISDIRECTED_REQUEST, text)
    } else if !matches!(*request.method(), Method::GET | Method::HEAD) {
        read_only()
    } else {
        next.run(request).await
    };
    let headers = response.headers_mut();
    for (name, value) in SECURITY_HEADERS {
        headers.insert(HeaderName::from_static(name), HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

/// Everything from this origin, nothing from elsewhere, in no frame. `style-src` needs no `unsafe-inline`: the chart sets
/// styles through the DOM, which the policy does not restrict.
const SECURITY_HEADERS: [(&str, &str); 5] = [
    (
        "content-security-policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; \
         base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    ),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "no-referrer"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Whether a Host header names a loopback address, by number or by the name that is one wherever it is typed (RFC 6761
/// 6.3). The port is not compared: through a tunnel it is another, and a rebinding site cannot choose the name.
fn is_loopback_name(host: &str) -> bool {
    let port = |port: &str| port.parse::<u16>().is_ok();
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((name, "")) => name,
            Some((name, after)) if after.strip_prefix(':').is_some_and(port) => name,
            _ => return false,
        },
        None => match host.split_once(':') {
            None => host,
            Some((name, after)) if port(after) => name,
            Some(_) => return false,
        },
    };
    if let Ok(address) = name.parse::<IpAddr>() {
        return address.to_canonical().is_loopback();
    }
    name.eq_ignore_ascii_case("localhost")
}

fn refuse(status: StatusCode, text: &str) -> Response {
    (status, [(header::CONTENT_TYPE, "text/plain; charset=utf-8")], format!("{text}\n")).into_response()
}

fn now() -> UnixTime {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    UnixTime::from_nanos(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX))
}
