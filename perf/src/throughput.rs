//! Produce and fetch MB/s of one partition, at saturation.

use crate::wire;
use anyhow::{bail, Result};
use clap::Args;
use highwater::protocol::batch::BatchBuilder;
use highwater::protocol::messages::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, ProduceResponse,
};
use highwater::protocol::Str;
use std::io::Write;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct ThroughputArgs {
    /// The broker's address.
    #[arg(long, default_value = "127.0.0.1:9092")]
    broker: String,
    /// Bytes of a batch of 1 KiB records.
    #[arg(long, default_value_t = 1 << 20)]
    batch: usize,
    /// Produce requests in flight.
    #[arg(long, default_value_t = 5)]
    in_flight: usize,
    /// Seconds of producing.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// -1 (all) or 1.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    acks: i16,
    /// Bytes asked for by one fetch.
    #[arg(long, default_value_t = 1 << 20)]
    fetch: i32,
    /// Settings of the topic that is made, `name=value`; may be repeated.
    #[arg(long = "topic-config")]
    topic_configs: Vec<String>,
}

const RECORD_BYTES: usize = 1024;

pub fn run(args: &ThroughputArgs) -> Result<()> {
    let configs: Vec<(String, String)> = args
        .topic_configs
        .iter()
        .filter_map(|config| config.split_once('='))
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect();
    let topic = format!("perf-throughput-{}", std::process::id());
    wire::create_topic(&args.broker, &topic, &configs)?;
    let (bytes, took) = produce(args, &topic)?;
    println!(
        "produce: {:.0} MB/s ({} MB in {:.1} s; batches of {} bytes, {} in flight, acks {})",
        rate(bytes, took),
        bytes / 1_000_000,
        took.as_secs_f64(),
        args.batch,
        args.in_flight,
        args.acks
    );
    for turn in ["first read", "second read"] {
        let (bytes, took) = fetch(args, &topic)?;
        println!(
            "fetch, {turn}: {:.0} MB/s ({} MB in {:.1} s; {} bytes a fetch)",
            rate(bytes, took),
            bytes / 1_000_000,
            took.as_secs_f64(),
            args.fetch
        );
    }
    Ok(())
}

fn rate(bytes: u64, took: Duration) -> f64 {
    bytes as f64 / 1e6 / took.as_secs_f64()
}

fn produce(args: &ThroughputArgs, topic: &str) -> Result<(u64, Duration)> {
    let mut batch = BatchBuilder::new();
    let value = vec![b'x'; RECORD_BYTES];
    while batch.size_bytes() + RECORD_BYTES < args.batch {
        batch.push(1_700_000_000_000, None, Some(&value));
    }
    let batch = batch.build();
    let batch_bytes = batch.len() as u64;
    let request = wire::produce_frame(topic, args.acks, batch)?;
    let mut socket = wire::connect(&args.broker)?;
    let start = Instant::now();
    let mut in_flight = 0;
    let mut bytes = 0;
    while start.elapsed() < Duration::from_secs(args.seconds) || in_flight > 0 {
        while in_flight < args.in_flight && start.elapsed() < Duration::from_secs(args.seconds) {
            socket.write_all(&request)?;
            in_flight += 1;
        }
        let response: ProduceResponse =
            wire::decode(wire::read_frame(&mut socket)?, wire::PRODUCE_VERSION)?;
        let code = response.responses[0].partition_responses[0].error_code;
        if code != 0 {
            bail!("the broker answered error {code}");
        }
        in_flight -= 1;
        bytes += batch_bytes;
    }
    Ok((bytes, start.elapsed()))
}

fn fetch(args: &ThroughputArgs, topic: &str) -> Result<(u64, Duration)> {
    let mut socket = wire::connect(&args.broker)?;
    let mut offset = 0;
    let mut bytes = 0;
    let start = Instant::now();
    loop {
        let request = FetchRequest {
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: args.fetch,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic: Str::from(topic.to_string()),
                partitions: vec![FetchPartition {
                    partition: 0,
                    fetch_offset: offset,
                    partition_max_bytes: args.fetch,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let response: FetchResponse = wire::call(&mut socket, wire::FETCH_VERSION, &request)?;
        let partition = &response.responses[0].partitions[0];
        if partition.error_code != 0 {
            bail!("the broker answered error {}", partition.error_code);
        }
        let Some(records) = partition.records.as_ref().filter(|r| !r.is_empty()) else {
            return Ok((bytes, start.elapsed()));
        };
        bytes += records.len() as u64;
        for batch in highwater::protocol::batch::Batches::new(records.to_bytes()) {
            offset = batch?.header().next_offset();
        }
    }
}
