//! Measures Kafka brokers, Highwater or any other, beside the machine's own floor.
//!
//! `run` is the harness: workloads from files, targets that take turns, results as JSON, a table and a page; `report` and
//! `compare` read those. `floor` is the machine alone. The other commands each measure one thing of a broker that runs,
//! and `counters` counts what noise cannot move. See `perf/README.md`.

mod connections;
mod counters;
mod driver;
mod floor;
mod groups;
mod measure;
mod opinion;
mod payload;
mod recovery;
mod report;
mod results;
mod run;
mod scrape;
mod stop;
mod target;
mod wire;
mod workload;

use clap::{Parser, Subcommand};
use std::process::ExitCode;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(
    name = "perf",
    about = "Measures Kafka brokers beside the machine's own floor"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Measures workloads on Highwater, Kafka, the floor and others, in turns; goes on where it was stopped.
    Run(run::RunArgs),
    /// A broker's memory for each idle connection, and that it serves on beside them.
    ///
    /// Best on a broker that has just started: what it caches and frees while it is measured counts too.
    Connections(connections::ConnectionsArgs),
    /// How long a group's rebalances take, and how many heartbeats a second are answered.
    ///
    /// `perf groups --members 50`, `perf groups --heartbeats --groups 10000`.
    Groups(groups::GroupsArgs),
    /// What a scrape of the metrics costs the broker, and what producers notice of it.
    Scrape(scrape::ScrapeArgs),
    /// What starting again costs after SIGKILL and after a clean stop, by the broker's own counters.
    Recovery(recovery::RecoveryArgs),
    /// What the machine does by itself: round trips, direct writes and flushes, sends, direct reads.
    Floor(floor::raw::FloorArgs),
    /// The table of a run's results, and a page with plots.
    Report(report::ReportArgs),
    /// What changed between two runs.
    Compare(report::compare::CompareArgs),
    /// What Kafka's own kafka-producer-perf-test says of the same targets.
    Opinion(opinion::OpinionArgs),
    /// The floor as a server, as the harness starts it.
    #[command(hide = true)]
    FloorServer(floor::server::ServerArgs),
    /// What noise cannot move: instructions and allocations of a request, system calls of a broker.
    Counters(counters::CountersArgs),
}

fn main() -> ExitCode {
    match work(Args::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("perf: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn work(command: Command) -> anyhow::Result<()> {
    match command {
        Command::Run(args) => run::run(&args),
        Command::Connections(args) => connections::run(&args),
        Command::Groups(args) => groups::run(&args),
        Command::Scrape(args) => scrape::run(&args),
        Command::Recovery(args) => recovery::run(&args),
        Command::Floor(args) => floor::raw::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Compare(args) => {
            if report::compare::run(&args)? {
                std::process::exit(1);
            }
            Ok(())
        }
        Command::Opinion(args) => opinion::run(&args),
        Command::FloorServer(args) => floor::server::run(&args),
        Command::Counters(args) => counters::run(&args),
    }
}
