//! A ClickHouse server, asked by HTTP: a statement in, its answer or what the server says against it out.
//!
//! Read first: <https://clickhouse.com/docs/en/interfaces/http>.
//!
//! ClickHouse's own library (`clickhouse` 0.15) was tried and is for rows: its client panics on a host without root certificates, for
//! `http://` too; its errors are texts; it asks in a format that 18.16 lacks unless told otherwise; and it needs a runtime. What is left
//! for statements is one POST.

use core::time::Duration;
use std::path::Path;
use std::sync::Arc;

use rustls::CertificateError;
use ureq::Agent;
use ureq::http::HeaderValue;
use ureq::tls::{PemItem, RootCerts, TlsConfig, parse_pem};

/// A server, and who asks it.
pub struct Server {
    url: String,
    user: String,
    /// Headers that say who asks.
    login: Vec<(&'static str, HeaderValue)>,
    agent: Agent,
    patience: Duration,
}

/// Why a server did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Not where a server can be.
    #[error(
        "`{0}` is no address of a ClickHouse server: write http://HOST:8123 or https://HOST:8443, without user and password"
    )]
    BadUrl(String),
    /// Not what can be in a header.
    #[error("{0} has characters that cannot be printed, which ClickHouse is not told by HTTP: choose another")]
    BadLogin(&'static str),
    /// No certificates of authorities.
    #[error("{path}: certificates in PEM cannot be read: {why}")]
    BadAuthority {
        /// The file.
        path: String,
        /// What is wrong with it.
        why: String,
    },
    /// Nobody answers.
    #[error(
        "no ClickHouse answers at {url} ({why}): is it running, and is this its HTTP port (8123, or 8443 for https)?"
    )]
    Away {
        /// Where it was asked.
        url: String,
        /// What happened.
        why: String,
    },
    /// It cannot show who it is.
    #[error(
        "the certificate at {url} is not trusted ({why}): name the PEM file of who signed it, with --ca or by [controller] clickhouse_ca"
    )]
    Untrusted {
        /// Where it was asked.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// It is a server of another name.
    #[error("the certificate at {url} is another server's ({why}): write the name that is in it into the address")]
    OtherName {
        /// Where it was asked.
        url: String,
        /// What is wrong with it.
        why: String,
    },
    /// Somebody else answers.
    #[error(
        "what answers at {url} is no ClickHouse: status {status}, {said}; name its HTTP port (8123, or 8443 for https)"
    )]
    Stranger {
        /// Where it was asked.
        url: String,
        /// The answer's status.
        status: u16,
        /// How the answer begins.
        said: String,
    },
    /// It does not know the user, or not with this password.
    #[error(
        "ClickHouse at {url} refuses user `{user}` or the password: name both, with --user and --password-file or in [controller]"
    )]
    Login {
        /// Where it was asked.
        url: String,
        /// By whom.
        user: String,
    },
    /// It knows the user, who may not do this.
    #[error("user `{user}` may not do `{statement}`, says ClickHouse: {said}")]
    Denied {
        /// Who asked.
        user: String,
        /// How the statement begins.
        statement: String,
        /// What the server said.
        said: String,
    },
    /// The database or a table is not there.
    #[error("ClickHouse did not do `{statement}`: {said}: has `weirgate store init` made the tables?")]
    NoTables {
        /// How the statement begins.
        statement: String,
        /// What the server said.
        said: String,
    },
    /// It would not do it.
    #[error("ClickHouse did not do `{statement}`: {said}")]
    Failed {
        /// How the statement begins.
        statement: String,
        /// What the server said.
        said: String,
    },
}

impl ServerError {
    /// `server` said something that no ClickHouse says.
    pub(super) fn stranger(server: &Server, said: &str) -> Self {
        Self::Stranger { url: server.url.clone(), status: 200, said: beginning(said) }
    }
}

/// Who asks where nobody is named.
const USER: &str = "default";
/// Nobody is further away.
const CONNECT: Duration = Duration::from_secs(10);
/// `ON CLUSTER` waits for 180 s (`distributed_ddl_task_timeout`) for all servers.
const ANSWER: Duration = Duration::from_secs(200);
/// Of a statement, as much as is shown.
const STATEMENT_MAX: usize = 120;
/// Of what a server says, as much as is shown.
const SAID_MAX: usize = 600;

// ErrorCodes.cpp of ClickHouse.
const UNKNOWN_TABLE: u32 = 60;
const UNKNOWN_DATABASE: u32 = 81;
const UNKNOWN_USER: u32 = 192;
const WRONG_PASSWORD: u32 = 193;
const REQUIRED_PASSWORD: u32 = 194;
const AUTHENTICATION_FAILED: u32 = 516;
const READONLY: u32 = 164;
const DATABASE_ACCESS_DENIED: u32 = 291;
const ACCESS_DENIED: u32 = 497;

impl Server {
    /// The server at `url`, asked by `user`, who is `default` where nobody is named. Nothing is sent.
    pub fn new(url: &str, user: Option<String>, password: Option<String>) -> Result<Self, ServerError> {
        let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        let is_address = |host: &str| {
            !host.is_empty()
                && !host.starts_with(['/', ':'])
                && !host.contains(['@', '?', '#'])
                && !host.contains(char::is_whitespace)
        };
        if !host.is_some_and(is_address) {
            return Err(ServerError::BadUrl(url.to_owned()));
        }
        let user = user.unwrap_or_else(|| USER.to_owned());
        let header =
            |what, text: &str| HeaderValue::from_bytes(text.as_bytes()).map_err(|_| ServerError::BadLogin(what));
        let mut login = vec![("X-ClickHouse-User", header("the user's name", &user)?)];
        if let Some(password) = password {
            login.push(("X-ClickHouse-Key", header("the password", &password)?));
        }
        let url = url.trim_end_matches('/').to_owned();
        Ok(Self { url, user, login, agent: agent(RootCerts::PlatformVerifier), patience: ANSWER })
    }

    /// The same, whose certificate one of the authorities in the PEM file `ca` has to have signed, in place of those of the system.
    pub fn with_authorities(self, ca: &Path) -> Result<Self, ServerError> {
        let bad = |why: String| ServerError::BadAuthority { path: ca.display().to_string(), why };
        let pem = std::fs::read(ca).map_err(|error| bad(error.to_string()))?;
        let mut roots = Vec::new();
        for item in parse_pem(&pem) {
            if let PemItem::Certificate(root) = item.map_err(|error| bad(error.to_string()))? {
                roots.push(root);
            }
        }
        if roots.is_empty() {
            return Err(bad("there is none in it".to_owned()));
        }
        Ok(Self { agent: agent(RootCerts::new_with_certs(&roots)), ..self })
    }

    /// The same, of which every answer is given up that takes longer than `patience`.
    #[must_use]
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// For how long it is waited for.
    pub(super) const fn patience(&self) -> Duration {
        self.patience
    }

    /// Where it is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Its version, as 25.8.1.5101.
    pub(super) fn version(&self) -> Result<String, ServerError> {
        let answer = self.ask("SELECT version()")?;
        let version = answer.trim();
        // A web server says 200 to whatever it is sent.
        if version.is_empty() || !version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') {
            return Err(ServerError::stranger(self, &answer));
        }
        Ok(version.to_owned())
    }

    /// Runs `statement`; its answer is tab-separated.
    pub(super) fn ask(&self, statement: &str) -> Result<String, ServerError> {
        self.ask_within(self.patience, statement)
    }

    /// Runs `statement`, and gives it up after `limit`; its answer is tab-separated.
    pub(super) fn ask_within(&self, limit: Duration, statement: &str) -> Result<String, ServerError> {
        let mut answer = self.send(limit, statement)?;
        let status = answer.status().as_u16();
        let is_exception = answer.headers().contains_key("X-ClickHouse-Exception-Code");
        let text = answer.body_mut().read_to_string().map_err(|error| self.away(&error))?;
        if status == 200 && !is_exception { Ok(text) } else { Err(self.error(statement, status, &text)) }
    }

    /// Runs `statement`, whose answer is bytes, and hands them to `read`.
    pub(super) fn ask_for_bytes<T>(
        &self,
        statement: &str,
        read: impl FnOnce(&mut dyn std::io::Read) -> T,
    ) -> Result<T, ServerError> {
        let mut answer = self.send(self.patience, statement)?;
        let status = answer.status().as_u16();
        if status != 200 || answer.headers().contains_key("X-ClickHouse-Exception-Code") {
            let text = answer.body_mut().read_to_string().map_err(|error| self.away(&error))?;
            return Err(self.error(statement, status, &text));
        }
        Ok(read(&mut answer.body_mut().with_config().limit(u64::MAX).reader()))
    }

    fn send(&self, limit: Duration, statement: &str) -> Result<ureq::http::Response<ureq::Body>, ServerError> {
        // The answer comes when all is done, so that its status tells of what failed on the way.
        let mut request = self.agent.post(format!("{}/?wait_end_of_query=1", self.url));
        for (name, value) in &self.login {
            request = request.header(*name, value);
        }
        let request = request.config().timeout_global(Some(limit)).build();
        request.send(statement).map_err(|error| self.away(&error))
    }

    fn away(&self, error: &ureq::Error) -> ServerError {
        let (url, why) = (self.url.clone(), error.to_string());
        let of_tls = match error {
            ureq::Error::Rustls(error) => Some(error),
            ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
            _ => None,
        };
        match of_tls {
            Some(rustls::Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) => ServerError::OtherName { url, why },
            Some(rustls::Error::InvalidCertificate(_) | rustls::Error::General(_)) => {
                ServerError::Untrusted { url, why }
            }
            _ => ServerError::Away { url, why },
        }
    }

    fn error(&self, statement: &str, status: u16, text: &str) -> ServerError {
        let (url, user) = (self.url.clone(), self.user.clone());
        let statement = statement.lines().next().unwrap_or_default().chars().take(STATEMENT_MAX).collect();
        let said = beginning(text);
        match code(text) {
            None => ServerError::Stranger { url, status, said },
            Some(UNKNOWN_USER | WRONG_PASSWORD | REQUIRED_PASSWORD | AUTHENTICATION_FAILED) => {
                ServerError::Login { url, user }
            }
            Some(READONLY | DATABASE_ACCESS_DENIED | ACCESS_DENIED) => ServerError::Denied { user, statement, said },
            Some(UNKNOWN_TABLE | UNKNOWN_DATABASE) => ServerError::NoTables { statement, said },
            Some(_) => ServerError::Failed { statement, said },
        }
    }
}

fn agent(roots: RootCerts) -> Agent {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let tls = TlsConfig::builder().root_certs(roots).unversioned_rustls_crypto_provider(provider);
    Agent::config_builder()
        .tls_config(tls.build())
        .http_status_as_error(false)
        .proxy(None)
        .max_redirects(0)
        // The server closes connections that are idle for seconds, maybe as they are used again.
        .max_idle_connections(0)
        .timeout_connect(Some(CONNECT))
        .user_agent("weirgate")
        .build()
        .new_agent()
}

/// The number of an exception, which is written `Code: 62. DB::Exception: ...`, or with a comma.
fn code(text: &str) -> Option<u32> {
    let (_, rest) = text.split_once("Code: ")?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    rest[..digits].parse().ok()
}

/// The beginning of what was said, in one line.
fn beginning(text: &str) -> String {
    let line = text.split_whitespace().collect::<Vec<_>>().join(" ");
    line.chars().take(SAID_MAX).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_servers_are_taken() {
        for url in ["http://127.0.0.1:8123", "https://clickhouse.example/path/", "http://[::1]:8123"] {
            assert!(Server::new(url, None, None).is_ok(), "{url}");
        }
        for url in
            ["", "127.0.0.1:8123", "http://", "http://:8123", "tcp://a:9000", "http://u:p@a", "http://a/?database=x"]
        {
            let refused = Server::new(url, None, None).err().map(|error| error.to_string());
            assert!(refused.is_some_and(|said| said.contains("write http://HOST:8123")), "{url}");
        }
    }

    #[test]
    fn what_a_server_says_is_told_apart() {
        let server = Server::new("http://127.0.0.1:8123/", Some("ann".to_owned()), None).ok().unwrap();
        let said = |status, text| server.error("CREATE TABLE t\n(", status, text).to_string();
        let old = "Code: 193, e.displayText() = DB::Exception: Wrong password for user ann, e.what() = DB::Exception";
        assert!(
            said(500, old).starts_with("ClickHouse at http://127.0.0.1:8123 refuses user `ann`"),
            "{}",
            said(500, old)
        );
        let new =
            "Code: 516. DB::Exception: ann: Authentication failed: password is incorrect. (AUTHENTICATION_FAILED)";
        assert!(said(403, new).contains("--password-file"));
        let denied = "Code: 497. DB::Exception: ann: Not enough privileges. (ACCESS_DENIED)\n";
        assert_eq!(
            said(403, denied),
            format!("user `ann` may not do `CREATE TABLE t`, says ClickHouse: {}", denied.trim())
        );
        assert!(
            said(400, "Code: 62. DB::Exception: Syntax error")
                .starts_with("ClickHouse did not do `CREATE TABLE t`: Code: 62.")
        );
        let native = "Port 9000 is for clickhouse-client program\r\nYou must use port 8123 for HTTP.\r\n";
        assert!(said(400, native).contains("no ClickHouse: status 400, Port 9000 is for"), "{}", said(400, native));
    }

    #[test]
    fn authorities_are_read_or_it_is_said_why_not() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("ca.pem");
        let said = || {
            let server = Server::new("https://127.0.0.1:1", None, None).ok().unwrap();
            server.with_authorities(&path).err().map(|error| error.to_string()).unwrap()
        };
        assert!(said().contains("ca.pem: certificates in PEM cannot be read: No such file"), "{}", said());
        for (text, why) in [("", "there is none in it"), ("-----BEGIN CERTIFICATE-----\n", "")] {
            std::fs::write(&path, text).unwrap();
            assert!(said().contains("cannot be read") && said().contains(why), "{}", said());
        }
    }

    #[test]
    fn nobody_s_port_is_said_to_be_nobody_s() {
        let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = Server::new(&format!("http://127.0.0.1:{port}"), None, None).ok().unwrap();
        let said = server.version().unwrap_err().to_string();
        assert!(said.contains("refused") && said.contains("is it running"), "{said}");
    }
}
