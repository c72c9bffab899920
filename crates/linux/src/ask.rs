//! Questions to hosts beyond an uplink, over that uplink alone: ICMP echoes, and TCP connections that are opened and dropped. Read first:
//! icmp(7), raw(7), RFC 792, RFC 4443. Needs CAP_NET_RAW.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{set_socket_linger, socket_error};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, connect, ipproto, recv, sendto, socket_with,
};
use weirgate_switch::frame::checksum::Sum;
use weirgate_units::{BitRate, Bytes, Duration, Instant};

use crate::clock;
use crate::udp::bind_to_device;

/// A connection that was not answered for so long is dropped.
const PATIENCE: Duration = Duration::from_secs(5);

/// A train: 40 KB at once. Its last packet is waited for so long.
const TRAIN_PACKETS: u32 = 32;
const TRAIN_BYTES: usize = 1_200;
const TRAIN_PATIENCE: Duration = Duration::from_secs(1);
/// Fewer that came back say nothing.
const TRAIN_MIN: usize = 16;

/// Behind an echo's header: whose it is, its serial, and whether it is of a train.
const BODY_LEN: usize = 8 + 4 + 4;

/// Packets read in one call, so that nobody who answers too much holds up who asks.
const READS_MAX: usize = 256;

/// What came of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// That of this serial was answered.
    Heard(u32),
    /// A train came back at this rate: that of the slower direction.
    /// There is no such answer where too little came back, nor where the packets' stamps do not rise: the civil clock was set back, or the
    /// kernel did not stamp the first of them yet (it begins a moment after the first socket wants it). The next train tells.
    Train(BitRate),
}

/// Asks by one device.
#[derive(Debug)]
pub struct Asker {
    device: String,
    mark: u32,
    identifier: u16,
    salt: u64,
    /// For IPv4 and IPv6, each made when it is needed.
    icmp: [Option<OwnedFd>; 2],
    tcp: Vec<(u32, OwnedFd, Instant)>,
    train: Option<Train>,
    buffer: Vec<u8>,
}

#[derive(Clone, Debug)]
struct Train {
    began: Instant,
    /// When packets came back, and their bytes.
    came: Vec<(Instant, u64)>,
}

impl Train {
    /// That of its second half: the first may have passed a token bucket at the rate of the line before it.
    fn rate(&self) -> Option<BitRate> {
        let (middle, last) = (self.came.len() / 2, self.came.last().filter(|_| self.came.len() >= TRAIN_MIN)?);
        let (first, rest) = self.came[middle - 1..].split_first()?;
        BitRate::of(Bytes::new(rest.iter().map(|(_, len)| len).sum()), last.0.saturating_since(first.0))
    }
}

impl Asker {
    /// One whose packets go by `device` and have this firewall mark. `salt` tells its answers from others'.
    pub fn new(device: &str, mark: u32, salt: u64) -> Self {
        Self {
            device: device.to_owned(),
            mark,
            identifier: (salt >> 48) as u16,
            salt,
            icmp: [None, None],
            tcp: Vec::new(),
            train: None,
            buffer: vec![0; 2_048],
        }
    }

    /// Lets go of what was asked, and how. To be called when the device's name is another one's: sockets are bound to its number, and by
    /// that of a device that is gone nothing passes, though one of its name was made again; what IPv6 says to it is no more than that there
    /// is no way.
    pub fn forget(&mut self) {
        self.icmp = [None, None];
        self.tcp.clear();
        self.train = None;
    }

    /// Asks a host, by ICMP echo, or where a port is given by opening a TCP connection: that it is refused is an answer as well.
    ///
    /// # Errors
    /// As the system's: there is no such device, or no way.
    pub fn ask(&mut self, address: IpAddr, port: Option<u16>, serial: u32) -> io::Result<()> {
        match port {
            Some(port) => self.connect(SocketAddr::new(address, port), serial),
            None => self.echo(address, serial, 0, 0),
        }
    }

    /// Sends a train of packets to a host that sends them back.
    ///
    /// # Errors
    /// As [`Self::ask`]'s.
    pub fn send_train(&mut self, address: IpAddr) -> io::Result<()> {
        let now = clock::boottime();
        self.train = Some(Train { began: now, came: Vec::new() });
        (0..TRAIN_PACKETS).try_for_each(|serial| self.echo(address, serial, 1, TRAIN_BYTES - BODY_LEN))
    }

    /// What became of questions; never blocks. To be called when one of [`Self::fds`] is ready, and now and then.
    pub fn answers(&mut self, each: &mut dyn FnMut(Answer)) {
        let now = clock::boottime();
        for at in 0..2 {
            for _ in 0..READS_MAX {
                let Some((serial, is_train, len)) = self.read(at) else { break };
                let came = self.came_at(at);
                match serial {
                    Some(serial) if !is_train => each(Answer::Heard(serial)),
                    Some(_) => self.train.iter_mut().for_each(|train| train.came.push((came, len))),
                    None => {}
                }
            }
        }
        let is_over = |train: &Train| {
            train.came.len() >= TRAIN_PACKETS as usize || now.saturating_since(train.began) >= TRAIN_PATIENCE
        };
        if let Some(train) = self.train.take_if(|train| is_over(train))
            && let Some(rate) = train.rate()
        {
            each(Answer::Train(rate));
        }
        self.tcp.retain(|(serial, socket, began)| {
            let mut fd = [PollFd::new(socket, PollFlags::OUT)];
            let is_done = poll(&mut fd, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|ready| ready > 0);
            if is_done && matches!(socket_error(socket), Ok(Ok(()) | Err(Errno::CONNREFUSED))) {
                each(Answer::Heard(*serial));
            }
            !is_done && now.saturating_since(*began) < PATIENCE
        });
    }

    /// What to wait for: files that are ready when something came, and those that are when something can be written.
    pub fn fds(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        let icmp = self.icmp.iter().flatten().map(|socket| (socket.as_fd(), PollFlags::IN));
        icmp.chain(self.tcp.iter().map(|(_, socket, _)| (socket.as_fd(), PollFlags::OUT)))
    }

    fn connect(&mut self, address: SocketAddr, serial: u32) -> io::Result<()> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, None)?;
        self.prepare(&socket)?;
        // Dropped by a reset: nothing is left at either end.
        set_socket_linger(&socket, Some(std::time::Duration::ZERO))?;
        match connect(&socket, &address) {
            Ok(()) | Err(Errno::INPROGRESS | Errno::CONNREFUSED) => {}
            Err(error) => return Err(error.into()),
        }
        self.tcp.push((serial, socket, clock::boottime()));
        Ok(())
    }

    fn echo(&mut self, address: IpAddr, serial: u32, kind: u32, fill: usize) -> io::Result<()> {
        let at = usize::from(address.is_ipv6());
        if self.icmp[at].is_none() {
            self.icmp[at] = Some(self.open(at)?);
        }
        let Some(socket) = &self.icmp[at] else { return Ok(()) };
        let mut bytes = vec![if at == 0 { 8 } else { 128 }, 0, 0, 0];
        bytes.extend(self.identifier.to_be_bytes());
        bytes.extend((serial as u16).to_be_bytes());
        bytes.extend(self.salt.to_be_bytes());
        bytes.extend(serial.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.resize(bytes.len() + fill, 0);
        if at == 0 {
            // IPv6's is the kernel's work, which knows the address.
            let sum = Sum::default().bytes(&bytes).checksum();
            bytes[2..4].copy_from_slice(&sum.to_be_bytes());
        }
        sendto(socket, &bytes, SendFlags::empty(), &SocketAddr::new(address, 0))?;
        Ok(())
    }

    fn open(&self, at: usize) -> io::Result<OwnedFd> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let (family, protocol) = [(AddressFamily::INET, ipproto::ICMP), (AddressFamily::INET6, ipproto::ICMPV6)][at];
        let socket = socket_with(family, SocketType::RAW, flags, Some(protocol))?;
        self.prepare(&socket)?;
        // From now on there are some.
        let _none_yet = stamp(socket.as_fd());
        // Answers to echoes only: ICMP_FILTER of SOL_RAW and ICMP6_FILTER of IPPROTO_ICMPV6 are 1, a bit that is set is a type that is not
        // wanted, and echo replies are types 0 and 129.
        if at == 0 {
            set(socket.as_fd(), libc::SOL_RAW, 1, &(!1_u32).to_ne_bytes())?;
        } else {
            let mut unwanted = [0xff; 32];
            unwanted[16..20].copy_from_slice(&(!2_u32).to_ne_bytes());
            set(socket.as_fd(), libc::IPPROTO_ICMPV6, 1, &unwanted)?;
        }
        Ok(socket)
    }

    fn prepare(&self, socket: &OwnedFd) -> io::Result<()> {
        bind_to_device(socket.as_fd(), &self.device)?;
        set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, &self.mark.to_ne_bytes())
    }

    /// The serial of an echo that came back, whether it is of a train, and its bytes. `None`: there is nothing more; a serial of `None`: it
    /// is somebody else's.
    fn read(&mut self, at: usize) -> Option<(Option<u32>, bool, u64)> {
        let socket = self.icmp[at].as_ref()?;
        let (len, _) = recv(socket, &mut self.buffer[..], RecvFlags::empty()).ok()?;
        let bytes = &self.buffer[..len];
        // An IPv4 packet comes with its header.
        let header = if at == 0 { bytes.first().map_or(0, |first| usize::from(first & 0xf) * 4) } else { 0 };
        let serial = bytes.get(header..).and_then(|echo| own(echo, [0, 129][at], self.salt));
        let ip = if at == 0 { 0 } else { 40 };
        Some((serial.map(|(serial, _)| serial), serial.is_some_and(|(_, kind)| kind == 1), (len + ip) as u64))
    }

    /// When the kernel had the last packet that was read, by its civil clock: this thread may have been busy since.
    fn came_at(&self, at: usize) -> Instant {
        let stamp = self.icmp[at].as_ref().and_then(|socket| stamp(socket.as_fd()));
        stamp.unwrap_or_else(|| Instant::from_nanos(clock::unix().as_nanos()))
    }
}

/// The serial and kind of an echo reply of ours.
fn own(echo: &[u8], kind: u8, salt: u64) -> Option<(u32, u32)> {
    let body = echo.get(8..)?;
    let is_own = echo[0] == kind && body.first_chunk::<8>().is_some_and(|own| u64::from_be_bytes(*own) == salt);
    let word = |at: usize| Some(u32::from_be_bytes(*body.get(at..)?.first_chunk()?));
    is_own.then(|| Some((word(8)?, word(12)?))).flatten()
}

/// When the last packet came that was read of a socket (`SIOCGSTAMPNS`). The first call asks for time stamps, and has none.
fn stamp(socket: BorrowedFd<'_>) -> Option<Instant> {
    // Of 64-bit systems: a `struct timespec`.
    const STAMP: libc::Ioctl = 0x8907;
    // SAFETY: a `timespec` is plain old data, for which zeros are a value.
    let mut time: libc::timespec = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes one `timespec`, which lives as long as the call.
    let done = unsafe { libc::ioctl(socket.as_raw_fd(), STAMP, std::ptr::from_mut(&mut time)) };
    (done == 0).then(|| Instant::from_nanos(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64))
}

fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: &[u8]) -> io::Result<()> {
    // SAFETY: the value's bytes are there for the call, and are read only.
    let code =
        unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value.as_ptr().cast(), value.len() as libc::socklen_t) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Gives a socket's packets a firewall mark.
pub(crate) fn set_mark(fd: BorrowedFd<'_>, mark: u32) -> io::Result<()> {
    set(fd, libc::SOL_SOCKET, libc::SO_MARK, &mark.to_ne_bytes())
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn foreign_echoes_are_not_taken_for_answers() {
        let mut echo = vec![0, 0, 0, 0, 0, 0, 0, 0];
        echo.extend(7_u64.to_be_bytes());
        echo.extend(9_u32.to_be_bytes());
        echo.extend(1_u32.to_be_bytes());
        assert_eq!(own(&echo, 0, 7), Some((9, 1)));
        assert_eq!([own(&echo, 0, 8), own(&echo, 129, 7)], [None; 2]);
        assert!((0..echo.len()).all(|len| own(&echo[..len], 0, 7).is_none()));
    }

    #[test]
    fn a_train_says_what_passes_once_a_bucket_is_empty() {
        // 15 kB at once, then 40 Mbit/s.
        let (bucket, len) = (15_000, 1_228);
        let at = |n: u64| Instant::from_nanos(1 + (n * len).saturating_sub(bucket) * 200 + n);
        let train = |packets| Train { began: at(0), came: (1..=packets).map(|n| (at(n), len)).collect() };
        let rate = train(u64::from(TRAIN_PACKETS)).rate().unwrap().as_bits_per_sec();
        assert!((39_990_000..=40_000_000).contains(&rate), "{rate}");
        assert_eq!(train(15).rate(), None);
        // Stamps that do not rise.
        assert_eq!(Train { began: at(0), came: vec![(at(1), len); 32] }.rate(), None);
    }

    #[test]
    fn hosts_answer_by_echo_and_by_connection() {
        let mut asker = Asker::new("lo", 0, 0x1234_5678_9abc_def0);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let open = listener.local_addr().unwrap().port();
        let shut = {
            let gone = TcpListener::bind("127.0.0.1:0").unwrap();
            gone.local_addr().unwrap().port()
        };
        let here = "127.0.0.1".parse().unwrap();
        if let Err(error) = asker.ask(here, None, 1) {
            return println!("SKIPPED: {error}: it takes CAP_NET_RAW");
        }
        asker.ask(here, Some(open), 2).unwrap();
        asker.ask(here, Some(shut), 3).unwrap();
        let mut wanted = vec![1, 2, 3];
        if asker.ask("::1".parse().unwrap(), None, 4).is_ok() {
            wanted.push(4);
        }
        let (mut heard, mut train) = (Vec::new(), None);
        let mut listen = |asker: &mut Asker, wants_train: bool| {
            let began = std::time::Instant::now();
            while (heard.len() < wanted.len() || wants_train && train.is_none()) && began.elapsed().as_secs() < 3 {
                asker.answers(&mut |answer| match answer {
                    Answer::Heard(serial) => heard.push(serial),
                    Answer::Train(rate) => train = Some(rate),
                });
            }
            train
        };
        listen(&mut asker, false);
        // The first may say nothing: the kernel may not stamp packets yet.
        let train = (0..3).find_map(|_| {
            asker.send_train(here).unwrap();
            listen(&mut asker, true)
        });
        heard.sort_unstable();
        assert_eq!(heard, wanted);
        assert!(train.is_some_and(|rate| rate > BitRate::from_bits_per_sec(1_000_000)));
        assert!(Asker::new("no-such-device", 0, 1).ask(here, None, 1).is_err());
    }
}
