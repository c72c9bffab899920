//! What the scenarios stand on: two namespaces with a shaped link between them, a cgroup, servers in both, and the witness.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use weirgate_linux::bpf::steer::{SteerOptions, Steering};
use weirgate_linux::netns::Netns;
use weirgate_sockets::sample::CcName;
use weirgate_tune::holdout::Holdout;
use weirgate_tune::policy::Policy;
use weirgate_units::{Bytes, Instant as Boot};

/// What new sockets of the server's namespace run on.
pub(crate) const OWN: &str = "reno";
/// What the policies choose.
pub(crate) const CHOSEN: &str = "bbr";
/// The threshold of the policies.
pub(crate) const SWITCH_AFTER: u64 = 100_000;
/// The server's port.
pub(crate) const PORT: u16 = 8080;

/// Where nginx finds what it proxies.
pub(crate) const BACK_END_PORT: u16 = 8081;

/// Two namespaces, a veth pair of `10.99.0.1`/`fd99::1` (server) and `10.99.0.2`/`fd99::2` (client), a cgroup, a pin folder.
/// All of it goes on drop, and what was started with it.
pub(crate) struct Ground {
    pub(crate) server: Netns,
    pub(crate) client: Netns,
    pub(crate) dir: tempfile::TempDir,
    pub(crate) cgroup: PathBuf,
    pub(crate) pin_dir: PathBuf,
    name: String,
    children: Vec<Child>,
}

impl Ground {
    /// A link of `mbit` from server to client, 400 KB of buffer; the other direction is not shaped. `None`, with a line that
    /// says so, where this machine cannot.
    pub(crate) fn new(mbit: u32) -> Option<Self> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("wgs{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        if !rustix::process::geteuid().is_root() {
            println!("SKIPPED: steering needs root");
            return None;
        }
        let root = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
        let Some(root) = root.iter().find(|r| fs::exists(format!("{r}/cgroup.procs")).unwrap_or(false)) else {
            println!("SKIPPED: no cgroup v2 hierarchy");
            return None;
        };
        let available = fs::read_to_string("/proc/sys/net/ipv4/tcp_available_congestion_control").unwrap();
        if !available.split_whitespace().any(|a| a == CHOSEN) {
            println!("SKIPPED: this kernel has no {CHOSEN}");
            return None;
        }
        if !fs::read_to_string("/proc/self/mounts").unwrap().contains(" /sys/fs/bpf bpf ") {
            run("mount -t bpf bpf /sys/fs/bpf");
        }
        let cgroup = PathBuf::from(root).join(&name);
        fs::create_dir(&cgroup).unwrap();
        run(&format!(
            "ip netns add {name}s; ip netns add {name}c
             ip -n {name}s link add veth0 type veth peer name veth0 netns {name}c
             for n in s c; do ip -n {name}$n link set lo up; ip -n {name}$n link set veth0 up; done
             ip -n {name}s addr add 10.99.0.1/16 dev veth0; ip -n {name}c addr add 10.99.0.2/16 dev veth0
             ip -n {name}s addr add fd99::1/64 dev veth0 nodad; ip -n {name}c addr add fd99::2/64 dev veth0 nodad
             ip netns exec {name}s tc qdisc add dev veth0 root tbf rate {mbit}mbit burst 20kb limit 400kb
             ip netns exec {name}s sh -c 'echo {OWN} >/proc/sys/net/ipv4/tcp_congestion_control
                echo \"4096 131072 2097152\" >/proc/sys/net/ipv4/tcp_wmem'
             ip netns exec {name}c sh -c 'echo \"4096 131072 2097152\" >/proc/sys/net/ipv4/tcp_rmem'"
        ));
        Some(Self {
            server: Netns::by_name(&format!("{name}s")).unwrap(),
            client: Netns::by_name(&format!("{name}c")).unwrap(),
            dir: tempfile::tempdir().unwrap(),
            pin_dir: PathBuf::from("/sys/fs/bpf").join(&name),
            cgroup,
            name,
            children: Vec::new(),
        })
    }

    /// Attaches, and lets the program act for a minute.
    pub(crate) fn attach(&self) -> Steering {
        self.attach_with(|_| {})
    }

    /// Attaches, and chooses [`CHOSEN`] for everybody.
    pub(crate) fn steer(&self) -> Steering {
        let mut steering = self.attach();
        steering.apply(&policy(1, EVERYBODY), &[self.server_again()]).unwrap();
        steering
    }

    /// As [`Self::attach`], with other options.
    pub(crate) fn attach_with(&self, change: impl FnOnce(&mut SteerOptions)) -> Steering {
        self.attach_in(&[self.server_again()], change)
    }

    /// The same, in these namespaces.
    pub(crate) fn attach_in(&self, namespaces: &[Netns], change: impl FnOnce(&mut SteerOptions)) -> Steering {
        let mut options = SteerOptions {
            pin_dir: self.pin_dir.clone(),
            cgroup: self.cgroup.clone(),
            server_ports: vec![PORT],
            networks_max: 100_000,
        };
        change(&mut options);
        let steering = Steering::attach(&options, namespaces).unwrap();
        steering.renew(in_a_minute());
        steering
    }

    /// The client's namespace, to hand over.
    pub(crate) fn client_again(&self) -> Netns {
        Netns::by_name(self.client.name()).unwrap()
    }

    /// The server's namespace, to hand over.
    pub(crate) fn server_again(&self) -> Netns {
        Netns::by_name(self.server.name()).unwrap()
    }

    /// Runs a shell command in one of the namespaces (`s` or `c`) and in the cgroup, until the ground goes.
    pub(crate) fn spawn(&mut self, side: char, command: &str) -> &mut Child {
        let (name, procs) = (&self.name, self.cgroup.join("cgroup.procs"));
        let line = format!("echo $$ >{} && exec ip netns exec {name}{side} {command}", procs.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &line]).current_dir(self.dir.path()).stdin(Stdio::null()).stdout(Stdio::piped());
        self.children.push(shell.spawn().unwrap());
        self.children.last_mut().unwrap()
    }

    /// Runs a shell command in one of the namespaces, outside the cgroup, to its end.
    pub(crate) fn run(&self, side: char, command: &str) -> String {
        run(&format!("cd {}; ip netns exec {}{side} {command}", self.dir.path().display(), self.name))
    }

    /// The scripted server of [`serve`] on [`PORT`] of every address. Before all others where the processor is busy: what holds it
    /// up within a response empties its queue.
    pub(crate) fn serve(&mut self) {
        self.serve_on("");
    }

    /// The same; the application chooses `listener_cc` for its listener.
    pub(crate) fn serve_on(&mut self, listener_cc: &str) {
        let binary = std::env::current_exe().unwrap();
        let serve =
            format!("nice -n -20 env WG_SERVE=\"{listener_cc}\" {} child --exact --nocapture", binary.display());
        wait_until(self.spawn('s', &serve), "listening");
    }

    /// A connection that the server's side opens from [`PORT`], which the kernel chooses: on connecting, or (`bound`) on binding
    /// to an address, in which case a server listens on the same port of another one. The far end; the near one is an
    /// [`answer`].
    pub(crate) fn opened(&mut self, bound: bool) -> Client {
        self.run('s', &format!("sysctl -q -w net.ipv4.ip_local_port_range='{PORT} {PORT}'"));
        let back_end = self.client.within(|| TcpListener::bind(("10.99.0.2", BACK_END_PORT)).unwrap()).unwrap();
        let binary = std::env::current_exe().unwrap();
        let bound = if bound { "WG_BIND=1" } else { "" };
        let open =
            format!("env WG_OPEN=10.99.0.2:{BACK_END_PORT} {bound} {} child --exact --nocapture", binary.display());
        wait_until(self.spawn('s', &open), "opened");
        let (stream, from) = back_end.accept().unwrap();
        assert_eq!(from.port(), PORT);
        Client { stream }
    }

    /// A real nginx on [`PORT`] with `/small` (20 KB), `/medium` (90 KB) and `/large` (2 MB), and what a back end on [`BACK_END_PORT`]
    /// says below `/proxied`, unbuffered; `listen` is added to its
    /// `listen` directives.
    pub(crate) fn serve_by_nginx(&mut self, listen: &str) -> bool {
        if Command::new("nginx").arg("-v").stderr(Stdio::null()).status().is_err() {
            println!("SKIPPED: nginx is not installed");
            return false;
        }
        let dir = self.dir.path();
        for (name, size) in [("small", 20_000), ("medium", 90_000), ("large", 2_000_000)] {
            fs::write(dir.join(name), vec![b'x'; size]).unwrap();
        }
        if listen.contains("ssl") {
            run(&format!(
                "cd {}; openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=wg \
                 -keyout key.pem -out cert.pem 2>&1",
                dir.display()
            ));
        }
        let tls = if listen.contains("ssl") {
            "ssl_certificate cert.pem; ssl_certificate_key key.pem; ssl_protocols TLSv1.3;"
        } else {
            ""
        };
        let configuration = format!(
            "daemon off; master_process off; pid nginx.pid; error_log error.log; events {{}}
             http {{ access_log off; sendfile on; tcp_nopush on; server {{ root {}; {tls}
             client_body_temp_path body; proxy_temp_path p; fastcgi_temp_path f; uwsgi_temp_path u; scgi_temp_path s;
             location /proxied {{ proxy_pass http://127.0.0.1:{BACK_END_PORT}; proxy_buffering off; }}
             listen {PORT} {listen}; listen [::]:{PORT} ipv6only=on {listen}; }} }}",
            dir.display()
        );
        fs::write(dir.join("nginx.conf"), configuration).unwrap();
        // Readable for the workers' user.
        run(&format!("chmod 755 {}", dir.display()));
        let command = format!("nginx -p {0} -c {0}/nginx.conf -e {0}/error.log", dir.display());
        self.spawn('s', &command);
        let deadline = Instant::now() + Duration::from_secs(20);
        while self.client.within(|| TcpStream::connect(("10.99.0.1", PORT)).is_err()).unwrap() {
            assert!(Instant::now() < deadline, "nginx does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
        true
    }

    /// A process that attaches, applies a policy for everybody, lets it act for `seconds`, and then does nothing.
    pub(crate) fn owner(&mut self, seconds: u64) -> &mut Child {
        let binary = std::env::current_exe().unwrap();
        let mut owner = Command::new(binary);
        owner.args(["child", "--exact", "--nocapture"]).env("WG_OWN", seconds.to_string());
        owner.env("WG_PINS", &self.pin_dir).env("WG_CGROUP", &self.cgroup).env("WG_NS", self.server.name());
        self.children.push(owner.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap());
        wait_until(self.children.last_mut().unwrap(), "attached");
        self.children.last_mut().unwrap()
    }

    /// A connection from the client's namespace to the server's port.
    pub(crate) fn connect(&self, to: &str) -> Client {
        let address = SocketAddr::new(to.parse::<IpAddr>().unwrap(), PORT);
        Client { stream: self.client.within(|| TcpStream::connect(address).unwrap()).unwrap() }
    }

    /// The limits of the pacing rate, bytes/s, of the sockets on the server's port that have one, by what `ss` says.
    pub(crate) fn pacing_maxima(&self) -> Vec<u64> {
        let text = self.run('s', &format!("ss -Htin state established sport = :{PORT}"));
        // "RATEbps" or "RATEbps/LIMITbps".
        let rates = text.split(" pacing_rate ").skip(1).filter_map(|rest| rest.split_whitespace().next());
        let limits = rates.filter_map(|rates| rates.split_once('/'));
        limits.map(|(_, limit)| limit.trim_end_matches("bps").parse::<u64>().unwrap() / 8).collect()
    }

    /// The congestion controls of the sockets on the server's port by what `ss` says, sorted; listeners are left out.
    pub(crate) fn algorithms(&self) -> Vec<String> {
        let text = self.run('s', &format!("ss -Htin state established sport = :{PORT}"));
        let known = [OWN, CHOSEN, "cubic"];
        let mut found: Vec<String> =
            text.split_whitespace().filter(|word| known.contains(word)).map(str::to_owned).collect();
        found.sort_unstable();
        found
    }
}

impl Drop for Ground {
    fn drop(&mut self) {
        for child in &mut self.children {
            let _gone = child.kill();
            let _reaped = child.wait();
        }
        // Servers fork: whoever is left in our own cgroup is ours.
        for pid in fs::read_to_string(self.cgroup.join("cgroup.procs")).unwrap_or_default().lines() {
            if let Some(pid) = pid.parse().ok().and_then(rustix::process::Pid::from_raw) {
                let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
        }
        let _undone = weirgate_linux::bpf::steer::undo(&self.pin_dir, &[]);
        let deadline = Instant::now() + Duration::from_secs(5);
        while fs::remove_dir(&self.cgroup).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        run(&format!("ip netns del {0}s; ip netns del {0}c", self.name));
    }
}

/// Runs a shell script; panics with its output where it fails.
pub(crate) fn run(script: &str) -> String {
    let done = Command::new("sh").args(["-ec", script]).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
    assert!(done.status.success(), "{script}\n{text}");
    text
}

/// Reads what a child says until it says `word`. Its other output is thrown away.
fn wait_until(child: &mut Child, word: &str) {
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let mut line = String::new();
    while !line.contains(word) {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the child ended before it said `{word}`");
    }
    std::thread::spawn(move || std::io::copy(&mut lines, &mut std::io::sink()));
}

/// A minute from now on the boot clock.
pub(crate) fn in_a_minute() -> Boot {
    in_seconds(60)
}

/// So many seconds from now on the boot clock.
pub(crate) fn in_seconds(seconds: u64) -> Boot {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Boot::from_nanos((now.tv_sec as u64 + seconds) * 1_000_000_000 + now.tv_nsec as u64)
}

/// What [`Ground::owner`] runs.
pub(crate) fn own() {
    let variable = |name: &str| std::env::var(name).unwrap();
    let options = SteerOptions {
        pin_dir: variable("WG_PINS").into(),
        cgroup: variable("WG_CGROUP").into(),
        server_ports: vec![PORT],
        networks_max: 1_000,
    };
    let namespaces = [Netns::by_name(&variable("WG_NS")).unwrap()];
    let mut steering = Steering::attach(&options, &namespaces).unwrap();
    steering.renew(in_seconds(variable("WG_OWN").parse().unwrap()));
    steering.apply(&policy(1, EVERYBODY), &namespaces).unwrap();
    println!("attached");
    std::io::stdout().flush().unwrap();
    loop {
        std::thread::park();
    }
}

/// A policy that chooses [`CHOSEN`] for `networks`.
pub(crate) fn policy(version: u32, networks: &[&str]) -> Policy {
    let mut networks: Vec<_> = networks.iter().map(|n| (n.parse().unwrap(), CcName::new(CHOSEN).unwrap())).collect();
    networks.sort_unstable_by_key(|(network, _)| *network);
    Policy {
        version,
        networks,
        holdout: Holdout { seed: 1, epoch: 1, share_ppm: 0 },
        default_cc: None,
        switch_after: Bytes::new(SWITCH_AFTER),
        stay: false,
        cap_start: true,
    }
}

/// The whole of both families.
pub(crate) const EVERYBODY: &[&str] = &["0.0.0.0/0", "::/0"];

/// A client of [`serve`].
pub(crate) struct Client {
    pub(crate) stream: TcpStream,
}

impl Client {
    /// Sends one line of the script.
    pub(crate) fn send(&mut self, line: &str) {
        self.stream.write_all(format!("{line}\n").as_bytes()).unwrap();
    }

    /// Reads `n` bytes.
    pub(crate) fn read(&mut self, n: usize) {
        let mut left = vec![0; n.min(1 << 16)];
        let mut n = n;
        while n > 0 {
            let part = left.len().min(n);
            let got = self.stream.read(&mut left[..part]).unwrap();
            assert_ne!(got, 0, "closed early");
            n -= got;
        }
    }

    /// Asks for `n` bytes and reads them.
    pub(crate) fn fetch(&mut self, n: usize) {
        self.send(&format!("send {n}"));
        self.read(n);
    }

    /// What the server's next response begins on.
    pub(crate) fn cc(&mut self) -> String {
        self.send("cc");
        self.read(1);
        self.name()
    }

    /// What the server's socket runs on before the next response begins.
    pub(crate) fn idle_cc(&mut self) -> String {
        self.send("idle");
        self.name()
    }

    /// The name that the server says.
    pub(crate) fn name(&mut self) -> String {
        let mut name = [0; 16];
        self.stream.read_exact(&mut name).unwrap();
        CcName::from_kernel(&name).as_str().to_owned()
    }

    /// The limit of the pacing rate that the server's socket has before the next response begins, bytes/s.
    pub(crate) fn pacing_max(&mut self) -> u64 {
        self.send("max");
        let mut rate = [0; 8];
        self.stream.read_exact(&mut rate).unwrap();
        u64::from_be_bytes(rate)
    }

    /// This end's port, by which the witness knows the connection.
    pub(crate) fn port(&self) -> u16 {
        self.stream.local_addr().unwrap().port()
    }
}

/// The scripted server, run by [`Ground::serve`]: answers each line of each connection with what it says, in order.
///
/// `send N`: N bytes. `pause MS`. `read N`: takes N raw bytes. `cc`: one byte, then the name of the socket's congestion control,
/// 16 bytes; `idle`: the name only, as it is before anything is sent. An empty line is no request.
/// `setcc NAME`, `setmax N`: the application's own congestion control and limit of the pacing rate (bytes/s). `max`: that limit,
/// 8 bytes, as it is before anything is sent. `connect ADDRESS`: opens a connection, sends 1 MB on it, answers its algorithm. Several steps
/// in one line, `;` between them, are one response.
pub(crate) fn serve(listener_cc: &str) {
    let listener = TcpListener::bind(("::", PORT)).unwrap();
    if !listener_cc.is_empty() {
        set_congestion_control(&listener, listener_cc);
    }
    println!("listening");
    std::io::stdout().flush().unwrap();
    for stream in listener.incoming() {
        std::thread::spawn(move || answer(stream.unwrap()));
    }
}

/// What [`Ground::opened`] runs.
pub(crate) fn open(remote: SocketAddr) {
    use rustix::net::{AddressFamily, SocketType, bind, connect, socket};
    let socket = socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let _elsewhere = std::env::var("WG_BIND").is_ok().then(|| {
        bind(&socket, &SocketAddr::from(([10, 99, 0, 1], 0))).unwrap();
        TcpListener::bind(("127.0.0.1", PORT)).unwrap()
    });
    connect(&socket, &remote).unwrap();
    println!("opened");
    std::io::stdout().flush().unwrap();
    answer(socket.into());
}

fn answer(mut stream: TcpStream) -> Option<()> {
    let mut lines = BufReader::new(stream.try_clone().ok()?);
    let block = vec![b'x'; 1 << 20];
    loop {
        let mut line = String::new();
        if lines.read_line(&mut line).ok()? == 0 {
            return None;
        }
        for step in line.trim().split(';') {
            let (verb, argument) = step.trim().split_once(' ').unwrap_or((step.trim(), ""));
            let number = argument.parse::<usize>().unwrap_or(0);
            match verb {
                "send" => {
                    for at in (0..number).step_by(block.len()) {
                        stream.write_all(&block[..block.len().min(number - at)]).ok()?;
                    }
                }
                "pause" => std::thread::sleep(Duration::from_millis(number as u64)),
                "read" => {
                    std::io::copy(&mut lines.by_ref().take(number as u64), &mut std::io::sink()).ok()?;
                }
                "cc" => {
                    // A connection goes back when the next byte is queued, at the latest.
                    stream.write_all(b"-").ok()?;
                    stream.write_all(&congestion_control(&stream)).ok()?;
                }
                "idle" => stream.write_all(&congestion_control(&stream)).ok()?,
                "connect" => {
                    let mut back_end = TcpStream::connect(argument).ok()?;
                    back_end.write_all(&block).ok()?;
                    stream.write_all(&congestion_control(&back_end)).ok()?;
                }
                "setcc" => set_congestion_control(&stream, argument),
                "setmax" => set_pacing_max(&stream, number as u64),
                "max" => stream.write_all(&pacing_max(&stream).to_be_bytes()).ok()?,
                "" => {}
                _ => panic!("{step}"),
            }
        }
    }
}

/// `TCP_CONGESTION` of a socket.
pub(crate) fn congestion_control(stream: &impl AsRawFd) -> [u8; 16] {
    let mut name = [0u8; 16];
    let mut len = 16;
    // SAFETY: `name` has the length given, and both live through the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    assert_eq!(result, 0);
    name
}

/// As an application does it.
pub(crate) fn set_congestion_control(stream: &impl AsRawFd, name: &str) {
    // SAFETY: the name is read, with the length given.
    let result = unsafe {
        libc::setsockopt(
            stream.as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_CONGESTION,
            name.as_ptr().cast(),
            name.len() as u32,
        )
    };
    assert_eq!(result, 0);
}

/// `SO_MAX_PACING_RATE` of a socket, bytes per second; all ones is no limit.
fn pacing_max(stream: &impl AsRawFd) -> u64 {
    let mut rate = 0u64;
    let mut len = 8;
    // SAFETY: `rate` has the length given, and both live through the call.
    let result = unsafe {
        libc::getsockopt(
            stream.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw mut rate).cast(),
            &raw mut len,
        )
    };
    assert_eq!((result, len), (0, 8));
    rate
}

/// As an application does it.
fn set_pacing_max(stream: &impl AsRawFd, rate: u64) {
    // SAFETY: the number is read, with the length given.
    let result = unsafe {
        libc::setsockopt(stream.as_raw_fd(), libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, (&raw const rate).cast(), 8)
    };
    assert_eq!(result, 0);
}
