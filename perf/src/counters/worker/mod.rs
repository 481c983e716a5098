//! A fixed amount of work to be counted: requests on the simulator, without sockets and without a kernel.
//!
//! Two layers: `partition` is decoding a request, the partition and the log below it, and encoding the answer;
//! `broker` is all that a request meets on its way, from the bytes of a connection through the shard to the log and
//! back. The next request is sent when the last is answered, so each is written and flushed alone: it is the work of
//! a request that shares nothing with others. The simulator is single-threaded and drawn from a seed, so each run
//! does the same.

mod broker;
mod partition;

use crate::payload::Random;
use crate::wire;
use crate::workload::CodecName;
use anyhow::{bail, ensure, Result};
use broker::BrokerBed;
use bytes::Bytes;
use clap::{Args, ValueEnum};
use highwater::protocol::batch::{BatchBuilder, Compression};
use highwater::protocol::messages::{FetchPartition, FetchRequest, FetchTopic};
use highwater::protocol::Str;
use highwater::runtime::sim::World;
use partition::PartitionBed;

/// The work of one worker process.
#[derive(Args, Debug, Clone, PartialEq)]
pub struct WorkerArgs {
    /// How much of the broker a request goes through.
    #[arg(long, value_enum)]
    pub layer: Layer,
    /// What is asked for.
    #[arg(long, value_enum)]
    pub path: PathName,
    /// The codec of the batches.
    #[arg(long, value_enum, default_value = "none")]
    pub codec: CodecName,
    /// Records of 1 KiB in a batch.
    #[arg(long, default_value_t = 1)]
    pub batch_records: usize,
    /// Requests, each of one batch.
    #[arg(long)]
    pub requests: usize,
}

/// How much of the broker a request goes through.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Layer {
    /// Decoding, partition, log, encoding.
    Partition,
    /// From a connection's bytes to its answer's, through one shard.
    Broker,
}

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PathName {
    /// A produce request of one batch with acks=all, to its acknowledgement.
    Produce,
    /// A fetch request for one batch that is in the cache.
    Fetch,
}

/// Does the work, and says how many requests were answered.
pub fn run(args: &WorkerArgs) -> Result<()> {
    println!("{} requests answered", work(args)?);
    Ok(())
}

/// The number of requests that were answered with what they asked for.
fn work(args: &WorkerArgs) -> Result<usize> {
    if !(1..=BATCH_RECORDS_MAX).contains(&args.batch_records) {
        bail!("--batch-records must be from 1 to {BATCH_RECORDS_MAX}");
    }
    if !(1..=REQUESTS_MAX).contains(&args.requests) {
        bail!("--requests must be from 1 to {REQUESTS_MAX}");
    }
    let batch = batch(args.codec.compression(), args.batch_records);
    let world = World::new(1);
    let node = world.node("broker");
    match args.layer {
        Layer::Partition => {
            let rt = node.rt();
            world.block_on(&rt, async {
                drive(PartitionBed::open(&rt).await?, args, batch).await
            })
        }
        Layer::Broker => {
            let client = world.node("client").rt();
            // The executor that `start_simulated` is to be run on.
            world.block_on(&node.rt_shard(broker::SHARDS), async {
                drive(BrokerBed::start(node, &client).await?, args, batch).await
            })
        }
    }
}

/// What answers requests.
trait Bed {
    /// A request as this bed takes it, from its frame.
    fn request(frame: Vec<u8>) -> Bytes;
    /// Produces a batch; the offset that it was given.
    async fn produce(&mut self, request: &Bytes) -> Result<i64>;
    /// The bytes of the answer.
    async fn fetch(&mut self, request: &Bytes) -> Result<usize>;
}

/// Sends the requests one after the other, and looks at each answer.
async fn drive<B: Bed>(mut bed: B, args: &WorkerArgs, batch: Bytes) -> Result<usize> {
    let batch_bytes = batch.len();
    let produce = B::request(wire::produce_frame(TOPIC, 0, -1, batch)?);
    let fetches = fetch_frames(args.batch_records)?;
    let fetches: Vec<Bytes> = fetches.into_iter().map(B::request).collect();
    match args.path {
        PathName::Produce => {
            for n in 0..args.requests {
                expect_offset(bed.produce(&produce).await?, n, args.batch_records)?;
            }
        }
        PathName::Fetch => {
            for n in 0..STORED {
                expect_offset(bed.produce(&produce).await?, n, args.batch_records)?;
            }
            for n in 0..args.requests {
                expect_batch(bed.fetch(&fetches[n % STORED]).await?, batch_bytes)?;
            }
        }
    }
    Ok(args.requests)
}

/// The n-th batch lies behind those before it.
fn expect_offset(found: i64, n: usize, batch_records: usize) -> Result<()> {
    let expected = (n * batch_records) as i64;
    ensure!(
        found == expected,
        "batch {n} was given offset {found}, not {expected}"
    );
    Ok(())
}

fn expect_batch(found: usize, batch_bytes: usize) -> Result<()> {
    ensure!(
        found > batch_bytes && found < batch_bytes + ANSWER_OVERHEAD_MAX,
        "a fetch was answered with {found} bytes, not with one batch of {batch_bytes}"
    );
    Ok(())
}

fn batch(codec: Compression, records: usize) -> Bytes {
    let mut random = Random(1);
    let mut builder = BatchBuilder::new().compression(codec);
    for _ in 0..records {
        builder.push(TIMESTAMP_MS, None, Some(&random.value(RANDOM_PART)));
    }
    builder.build()
}

/// One request for each stored batch.
fn fetch_frames(batch_records: usize) -> Result<Vec<Vec<u8>>> {
    let frame = |n| {
        let request = FetchRequest {
            min_bytes: 1,
            // One batch: the first is returned whatever its size.
            max_bytes: 1,
            session_epoch: -1,
            topics: vec![FetchTopic {
                topic: Str::from(TOPIC),
                partitions: vec![FetchPartition {
                    fetch_offset: (n * batch_records) as i64,
                    partition_max_bytes: 1,
                    ..Default::default()
                }],
                ..Default::default()
            }],
            ..Default::default()
        };
        wire::frame(wire::FETCH_VERSION, &request)
    };
    (0..STORED).map(frame).collect()
}

/// Bytes of the length before a frame.
const LENGTH_BYTES: usize = 4;
const TOPIC: &str = "perf-counters";
/// Batches that fetches take turns to read.
const STORED: usize = 64;
/// The part of each record that no codec can compress.
const RANDOM_PART: f64 = 0.25;
/// When the simulator's clock starts: retention leaves the records alone.
const TIMESTAMP_MS: i64 = 1_704_067_200_000;
/// Keeps a request below the broker's default limits.
const BATCH_RECORDS_MAX: usize = 512;
const REQUESTS_MAX: usize = 100_000;
/// More than what surrounds the batch in an answer.
const ANSWER_OVERHEAD_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;

    fn args(layer: Layer, path: PathName, batch_records: usize, requests: usize) -> WorkerArgs {
        WorkerArgs {
            layer,
            path,
            codec: CodecName::None,
            batch_records,
            requests,
        }
    }

    #[test]
    fn given_each_layer_and_path_then_every_request_is_answered() {
        for layer in [Layer::Partition, Layer::Broker] {
            for path in [PathName::Produce, PathName::Fetch] {
                for batch_records in [1, 64] {
                    // More than there are stored batches, so that fetches begin again.
                    let args = args(layer, path, batch_records, STORED + 3);
                    assert_eq!(work(&args).unwrap(), STORED + 3, "{args:?}");
                }
            }
        }
    }

    #[test]
    fn given_each_codec_then_the_broker_takes_its_batches() {
        for codec in [
            CodecName::Gzip,
            CodecName::Snappy,
            CodecName::Lz4,
            CodecName::Zstd,
        ] {
            let args = WorkerArgs {
                codec,
                ..args(Layer::Broker, PathName::Fetch, 3, 2)
            };
            assert_eq!(work(&args).unwrap(), 2);
        }
    }

    #[test]
    fn given_numbers_that_make_no_sense_then_they_are_refused() {
        let refused = |args: WorkerArgs| work(&args).unwrap_err().to_string();
        let (layer, path) = (Layer::Broker, PathName::Produce);
        assert!(refused(args(layer, path, 0, 1)).starts_with("--batch-records must be from 1"));
        assert!(refused(args(layer, path, 513, 1)).starts_with("--batch-records must be from 1"));
        assert!(refused(args(layer, path, 1, 0)).starts_with("--requests must be from 1"));
        assert!(refused(args(layer, path, 1, 100_001)).starts_with("--requests must be from 1"));
    }

    #[test]
    fn given_a_wrong_answer_then_it_is_noticed() {
        assert!(expect_offset(64, 1, 64).is_ok());
        assert!(expect_offset(65, 1, 64).is_err());
        assert!(expect_batch(1_100, 1_000).is_ok());
        assert!(expect_batch(900, 1_000).is_err());
        assert!(expect_batch(2_100, 1_000).is_err());
    }
}
