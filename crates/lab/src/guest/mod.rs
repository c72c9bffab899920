//! A virtual machine that does what it is told: QEMU with the kernel and initramfs of `scripts/guest.sh`, network cards over
//! vhost-user, and a virtio-serial port through which commands go in and their output comes out.
//!
//! Emulated (TCG), not virtualised: it runs where there is no KVM, and boots in three to six seconds of one processor.

mod cable;

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::process::Killed;
pub use crate::recorder::{Passed, Record};
pub use cable::{Cable, Way};

/// The guest's address.
pub const GUEST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);

/// That of the cable's other end.
pub const HOST: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);

/// How long a guest may take to boot on a machine that is busy with other things.
const BOOT_TIME_MAX: Duration = Duration::from_secs(90);

/// What kind of guest.
#[derive(Clone, Debug)]
pub struct GuestOptions {
    /// Mebibytes of memory. 256 are enough for iperf3.
    pub memory_mib: u32,
    /// Processors.
    pub cpus: u32,
    /// Network cards, in the guest `eth0` and on.
    pub cards: Vec<Card>,
}

/// A network card of which another process is the device.
#[derive(Clone, Debug)]
pub struct Card {
    /// The Unix socket at which the device listens.
    pub socket: PathBuf,
    /// Its address: `52:54:00:...`.
    pub mac: String,
    /// Queue pairs.
    pub queues: u16,
}

/// What a command in the guest left behind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// Its exit status.
    pub status: i32,
    /// Its standard output and error, as they came.
    pub text: String,
}

/// A running guest. Killed when dropped.
#[derive(Debug)]
pub struct Guest {
    port: BufReader<UnixStream>,
    _qemu: Killed,
    folder: TempDir,
}

/// Where `scripts/guest.sh` has put the kernel and its initramfs.
///
/// # Errors
/// Where it has not, or there is no QEMU: with what to do.
pub fn image() -> io::Result<PathBuf> {
    let home = std::env::var_os("HOME").unwrap_or_default();
    let image = Path::new(&home).join(".cache/weirgate/guest");
    if !image.join("version").exists() {
        return Err(io::Error::other(format!("no virtual machine in {}: run `make setup`", image.display())));
    }
    let qemu = Command::new("qemu-system-x86_64").arg("--version").stdout(Stdio::null()).status();
    qemu.map(|_| image).map_err(|e| io::Error::other(format!("qemu-system-x86_64 ({e}): run `make setup`")))
}

impl Guest {
    /// Boots one, and returns when it takes commands.
    ///
    /// # Errors
    /// Where there is no image or no QEMU, or the guest does not come up within a minute and a half: with its console's end.
    pub fn boot(options: &GuestOptions) -> io::Result<Self> {
        let image = image()?;
        let folder = tempfile::tempdir()?;
        let (control, console) = (folder.path().join("control"), folder.path().join("console"));
        let mut command = Command::new("qemu-system-x86_64");
        command.args(["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot", "-cpu", "max"]);
        command.args(["-machine", "q35,accel=tcg,memory-backend=memory"]);
        command.args(["-m", &options.memory_mib.to_string(), "-smp", &options.cpus.to_string()]);
        // Shared, so that the device can map it.
        command.arg("-object").arg(format!("memory-backend-memfd,id=memory,size={}M,share=on", options.memory_mib));
        command.arg("-kernel").arg(image.join("vmlinuz")).arg("-initrd").arg(image.join("initramfs"));
        command.args(["-append", "console=ttyS0 quiet panic=-1 mitigations=off"]);
        command.arg("-serial").arg(format!("file:{}", console.display()));
        command.arg("-chardev").arg(format!("socket,id=control,path={},server=on,wait=off", control.display()));
        command.args(["-device", "virtio-serial-pci", "-device", "virtserialport,chardev=control,name=control"]);
        for (n, card) in options.cards.iter().enumerate() {
            let queues = card.queues;
            // It connects again, once a second, when the device was restarted.
            command.arg("-chardev").arg(format!("socket,id=c{n},path={},reconnect=1", card.socket.display()));
            command.arg("-netdev").arg(format!("vhost-user,id=n{n},chardev=c{n},queues={queues}"));
            // Without MSI-X: QEMU 7.2 (Debian 12) follows a null pointer where vhost's interrupts come by it without KVM.
            let mq = if queues > 1 { "on" } else { "off" };
            let device = format!("virtio-net-pci,netdev=n{n},mac={},mq={mq},vectors=0,romfile=", card.mac);
            command.arg("-device").arg(device);
        }
        let said = std::fs::File::create(folder.path().join("qemu"))?;
        let mut qemu = Killed(command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(said).spawn()?);
        let port = connect(&mut qemu, &control)
            .map_err(|e| io::Error::other(format!("{e}: {}", last_words(folder.path()))))?;
        let mut guest = Self { port, _qemu: qemu, folder };
        guest.run_within("true", BOOT_TIME_MAX)?;
        Ok(guest)
    }

    /// Boots one with a card of `queues` queues and as many processors, whose device listens at `socket`, gives it the address
    /// [`GUEST`], and waits until its link is up.
    ///
    /// # Errors
    /// As [`boot`](Self::boot); where its link does not come up.
    pub fn with_card(socket: &Path, queues: u16) -> io::Result<Self> {
        let card = Card { socket: socket.to_owned(), mac: "52:54:00:00:00:02".to_owned(), queues };
        let mut guest = Self::boot(&GuestOptions { memory_mib: 256, cpus: queues.into(), cards: vec![card] })?;
        guest.expect(&format!("ip addr add {GUEST}/24 dev eth0 && ip link set eth0 up"))?;
        guest.link_up()?;
        Ok(guest)
    }

    /// Waits until the guest's kernel uses its first card: a second after the device has come.
    ///
    /// # Errors
    /// Where that takes more than ten seconds.
    pub fn link_up(&mut self) -> io::Result<()> {
        let up = "for i in $(seq 100); do grep -q up /sys/class/net/eth0/operstate && exit; sleep 0.1; done; exit 1";
        self.expect(up).map(drop)
    }

    /// Runs one line of shell in the guest, a minute at most, and gives what it printed.
    ///
    /// # Errors
    /// As [`run`](Self::run), and where its exit status is not zero.
    pub fn expect(&mut self, command: &str) -> io::Result<String> {
        match self.run(command)? {
            Output { status: 0, text } => Ok(text),
            Output { status, text } => Err(io::Error::other(format!("`{command}` in the guest: {status}, {text}"))),
        }
    }

    /// Runs one line of shell in the guest and waits for its end, a minute at most. What it leaves in the background goes on.
    ///
    /// # Errors
    /// Where it takes longer, or the guest is gone: with its console's end.
    pub fn run(&mut self, command: &str) -> io::Result<Output> {
        self.run_within(command, Duration::from_secs(60))
    }

    /// The same, with a limit of its own.
    pub fn run_within(&mut self, command: &str, limit: Duration) -> io::Result<Output> {
        assert!(!command.contains('\n'), "a command is one line");
        let result = self.converse(command, limit);
        result
            .map_err(|e| io::Error::other(format!("`{command}` in the guest: {e}; {}", last_words(self.folder.path()))))
    }

    fn converse(&mut self, command: &str, limit: Duration) -> io::Result<Output> {
        self.port.get_ref().set_read_timeout(Some(limit))?;
        writeln!(self.port.get_mut(), "{command}")?;
        let mut line = String::new();
        self.port.read_line(&mut line)?;
        let numbers: Option<(i32, usize)> =
            line.trim().split_once(' ').and_then(|(status, len)| Some((status.parse().ok()?, len.parse().ok()?)));
        let (status, len) = numbers.ok_or_else(|| io::Error::other(format!("it answered {line:?}")))?;
        let mut text = vec![0; len];
        self.port.read_exact(&mut text)?;
        Ok(Output { status, text: String::from_utf8_lossy(&text).into_owned() })
    }

    /// Ends it as a power cut does.
    pub fn kill(self) {}
}

/// Waits for QEMU to open its port.
fn connect(qemu: &mut Killed, control: &Path) -> io::Result<BufReader<UnixStream>> {
    let start = Instant::now();
    loop {
        if let Ok(port) = UnixStream::connect(control) {
            return Ok(BufReader::new(port));
        }
        if qemu.0.try_wait()?.is_some() || start.elapsed() > BOOT_TIME_MAX {
            return Err(io::Error::other("QEMU does not start"));
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// What QEMU said, and the last lines of the guest's console.
fn last_words(folder: &Path) -> String {
    let tail = |name| {
        let text = std::fs::read(folder.join(name)).unwrap_or_default();
        let text = String::from_utf8_lossy(&text).into_owned();
        let lines: Vec<_> = text.lines().rev().take(8).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join(" | ")
    };
    format!("QEMU said: {}; the console ends with: {}", tail("qemu"), tail("console"))
}
