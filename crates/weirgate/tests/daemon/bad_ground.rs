//! The daemon on hosts that lack something: it says what, and what to do, and does the rest.

use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use super::ground::{Daemon, Space, text, until};

/// Runs the rest of the command in a mount namespace of its own, after what is done there to the first argument.
const fn after(script: &'static str) -> [&'static str; 8] {
    ["unshare", "--mount", "--propagation", "private", "sh", "-c", script, "sh"]
}

const WITHOUT_CGROUP2: &[&str] =
    &after("for at in $(findmnt -rno TARGET -t cgroup2); do umount -l $at; done; exec \"$@\"");
const WITHOUT_BPFFS: &[&str] = &after("umount -l /sys/fs/bpf; exec \"$@\"");
const WITHOUT_BTF: &[&str] = &after("mount -t tmpfs none /sys/kernel/btf && exec \"$@\"");

/// What `weirgate doctor` says on the same ground.
fn doctor(within: &[&str], daemon: &Daemon) -> (Option<i32>, String) {
    let config = daemon.dir.path().join("weirgate.toml");
    let done = Command::new(within[0])
        .args(&within[1..])
        .args([env!("CARGO_BIN_EXE_weirgate"), "doctor", "-c"])
        .arg(config)
        .output()
        .unwrap();
    (done.status.code(), text(&done.stdout))
}

/// One connection, seen by a poll and at its end.
fn a_connection_is_recorded(space: &Space, daemon: &Daemon) {
    let listener = space.listen();
    let (mut client, server) = space.connect(&listener);
    client.write_all(b"hello").unwrap();
    until("the connection is seen", || daemon.json("/api/v1/status")["totals"]["connections"] == 2);
    drop((client, server));
    until("its end is seen", || daemon.json("/api/v1/status")["totals"]["close_records"].as_u64() >= Some(1));
}

#[test]
fn without_cgroup_v2_closes_come_by_netlink_and_steering_by_routes() {
    let Some(space) = Space::make() else { return };
    let mut daemon = Daemon::start_within(WITHOUT_CGROUP2, &space, "mode = \"apply\"\nserver_ports = [80]\n");
    let facts = daemon.json("/api/v1/status")["facts"].clone();
    let of = |what: &str| facts[what]["why"].as_str().unwrap_or_default().to_owned();
    assert_eq!(facts["closes"]["counted"], false, "{facts}");
    assert!(of("closes").contains("no cgroup v2 tree is mounted"), "{facts}");
    assert_eq!(facts["steering"]["name"], "routes with congctl", "{facts}");
    assert!(of("steering").contains("no cgroup v2 tree is mounted"), "{facts}");
    a_connection_is_recorded(&space, &daemon);
    let (_, said) = doctor(WITHOUT_CGROUP2, &daemon);
    assert!(said.contains("mount -t cgroup2"), "what to do: {said}");
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
}

#[test]
fn the_doctor_says_of_the_configured_cgroup_what_the_daemon_finds() {
    let Some(space) = Space::make() else { return };
    let why = "/tmp is no cgroup v2 folder: it is on another file system";
    let elsewhere = "[sockets]\ncgroup = \"/tmp\"\n";
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weirgate.toml");
    let doctor = |sections: &str| {
        fs::write(&path, format!("[host]\nstate = \"{}\"\n{sections}", dir.path().display())).unwrap();
        let done = Command::new(env!("CARGO_BIN_EXE_weirgate")).args(["doctor", "-c"]).arg(&path).output().unwrap();
        let closes = text(&done.stdout).lines().find(|line| line.contains(" closes ")).unwrap().to_owned();
        (done.status.code(), closes)
    };
    let insisting = format!("{elsewhere}close = \"sockops\"\n");
    let (_, said) = doctor(elsewhere);
    assert!(said.starts_with("note") && said.contains("destroy multicast") && said.contains(why), "{said}");
    let (code, said) = doctor(&insisting);
    assert!(code == Some(1) && said.starts_with("FAILS") && said.contains(why), "{said}");
    let said = refused(&["env"], &space, &insisting);
    assert!(said.contains("close = \"sockops\" cannot work here") && said.contains(why), "{said}");
}

#[test]
fn where_the_bpf_file_system_is_missing_it_is_mounted_journalled_and_unmounted() {
    let Some(space) = Space::make() else { return };
    let sections = "mode = \"apply\"\nsteer = \"bpf\"\nserver_ports = [80]\n";
    let mut daemon = Daemon::start_within(WITHOUT_BPFFS, &space, sections);
    let mount = r#""object":{"kind":"mount","path":"/sys/fs/bpf"}"#;
    let pins = r#""object":{"kind":"pins""#;
    let journal = daemon.journal();
    assert!(journal.find(mount).expect("journalled") < journal.find(pins).expect("journalled"), "{journal}");
    assert_eq!(daemon.stop(), Some(0));
    assert!(daemon.log().contains("the BPF file system on /sys/fs/bpf: undone"), "{}", daemon.log());

    let (_, said) =
        doctor(&after("umount -l /sys/fs/bpf; \"$@\"; findmnt -rn /sys/fs/bpf && echo still mounted"), &daemon);
    assert!(said.contains("steering         by the sockops program: tried, and it works"), "{said}");
    assert!(!said.contains("still mounted"), "a check changes nothing: {said}");
}

#[test]
fn without_kernel_types_everything_comes_by_netlink() {
    let Some(space) = Space::make() else { return };
    let mut daemon = Daemon::start_within(WITHOUT_BTF, &space, "");
    let facts = daemon.json("/api/v1/status")["facts"].clone();
    assert!(facts["polls"]["why"].as_str().unwrap().contains("no BTF"), "{facts}");
    assert!(facts["closes"]["why"].as_str().unwrap().contains("no BTF"), "{facts}");
    a_connection_is_recorded(&space, &daemon);
    let (_, said) = doctor(WITHOUT_BTF, &daemon);
    assert!(said.contains("CONFIG_DEBUG_INFO_BTF"), "what to do: {said}");
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
}

#[test]
fn a_congestion_control_that_is_not_loaded_is_named_with_its_module() {
    let Some(space) = Space::make() else { return };
    let sections = "[[tune.rules]]\nname = \"worst\"\ncc = \"nowhere\"\nworst_share = \"20 %\"\n";
    let mut daemon = Daemon::start(&space, sections);
    let wanted = "nowhere is not loaded: `modprobe tcp_nowhere`";
    assert!(daemon.log().contains(wanted), "{}", daemon.log());
    assert!(daemon.json("/api/v1/status")["problems"].to_string().contains(wanted));
    let doctor = daemon.run(&["doctor"]);
    assert!(text(&doctor.stdout).contains(wanted), "{}", text(&doctor.stdout));
    assert_eq!(daemon.stop(), Some(0));
}

/// A configuration with all that a start may make below folders that are not there.
struct Bare {
    dir: tempfile::TempDir,
    path: PathBuf,
    pins: PathBuf,
}

impl Bare {
    fn new(space: &Space, sections: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let pins = PathBuf::from(format!("/sys/fs/bpf/weirgate-refused-{}", space.name));
        let config = format!(
            "[host]\nstate = \"{at}/lib/state\"\n[http]\nlisten = \"127.0.0.1:0\"\n[control]\nsocket = \"{at}/run/c.sock\"\n\
             [tune]\npins = \"{}\"\nserver_ports = [80]\n{sections}",
            pins.display()
        );
        let path = dir.path().join("weirgate.toml");
        fs::write(&path, config).unwrap();
        Self { dir, path, pins }
    }

    fn command(&self, within: &[&str]) -> Command {
        let command = within.iter().copied().chain([env!("CARGO_BIN_EXE_weirgate"), "run", "-c"]);
        let command: Vec<&str> = command.collect();
        let mut made = Command::new(command[0]);
        made.args(&command[1..]).arg(&self.path);
        made
    }

    fn holds_nothing(&self, said: &str) {
        let left: Vec<_> = fs::read_dir(self.dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, ["weirgate.toml"], "{said}");
        assert!(!self.pins.exists(), "{said}");
    }
}

/// What a start said that was refused, and left nothing behind.
fn refused(within: &[&str], space: &Space, sections: &str) -> String {
    let bare = Bare::new(space, sections);
    let done = bare.command(within).output().unwrap();
    let said = text(&done.stderr);
    assert_eq!(done.status.code(), Some(2), "{said}");
    bare.holds_nothing(&said);
    said
}

#[test]
fn programs_that_were_attached_before_the_start_was_refused_are_taken_back() {
    let Some(space) = Space::make() else { return };
    let sections = "mode = \"apply\"\nsteer = \"bpf\"\n[sockets]\nsource = \"iter\"\nclose = \"sockops\"\n";
    let bare = Bare::new(&space, sections);
    let mut taken_back = 0;
    // With one more at a time, files run out at every step of the start once.
    for files in 24.. {
        let limit = format!("ulimit -n {files} && exec \"$@\"");
        let mut command = bare.command(&["sh", "-c", &limit, "sh"]);
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut ended = None;
        until("it runs or is refused", || {
            ended = child.try_wait().unwrap();
            ended.is_some() || bare.dir.path().join("run/http-address").exists()
        });
        if ended.is_none() {
            rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
                .unwrap();
        }
        let said = text(&child.wait_with_output().unwrap().stderr);
        if ended.is_none() {
            assert!(!bare.pins.exists(), "{said}");
            break;
        }
        assert_eq!(ended.and_then(|status| status.code()), Some(2), "{said}");
        bare.holds_nothing(&said);
        taken_back += u32::from(said.contains(&format!("pinned in {}: undone", bare.pins.display())));
    }
    assert!(taken_back > 0, "the sources were never refused after the programs were attached");
}

#[test]
fn a_refused_start_leaves_nothing_behind() {
    let Some(space) = Space::make() else { return };
    let store = "[store]\ndir = \"/proc/weirgate\"\n";
    assert!(refused(&["env"], &space, store).contains("cannot use /proc/weirgate as a store"));
    let said = refused(&["env"], &space, &format!("mode = \"apply\"\n{store}"));
    assert!(said.contains("cannot use /proc/weirgate as a store"), "{said}");
}

#[test]
fn what_was_applied_before_the_start_was_refused_is_taken_back() {
    let Some(space) = Space::make() else { return };
    let table = 40_000 + std::process::id() % 10_000;
    let sections = format!(
        "mode = \"apply\"\nsteer = \"routes\"\nroute_table = {table}\n[sockets]\nclose = \"sockops\"\nnamespaces = [\"{}\"]\n",
        space.name
    );
    let said = refused(WITHOUT_BTF, &space, &sections);
    assert!(said.contains("[sockets] close = \"sockops\" cannot work here"), "{said}");
    assert!(said.contains(&format!("routes of table {table}")), "what was taken back is in the log: {said}");
}

#[test]
fn a_default_that_the_kernel_lacks_refuses_the_start_where_it_would_be_applied() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weirgate.toml");
    let at = dir.path().display();
    let config = format!(
        "[host]\nstate = \"{at}/state\"\n[http]\nlisten = \"127.0.0.1:0\"\n[control]\nsocket = \"{at}/control.sock\"\n\
         [tune]\nmode = \"apply\"\nserver_ports = [80]\npins = \"{at}/pins\"\ndefault_cc = \"nowhere\"\n"
    );
    fs::write(&path, config).unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_weirgate")).args(["run", "-c"]).arg(&path).output().unwrap();
    let said = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{said}");
    assert!(said.contains("[tune] default_cc") && said.contains("`nowhere`") && said.contains("it has: "), "{said}");
}

#[test]
fn the_doctor_says_what_is_wrong_with_a_configuration_and_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weirgate.toml");
    fs::write(&path, "[tune]\nswitch_after = \"100 Kb\"\nmood = \"bold\"\n").unwrap();
    let done = Command::new(env!("CARGO_BIN_EXE_weirgate")).args(["doctor", "-c"]).arg(&path).output().unwrap();
    let (said, wrong) = (text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(2), "{said}");
    assert!(wrong.contains("100 Kb") && wrong.contains("mood"), "{wrong}");
    assert!(said.contains("kernel") && said.contains("store"), "{said}");
}

#[test]
fn a_taken_port_refuses_the_start() {
    let Some(space) = Space::make() else { return };
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let daemon = Daemon::start(&space, "");
    let config = fs::read_to_string(daemon.dir.path().join("weirgate.toml")).unwrap();
    let other = tempfile::tempdir().unwrap();
    let config = config
        .replace(&daemon.dir.path().display().to_string(), &other.path().display().to_string())
        .replace("127.0.0.1:0", &taken.local_addr().unwrap().to_string());
    let path = other.path().join("weirgate.toml");
    fs::write(&path, config).unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_weirgate")).args(["run", "-c"]).arg(path).output().unwrap();
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let said = text(&refused.stderr);
    assert!(said.contains(&taken.local_addr().unwrap().to_string()) && said.contains("`listen` in [http]"), "{said}");
}

#[test]
fn an_address_that_cannot_be_written_down_is_said_and_is_no_reason_not_to_start() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path().display();
    let path = dir.path().join("weirgate.toml");
    // In the way of the file, as a full disk would be.
    fs::create_dir(dir.path().join("http-address")).unwrap();
    let config = format!(
        "[host]\nstate = \"{at}/state\"\n[http]\nlisten = \"127.0.0.1:0\"\n[control]\nsocket = \"{at}/c.sock\"\n"
    );
    fs::write(&path, config).unwrap();
    let log = dir.path().join("log");
    let mut command = Command::new(env!("CARGO_BIN_EXE_weirgate"));
    let mut child = command
        .args(["run", "-c"])
        .arg(&path)
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .expect("the binary runs");
    until("its page is served", || fs::read_to_string(&log).unwrap().contains("page: http://127.0.0.1:"));
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
    let said = fs::read_to_string(log).unwrap();
    assert!(said.contains(&format!("{at}/http-address: ")) && said.contains("scripts will not find"), "{said}");
}

#[test]
fn a_full_disk_is_said_and_costs_nothing_when_there_is_room_again() {
    let Some(space) = Space::make() else { return };
    let disk = tempfile::tempdir().unwrap();
    let at = disk.path().display().to_string();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=2m", "tmpfs", &at]).status().unwrap();
    assert!(mounted.success(), "root can mount a tmpfs");
    let ballast = disk.path().join("ballast");
    // The file takes all that there is.
    let _ = fs::write(&ballast, vec![1; 4 << 20]);
    let mut daemon = Daemon::start_on(&space, &format!("dir = \"{at}/store\"\nkeep_free = \"0 B\"\n"), "");
    let listener = space.listen();
    let ends = space.connect(&listener);
    let lost = || daemon.json("/api/v1/status")["losses"]["store_lost"].as_u64().unwrap();
    let problems = || daemon.json("/api/v1/status")["problems"].to_string();
    until("it is said that records wait", || problems().contains("wait in memory"));
    assert!(problems().contains("No space left on device"), "{}", problems());
    assert!(daemon.log().contains("No space left on device"), "{}", daemon.log());
    fs::remove_file(&ballast).unwrap();
    until("it writes again", || daemon.json("/api/v1/status")["problems"].as_array().unwrap().is_empty());
    assert_eq!(lost(), 0, "{}", daemon.log());
    drop(ends);
    assert_eq!(daemon.stop(), Some(0), "{}", daemon.log());
    let rows = daemon.run(&["query", "--json", "SELECT count(*) AS n FROM sockets"]);
    let rows: serde_json::Value = serde_json::from_slice(&rows.stdout).unwrap();
    assert!(rows["n"].as_u64() > Some(0), "{rows}");
    drop(daemon);
    assert!(Command::new("umount").arg(disk.path()).status().unwrap().success());
}
