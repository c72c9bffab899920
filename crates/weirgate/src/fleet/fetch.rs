//! An edge asks its controllers, on a thread of its own, and hands over what they answer.
//!
//! They are asked in turn, the next one whenever one has had nothing new for a while: one that is cut off from the others looks just so.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::sleep;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use ureq::Agent;
use ureq::http::header;
use ureq::tls::{Certificate, ClientCert, PrivateKey, RootCerts, TlsConfig};
use weirgate_tune::snapshot::SIZE_MAX;

use super::{secret, tls};
use crate::config::fleet::Controllers;
use crate::random;

/// For how long a controller is asked to wait for news, in seconds.
const WAIT: u64 = 50;
/// An answer that takes longer than that and this is none.
const ANSWER: Duration = Duration::from_secs(15);
const CONNECT: Duration = Duration::from_secs(5);
/// After nobody has answered, and then twice that each time, up to the other.
const RETRY: Duration = Duration::from_secs(1);
const RETRY_MAX: Duration = Duration::from_secs(30);
/// Of what a server says, as much as is shown.
const SAID_MAX: u64 = 300;

/// What comes from where policies come from.
#[derive(Debug)]
pub(super) enum News {
    /// A snapshot, which nobody has looked at.
    Snapshot(Vec<u8>),
    /// There is nothing new.
    Same,
    /// A controller does not answer.
    Unheard(String),
    /// None of them does, each of which was told before.
    Nobody(String),
    /// Nothing can be had.
    Trouble(String),
}

/// Asks `controllers` for the policies of `pop` from now on, until what is returned is dropped.
pub(super) fn from_controllers(controllers: Controllers, pop: &str) -> Result<Receiver<News>> {
    let mut asking =
        Asking { etags: vec![None; controllers.urls.len()], controllers, pop: pop.to_owned(), agent: None };
    start(move |news| asking.run(news))
}

/// What each of `controllers` answers when it is asked for the policy of `pop` now.
pub(super) fn ask_each(controllers: &Controllers, pop: &str) -> Vec<(String, Result<News>)> {
    let all = controllers.urls.iter().enumerate().map(|(at, url)| {
        // Who knows of none is answered at once.
        let etags = vec![None; controllers.urls.len()];
        let mut asking = Asking { etags, controllers: controllers.clone(), pop: pop.to_owned(), agent: None };
        (url.clone(), asking.ask(at))
    });
    all.collect()
}

/// Runs `ask` on a thread of its own; it ends when there is nobody left to tell.
pub(super) fn start(ask: impl FnOnce(&SyncSender<News>) + Send + 'static) -> Result<Receiver<News>> {
    let (sender, news) = sync_channel(1);
    std::thread::Builder::new()
        .name("fleet".to_owned())
        .spawn(move || ask(&sender))
        .context("no thread can be started")?;
    Ok(news)
}

/// A pause after `failures` in a row, of which no two edges make the same.
pub(super) fn pause(failures: u32) {
    let longest = RETRY.saturating_mul(1 << failures.min(8)).min(RETRY_MAX);
    let draw = random::bytes::<1>().map_or(128, |[byte]| u32::from(byte));
    sleep(longest / 2 + longest * draw / 512);
}

struct Asking {
    controllers: Controllers,
    pop: String,
    /// What each has sent last.
    etags: Vec<Option<String>>,
    /// Made anew after a failure: certificates are renewed.
    agent: Option<Agent>,
}

impl Asking {
    fn run(&mut self, news: &SyncSender<News>) {
        let mut failures = 0;
        loop {
            let mut troubles = Vec::new();
            let mut is_answered = false;
            for at in 0..self.controllers.urls.len() {
                let told = match self.ask(at) {
                    Ok(answer) => {
                        is_answered = true;
                        news.send(answer)
                    }
                    Err(error) => {
                        self.agent = None;
                        self.etags[at] = None;
                        let why = format!("{}: {error:#}", self.controllers.urls[at]);
                        troubles.push(why.clone());
                        news.send(News::Unheard(why))
                    }
                };
                if told.is_err() {
                    return;
                }
            }
            failures = if is_answered { 0 } else { failures + 1 };
            if !is_answered {
                if news.send(News::Nobody(troubles.join("; "))).is_err() {
                    return;
                }
                pause(failures - 1);
            }
        }
    }

    fn ask(&mut self, at: usize) -> Result<News> {
        let agent = match &self.agent {
            Some(agent) => agent.clone(),
            None => self.agent.insert(agent(&self.controllers)?).clone(),
        };
        let mut request = agent.get(format!("{}/v1/policy/{}", self.controllers.urls[at], self.pop));
        if let Some(path) = &self.controllers.token_file {
            let token = secret("[fleet] token_file", path)?;
            request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        }
        // Who has nothing yet asks everybody first.
        let known: Vec<&str> = self.etags.iter().flatten().map(String::as_str).collect();
        if !known.is_empty() {
            request = request.header(header::IF_NONE_MATCH, known.join(", ")).header("prefer", format!("wait={WAIT}"));
        }
        let mut answer = request.call().map_err(unanswered)?;
        let etag = answer.headers().get(header::ETAG).and_then(|etag| etag.to_str().ok()).map(str::to_owned);
        match answer.status().as_u16() {
            200 => {
                let bytes = answer.body_mut().with_config().limit(SIZE_MAX.as_u64()).read_to_vec();
                let bytes = bytes.context("its answer breaks off, or is longer than any policy")?;
                self.etags[at] = etag;
                Ok(News::Snapshot(bytes))
            }
            304 => {
                self.etags[at] = etag;
                Ok(News::Same)
            }
            status => {
                let said = answer.body_mut().with_config().limit(SAID_MAX).lossy_utf8(true).read_to_string();
                bail!("status {status}: {}", said.unwrap_or_default().trim())
            }
        }
    }
}

/// Why nothing was heard, with what to do.
fn unanswered(error: ureq::Error) -> anyhow::Error {
    let of_tls = match &error {
        ureq::Error::Rustls(error) => Some(error),
        ureq::Error::Io(error) => error.get_ref().and_then(|error| error.downcast_ref()),
        _ => None,
    };
    let what = match of_tls {
        Some(rustls::Error::InvalidCertificate(_)) => {
            "its certificate is not believed: see [fleet] ca, and the name in it"
        }
        Some(rustls::Error::AlertReceived(_)) => {
            "does not believe this host's certificate, or wants one: see [fleet] certificate, and its [controller] clients_ca"
        }
        _ => "does not answer",
    };
    anyhow::Error::new(error).context(what)
}

fn agent(controllers: &Controllers) -> Result<Agent> {
    let roots = match &controllers.ca {
        None => RootCerts::PlatformVerifier,
        Some(ca) => {
            let roots = tls::certificates(ca).context("[fleet] ca")?;
            let roots: Vec<_> = roots.iter().map(|root| Certificate::from_der(root).to_owned()).collect();
            RootCerts::new_with_certs(&roots)
        }
    };
    let client = controllers.certificate.as_ref().map(|(certificate, key)| {
        let (chain, key) = tls::pair(certificate, key).context("[fleet] certificate and certificate_key")?;
        let chain: Vec<_> = chain.iter().map(|one| Certificate::from_der(one).to_owned()).collect();
        Ok::<_, anyhow::Error>(ClientCert::new_with_certs(&chain, PrivateKey::from_pem(&key)?))
    });
    let tls = TlsConfig::builder()
        .root_certs(roots)
        .client_cert(client.transpose()?)
        .unversioned_rustls_crypto_provider(tls::provider());
    Ok(Agent::config_builder()
        .tls_config(tls.build())
        .http_status_as_error(false)
        .https_only(true)
        .proxy(None)
        .max_redirects(0)
        .timeout_connect(Some(CONNECT))
        .timeout_global(Some(Duration::from_secs(WAIT) + ANSWER))
        .user_agent("weirgate")
        .build()
        .new_agent())
}
