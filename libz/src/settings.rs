//! What an operator asks for: by a file, and by the environment, which comes before it.

use std::fmt;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::PathBuf;
use std::sync::OnceLock;

use weirgate_deflate::accelerator::Patience;
use weirgate_deflate::choice::{Mode, Offload};

/// Where the file is, unless `WEIRGATE_Z_CONFIG` says another one.
const FILE: &str = "/etc/weirgate/libz.conf";

/// Longer ones are not read.
const FILE_MAX: u64 = 64 << 10;

/// What can be set. In the environment it is in capitals, behind `WEIRGATE_Z_`.
const NAMES: [&str; 6] = ["mode", "larger_max", "counters", "accelerator", "accelerator_use", "accelerator_wait_us"];

/// The environment as it was when the library was loaded: nginx takes it away from its workers.
static ENVIRONMENT: OnceLock<Environment> = OnceLock::new();

struct Environment {
    file: PathBuf,
    values: [Option<String>; NAMES.len()],
}

/// What is in force.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Settings {
    pub(crate) mode: Mode,
    /// The share by which responses may be larger than zlib's.
    pub(crate) larger_max: f64,
    /// Where the daemon looks for counters.
    pub(crate) counters: PathBuf,
    /// An accelerator's socket.
    pub(crate) accelerator: PathBuf,
    pub(crate) offload: Offload,
    pub(crate) patience: Patience,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            mode: Mode::Same,
            larger_max: 0.005,
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

/// What is in force now. What cannot be understood is as if it were not there; the process that has loaded the library tells it on the
/// standard error, and those that it forks do not again.
pub(crate) fn read(is_first: bool) -> Settings {
    let tell = |place: &dyn fmt::Display, line: Option<usize>, problem: &dyn fmt::Display| {
        if is_first {
            tell(place, line, problem);
        }
    };
    let environment = environment();
    let mut settings = Settings::default();
    match text(&environment.file) {
        Ok(text) => settings.read(&text, |line, problem| tell(&environment.file.display(), Some(line), &problem)),
        Err(problem) if problem.kind() == std::io::ErrorKind::NotFound => {}
        Err(problem) => tell(&environment.file.display(), None, &problem),
    }
    for (name, value) in NAMES.iter().zip(&environment.values) {
        if let Some(value) = value
            && let Err(problem) = settings.set(name, value)
        {
            tell(&format_args!("WEIRGATE_Z_{}", name.to_uppercase()), None, &problem);
        }
    }
    settings
}

fn environment() -> &'static Environment {
    ENVIRONMENT.get_or_init(|| {
        // SAFETY: it has no preconditions.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            // The program has more rights than whoever started it, who says nothing here (secure_getenv(3)).
            return Environment { file: FILE.into(), values: NAMES.map(|_| None) };
        }
        Environment {
            file: std::env::var_os("WEIRGATE_Z_CONFIG").map_or_else(|| FILE.into(), PathBuf::from),
            values: NAMES.map(|name| std::env::var(format!("WEIRGATE_Z_{}", name.to_uppercase())).ok()),
        }
    })
}

fn text(file: &PathBuf) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = String::new();
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(file)?;
    file.take(FILE_MAX).read_to_string(&mut text)?;
    Ok(text)
}

/// A program's standard error is its own: one line, for what its operator has to mend.
fn tell(place: &dyn fmt::Display, line: Option<usize>, problem: &dyn fmt::Display) {
    let line = line.map_or_else(String::new, |line| format!(":{line}"));
    let _there_is_none = std::io::Write::write_all(
        &mut std::io::stderr(),
        format!("libweirgate_z: {place}{line}: {problem}\n").as_bytes(),
    );
}

impl Settings {
    /// Reads lines of `name = value`, of which those that begin with `#` say nothing.
    fn read(&mut self, text: &str, mut tell: impl FnMut(usize, String)) {
        for (line, text) in text.lines().enumerate() {
            let text = text.trim();
            if text.is_empty() || text.starts_with('#') {
                continue;
            }
            let set = match text.split_once('=') {
                Some((name, value)) => self.set(name.trim(), value.trim()),
                None => Err(format!("\"{text}\" is not of the form name = value")),
            };
            if let Err(problem) = set {
                tell(line + 1, problem);
            }
        }
    }

    fn set(&mut self, name: &str, value: &str) -> Result<(), String> {
        let not = |wanted: &str| format!("{name} = {value} is not {wanted}");
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
            "counters" => self.counters = value.into(),
            "accelerator" => self.accelerator = value.into(),
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
            _ => return Err(format!("there is no setting \"{name}\" (there are {})", NAMES.join(", "))),
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> (Settings, Vec<(usize, String)>) {
        let (mut settings, mut problems) = (Settings::default(), Vec::new());
        settings.read(text, |line, problem| problems.push((line, problem)));
        (settings, problems)
    }

    #[test]
    fn a_file_says_what_is_wanted() {
        let (settings, problems) = read(
            "# for this host\n mode = fast\nlarger_max=0.01\n\naccelerator = /dev/shm/a\naccelerator_use = always\n\
             accelerator_wait_us = 500\ncounters = /tmp/c\n",
        );
        assert_eq!(problems, []);
        let patience = Patience { wait_max: 500_000, ..Patience::default() };
        let wanted = Settings {
            mode: Mode::Fast,
            larger_max: 0.01,
            counters: "/tmp/c".into(),
            accelerator: "/dev/shm/a".into(),
            offload: Offload::Always,
            patience,
        };
        assert_eq!(settings, wanted);
    }

    #[test]
    fn what_is_wrong_is_told_by_its_line_and_changes_nothing() {
        let (settings, problems) = read("mode = quick\nlarger_max = 2\nmod = fast\nfast\naccelerator_wait_us = 0");
        assert_eq!(settings, Settings::default());
        let told: Vec<String> = problems.iter().map(|(line, problem)| format!("{line}: {problem}")).collect();
        assert_eq!(
            told,
            [
                "1: mode = quick is not same or fast",
                "2: larger_max = 2 is not a share from 0 to 1",
                "3: there is no setting \"mod\" (there are mode, larger_max, counters, accelerator, accelerator_use, \
                 accelerator_wait_us)",
                "4: \"fast\" is not of the form name = value",
                "5: accelerator_wait_us = 0 is not 1 to 1000000 microseconds",
            ]
        );
    }
}
