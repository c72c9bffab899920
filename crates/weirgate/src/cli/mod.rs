//! The command line. One definition gives the parser, the help, the man page and the completions.
//!
//! Exit codes: `EXITS`, below. Results go to standard output, everything else to standard error; whoever closes the pipe early has
//! seen enough (exit 0).

mod accelerator;
mod controller;
mod deflate;
mod doctor;
mod fabric;
mod figure;
mod lab;
mod limit;
mod output;
mod query;
mod records;
mod replay;
mod sockets;
mod store;
mod transfer;
mod tune;
mod tunnel;
mod undo;
mod uplink;

use std::io::IsTerminal;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, CommandFactory, Parser, Subcommand};

use self::output::Output;
use crate::config::{Config, Surroundings, nearest};
use crate::control::CallError;
use crate::daemon::{self, Ended};

/// Below the help of the whole, and in its manual.
const EXITS: &str = "Exit codes: 0 done; 1 the work failed, a check of `doctor` or a bound of `lab run` did not hold, a `fabric` run was \
                     partial; 2 asked wrongly: bad usage, a wrong configuration or scenario, a limit or uplink that there is none of, a refused \
                     start.";

/// Decides when, how and over which path a host's traffic leaves: measures every TCP connection, chooses congestion
/// control per client network, applies it, proves it, and undoes itself.
#[derive(Debug, Parser)]
#[command(name = "weirgate", version, propagate_version = true, max_term_width = 100, after_help = EXITS)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the daemon: observe this host, serve the page on 127.0.0.1:7070, decide; apply only where configured
    Run(Common),
    /// Say what this kernel, these privileges and this configuration allow, what is missing and why
    Doctor(doctor::Doctor),
    /// Show the connections of now, by client network and by congestion control
    Sockets(sockets::Sockets),
    /// Which client networks get which congestion control, why, and what came of it
    Tune(tune::Tune),
    /// Rate limits of the software switch: what they did, and other rates while they run
    Limit(limit::Limit),
    /// Uplinks that new connections are steered over: how each stands and why; let one take no more
    Uplink(uplink::Uplink),
    /// Simulate data-centre fabrics: scenarios, sweeps over them, load balancers beside each other, the figures of the DRILL article
    Fabric(fabric::Fabric),
    /// Engines that compress a web server's responses
    Deflate(deflate::Deflate),
    /// Send files over all of this host's paths at once
    Send(transfer::Send),
    /// Receive files that `weirgate send` sends
    Receive(transfer::Receive),
    /// Carry other programs' TCP connections over all of this host's paths at once
    #[command(subcommand)]
    Tunnel(tunnel::Command),
    /// This host's key, by which others know it
    Key(transfer::Key),
    /// Experiments on this kernel: namespaces, emulated links, real servers
    Lab(lab::Lab),
    /// Ask the recorded telemetry in SQL
    Query(query::Query),
    /// A fleet's telemetry in ClickHouse: make its tables
    #[command(subcommand)]
    Store(store::Command),
    /// Decide for a fleet: policies for every point of presence, from ClickHouse, signed
    #[command(subcommand)]
    Controller(controller::Command),
    /// Remove everything Weirgate changed on this host, after a crash too
    Undo(undo::Undo),
    /// Print the man page (roff)
    Man,
    /// Print completions for a shell
    Completions {
        /// Which shell.
        shell: clap_complete::Shell,
    },
}

/// What every command that needs the configuration takes.
#[derive(Clone, Debug, Default, Args)]
struct Common {
    /// The configuration; without it /etc/weirgate/weirgate.toml where that exists, else the defaults
    #[arg(short, long, value_name = "FILE")]
    config: Option<PathBuf>,
}

impl Common {
    fn load(&self) -> Result<Config, Failure> {
        Config::load(self.config.as_deref(), &Surroundings::current()).map_err(|error| Failure::Usage(error.into()))
    }
}

/// Why a command did not do what it was asked.
#[derive(Debug)]
enum Failure {
    /// It was asked wrongly, or the configuration is wrong, or the start was refused: exit 2.
    Usage(anyhow::Error),
    /// It could not be done, or a check failed: exit 1.
    Work(anyhow::Error),
    /// A check failed and has said so itself: exit 1.
    Check,
}

impl<E: Into<anyhow::Error>> From<E> for Failure {
    fn from(error: E) -> Self {
        Self::Work(error.into())
    }
}

/// Runs what the process's arguments say, and gives its exit code.
pub fn main() -> ExitCode {
    // clap itself exits with 2 on bad usage and with 0 on --help.
    let cli = Cli::parse();
    let mut out = Output::stdout();
    let done = dispatch(cli.command, &mut out).and_then(|()| Ok(out.flush()?));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Check) => ExitCode::from(1),
        Err(Failure::Work(error)) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(Failure::Work(error)) => {
            say(&error);
            ExitCode::from(1)
        }
        Err(Failure::Usage(error)) => {
            say(&error);
            ExitCode::from(2)
        }
    }
}

fn dispatch(command: Command, out: &mut Output) -> Result<(), Failure> {
    match command {
        Command::Run(common) => run(&common),
        Command::Doctor(doctor) => doctor.run(out),
        Command::Sockets(sockets) => sockets.run(),
        Command::Tune(tune) => tune.run(out),
        Command::Limit(limit) => limit.run(out),
        Command::Uplink(uplink) => uplink.run(out),
        Command::Fabric(fabric) => fabric.run(out),
        Command::Deflate(deflate) => deflate.run(out),
        Command::Send(send) => {
            log();
            send.run(out)
        }
        Command::Receive(receive) => {
            log();
            receive.run(out)
        }
        Command::Tunnel(tunnel) => {
            log();
            tunnel.run(out)
        }
        Command::Key(key) => key.run(out),
        Command::Lab(lab) => {
            log();
            lab.run(out)
        }
        Command::Query(query) => query.run(out),
        Command::Store(store) => store.run(out),
        Command::Controller(controller) => controller.run(out),
        Command::Undo(undo) => undo.run(out),
        Command::Man => man(out),
        Command::Completions { shell } => {
            let mut text = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "weirgate", &mut text);
            Ok(out.bytes(&text)?)
        }
    }
}

fn run(common: &Common) -> Result<(), Failure> {
    let config = common.load()?;
    log();
    daemon::run(config).map_err(|ended| match ended {
        Ended::Refused(error) => Failure::Usage(error.context("weirgate did not start")),
        Ended::Failed(error) => Failure::Work(error),
    })
}

/// The whole manual: each command's page after the other, those of its own commands after it.
fn man(out: &mut Output) -> Result<(), Failure> {
    fn pages(command: &clap::Command, text: &mut Vec<u8>) -> std::io::Result<()> {
        clap_mangen::Man::new(command.clone()).render(text)?;
        let shown = command.get_subcommands().filter(|sub| !sub.is_hide_set() && sub.get_name() != "help");
        shown.into_iter().try_for_each(|sub| pages(sub, text))
    }
    let mut command = Cli::command();
    command.build();
    let mut text = Vec::new();
    pages(&command, &mut text)?;
    Ok(out.bytes(&text)?)
}

/// Logs go to standard error; `WEIRGATE_LOG=debug` shows more of them.
fn log() {
    let filter = tracing_subscriber::EnvFilter::try_from_env("WEIRGATE_LOG")
        .unwrap_or_else(|_| tracing_subscriber::EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    let set = if std::io::stderr().is_terminal() {
        builder.try_init()
    } else {
        // Colours are for people, and journald has its own clock, but a log file has not.
        builder.with_ansi(false).try_init()
    };
    // Set already: a test runs several commands in one process.
    let _ = set;
}

fn say(error: &anyhow::Error) {
    say!("weirgate: {}", in_one_line(error));
}

/// An error and its causes; a cause that the one before it has said already is left out.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for cause in error.chain().map(ToString::to_string) {
        if !line.contains(&cause) {
            if !line.is_empty() {
                line.push_str(": ");
            }
            line.push_str(&cause);
        }
    }
    line
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
    })
}

/// The answer of the daemon that `config` configures.
fn ask(config: &Config, request: &crate::control::Request) -> anyhow::Result<serde_json::Value> {
    crate::control::call(&config.control, request).map_err(|error| match error {
        // It was asked, and said why not.
        CallError::Refused(_) => anyhow::Error::from(error),
        _ => anyhow::Error::from(error).context("the running daemon could not be asked"),
    })
}

/// As many files as may be open, for what holds one for each flow or client.
fn allow_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let _as_many_as_before = setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn a_broken_pipe_is_found_under_any_context() {
        let pipe = anyhow::Error::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(is_broken_pipe(&pipe.context("writing").context("more")));
        assert!(!is_broken_pipe(&anyhow::anyhow!("broken pipe")));
    }

    #[test]
    fn the_manual_has_a_page_per_command() {
        let mut out = Output::memory();
        man(&mut out).unwrap();
        let text = out.into_text();
        let pages: Vec<&str> = text.lines().filter_map(|line| line.strip_prefix(".TH ")?.split(' ').next()).collect();
        assert!(text.contains("Exit codes: 0 done"), "{text}");
        for name in
            ["weirgate", "weirgate-run", "weirgate-doctor", "weirgate-tune", "weirgate-tune-replay", "weirgate-lab-run"]
        {
            assert!(pages.contains(&name), "{name}: {pages:?}");
        }
        assert!(!pages.iter().any(|page| page.ends_with("-help") || page.ends_with("-hold")), "{pages:?}");
        assert!(text.contains("\\-\\-synthetic") && text.contains("\\-\\-demo"), "options of the second level");
    }
}
