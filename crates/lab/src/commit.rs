//! Which sources this program was built from, for whoever reads a result.
//!
//! Asked as it runs, not as it is built: a build script that looked at the repository would have to run, and all that is above it be
//! built again, with every change of any file.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

/// The root of the sources, where they were as this was built.
const SOURCES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");

/// What whoever started this has said (`WEIRGATE_COMMIT`), else what `git describe` says of the sources, with `-dirty` where they are
/// not what was committed, or not what was built. `None`: they are not there any more, or in no repository, or the program is not
/// where cargo put it.
pub(crate) fn commit() -> Option<String> {
    std::env::var("WEIRGATE_COMMIT").ok().or_else(|| of(&std::env::current_exe().ok()?, Path::new(SOURCES)))
}

fn of(program: &Path, sources: &Path) -> Option<String> {
    // Or git would speak of a repository that these lie in by chance.
    sources.join(".git").exists().then_some(())?;
    // What cargo made the program of, in the form of make: a target and its sources.
    let list = fs::read_to_string(program.with_extension("d")).ok()?;
    let built = modified(program)?;
    let is_older = list.split_whitespace().skip(1).filter_map(|file| modified(Path::new(file))).any(|at| at > built);
    let git = Command::new("git").arg("-C").arg(sources).args(["describe", "--always", "--dirty"]).output().ok()?;
    let said = String::from_utf8(git.stdout).ok().filter(|_| git.status.success())?;
    let said = said.trim();
    Some(if is_older && !said.ends_with("-dirty") { format!("{said}-dirty") } else { said.to_owned() })
}

fn modified(file: &Path) -> Option<SystemTime> {
    fs::metadata(file).ok()?.modified().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_was_built_is_told_from_what_was_committed() {
        let dir = tempfile::tempdir().unwrap();
        let [source, program] = ["main.rs", "program"].map(|name| dir.path().join(name));
        let git = |arguments: &[&str]| {
            let who = ["-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"];
            let done = Command::new("git").arg("-C").arg(dir.path()).args(who).args(arguments).output().unwrap();
            assert!(done.status.success(), "{arguments:?}: {done:?}");
            String::from_utf8(done.stdout).unwrap().trim().to_owned()
        };
        let (early, late) = (SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000), SystemTime::now());
        let write = |file: &Path, text: &str, at: SystemTime| {
            fs::write(file, text).unwrap();
            fs::File::options().write(true).open(file).unwrap().set_modified(at).unwrap();
        };
        let of = || of(&program, dir.path());

        write(&source, "fn main() {}\n", early);
        write(&program, "", early);
        assert_eq!(of(), None, "no repository");
        git(&["init", "-q"]);
        git(&["add", "main.rs"]);
        git(&["commit", "-q", "-m", "one"]);
        assert_eq!(of(), None, "not where cargo put it");
        let list = format!("{}: {}\n", program.display(), source.display());
        fs::write(program.with_extension("d"), list).unwrap();
        let first = git(&["rev-parse", "--short", "HEAD"]);
        assert_eq!(of().as_ref(), Some(&first));

        write(&source, "fn main() { panic!() }\n", late);
        assert_eq!(of(), Some(format!("{first}-dirty")));
        git(&["commit", "-q", "-a", "-m", "two"]);
        let second = git(&["rev-parse", "--short", "HEAD"]);
        assert_eq!(of(), Some(format!("{second}-dirty")), "committed, but the program is of before");
        write(&program, "", late);
        assert_eq!(of(), Some(second));
    }
}
