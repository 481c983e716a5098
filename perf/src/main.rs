//! Measures a Kafka broker, Highwater or any other, by its address.
//!
//! `latency` is open loop: requests leave at their intended times whatever the
//! broker does, and latency counts from the intended time, so queueing is not
//! hidden. The machine's own floor (loopback, write, fdatasync) is measured in turns
//! with the broker, in the same run. `throughput` is produce and fetch at saturation,
//! by codec and number of partitions. `connections` is what idle connections cost,
//! `scrape` what a scrape of the metrics is, `groups` how long rebalances take and how many
//! heartbeats are answered, `restart` how long a broker with many partitions takes to start, `instructions` the
//! work that valgrind counts (`scripts/instructions`).
//!
//! The client is blocking sockets on plain threads: as lean as can be, so that it
//! does not hide the broker.

#![allow(dead_code, unused_imports)]

mod connections;
mod counters;
mod driver;
mod floor;
mod groups;
mod latency;
mod measure;
mod payload;
mod process;
mod report;
mod restart;
mod results;
mod scrape;
mod stop;
mod target;
mod throughput;
mod wire;
mod workload;

use clap::{Parser, Subcommand};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[derive(Parser)]
#[command(
    name = "perf",
    about = "Measures a Kafka broker beside the machine's own floor"
)]
struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Open-loop produce latency, in turns with the machine's floor.
    Latency(latency::LatencyArgs),
    /// Produce and fetch MB/s by codec and number of partitions.
    ///
    /// `perf throughput --codec all --partitions 1,16` prints the whole table.
    Throughput(throughput::ThroughputArgs),
    /// A broker's memory for each idle connection, and that it serves on beside them.
    ///
    /// Best on a broker that has just started: what it caches and frees while it is measured counts too.
    Connections(connections::ConnectionsArgs),
    /// How long a group's rebalances take, and how many heartbeats a second are answered.
    ///
    /// `perf groups --members 50`, `perf groups --heartbeats --groups 10000`.
    Groups(groups::GroupsArgs),
    /// How long a broker with many partitions takes to start, cleanly stopped and killed.
    Restart(restart::RestartArgs),
    /// What a scrape of the metrics costs the broker, and what producers notice of it.
    Scrape(scrape::ScrapeArgs),
    /// What noise cannot move: instructions and allocations of a request, system calls of a broker.
    Counters(counters::CountersArgs),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Latency(args) => latency::run(&args),
        Command::Throughput(args) => throughput::run(&args),
        Command::Connections(args) => connections::run(&args),
        Command::Groups(args) => groups::run(&args),
        Command::Restart(args) => restart::run(&args),
        Command::Scrape(args) => scrape::run(&args),
        Command::Counters(args) => counters::run(&args),
    }
}
