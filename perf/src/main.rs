//! Measures a Kafka broker, Highwater or any other, by its address.
//!
//! `latency` is open loop: requests leave at their intended times whatever the
//! broker does, and latency counts from the intended time, so queueing is not
//! hidden. The machine's own floor (loopback, write, fdatasync) is measured in turns
//! with the broker, in the same run. `throughput` is produce and fetch of one
//! partition at saturation.
//!
//! The client is blocking sockets on plain threads: as lean as can be, so that it
//! does not hide the broker.

mod floor;
mod latency;
mod report;
mod throughput;
mod wire;

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
    /// Produce and fetch MB/s of one partition.
    Throughput(throughput::ThroughputArgs),
}

fn main() -> anyhow::Result<()> {
    match Args::parse().command {
        Command::Latency(args) => latency::run(&args),
        Command::Throughput(args) => throughput::run(&args),
    }
}
