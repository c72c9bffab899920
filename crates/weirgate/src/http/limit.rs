//! Limits on connections: how many at a time, and how long one may say nothing.
//!
//! Whoever may open a loopback socket could otherwise hold all of the daemon's descriptors.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};

/// Connections at a time; more wait to be accepted. A browser opens six, Prometheus one.
const CONNECTIONS_MAX: usize = 64;
/// A connection that neither reads nor writes for so long is closed. Longer than the page's refresh, so that it keeps
/// its connection.
const IDLE_MAX: Duration = Duration::from_secs(20);

/// A listener that keeps to the limits.
pub(crate) struct Limited {
    listener: TcpListener,
    room: Arc<Semaphore>,
    idle_max: Duration,
}

/// A connection that counts against the limits until it is dropped.
pub(crate) struct Connection {
    stream: TcpStream,
    idle: Pin<Box<Sleep>>,
    idle_max: Duration,
    _room: OwnedSemaphorePermit,
}

impl Limited {
    /// The limits of a page on loopback.
    pub(crate) fn new(listener: TcpListener) -> Self {
        Self::with(listener, CONNECTIONS_MAX, IDLE_MAX)
    }

    /// At most `connections_max` at a time, of which none says nothing for longer than `idle_max`.
    pub(crate) fn with(listener: TcpListener, connections_max: usize, idle_max: Duration) -> Self {
        Self { listener, room: Arc::new(Semaphore::new(connections_max)), idle_max }
    }
}

impl axum::serve::Listener for Limited {
    type Io = Connection;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let room = self.room.clone().acquire_owned().await.expect("the semaphore is never closed");
        loop {
            match self.listener.accept().await {
                Ok((stream, peer)) => {
                    let idle = Box::pin(sleep(self.idle_max));
                    return (Connection { stream, idle, idle_max: self.idle_max, _room: room }, peer);
                }
                // Out of descriptors or memory, or the peer is gone already: neither ends by trying at once.
                Err(error) => {
                    tracing::debug!(%error, "the page could not accept a connection");
                    sleep(Duration::from_millis(100)).await;
                }
            }
        }
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

impl Connection {
    /// `result`, or an error where it has been pending for too long.
    fn or_idle<T>(&mut self, cx: &mut Context<'_>, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if result.is_ready() {
            self.idle.as_mut().reset(Instant::now() + self.idle_max);
            return result;
        }
        self.idle.as_mut().poll(cx).map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for Connection {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        self.or_idle(cx, result)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.or_idle(cx, result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.or_idle(cx, result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}
