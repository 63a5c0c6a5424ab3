//! The `kauri` command.
#![expect(clippy::disallowed_methods, reason = "the command line is where files and arguments come in")]

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
