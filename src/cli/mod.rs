//! The command line: `serve` and the tools.
//!
//! Each command is a file. An error is one sentence on standard error and exit code 1, or 78 (EX_CONFIG) where a start
//! again changes nothing because a setting cannot be used; a command line that cannot be read is clap's message and
//! exit code 2. Output that another program reads goes to standard output.
//!
//! What it is not: no command does anything that a library user could not do; they parse, call and print.

mod config;
mod error;
mod log;
mod metrics;
mod records;
mod serve;
mod snapshot;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

pub use error::CliError;
pub use serve::{print_banner, Banner};

/// A Kafka-wire-compatible log broker.
#[derive(Debug, Parser)]
#[command(name = "highwater", version, about, propagate_version = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the broker.
    Serve(serve::ServeArgs),
    /// Look at partition logs on disk; the broker must not be running on them.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// What can be configured.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// What is measured.
    #[command(subcommand)]
    Metrics(metrics::MetricsCommand),
}

/// Runs the command of the process's arguments.
pub fn run() -> ExitCode {
    let cli = Cli::parse();
    let done = match cli.command {
        Command::Serve(args) => serve::run(&args),
        Command::Log(command) => log::run(&command),
        Command::Config(command) => config::run(&command),
        Command::Metrics(command) => metrics::run(&command),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // The reader of our output went away (`| head`): it has what it wanted.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => {
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("highwater: {error}");
            error.exit_code()
        }
    }
}
