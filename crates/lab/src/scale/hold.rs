//! Many established sockets: child processes that each hold both ends of some thousand loopback connections.
//!
//! RLIMIT_NOFILE's hard limit may be 20,000, so that one process cannot hold 100,000.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use weirgate_linux::netns::Netns;

/// Connections of one child: 18,000 descriptors of 20,000.
const PER_CHILD: u32 = 9_000;

/// Children that hold connections; they end on drop.
pub(super) struct Held {
    children: Vec<Child>,
    /// Connections held; each is two sockets.
    pub(super) connections: u32,
}

impl Held {
    /// Has children in `ns` hold `connections`, each child on a loopback address of its own, and waits until all stand.
    pub(super) fn start(weirgate: &Path, ns: &Netns, connections: u32) -> Result<Self> {
        let mut held = Self { children: Vec::new(), connections };
        let mut left = connections;
        while left > 0 {
            let count = left.min(PER_CHILD);
            let address = Ipv4Addr::new(127, 0, 1, held.children.len() as u8 + 1);
            let mut command = Command::new(weirgate);
            command.args(["lab", "hold", &count.to_string(), &address.to_string()]);
            command.stdin(Stdio::piped()).stdout(Stdio::piped());
            held.children.push(ns.within(|| command.spawn())?.context("cannot start a child that holds connections")?);
            left -= count;
        }
        for child in &mut held.children {
            let out = child.stdout.as_mut().context("the child's output is a pipe")?;
            let mut line = String::new();
            BufReader::new(out).read_line(&mut line)?;
            ensure!(line.trim() == "ready", "a child that should hold connections said `{}`", line.trim());
        }
        Ok(held)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        for child in &mut self.children {
            drop(child.stdin.take());
        }
        for child in &mut self.children {
            let _ = child.wait();
        }
    }
}

/// The child: opens `connections` to itself on `address`, says `ready`, and holds them until its input ends.
pub fn hold(connections: u32, address: IpAddr) -> Result<()> {
    let wanted = u64::from(connections) * 2 + 64;
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    rustix::process::setrlimit(
        rustix::process::Resource::Nofile,
        rustix::process::Rlimit { current: Some(wanted), maximum: limit.maximum },
    )
    .with_context(|| format!("cannot open {wanted} files: the hard limit is {:?}", limit.maximum))?;
    let listener = TcpListener::bind(SocketAddr::new(address, 0))?;
    let to = listener.local_addr()?;
    let mut ends = Vec::with_capacity(connections as usize * 2);
    for _ in 0..connections {
        let mut client = TcpStream::connect(to)?;
        let (mut server, _) = listener.accept()?;
        // A few bytes, so that the sockets have something to tell.
        server.write_all(b"held")?;
        client.read_exact(&mut [0; 4])?;
        ends.push((client, server));
    }
    println!("ready");
    std::io::stdout().flush()?;
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
