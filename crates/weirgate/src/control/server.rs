//! The daemon's side of the door.

use std::io;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::os::unix::net::UnixStream as StdUnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, oneshot};

use super::{Call, LINE_MAX, Reply, Request};
use crate::journal::Actor;

/// A caller that says nothing for so long is hung up on, so that it cannot hold a place for ever.
const PATIENCE: Duration = Duration::from_secs(10);
/// Calls at one time; a person and a script need two.
const CALLS_MAX: usize = 16;

/// The socket, listening. Its name goes when it is dropped.
#[derive(Debug)]
pub struct Door {
    path: PathBuf,
    listener: UnixListener,
}

/// Why the door cannot be opened. The daemon does not start then.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another daemon listens there.
    #[error("{0}: another weirgate answers there: stop it, or give this one its own [control] socket")]
    Taken(PathBuf),
    /// The system refused.
    #[error("the control socket {path}: {source}: run as root, or set [control] socket to a path you can write")]
    Io {
        /// The socket's path.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Door {
    /// Listens at `path`, for its owner only from the first moment: the socket is bound under another name, closed to
    /// everybody else, and then renamed. Must be called within a tokio runtime.
    pub fn open(path: &Path) -> Result<Self, BindError> {
        if StdUnixStream::connect(path).is_ok() {
            return Err(BindError::Taken(path.to_owned()));
        }
        Self::bind(path).map_err(|source| BindError::Io { path: path.to_owned(), source })
    }

    fn bind(path: &Path) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            std::fs::DirBuilder::new().recursive(true).mode(0o755).create(dir)?;
        }
        let early = path.with_extension(std::process::id().to_string());
        let _ = std::fs::remove_file(&early);
        let bound = UnixListener::bind(&early).and_then(|listener| {
            std::fs::set_permissions(&early, std::fs::Permissions::from_mode(0o600))?;
            std::fs::rename(&early, path)?;
            Ok(listener)
        });
        if bound.is_err() {
            let _ = std::fs::remove_file(&early);
        }
        Ok(Self { path: path.to_owned(), listener: bound? })
    }

    /// Takes calls and hands them to `forward` until the future is dropped.
    pub async fn serve(self, forward: impl Fn(Call) + Clone + Send + Sync + 'static) {
        let places = Arc::new(Semaphore::new(CALLS_MAX));
        loop {
            let Ok(place) = places.clone().acquire_owned().await else { return };
            match self.listener.accept().await {
                Ok((stream, _)) => {
                    let forward = forward.clone();
                    tokio::spawn(async move {
                        if let Err(error) = answer(stream, forward).await {
                            tracing::warn!(%error, "a call on the control socket broke off");
                        }
                        drop(place);
                    });
                }
                Err(error) => {
                    // Out of descriptors: others may end soon.
                    tracing::warn!(%error, "the control socket accepts nobody");
                    tokio::time::sleep(Duration::from_secs(1)).await;
                }
            }
        }
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.path);
    }
}

async fn answer(mut stream: UnixStream, forward: impl Fn(Call)) -> io::Result<()> {
    let peer = stream.peer_cred()?;
    let mut line = String::new();
    let mut reader = BufReader::new((&mut stream).take(LINE_MAX));
    tokio::time::timeout(PATIENCE, reader.read_line(&mut line)).await??;
    let pid = peer.pid().and_then(|pid| u32::try_from(pid).ok()).unwrap_or(0);
    if line.is_empty() {
        // Somebody only asked whether anybody is here, as another daemon does before it starts.
        return Ok(());
    }
    let actor = Actor { name: "control".to_owned(), uid: peer.uid(), pid };
    let reply = match serde_json::from_str::<Request>(&line) {
        Ok(request) => {
            if request.is_change() {
                tracing::info!(?request, uid = actor.uid, pid = actor.pid, gid = peer.gid(), "control");
            } else {
                tracing::debug!(?request, uid = actor.uid, pid = actor.pid, "control");
            }
            let (reply, answered) = oneshot::channel();
            forward(Call { request, actor, reply });
            answered.await.unwrap_or_else(|_| Reply::Error("the daemon is stopping".to_owned()))
        }
        Err(error) => {
            tracing::warn!(uid = actor.uid, pid = actor.pid, %error, "control: not a request");
            Reply::Error(format!("not a request this version knows: {error}"))
        }
    };
    let mut text = serde_json::to_vec(&reply)?;
    text.push(b'\n');
    tokio::time::timeout(PATIENCE, stream.write_all(&text)).await??;
    stream.shutdown().await
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};

    use super::*;
    use crate::control::{CallError, call};

    fn runtime() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
    }

    fn echo(call: Call) {
        let said = serde_json::json!({ "request": call.request, "uid": call.actor.uid, "pid": call.actor.pid });
        let _ = call.reply.send(Reply::Ok(said));
    }

    fn with_door(test: impl FnOnce(PathBuf) + Send + 'static) {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control.sock");
        runtime().block_on(async {
            let serving = tokio::spawn(Door::open(&path).unwrap().serve(echo));
            let at = path.clone();
            tokio::task::spawn_blocking(move || test(at)).await.unwrap();
            serving.abort();
            let _ = serving.await;
        });
        assert!(!path.exists(), "the socket goes with the door");
    }

    #[test]
    fn a_call_is_answered_and_the_caller_known() {
        with_door(|path| {
            let answer = call(&path, &Request::TuneExplain { network: "192.0.2.0/24".into() }).unwrap();
            assert_eq!(answer["request"]["command"], "tune-explain");
            assert_eq!(answer["uid"], rustix::process::geteuid().as_raw());
            assert_eq!(answer["pid"], std::process::id());
        });
    }

    #[test]
    fn only_the_owner_may_open_it() {
        with_door(|path| assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600));
    }

    #[test]
    fn a_second_door_is_refused_and_a_stale_one_replaced() {
        with_door(|path| {
            let runtime = runtime();
            let _guard = runtime.enter();
            assert!(matches!(Door::open(&path), Err(BindError::Taken(_))));
        });
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control.sock");
        // What a killed daemon leaves: the name of a socket that nobody listens on.
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        let runtime = runtime();
        let _guard = runtime.enter();
        Door::open(&path).unwrap();
    }

    #[test]
    fn garbage_is_answered_with_an_error() {
        with_door(|path| {
            let mut stream = StdUnixStream::connect(&path).unwrap();
            stream.write_all(b"{\"command\":\"format-disk\"}\n").unwrap();
            let mut text = String::new();
            stream.read_to_string(&mut text).unwrap();
            assert!(text.contains("not a request this version knows"), "{text}");
        });
    }

    #[test]
    fn who_says_nothing_is_answered_nothing() {
        with_door(|path| {
            let mut stream = StdUnixStream::connect(&path).unwrap();
            stream.shutdown(std::net::Shutdown::Write).unwrap();
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, [0; 0]);
        });
    }

    #[test]
    fn nobody_there_says_how_to_start() {
        let error = call(Path::new("/nonexistent/weirgate.sock"), &Request::TuneStatus).unwrap_err();
        assert!(matches!(error, CallError::Nobody { .. }));
        assert!(error.to_string().contains("weirgate run"), "{error}");
    }
}
