//! The command `weirgate`; see the library beside it.

fn main() -> std::process::ExitCode {
    weirgate::cli::main()
}
