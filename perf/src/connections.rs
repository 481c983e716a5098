//! What an idle connection costs a broker: its resident memory before and after many.

use crate::target::cost::resident_bytes;
use crate::target::listener::listener_owner;
use crate::wire;
use anyhow::{bail, Context, Result};
use clap::Args;
use highwater::protocol::batch::{BatchBuilder, Batches};
use highwater::protocol::messages::{
    ApiVersionsRequest, ApiVersionsResponse, FetchPartition, FetchRequest, FetchResponse,
    FetchTopic,
};
use highwater::protocol::Str;
use highwater::runtime::native::raise_nofile_limit;
use std::io::Write;
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct ConnectionsArgs {
    /// The broker's address.
    #[arg(long, default_value = "127.0.0.1:9092")]
    broker: String,
    /// Idle connections.
    #[arg(long, default_value_t = 10_000)]
    count: usize,
    /// The broker's process; without it, the one that listens on the address.
    #[arg(long)]
    pid: Option<u32>,
}

/// Descriptors that this process needs beside the connections.
const DESCRIPTORS_BESIDE: u64 = 64;
/// A broker's memory counts as settled when it did not change by more than a hundredth in this time.
const SETTLE: Duration = Duration::from_secs(2);
/// How often it is looked at before it is taken as it is.
const LOOKS_MAX: usize = 10;

pub fn run(args: &ConnectionsArgs) -> Result<()> {
    let (_, files_max) = raise_nofile_limit();
    let needed = args.count as u64 + DESCRIPTORS_BESIDE;
    if files_max < needed {
        bail!("this process may open {files_max} files and needs {needed}: raise `ulimit -Hn`");
    }
    let pid = match args.pid {
        Some(pid) => pid,
        None => listener_owner(&args.broker)?,
    };
    let topic = format!("perf-connections-{}", std::process::id());
    wire::create_topic(&args.broker, &topic, 1, &[])?;
    let outcome = measure(args, pid, &topic);
    wire::delete_topic(&args.broker, &topic)?;
    outcome
}

fn measure(args: &ConnectionsArgs, pid: u32, topic: &str) -> Result<()> {
    // One of each first, so that what a broker sets up once is not counted.
    drop(open(&args.broker)?);
    works(&args.broker, topic, 0)?;
    let before = settled(pid)?;
    let start = Instant::now();
    let mut idle = Vec::with_capacity(args.count);
    for n in 0..args.count {
        let connection = open(&args.broker);
        idle.push(connection.with_context(|| format!("after {n} connections"))?);
    }
    let opened = start.elapsed();
    let after = settled(pid)?;
    let answered = works(&args.broker, topic, 1)?;
    // None was dropped to make room.
    for connection in &mut idle {
        api_versions(connection).context("an idle connection was closed")?;
    }
    let asked = resident_bytes(pid)?;
    drop(idle);
    let closed = settled(pid)?;

    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let each = |bytes: u64| (bytes as f64 - before as f64) / args.count as f64 / 1024.0;
    println!(
        "process {pid}, {} idle connections, each of which asked for the API versions",
        args.count
    );
    println!(
        "opened in                {:>10.1} s ({:.0} a second)",
        opened.as_secs_f64(),
        args.count as f64 / opened.as_secs_f64()
    );
    println!("resident before          {:>10.1} MiB", mib(before));
    println!(
        "resident with them       {:>10.1} MiB, {:.1} KiB each",
        mib(after),
        each(after)
    );
    println!(
        "after one more request   {:>10.1} MiB, {:.1} KiB each",
        mib(asked),
        each(asked)
    );
    println!("resident without them    {:>10.1} MiB", mib(closed));
    println!(
        "produce and fetch beside {:>10.1} ms",
        answered.as_secs_f64() * 1e3
    );
    Ok(())
}

/// The broker's resident memory once it has settled.
fn settled(pid: u32) -> Result<u64> {
    let mut last = resident_bytes(pid)?;
    for _ in 0..LOOKS_MAX {
        std::thread::sleep(SETTLE);
        let now = resident_bytes(pid)?;
        if now.abs_diff(last) <= last / 100 {
            return Ok(now);
        }
        last = now;
    }
    Ok(last)
}

/// A connection that has asked for the API versions, as every client does first.
fn open(broker: &str) -> Result<TcpStream> {
    let mut socket = wire::connect(broker)?;
    api_versions(&mut socket)?;
    Ok(socket)
}

fn api_versions(socket: &mut TcpStream) -> Result<()> {
    let request = ApiVersionsRequest::default();
    let response: ApiVersionsResponse = wire::call(socket, 0, &request)?;
    if response.error_code != 0 {
        bail!("ApiVersions: error {}", response.error_code);
    }
    Ok(())
}

/// Produces a record and reads it back on a connection of its own; `offset` is what it must get. How long both took.
fn works(broker: &str, topic: &str, offset: i64) -> Result<Duration> {
    let mut batch = BatchBuilder::new();
    batch.push(crate::wire::now_ms(), None, Some(b"works"));
    let start = Instant::now();
    let mut socket = wire::connect(broker)?;
    socket.write_all(&wire::produce_frame(topic, 0, -1, batch.build())?)?;
    wire::check_produced(wire::read_frame(&mut socket)?)?;
    let request = FetchRequest {
        max_wait_ms: 1000,
        min_bytes: 1,
        max_bytes: 1 << 20,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: Str::from(topic.to_string()),
            partitions: vec![FetchPartition {
                fetch_offset: offset,
                partition_max_bytes: 1 << 20,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    let mut response: FetchResponse = wire::call(&mut socket, wire::FETCH_VERSION, &request)?;
    let took = start.elapsed();
    let partition = response.responses.remove(0).partitions.remove(0);
    if partition.error_code != 0 {
        bail!("Fetch: error {}", partition.error_code);
    }
    let records = partition.records.context("there are records")?;
    let batch = Batches::new(records.to_bytes())
        .next()
        .context("there is a batch")??;
    if batch.header().base_offset != offset {
        bail!("the record that was produced is not at offset {offset}");
    }
    Ok(took)
}
