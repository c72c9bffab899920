//! What an operator asks for: by a file, and by the environment, which comes before it.

use std::ffi::OsString;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::OnceLock;
use std::{env, io};

use weirgate_deflate::accelerator::Patience;
use weirgate_deflate::choice::{Mode, Offload};

/// Where the file is, unless `WEIRGATE_Z_CONFIG` says another one.
const FILE: &str = "/etc/weirgate/libz.conf";

/// What is behind this is not read.
const FILE_MAX: usize = 64 << 10;

/// What some editors put before a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// With its end, a socket's path has room for no more (unix(7)).
const SOCKET_PATH_MAX: usize = 107;

/// What our variables of the environment begin with.
const PREFIX: &str = "WEIRGATE_Z_";

/// What can be set. In the environment it is in capitals.
const NAMES: [&str; 7] =
    ["mode", "larger_max", "inflate", "counters", "accelerator", "accelerator_use", "accelerator_wait_us"];

/// The environment as it was when the library was loaded: nginx takes it away from its workers.
static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();

struct Environment {
    file: PathBuf,
    /// Whether the environment names the file, which is to be there then.
    is_named: bool,
    values: [Option<OsString>; NAMES.len()],
    /// What begins as our variables do, and is none.
    unknown: Vec<OsString>,
    /// Where the standard error went.
    stderr: Option<(u64, u64)>,
}

/// What is in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    /// The share by which responses may be larger than zlib's.
    pub(crate) larger_max: f64,
    pub(crate) inflate: Inflate,
    /// Where the daemon looks for counters.
    pub(crate) counters: PathBuf,
    /// An accelerator's socket.
    pub(crate) accelerator: PathBuf,
    pub(crate) offload: Offload,
    pub(crate) patience: Patience,
}

/// Whose inflate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Inflate {
    Zlib,
    ZlibRs,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Same,
            larger_max: 0.005,
            inflate: Inflate::Zlib,
            counters: "/run/weirgate/deflate".into(),
            accelerator: "/run/weirgate-accelerator".into(),
            offload: Offload::Measured,
            patience: Patience::default(),
        }
    }
}

/// The root as it was then: below another one a file of that name may be anybody's.
static ROOT: OnceLock<Option<(u64, u64)>> = OnceLock::new();

fn root() -> Option<(u64, u64)> {
    let meta = std::fs::metadata("/").ok()?;
    Some((meta.dev(), meta.ino()))
}

/// Reads the environment; to be called when the library is loaded.
pub(crate) fn loaded() {
    environment();
    ROOT.get_or_init(root);
}

/// Whether the process has changed its root since.
pub(crate) fn is_elsewhere() -> bool {
    ROOT.get().is_some_and(|then| *then != root())
}

/// What is in force now, and what in it cannot be understood, which is as if it were not there.
pub(crate) fn read() -> (Settings, Vec<String>) {
    let environment = environment();
    let (mut settings, mut problems) = (Settings::default(), Vec::new());
    let file = environment.file.display();
    match bytes(&environment.file) {
        Ok(bytes) => settings.read(&bytes, |line, problem| problems.push(format!("{file}:{line}: {problem}"))),
        Err(problem) if problem.kind() == io::ErrorKind::NotFound && !environment.is_named => {}
        Err(problem) => problems.push(format!("{file}: {problem}")),
    }
    for (name, value) in NAMES.iter().zip(&environment.values) {
        // An empty one is as good as none.
        let Some(value) = value.as_ref().filter(|value| !value.is_empty()) else { continue };
        let text = value.to_str().ok_or_else(|| "it is not UTF-8".to_owned());
        let set = text.and_then(|value| settings.set(name, value.trim()));
        if let Err(problem) = set {
            problems.push(format!("{PREFIX}{}: {problem}", name.to_uppercase()));
        }
    }
    for name in &environment.unknown {
        let names = NAMES.map(str::to_uppercase).join(", ");
        problems
            .push(format!("{}: there is no such variable (behind {PREFIX} there are CONFIG, {names})", name.display()));
    }
    (settings, problems)
}

fn environment() -> &'static Environment {
    ENVIRONMENT.get_or_init(|| {
        let variable = |name: &str| env::var_os(format!("{PREFIX}{}", name.to_uppercase()));
        let is_unknown = |name: &OsString| {
            let rest = name.as_encoded_bytes().strip_prefix(PREFIX.as_bytes());
            rest.is_some_and(|rest| {
                rest != b"CONFIG" && NAMES.iter().all(|known| known.to_uppercase().as_bytes() != rest)
            })
        };
        // SAFETY: it has no preconditions.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            // The program has more rights than whoever started it, who says nothing here (secure_getenv(3)).
            let values = NAMES.map(|_| None);
            return Environment { file: FILE.into(), is_named: false, values, unknown: Vec::new(), stderr: stderr() };
        }
        let file = variable("config");
        Environment {
            is_named: file.is_some(),
            file: file.map_or_else(|| FILE.into(), PathBuf::from),
            values: NAMES.map(variable),
            unknown: env::vars_os().map(|(name, _)| name).filter(is_unknown).collect(),
            stderr: stderr(),
        }
    })
}

/// One byte more than is looked at, of a file that has more.
fn bytes(file: &PathBuf) -> io::Result<Vec<u8>> {
    use std::io::Read as _;
    let mut bytes = Vec::new();
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
    file.take(FILE_MAX as u64 + 1).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Where the standard error goes; `None`: nowhere.
fn stderr() -> Option<(u64, u64)> {
    // SAFETY: zeroed, it is one, and fstat writes to it.
    unsafe {
        let mut meta: libc::stat = std::mem::zeroed();
        (libc::fstat(libc::STDERR_FILENO, &raw mut meta) == 0).then_some((meta.st_dev, meta.st_ino))
    }
}

/// Tells what cannot be understood on the standard error, if that still is what it was, or a log by now: a daemon may have closed it, and have
/// any other file in its place.
pub(crate) fn tell(problems: &[String]) {
    if problems.is_empty() {
        return;
    }
    // SAFETY: it reads a descriptor's flags.
    let flags = unsafe { libc::fcntl(libc::STDERR_FILENO, libc::F_GETFL) };
    let is_log = flags >= 0 && flags & libc::O_APPEND != 0;
    let now = stderr();
    if now.is_some() && (now == environment().stderr || is_log) {
        let lines: String = problems.iter().map(|problem| format!("libweirgate_z: {problem}\n")).collect();
        let _nobody_reads = io::Write::write_all(&mut io::stderr(), lines.as_bytes());
    }
}

impl Settings {
    /// Reads lines of `name = value`, in which `#` begins a comment, at the line's beginning or after a blank.
    fn read(&mut self, bytes: &[u8], mut tell: impl FnMut(usize, String)) {
        let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
        let mut at = 0;
        for (line, bytes) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
            if at + bytes.len() > FILE_MAX {
                return tell(line, format!("from here on it is not read: it is longer than {FILE_MAX} bytes"));
            }
            at += bytes.len() + 1;
            let set = match str::from_utf8(bytes).map(without_comment) {
                Ok("") => Ok(()),
                Ok(text) => match text.split_once('=') {
                    Some((name, value)) => self.set(name.trim(), value.trim()),
                    None => Err(format!("\"{text}\" is not of the form name = value")),
                },
                Err(_) => Err("it is not UTF-8".to_owned()),
            };
            if let Err(problem) = set {
                tell(line, problem);
            }
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let not = |wanted: &str| format!("{name} = {value} is not {wanted}");
        let path = || {
            let is_path = value.starts_with('/');
            is_path.then(|| PathBuf::from(value)).ok_or_else(|| not("a path: it begins with / and has no quotes"))
        };
        match name {
            "mode" => {
                self.mode = match value {
                    "same" => Mode::Same,
                    "fast" => Mode::Fast,
                    _ => return Err(not("same or fast")),
                }
            }
            "larger_max" => {
                let share = value.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
                self.larger_max = share.ok_or_else(|| not("a share from 0 to 1"))?;
            }
            "inflate" => {
                self.inflate = match value {
                    "zlib" => Inflate::Zlib,
                    "zlib-rs" => Inflate::ZlibRs,
                    _ => return Err(not("zlib or zlib-rs")),
                }
            }
            "counters" => self.counters = path()?,
            "accelerator" => {
                let path = path()?;
                if value.len() > SOCKET_PATH_MAX {
                    return Err(not("a socket's path: it has more than 107 bytes"));
                }
                // One that is not there may come later.
                if std::fs::metadata(&path).is_ok_and(|meta| !meta.file_type().is_socket()) {
                    return Err(not("a socket"));
                }
                self.accelerator = path;
            }
            "accelerator_use" => {
                self.offload = match value {
                    "measured" => Offload::Measured,
                    "always" => Offload::Always,
                    _ => return Err(not("measured or always")),
                }
            }
            "accelerator_wait_us" => {
                let micros = value.parse::<u64>().ok().filter(|micros| (1..=1_000_000).contains(micros));
                self.patience.wait_max = micros.ok_or_else(|| not("1 to 1000000 microseconds"))? * 1_000;
            }
            _ => {
                let hint =
                    if NAMES.contains(&&*name.to_lowercase()) { "in small letters there are" } else { "there are" };
                return Err(format!("there is no setting \"{name}\" ({hint} {})", NAMES.join(", ")));
            }
        }
        Ok(())
    }
}

/// What a line says.
fn without_comment(line: &str) -> &str {
    let is_comment = |(at, _): &(usize, &str)| line[..*at].chars().next_back().is_none_or(char::is_whitespace);
    let end = line.match_indices('#').find(is_comment).map_or(line.len(), |(at, _)| at);
    line[..end].trim()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: impl AsRef<[u8]>) -> (Settings, Vec<(usize, String)>) {
        let (mut settings, mut problems) = (Settings::default(), Vec::new());
        settings.read(text.as_ref(), |line, problem| problems.push((line, problem)));
        (settings, problems)
    }

    #[test]
    fn a_file_says_what_is_wanted() {
        let (settings, problems) = read(
            "# for this host\n mode = fast\nlarger_max=0.01\ninflate = zlib-rs\n\naccelerator = /dev/shm/a\naccelerator_use = always\n\
             accelerator_wait_us = 500\ncounters = /tmp/c\n",
        );
        assert_eq!(problems, []);
        let patience = Patience { wait_max: 500_000, ..Patience::default() };
        let wanted = Settings {
            mode: Mode::Fast,
            larger_max: 0.01,
            inflate: Inflate::ZlibRs,
            counters: "/tmp/c".into(),
            accelerator: "/dev/shm/a".into(),
            offload: Offload::Always,
            patience,
        };
        assert_eq!(settings, wanted);
    }

    #[test]
    fn comments_and_a_byte_order_mark_say_nothing() {
        let (settings, problems) = read("\u{feff}mode = fast # quick\naccelerator = /a#1\t# one\n\t# nothing\r\n#\n");
        assert_eq!(problems, []);
        assert_eq!((settings.mode, settings.accelerator), (Mode::Fast, "/a#1".into()));
    }

    #[test]
    fn lines_that_are_not_utf8_or_too_far_behind_are_told_and_others_hold() {
        let (settings, problems) = read(b"mode = \xff\nlarger_max = 0.1");
        assert_eq!((settings.larger_max, problems), (0.1, vec![(1, "it is not UTF-8".into())]));
        let long = format!("mode = fast\n#{}\nlarger_max = 0.1\n", "x".repeat(FILE_MAX - 14));
        let (settings, problems) = read(&long);
        assert_eq!((settings.mode, settings.larger_max), (Mode::Fast, 0.005));
        assert_eq!(problems, [(3, "from here on it is not read: it is longer than 65536 bytes".into())]);
        let (settings, problems) = read(&long[1..FILE_MAX]);
        assert_eq!((settings.mode, problems.len()), (Mode::Same, 1), "\"ode\" is no name, and all of it is read");
    }

    #[test]
    fn paths_are_looked_at() {
        let long = format!("accelerator = /{}", "x".repeat(107));
        let (settings, problems) =
            read(format!("counters = \"/a\"\naccelerator = a\naccelerator = /dev/null\n{long}\n"));
        assert_eq!(settings, Settings::default());
        let told = [
            "it begins with / and has no quotes",
            "it begins with / and has no quotes",
            "is not a socket",
            "it has more than 107 bytes",
        ];
        assert_eq!(problems.len(), told.len());
        assert!(problems.iter().zip(told).all(|((_, problem), told)| problem.ends_with(told)), "{problems:?}");
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line_and_changes_nothing() {
        let (settings, problems) =
            read("mode = quick\nlarger_max = 2\nmod = fast\nfast\naccelerator_wait_us = 0\nMODE = fast");
        assert_eq!(settings, Settings::default());
        let told: Vec<String> = problems.iter().map(|(line, problem)| format!("{line}: {problem}")).collect();
        assert_eq!(
            told,
            [
                "1: mode = quick is not same or fast",
                "2: larger_max = 2 is not a share from 0 to 1",
                "3: there is no setting \"mod\" (there are mode, larger_max, inflate, counters, accelerator, accelerator_use, \
                 accelerator_wait_us)",
                "4: \"fast\" is not of the form name = value",
                "5: accelerator_wait_us = 0 is not 1 to 1000000 microseconds",
                "6: there is no setting \"MODE\" (in small letters there are mode, larger_max, inflate, counters, accelerator, accelerator_use, \
                 accelerator_wait_us)",
            ]
        );
    }
}
