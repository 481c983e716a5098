//! How long a broker with many partitions takes to start: after a clean stop, and after SIGKILL.

use crate::groups;
use crate::process::{resident_bytes, Process};
use crate::wire;
use anyhow::{bail, Context, Result};
use clap::Args;
use highwater::protocol::batch::BatchBuilder;
use std::io::Write;
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct RestartArgs {
    /// The broker's binary, which is started on a free port and stopped again.
    #[arg(long, default_value = "target/release/highwater")]
    binary: PathBuf,
    /// Where its data goes: a directory that does not exist, and is removed at the end.
    #[arg(long)]
    data_dir: PathBuf,
    /// Partitions of the topic.
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(i32).range(1..=100_000))]
    partitions: i32,
    /// Records for each partition that only a scan finds after the kill.
    #[arg(long, default_value_t = 10)]
    records: u32,
    /// Groups with a committed offset, which the broker reads at its start.
    #[arg(long, default_value_t = 0)]
    groups: usize,
    /// Settings of the broker, `NAME=VALUE`; may be repeated.
    #[arg(long = "set")]
    settings: Vec<String>,
}

const TOPIC: &str = "perf-restart";
const RECORD_BYTES: usize = 1024;
/// Requests in flight while the partitions are filled.
const IN_FLIGHT: usize = 64;

pub fn run(args: &RestartArgs) -> Result<()> {
    if args.data_dir.exists() {
        bail!(
            "{} is there already: name a directory that may be removed afterwards",
            args.data_dir.display()
        );
    }
    let outcome = measure(args);
    if args.data_dir.exists() {
        std::fs::remove_dir_all(&args.data_dir)
            .with_context(|| format!("{} can't be removed", args.data_dir.display()))?;
    }
    outcome
}

fn measure(args: &RestartArgs) -> Result<()> {
    let start = || Process::start(&args.binary, &args.data_dir, &args.settings);
    println!(
        "{} partitions; milliseconds from the start of the process",
        args.partitions
    );

    let broker = start()?;
    let empty = resident_bytes(broker.pid())?;
    let address = broker.addr.to_string();
    let created = Instant::now();
    wire::create_topic(&address, TOPIC, args.partitions, &[])?;
    let created = created.elapsed();
    fill(&broker, args.partitions, 1)?;
    if args.groups > 0 {
        groups::ready(&address)?;
        groups::commit(&address, TOPIC, args.groups)?;
    }
    let held = resident_bytes(broker.pid())?;
    print("an empty directory", &broker, None);
    println!(
        "  created in {:.0} ms; resident {} empty, {} with a record in each",
        ms(created),
        mib(empty),
        mib(held)
    );
    println!("  stopped cleanly in {:.0} ms", ms(broker.stop()?));

    let broker = start()?;
    let first = first_produce(&broker)?;
    print("after a clean stop", &broker, Some(first));
    all_groups(args, &broker)?;
    println!("  resident {}", mib(resident_bytes(broker.pid())?));
    // Beyond the last checkpoint, unless one falls into this moment.
    fill(&broker, args.partitions, args.records)?;
    broker.kill()?;

    let broker = start()?;
    let first = first_produce(&broker)?;
    print("after SIGKILL", &broker, Some(first));
    all_groups(args, &broker)?;
    println!(
        "  {} records of {RECORD_BYTES} bytes in each partition since the last start; resident {}",
        args.records,
        mib(resident_bytes(broker.pid())?)
    );
    println!("  stopped cleanly in {:.0} ms", ms(broker.stop()?));
    Ok(())
}

fn print(what: &str, broker: &Process, first: Option<Duration>) {
    match first {
        Some(first) => println!(
            "{what}: listens after {:.0} ms, first record acknowledged after {:.0} ms",
            ms(broker.ready_after),
            ms(broker.ready_after + first)
        ),
        None => println!("{what}: listens after {:.0} ms", ms(broker.ready_after)),
    }
}

fn ms(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

fn mib(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20))
}

/// Waits until every group is served again.
fn all_groups(args: &RestartArgs, broker: &Process) -> Result<()> {
    if args.groups == 0 {
        return Ok(());
    }
    let address = broker.addr.to_string();
    let start = Instant::now();
    groups::ready(&address)?;
    let took = start.elapsed();
    let there = groups::count(&address)?;
    if there != args.groups {
        bail!("{there} of {} groups are there", args.groups);
    }
    println!("  {there} groups are there {:.0} ms later", ms(took));
    Ok(())
}

/// From now to the acknowledgement of a record by the first partition.
fn first_produce(broker: &Process) -> Result<Duration> {
    let frame = frame(0)?;
    let start = Instant::now();
    let mut socket = wire::connect(&broker.addr.to_string())?;
    socket.write_all(&frame)?;
    wire::check_produced(wire::read_frame(&mut socket)?)?;
    Ok(start.elapsed())
}

/// So many records to each partition, one after another.
fn fill(broker: &Process, partitions: i32, records: u32) -> Result<()> {
    let mut socket = wire::connect(&broker.addr.to_string())?;
    let mut in_flight = 0;
    let answer = |socket: &mut TcpStream| wire::check_produced(wire::read_frame(socket)?);
    for _ in 0..records {
        for partition in 0..partitions {
            if in_flight == IN_FLIGHT {
                answer(&mut socket)?;
                in_flight -= 1;
            }
            socket.write_all(&frame(partition)?)?;
            in_flight += 1;
        }
    }
    for _ in 0..in_flight {
        answer(&mut socket)?;
    }
    Ok(())
}

fn frame(partition: i32) -> Result<Vec<u8>> {
    let mut batch = BatchBuilder::new();
    batch.push(crate::wire::now_ms(), None, Some(&[b'x'; RECORD_BYTES]));
    wire::produce_frame(TOPIC, partition, -1, batch.build())
}
