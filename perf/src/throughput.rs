//! Produce and fetch MB/s at saturation, as a table of codecs and numbers of partitions.
//!
//! Batches are built and compressed before the clock starts, so that no codec of the client's is measured. Each
//! request carries one batch to one partition; the partitions take turns. Fetches ask for all partitions at once.

use crate::payload::{Codec, Random, RECORD_BYTES};
use crate::report;
use crate::wire;
use anyhow::{bail, Context, Result};
use clap::Args;
use highwater::protocol::batch::{BatchBuilder, Batches, Compression};
use highwater::protocol::messages::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse,
};
use highwater::protocol::Str;
use std::io::Write;
use std::time::{Duration, Instant};

#[derive(Args)]
pub struct ThroughputArgs {
    /// The broker's address.
    #[arg(long, default_value = "127.0.0.1:9092")]
    broker: String,
    /// Codecs of the batches, in a list: none, gzip, snappy, lz4, zstd; or all.
    #[arg(long, value_delimiter = ',', default_value = "none")]
    codec: Vec<Codec>,
    /// Partitions of the topic; a list for a table, such as 1,16.
    #[arg(long, value_delimiter = ',', default_value = "1", value_parser = clap::value_parser!(i32).range(1..=1000))]
    partitions: Vec<i32>,
    /// The part of each record that is random, 0 to 1: what no codec can compress.
    #[arg(long, default_value_t = 0.25)]
    random: f64,
    /// Bytes of a batch of 1 KiB records before it is compressed.
    #[arg(long, default_value_t = 1 << 20)]
    batch: usize,
    /// Produce requests in flight.
    #[arg(long, default_value_t = 5)]
    in_flight: usize,
    /// Seconds of producing.
    #[arg(long, default_value_t = 10)]
    seconds: u64,
    /// Stop producing earlier when this many MB lie in the topic.
    #[arg(long, default_value_t = 8000)]
    megabytes_max: u64,
    /// -1 (all) or 1.
    #[arg(long, default_value_t = -1, allow_negative_numbers = true)]
    acks: i16,
    /// Bytes asked for by one fetch of each partition.
    #[arg(long, default_value_t = 1 << 20)]
    fetch: i32,
    /// Settings of the topics that are made, `name=value`; may be repeated.
    #[arg(long = "topic-config")]
    topic_configs: Vec<String>,
}

/// Batches that take turns, so that a broker sees different bytes.
const DISTINCT_BATCHES: u64 = 8;

pub fn run(args: &ThroughputArgs) -> Result<()> {
    if args.acks == 0 {
        bail!("--acks 0 has no answer to wait for: use 1 or -1");
    }
    if args.in_flight == 0 {
        bail!("--in-flight must be at least 1");
    }
    if !(0.0..=1.0).contains(&args.random) {
        bail!("--random must be from 0 to 1");
    }
    let configs = wire::topic_configs(&args.topic_configs)?;
    println!(
        "1 KiB records, {:.0} % of each random; batches of {} bytes before compression, {} in flight, acks {}; {} bytes a fetch and partition",
        args.random * 100.0,
        args.batch,
        args.in_flight,
        args.acks,
        args.fetch
    );
    println!("MB/s of payload (record values), and of the batches as they are on the wire; ratio: payload to wire");
    report::columns(
        "partitions, codec",
        &[
            "ratio",
            "produce",
            "wire",
            "fetch 1st",
            "wire",
            "fetch 2nd",
            "wire",
        ],
    );
    for partitions in &args.partitions {
        for (codec, name) in Codec::expand(&args.codec) {
            let topic = format!("perf-throughput-{}-{partitions}-{name}", std::process::id());
            wire::create_topic(&args.broker, &topic, *partitions, &configs)?;
            let measured = Cell {
                args,
                topic: &topic,
                partitions: *partitions,
                codec,
            }
            .measure();
            // What was measured takes room that the next one needs.
            wire::delete_topic(&args.broker, &topic)?;
            let [produced, first, second] = measured?;
            let mut row = vec![Some(produced.payload as f64 / produced.wire as f64)];
            for rate in [produced, first, second] {
                row.extend([Some(rate.mb_s(rate.payload)), Some(rate.mb_s(rate.wire))]);
            }
            report::row(&format!("{partitions}, {name}"), row);
        }
    }
    Ok(())
}

/// Bytes, and how long they took.
#[derive(Clone, Copy)]
struct Moved {
    /// Of record values.
    payload: u64,
    /// Of batches.
    wire: u64,
    took: Duration,
}

impl Moved {
    fn mb_s(&self, bytes: u64) -> f64 {
        bytes as f64 / 1e6 / self.took.as_secs_f64()
    }
}

/// One cell of the table.
struct Cell<'a> {
    args: &'a ThroughputArgs,
    topic: &'a str,
    partitions: i32,
    codec: Compression,
}

/// A produce request, ready to be sent.
struct Request {
    frame: Vec<u8>,
    payload: u64,
    wire: u64,
}

impl Cell<'_> {
    /// Producing, then reading everything twice.
    fn measure(&self) -> Result<[Moved; 3]> {
        let produced = self.produce()?;
        Ok([produced, self.fetch(produced)?, self.fetch(produced)?])
    }

    fn produce(&self) -> Result<Moved> {
        let requests = self.requests()?;
        let mut requests = requests.iter().cycle();
        let mut socket = wire::connect(&self.args.broker)?;
        let mut moved = Moved {
            payload: 0,
            wire: 0,
            took: Duration::ZERO,
        };
        let mut in_flight = 0;
        let start = Instant::now();
        let more = |wire: u64| {
            start.elapsed() < Duration::from_secs(self.args.seconds)
                && wire < self.args.megabytes_max * 1_000_000
        };
        while more(moved.wire) || in_flight > 0 {
            while in_flight < self.args.in_flight && more(moved.wire) {
                let request = requests.next().context("there is a batch")?;
                socket.write_all(&request.frame)?;
                moved.payload += request.payload;
                moved.wire += request.wire;
                in_flight += 1;
            }
            wire::check_produced(wire::read_frame(&mut socket)?)?;
            in_flight -= 1;
        }
        moved.took = start.elapsed();
        Ok(moved)
    }

    /// Requests to every partition with different batches, to be sent in turns.
    fn requests(&self) -> Result<Vec<Request>> {
        let turns = DISTINCT_BATCHES.max(self.partitions as u64);
        let batches: Vec<_> = (0..DISTINCT_BATCHES).map(|n| self.batch(n)).collect();
        let request = |turn: u64| {
            let (batch, records) = &batches[(turn % DISTINCT_BATCHES) as usize];
            let partition = (turn % self.partitions as u64) as i32;
            Ok(Request {
                frame: wire::produce_frame(self.topic, partition, self.args.acks, batch.clone())?,
                payload: (records * RECORD_BYTES) as u64,
                wire: batch.len() as u64,
            })
        };
        (0..turns).map(request).collect()
    }

    /// A batch and the number of its records.
    fn batch(&self, seed: u64) -> (bytes::Bytes, usize) {
        let mut random = Random(seed);
        let mut builder = BatchBuilder::new().compression(self.codec);
        while builder.record_count() == 0 || builder.size_bytes() + RECORD_BYTES < self.args.batch {
            let value = random.value(self.args.random);
            builder.push(crate::wire::now_ms(), None, Some(&value));
        }
        let records = builder.record_count();
        (builder.build(), records)
    }

    fn fetch(&self, produced: Moved) -> Result<Moved> {
        let mut socket = wire::connect(&self.args.broker)?;
        let mut offsets = vec![0; self.partitions as usize];
        let mut moved = Moved {
            payload: 0,
            wire: 0,
            took: Duration::ZERO,
        };
        let start = Instant::now();
        while moved.wire < produced.wire {
            let response: FetchResponse = wire::call(
                &mut socket,
                wire::FETCH_VERSION,
                &self.fetch_request(&offsets),
            )?;
            let before = moved.wire;
            for topic in response.responses {
                moved.add(topic, &mut offsets)?;
            }
            if moved.wire == before {
                bail!(
                    "only {} of {} bytes can be fetched",
                    moved.wire,
                    produced.wire
                );
            }
        }
        moved.took = start.elapsed();
        Ok(moved)
    }

    /// Asks for all partitions, beginning with another one each time, so that a limit of the answer's size starves none.
    fn fetch_request(&self, offsets: &[i64]) -> FetchRequest {
        let least = offsets
            .iter()
            .enumerate()
            .min_by_key(|(_, offset)| **offset);
        let first = least.map_or(0, |(n, _)| n);
        let partitions = (0..offsets.len()).map(|n| {
            let partition = (first + n) % offsets.len();
            FetchPartition {
                partition: partition as i32,
                fetch_offset: offsets[partition],
                partition_max_bytes: self.args.fetch,
                ..Default::default()
            }
        });
        FetchRequest {
            max_wait_ms: 0,
            min_bytes: 1,
            max_bytes: FETCH_BYTES_MAX.max(self.args.fetch),
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic: Str::from(self.topic.to_string()),
                partitions: partitions.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }
    }
}

/// Kafka's default of `fetch.max.bytes`.
const FETCH_BYTES_MAX: i32 = 52_428_800;

impl Moved {
    fn add(&mut self, topic: FetchableTopicResponse, offsets: &mut [i64]) -> Result<()> {
        for partition in topic.partitions {
            if partition.error_code != 0 {
                bail!("the broker answered error {}", partition.error_code);
            }
            let Some(records) = partition.records.filter(|records| !records.is_empty()) else {
                continue;
            };
            for batch in Batches::new(records.to_bytes()) {
                let batch = batch?;
                let header = batch.header();
                self.payload += header.record_count as u64 * RECORD_BYTES as u64;
                self.wire += header.size_bytes() as u64;
                offsets[partition.partition_index as usize] = header.next_offset();
            }
        }
        Ok(())
    }
}
