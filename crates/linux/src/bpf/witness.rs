//! The experiments' independent witness: which bytes left under which congestion control. Twin: `bpf/witness.bpf.c`.
//!
//! For the lab; the daemon never loads it.

use std::fs::File;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use libbpf_rs::skel::{OpenSkel, SkelBuilder};
use libbpf_rs::{Link, MapCore, MapFlags, MapHandle, RingBuffer, RingBufferBuilder};
use weirgate_sockets::sample::CcName;
use zerocopy::{FromBytes, Immutable, KnownLayout};

use super::load::{LoadError, explain};

/// One data segment that left under something else than the default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct Segment {
    /// Inode of the sender's network namespace.
    pub netns: u32,
    /// The sender's port.
    pub local_port: u16,
    /// The receiver's port.
    pub remote_port: u16,
    /// The receiver's address, IPv4 mapped into IPv6.
    pub remote: [u8; 16],
    /// Offset of its first byte in the sender's stream.
    pub start: u64,
    /// Offset past its last byte.
    pub end: u64,
    /// The congestion control in use as it left.
    pub cc: CcName,
}

/// The program, attached to a control group.
pub struct Witness {
    _link: Link,
    ring: RingBuffer<'static>,
    counts: MapHandle,
    taken: Arc<Mutex<Vec<Segment>>>,
}

/// What the witness saw and what it had no room for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WitnessCounters {
    /// Segments under something else than the default.
    pub seen: u64,
    /// Of these, the ones that found no room in the ring; a verdict needs this to be zero.
    pub lost: u64,
}

impl Witness {
    /// Watches the sockets of `cgroup` with local port `server_port` for segments that leave under anything but `default_cc`.
    pub fn attach(cgroup: &Path, server_port: u16, default_cc: CcName) -> Result<Self, LoadError> {
        let cgroup =
            File::open(cgroup).map_err(|source| LoadError::Cgroup { path: cgroup.display().to_string(), source })?;
        let mut object = MaybeUninit::uninit();
        explain("witness.bpf.c", "it needs Linux 5.9 or later with CONFIG_CGROUP_BPF", || {
            let mut open = skel::WitnessSkelBuilder::default().open(&mut object)?;
            if let Some(data) = open.maps.rodata_data.as_deref_mut() {
                data.server_port = server_port;
                data.default_cc = default_cc.as_bytes().map(|b| b as i8);
            }
            let skel = open.load()?;
            let taken = Arc::new(Mutex::new(Vec::new()));
            let sink = Arc::clone(&taken);
            let segments = MapHandle::try_from(&skel.maps.segments)?;
            let mut builder = RingBufferBuilder::new();
            builder.add(&segments, move |bytes| {
                if let Ok((segment, _)) = Segment::read_from_prefix(bytes) {
                    sink.lock().unwrap_or_else(PoisonError::into_inner).push(segment);
                }
                0
            })?;
            Ok(Self {
                _link: skel.progs.wg_witness.attach_cgroup(cgroup.as_raw_fd())?,
                ring: builder.build()?,
                counts: MapHandle::try_from(&skel.maps.bss)?,
                taken,
            })
        })
    }

    /// The segments since the last call, in the order they left.
    pub fn drain(&self) -> Result<Vec<Segment>, libbpf_rs::Error> {
        self.ring.poll(Duration::ZERO)?;
        Ok(std::mem::take(&mut self.taken.lock().unwrap_or_else(PoisonError::into_inner)))
    }

    /// Totals since the attachment.
    pub fn counters(&self) -> Result<WitnessCounters, libbpf_rs::Error> {
        let bytes = self.counts.lookup(&0u32.to_ne_bytes(), MapFlags::ANY)?.unwrap_or_default();
        let word =
            |at: usize| bytes.get(at..at + 8).map_or(0, |b| u64::from_ne_bytes(b.try_into().unwrap_or_default()));
        Ok(WitnessCounters { seen: word(0), lost: word(8) })
    }
}

skeleton!("/witness.skel.rs");

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn segments_under_another_algorithm_are_seen_with_their_place_in_the_stream() {
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: the witness needs root");
            return;
        }
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut client = TcpStream::connect(address).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let own = rustix::net::sockopt::tcp_congestion(&server).unwrap();
        let other = if own == "reno" { "cubic" } else { "reno" };
        let witness =
            Witness::attach(&crate::cgroup::root().unwrap(), address.port(), CcName::new(&own).unwrap()).unwrap();

        let send = |server: &mut TcpStream, client: &mut TcpStream, n: usize| {
            server.write_all(&vec![7; n]).unwrap();
            client.read_exact(&mut vec![0; n]).unwrap();
        };
        send(&mut server, &mut client, 1000);
        assert_eq!(witness.drain().unwrap(), [], "the default is not reported");
        rustix::net::sockopt::set_tcp_congestion(&server, other).unwrap();
        send(&mut server, &mut client, 5000);
        let seen = witness.drain().unwrap();
        assert!(seen.iter().all(|s| s.cc.as_str() == other && s.remote_port == client.local_addr().unwrap().port()));
        assert_eq!(seen.iter().map(|s| s.start).min(), Some(1000));
        assert_eq!(seen.iter().map(|s| s.end).max(), Some(6000));
        assert_eq!(witness.counters().unwrap().lost, 0);
    }
}
