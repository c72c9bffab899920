//! The clients: keep-alive HTTP/1.1 over kernel TCP from many addresses in many namespaces, on one thread with epoll.
//!
//! What is measured is measured here, at the client: when a request went out, when the last byte of its response came in,
//! and which bytes of the connection's stream the response was (so that a witness at the server can be held against it).

use std::mem::MaybeUninit;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use rustix::event::epoll;
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use weirgate_linux::netns::Netns;
use weirgate_units::Duration;

use super::plan::Planned;

/// One client: an address, a server, a connection that is kept, and what it is going to ask for.
#[derive(Debug)]
pub(crate) struct Client {
    /// Index of its arm.
    pub(crate) arm: u8,
    /// Index of its network.
    pub(crate) network: u8,
    /// Its number in the network.
    pub(crate) index: u16,
    source: IpAddr,
    server: SocketAddr,
    plan: Vec<Planned>,
    next: usize,
    connection: Option<Connection>,
}

#[derive(Debug)]
struct Connection {
    socket: OwnedFd,
    local_port: u16,
    connected: bool,
    /// Bytes of the server's stream received so far.
    received: u64,
    head: Vec<u8>,
    pending: Option<Pending>,
    requests: u16,
}

#[derive(Clone, Copy, Debug)]
struct Pending {
    planned: Planned,
    sent: Duration,
    first: Option<Duration>,
    stream_start: u64,
    /// Bytes of the body still to come; `None` until the head is complete.
    body_left: Option<u64>,
    body: u64,
}

/// One response, finished or not.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Response {
    /// Index of the arm.
    pub(crate) arm: u8,
    /// Index of the network.
    pub(crate) network: u8,
    /// The client's number in the network.
    pub(crate) client: u16,
    /// Index of the object asked for.
    pub(crate) object: u8,
    /// The client's port.
    pub(crate) local_port: u16,
    /// When it was due.
    pub(crate) due: Duration,
    /// When the request was sent, since the run began.
    pub(crate) sent: Duration,
    /// When the first byte came.
    pub(crate) first: Duration,
    /// When the last byte came; for an unfinished one, when the run ended.
    pub(crate) done: Duration,
    /// Bytes of the body received.
    pub(crate) body: u64,
    /// The bytes of the server's stream that it was, head included.
    pub(crate) stream: (u64, u64),
    /// Whether all of it came.
    pub(crate) finished: bool,
}

impl Response {
    /// Body bits per second between the request and the last byte.
    pub(crate) fn goodput_bps(&self) -> f64 {
        self.body as f64 * 8.0 / self.done.saturating_sub(self.sent).as_secs_f64().max(1e-9)
    }
}

impl Client {
    /// A client that will connect from `source`, in its network's namespace, when its first request is due.
    pub(crate) fn new(
        arm: u8,
        network: u8,
        index: u16,
        source: IpAddr,
        server: SocketAddr,
        plan: Vec<Planned>,
    ) -> Self {
        Self { arm, network, index, source, server, plan, next: 0, connection: None }
    }

    fn due(&self) -> Option<Duration> {
        let idle = self.connection.as_ref().is_none_or(|c| c.connected && c.pending.is_none());
        self.plan.get(self.next).filter(|_| idle).map(|p| p.due)
    }
}

/// All clients of a run.
pub(crate) struct Load<'a> {
    clients: Vec<Client>,
    namespace: Box<dyn Fn(u8, u8) -> &'a Netns + 'a>,
    files: Vec<String>,
    epoll: OwnedFd,
    responses: Vec<Response>,
    start: Instant,
    scratch: Vec<MaybeUninit<u8>>,
    failures: u64,
    requests_per_connection: u16,
}

impl<'a> Load<'a> {
    /// A run of `clients` that asks for `files` by the plans' object indexes. `namespace(arm, network)` is where they live.
    ///
    /// A client closes a connection after `requests_per_connection` responses and opens a new one for the next.
    pub(crate) fn new(
        clients: Vec<Client>,
        files: Vec<String>,
        requests_per_connection: u16,
        namespace: Box<dyn Fn(u8, u8) -> &'a Netns + 'a>,
    ) -> Result<Self> {
        Ok(Self {
            clients,
            namespace,
            files,
            epoll: epoll::create(epoll::CreateFlags::CLOEXEC)?,
            responses: Vec::new(),
            start: Instant::now(),
            scratch: vec![MaybeUninit::uninit(); 1 << 18],
            failures: 0,
            requests_per_connection,
        })
    }

    /// Runs until every planned request is answered, or `end`. `tick` is called about ten times a second with the time since the run began.
    pub(crate) fn run(mut self, end: Duration, mut tick: impl FnMut(Duration) -> Result<()>) -> Result<Outcome> {
        let mut events =
            vec![epoll::Event { flags: epoll::EventFlags::empty(), data: epoll::EventData::new_u64(0) }; 256];
        let mut next_tick = Duration::ZERO;
        loop {
            let now = self.now();
            if now >= next_tick {
                tick(now)?;
                next_tick = now.saturating_add(Duration::from_millis(100));
                let all_done = self
                    .clients
                    .iter()
                    .all(|c| c.next == c.plan.len() && c.connection.as_ref().is_none_or(|c| c.pending.is_none()));
                if all_done || now >= end {
                    return Ok(self.finish());
                }
            }
            let mut wake = next_tick;
            for index in 0..self.clients.len() {
                match self.clients[index].due() {
                    Some(due) if due <= now => self.begin(index)?,
                    Some(due) => wake = wake.min(due),
                    None => {}
                }
            }
            let wait = rustix::time::Timespec::try_from(wake.saturating_sub(self.now()).to_std())?;
            let count = match epoll::wait(&self.epoll, &mut *events, Some(&wait)) {
                Ok(count) => count,
                Err(Errno::INTR) => 0,
                Err(e) => return Err(e.into()),
            };
            for event in &events[..count] {
                self.handle_event(event.data.u64() as usize)?;
            }
        }
    }

    fn now(&self) -> Duration {
        self.start.elapsed().into()
    }

    /// Sends the next request of client `index`, over a new connection where it has none.
    fn begin(&mut self, index: usize) -> Result<()> {
        let now = self.now();
        let client = &mut self.clients[index];
        let Some(connection) = &mut client.connection else {
            let namespace = (self.namespace)(client.arm, client.network);
            let opened = namespace.within(|| open(client.source, client.server))?;
            let (socket, local_port) = opened.with_context(|| format!("connecting from {}", client.source))?;
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&self.epoll, &socket, data, epoll::EventFlags::IN | epoll::EventFlags::OUT)?;
            client.connection = Some(Connection {
                socket,
                local_port,
                connected: false,
                received: 0,
                head: Vec::new(),
                pending: None,
                requests: 0,
            });
            return Ok(());
        };
        let planned = client.plan[client.next];
        let file = &self.files[usize::from(planned.object)];
        let request =
            format!("GET /{file} HTTP/1.1\r\nHost: edge\r\nX-Client: {}-{}\r\n\r\n", client.network, client.index);
        match rustix::net::send(&connection.socket, request.as_bytes(), SendFlags::NOSIGNAL) {
            Ok(sent) if sent == request.len() => {}
            // An idle connection has room for a request of 60 bytes; if not, or if the server went away, start again.
            Ok(_) | Err(_) => {
                self.failures += 1;
                client.connection = None;
                return Ok(());
            }
        }
        client.next += 1;
        connection.requests += 1;
        connection.head.clear();
        connection.pending = Some(Pending {
            planned,
            sent: now,
            first: None,
            stream_start: connection.received,
            body_left: None,
            body: 0,
        });
        Ok(())
    }

    fn handle_event(&mut self, index: usize) -> Result<()> {
        let client = &mut self.clients[index];
        let Some(connection) = &mut client.connection else { return Ok(()) };
        if !connection.connected {
            if rustix::net::sockopt::socket_error(&connection.socket)?.is_err() {
                self.failures += 1;
                client.connection = None;
                return Ok(());
            }
            connection.connected = true;
            epoll::modify(
                &self.epoll,
                &connection.socket,
                epoll::EventData::new_u64(index as u64),
                epoll::EventFlags::IN,
            )?;
            return Ok(());
        }
        let result = rustix::net::recv(&connection.socket, &mut *self.scratch, RecvFlags::empty());
        let now: Duration = self.start.elapsed().into();
        match result {
            Ok(((bytes, _), _)) if !bytes.is_empty() => {
                connection.received += bytes.len() as u64;
                let done = connection.take(bytes, now)?;
                if let Some(pending) = done {
                    let over = connection.requests >= self.requests_per_connection;
                    let response = client.response(&pending, now, true);
                    self.responses.push(response);
                    if over {
                        client.connection = None;
                    }
                }
            }
            Err(Errno::AGAIN | Errno::INTR) => {}
            // The server closed or reset: a response that was under way is lost and said so.
            Ok(_) | Err(_) => {
                self.failures += 1;
                if let Some(pending) = connection.pending.take() {
                    let response = client.response(&pending, now, false);
                    self.responses.push(response);
                }
                client.connection = None;
            }
        }
        Ok(())
    }

    fn finish(mut self) -> Outcome {
        let now = self.now();
        for client in &mut self.clients {
            if let Some(pending) = client.connection.as_mut().and_then(|c| c.pending.take()) {
                let response = client.response(&pending, now, false);
                self.responses.push(response);
            }
        }
        let unsent = self.clients.iter().map(|c| c.plan.len() - c.next).sum();
        Outcome { responses: self.responses, failures: self.failures, unsent, clients: self.clients }
    }
}

/// What a run of the clients came to. Dropping it closes their connections.
pub(crate) struct Outcome {
    /// Every response, in the order of their ends; the unfinished last.
    pub(crate) responses: Vec<Response>,
    /// Connections that failed or were closed by the server.
    pub(crate) failures: u64,
    /// Requests that were planned and never sent, since an earlier one of the same client was not answered.
    pub(crate) unsent: usize,
    /// The clients, connections still open.
    pub(crate) clients: Vec<Client>,
}

impl Client {
    fn response(&self, pending: &Pending, now: Duration, finished: bool) -> Response {
        let connection = self.connection.as_ref();
        Response {
            arm: self.arm,
            network: self.network,
            client: self.index,
            object: pending.planned.object,
            local_port: connection.map_or(0, |c| c.local_port),
            due: pending.planned.due,
            sent: pending.sent,
            first: pending.first.unwrap_or(now),
            done: now,
            body: pending.body,
            stream: (pending.stream_start, connection.map_or(pending.stream_start, |c| c.received)),
            finished,
        }
    }
}

impl Connection {
    /// Takes in bytes of the stream; the pending response where they end it.
    fn take(&mut self, bytes: &[u8], now: Duration) -> Result<Option<Pending>> {
        let Some(pending) = &mut self.pending else { bail!("the server sent bytes that nobody asked for") };
        pending.first.get_or_insert(now);
        let body_now = match pending.body_left {
            Some(_) => bytes.len() as u64,
            None => {
                self.head.extend_from_slice(bytes);
                let mut headers = [httparse::EMPTY_HEADER; 32];
                let mut head = httparse::Response::new(&mut headers);
                let httparse::Status::Complete(length) = head.parse(&self.head)? else { return Ok(None) };
                if head.code != Some(200) {
                    bail!("the server answered {:?}", head.code);
                }
                let content_length = head.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
                let content_length = content_length.context("no Content-Length")?;
                pending.body_left = Some(std::str::from_utf8(content_length.value)?.parse()?);
                (self.head.len() - length) as u64
            }
        };
        let left = pending.body_left.unwrap_or(0);
        if body_now > left {
            bail!("the server sent {} bytes past the response's end", body_now - left);
        }
        pending.body += body_now;
        pending.body_left = Some(left - body_now);
        Ok(if left == body_now { self.pending.take() } else { None })
    }
}

/// A connection under way from `source` to `server`, in the calling thread's namespace.
fn open(source: IpAddr, server: SocketAddr) -> Result<(OwnedFd, u16)> {
    let family = if source.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = rustix::net::socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    rustix::net::bind(&socket, &SocketAddr::new(source, 0))?;
    match rustix::net::connect(&socket, &server) {
        Ok(()) | Err(Errno::INPROGRESS) => {}
        Err(e) => return Err(e.into()),
    }
    let local: SocketAddr = rustix::net::getsockname(&socket)?.try_into()?;
    Ok((socket, local.port()))
}
