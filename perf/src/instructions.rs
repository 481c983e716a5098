//! A fixed amount of work for valgrind to count: batches through a partition, without sockets and without a kernel.
//!
//! Each request is decoded from its frame, goes through the partition to the log, and its answer is encoded; the disk
//! is the simulator's. What a broker does besides (reading frames, routing between shards, system calls) is not in
//! it, and the simulator's own work is: `scripts/instructions` tells it apart. Counts are the same in each run.

use anyhow::{bail, Context, Result};
use bytes::Bytes;
use clap::{Args, ValueEnum};
use highwater::config::{BrokerConfig, TopicConfig};
use highwater::partition::{
    Acks, FetchSpec, Partition, PartitionId, PartitionLoad, PartitionOptions, Reader as ReadBy,
};
use highwater::protocol::batch::{BatchBuilder, Compression};
use highwater::protocol::messages::{
    FetchPartition, FetchRequest, FetchResponse, FetchTopic, FetchableTopicResponse, PartitionData,
    PartitionProduceResponse, ProduceRequest, ProduceResponse, TopicProduceResponse,
};
use highwater::protocol::{response_frame, Reader, RequestHeader, Str};
use highwater::runtime::local::Budget;
use highwater::runtime::sim::World;
use highwater::runtime::Rt;
use highwater::storage::{Storage, StorageLimits};
use std::rc::Rc;

use crate::payload::Random;
use crate::wire;

#[derive(Args)]
pub struct InstructionsArgs {
    /// What is done.
    #[arg(long, value_enum)]
    path: PathName,
    /// The codec of the batches.
    #[arg(long, value_enum, default_value = "none")]
    codec: crate::payload::Codec,
    /// Records of 1 KiB in a batch.
    #[arg(long, default_value_t = 1)]
    batch_records: usize,
    /// Requests, each of one batch.
    #[arg(long)]
    requests: usize,
}

#[derive(Clone, Copy, ValueEnum)]
enum PathName {
    /// A produce request of one batch with acks=all, to its acknowledgement.
    Produce,
    /// A fetch request for one batch that is in the cache.
    Fetch,
}

const TOPIC: &str = "perf-instructions";
/// Batches that fetches take turns to read.
const STORED: usize = 64;
/// The part of each record that no codec can compress.
const RANDOM_PART: f64 = 0.25;

pub fn run(args: &InstructionsArgs) -> Result<()> {
    let Some(codec) = args.codec.compression() else {
        bail!("--codec all: name one");
    };
    if args.batch_records == 0 {
        bail!("--batch-records must be at least 1");
    }
    let world = World::new(1);
    let rt = world.node("broker").rt();
    world.block_on(&rt, async {
        let bed = Bed::open(&rt).await?;
        let batch = batch(codec, args.batch_records);
        let batch_bytes = batch.len();
        // Without the length prefix, as a connection has it.
        let produce = body(wire::produce_frame(TOPIC, 0, -1, batch)?);
        match args.path {
            PathName::Produce => {
                for _ in 0..args.requests {
                    bed.produce(&produce).await?;
                }
            }
            PathName::Fetch => {
                for _ in 0..STORED {
                    bed.produce(&produce).await?;
                }
                let frames = (0..STORED)
                    .map(|n| fetch_frame((n * args.batch_records) as i64))
                    .collect::<Result<Vec<_>>>()?;
                for n in 0..args.requests {
                    let sent = bed.fetch(&frames[n % STORED]).await?;
                    if sent < batch_bytes {
                        bail!("a fetch found {sent} bytes, not a batch of {batch_bytes}");
                    }
                }
            }
        }
        Ok(())
    })
}

/// A partition on the simulator.
struct Bed {
    partition: Partition,
    now_ms: i64,
}

impl Bed {
    async fn open(rt: &Rt) -> Result<Bed> {
        const MIB: u64 = 1 << 20;
        let limits = StorageLimits {
            cache_bytes: 256 * MIB,
            cold_read_bytes: 8 * MIB,
            write_bytes: 8 * MIB,
            flushes_in_flight_max: 4,
            open_segments_max: 16,
        };
        let options = PartitionOptions {
            id: PartitionId {
                topic_id: uuid::Uuid::from_u128(1),
                topic: Rc::from(TOPIC),
                index: 0,
            },
            dir: rt.dir(format!("/data/{TOPIC}-0")),
            config: TopicConfig::from_broker(&BrokerConfig::default()),
            leader_epoch: 0,
            replication_factor: 1,
            load: PartitionLoad::Create,
            write_budget: Budget::new(8 * MIB),
            record_log_start: Rc::new(|_| Box::pin(std::future::ready(Ok(())))),
        };
        let (partition, _) = Partition::open(&Storage::new(rt.clone(), limits), options).await?;
        Ok(Bed {
            partition,
            now_ms: rt.wall_clock_ms(),
        })
    }

    async fn produce(&self, frame: &Bytes) -> Result<()> {
        let mut reader = Reader::new(frame.clone());
        let header = RequestHeader::decode(&mut reader)?;
        let request = ProduceRequest::decode(&mut reader, header.api_version)?;
        let topic = request.topic_data.into_iter().next().context("a topic")?;
        let data = topic
            .partition_data
            .into_iter()
            .next()
            .context("a partition")?;
        let records = data.records.context("records")?.to_bytes();
        let ticket = self
            .partition
            .produce(records, Acks::All, self.now_ms, None)
            .await?;
        let (base_offset, log_start_offset) = (ticket.base_offset, ticket.log_start_offset);
        let done = ticket.done.await;
        if let Err(code) = done {
            bail!("a batch was not written: {code:?}");
        }
        let response = ProduceResponse {
            responses: vec![TopicProduceResponse {
                name: topic.name,
                partition_responses: vec![PartitionProduceResponse {
                    index: data.index,
                    base_offset,
                    log_start_offset,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        response_frame(header.correlation_id, header.api_version, &response)?;
        Ok(())
    }

    /// The bytes of the answer.
    async fn fetch(&self, frame: &Bytes) -> Result<usize> {
        let mut reader = Reader::new(frame.clone());
        let header = RequestHeader::decode(&mut reader)?;
        let request = FetchRequest::decode(&mut reader, header.api_version)?;
        let topic = request.topics.into_iter().next().context("a topic")?;
        let wanted = topic.partitions.into_iter().next().context("a partition")?;
        let spec = FetchSpec {
            offset: wanted.fetch_offset,
            current_leader_epoch: wanted.current_leader_epoch,
            last_fetched_epoch: wanted.last_fetched_epoch,
            bytes_max: wanted.partition_max_bytes as usize,
            whole_first_batch: true,
            reader: ReadBy::Consumer,
        };
        let outcome = self.partition.fetch(spec).await;
        let outcome = outcome.map_err(|code| anyhow::anyhow!("a fetch failed: {code:?}"))?;
        let response = FetchResponse {
            responses: vec![FetchableTopicResponse {
                topic: topic.topic,
                partitions: vec![PartitionData {
                    partition_index: wanted.partition,
                    high_watermark: outcome.high_watermark,
                    last_stable_offset: outcome.last_stable_offset,
                    log_start_offset: outcome.log_start_offset,
                    records: Some(outcome.slices.into_iter().collect()),
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        let chunks = response_frame(header.correlation_id, header.api_version, &response)?;
        Ok(chunks.iter().map(Bytes::len).sum())
    }
}

fn batch(codec: Compression, records: usize) -> Bytes {
    let mut random = Random(1);
    let mut builder = BatchBuilder::new().compression(codec);
    for _ in 0..records {
        builder.push(1_700_000_000_000, None, Some(&random.value(RANDOM_PART)));
    }
    builder.build()
}

fn fetch_frame(offset: i64) -> Result<Bytes> {
    let request = FetchRequest {
        min_bytes: 1,
        // One batch: the first is returned whatever its size.
        max_bytes: 1,
        session_epoch: -1,
        topics: vec![FetchTopic {
            topic: Str::from(TOPIC),
            partitions: vec![FetchPartition {
                fetch_offset: offset,
                partition_max_bytes: 1,
                ..Default::default()
            }],
            ..Default::default()
        }],
        ..Default::default()
    };
    Ok(body(wire::frame(wire::FETCH_VERSION, &request)?))
}

/// A frame without its length prefix.
fn body(frame: Vec<u8>) -> Bytes {
    Bytes::from(frame).slice(4..)
}
