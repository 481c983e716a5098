//! The command line: `serve`, the tools for machines and files, and those for a broker that runs.
//!
//! Each family of commands is a file or a folder. An error is one sentence on standard error and exit code 1, or 78
//! (EX_CONFIG) where a start again changes nothing because a setting cannot be used; a command line that cannot be read,
//! or asks for what cannot be, is exit code 2. Output that another program reads goes to standard output: tables for
//! people, with `--json` JSON. What tells of progress goes to standard error.
//!
//! What it is not: no command does anything that a library user could not do; they parse, call and print.

mod config;
mod consume;
mod doctor;
pub mod drill;
mod error;
mod group;
mod log;
mod metrics;
mod outcome;
mod place;
mod produce;
mod progress;
mod records;
mod remote;
mod render;
mod repair;
mod serve;
mod snapshot;
mod topic;
mod when;

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
    /// Look at partition logs on disk, and cut damaged ones; the broker must not be running on them.
    #[command(subcommand)]
    Log(log::LogCommand),
    /// What can be configured, and the settings of topics and brokers.
    #[command(subcommand)]
    Config(config::ConfigCommand),
    /// Say what this machine allows a broker, and what to change.
    Doctor(doctor::DoctorArgs),
    /// Cut a broker of its own off under load on this disk, and compare what was acknowledged with what is left.
    Drill(drill::DrillArgs),
    /// The topics of a running broker.
    #[command(subcommand)]
    Topic(topic::TopicCommand),
    /// Write records from lines to a topic.
    Produce(produce::ProduceArgs),
    /// Consumer groups of a running broker.
    #[command(subcommand)]
    Group(group::GroupCommand),
    /// Print the records of topics.
    Consume(consume::ConsumeArgs),
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
        Command::Config(command) => config::run(command),
        Command::Metrics(command) => metrics::run(&command),
        Command::Doctor(args) => doctor::run(args),
        Command::Drill(args) => drill::run(args),
        Command::Topic(command) => topic::run(command),
        Command::Group(command) => group::run(command),
        Command::Produce(args) => produce::run(args),
        Command::Consume(args) => consume::run(args),
    };
    ExitCode::from(tell(done))
}

/// Tells an error on standard error; the exit code.
fn tell(done: Result<(), CliError>) -> u8 {
    match done {
        Ok(()) => SUCCESS,
        // The reader of our output went away (`| head`): it has what it wanted.
        Err(CliError::Output(error)) if error.kind() == std::io::ErrorKind::BrokenPipe => SUCCESS,
        Err(error) => {
            eprintln!("highwater: {error}");
            error.exit_code()
        }
    }
}

const SUCCESS: u8 = 0;
