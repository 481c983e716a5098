//! Fetches over two shards in the simulator: when a long poll reads, and what the
//! limits let through.

use super::*;
use crate::metadata::{Change, Delta, PartitionImage, TopicImage};
use crate::partition::{Acks, Reader};
use crate::protocol::batch::BatchBuilder;
use crate::runtime::sim::{self, World};
use crate::runtime::Queue;
use bytes::Bytes;
use messages::{LoadDir, LoadOrder};
use smallvec::smallvec;
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

const SHARDS: usize = 2;
pub(super) const PARTITIONS: i32 = 4;
pub(super) const LONG: Duration = Duration::from_secs(3_600);

struct NoConnections;

impl ConnectionHost for NoConnections {
    fn serve(&self, _: &Shard, _: Incoming) {
        unreachable!("nobody connects");
    }

    fn drain(&self, _: &Shard) -> Pin<Box<dyn Future<Output = ()>>> {
        Box::pin(async {})
    }
}

/// Two shards with a topic of four partitions; the control executor's seat is empty.
pub(super) async fn start(node: &sim::SimNode, cache_bytes: u64) -> Vec<Shard> {
    start_with(node, cache_bytes, BrokerConfig::default()).await
}

/// The same with other settings.
pub(super) async fn start_with(
    node: &sim::SimNode,
    cache_bytes: u64,
    config: BrokerConfig,
) -> Vec<Shard> {
    let config = Arc::new(config);
    let mut seats = sim::mesh(SHARDS + 1, 8);
    let control = seats.pop().expect("a seat for each");
    let rt = node.rt_shard(SHARDS);
    rt.clone().spawn(Queue::Latency, async move {
        control
            .join(&rt, Rc::new(|_, _, reply| reply.send(Reply::Done)))
            .await;
        std::future::pending::<()>().await;
    });
    let sizes = ShardSizes {
        request_bytes: 1 << 20,
        response_bytes: 64 << 20,
        frame_bytes_max: 1 << 17,
        write_bytes: 8 << 20,
        cache_bytes,
        cold_read_bytes: 8 << 20,
        open_segments_max: 4,
    };
    let (tell, mut told) = crate::runtime::local::channel(SHARDS);
    for (me, seat) in seats.into_iter().enumerate() {
        let (rt, sizes, tell) = (node.rt_shard(me), sizes.clone(), tell.clone());
        let config = config.clone();
        rt.clone().spawn(Queue::Latency, async move {
            let host = |_: &Shard| Rc::new(NoConnections) as Rc<dyn ConnectionHost>;
            let shard = Shard::start(rt, seat, me, SHARDS, config, &sizes, host).await;
            let image = Image::empty(Uuid::from_u128(1), 1);
            let delta = Delta {
                previous: image.version(),
                offset: 1,
                changes: vec![Change::TopicCreated(topic())],
            };
            let order = LoadOrder {
                image,
                dirs: vec![LoadDir {
                    id: Uuid::from_u128(3),
                    path: "/data".into(),
                    clean: true,
                    offline: None,
                }],
                partitions: Vec::new(),
                elsewhere: Arc::default(),
            };
            shard.load(order).await;
            shard.apply(delta).await;
            assert!(tell.send(shard).await.is_ok());
        });
    }
    let mut shards = vec![
        told.recv().await.expect("a shard"),
        told.recv().await.expect("a shard"),
    ];
    shards.sort_by_key(Shard::me);
    shards
}

fn topic() -> Arc<TopicImage> {
    let partition = |index| PartitionImage {
        index,
        replicas: smallvec![1],
        isr: smallvec![1],
        leader: 1,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: Default::default(),
    };
    Arc::new(TopicImage {
        id: Uuid::from_u128(8),
        name: "orders".into(),
        partitions: (0..PARTITIONS).map(partition).collect(),
        configs: BTreeMap::new(),
    })
}

pub(super) fn key(index: i32) -> PartitionKey {
    PartitionKey {
        topic_id: topic().id,
        index,
    }
}

pub(super) fn batch(shard: &Shard, bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new();
    builder.push(shard.rt().wall_clock_ms(), None, Some(&vec![7; bytes]));
    builder.build()
}

async fn produce(shard: &Shard, index: i32, bytes: usize) {
    let part = ProducePart {
        key: key(index),
        records: batch(shard, bytes),
    };
    let done = shard.start_produce(vec![part], Acks::All, LONG).await;
    done.await.remove(0).expect("it is stored");
}

fn part(index: i32) -> FetchPart {
    FetchPart {
        key: key(index),
        offset: 0,
        current_leader_epoch: -1,
        last_fetched_epoch: -1,
        bytes_max: 8 << 20,
        counted: None,
    }
}

fn plan(indexes: &[i32], bytes_min: usize) -> FetchPlan {
    FetchPlan {
        parts: indexes.iter().map(|index| part(*index)).collect(),
        bytes_max: 32 << 20,
        bytes_min,
        wait_max: LONG,
        reader: Reader::Consumer,
        hurry: Hurry::default(),
    }
}

fn bytes_of(fetched: &Fetched) -> Vec<usize> {
    let outcomes = fetched.outcomes.iter();
    outcomes
        .map(|outcome| outcome.as_ref().map_or(0, |outcome| outcome.bytes))
        .collect()
}

/// Reads of all shards: from the cache, from the disk.
fn reads(shards: &[Shard]) -> (u64, u64) {
    let counters = shards.iter().map(Shard::counters);
    counters.fold((0, 0), |(cache, cold), counters| {
        (
            cache + counters.fetch_cache_reads.get(),
            cold + counters.fetch_cold_reads.get(),
        )
    })
}

#[test]
fn given_min_bytes_when_records_come_one_by_one_then_nothing_is_read_before_enough_are_there() {
    for indexes in [&[0][..], &[1], &[0, 1, 2, 3]] {
        let world = World::new(5);
        let node = world.node("broker");
        world.block_on(&node.rt_shard(0), async {
            let shards = start(&node, 8 << 20).await;
            let size = batch(&shards[0], 1_000).len();
            let mut fetch = Box::pin(shards[0].fetch(plan(indexes, 10 * size)));
            for produced in 0..10 {
                let early = futures_lite::future::poll_once(&mut fetch).await;
                assert!(early.is_none(), "{produced} of 10 batches are enough");
                assert_eq!(reads(&shards), (0, 0), "{produced} of 10 batches");
                produce(&shards[1], indexes[produced % indexes.len()], 1_000).await;
                shards[0].rt().sleep(Duration::from_millis(5)).await;
            }
            let fetched = fetch.await.expect("an answer");
            assert_eq!(bytes_of(&fetched).iter().sum::<usize>(), 10 * size);
            assert_eq!(reads(&shards), (indexes.len() as u64, 0));
            assert_eq!(shards[0].counters().fetch_waits.get(), 1);
        });
    }
}

#[test]
fn given_too_little_when_the_wait_is_over_then_what_is_there_is_returned() {
    for indexes in [&[1][..], &[0, 1]] {
        let world = World::new(6);
        let node = world.node("broker");
        world.block_on(&node.rt_shard(0), async {
            let shards = start(&node, 8 << 20).await;
            produce(&shards[0], 1, 1_000).await;
            let size = batch(&shards[0], 1_000).len();
            let begin = shards[0].rt().now();
            let wait_max = Duration::from_secs(7);
            let little = FetchPlan {
                wait_max,
                ..plan(indexes, 2 * size)
            };
            let fetched = shards[0].fetch(little).await.expect("an answer");
            assert!(shards[0].rt().now().since(begin) >= wait_max);
            assert_eq!(bytes_of(&fetched).iter().sum::<usize>(), size);
            assert_eq!(reads(&shards), (1, 0), "one read, at the end");
        });
    }
}

#[test]
fn given_min_bytes_when_one_partition_has_an_error_then_it_is_answered_at_once() {
    let world = World::new(7);
    let node = world.node("broker");
    world.block_on(&node.rt_shard(0), async {
        let shards = start(&node, 8 << 20).await;
        produce(&shards[0], 0, 1_000).await;
        let mut broken = plan(&[0, 1], 1 << 20);
        broken.parts[1].offset = 99;
        let mut parted = plan(&[0, 1], 1 << 20);
        parted.parts[1].last_fetched_epoch = 0;
        parted.parts[1].offset = 5;
        let begin = shards[0].rt().now();
        let fetched = shards[0].fetch(broken).await.expect("an answer");
        let code = fetched.outcomes[1].as_ref().err();
        assert_eq!(code, Some(&ErrorCode::OffsetOutOfRange));
        assert!(bytes_of(&fetched)[0] > 0, "the other one is read");
        let fetched = shards[0].fetch(parted).await.expect("an answer");
        let outcome = fetched.outcomes[1].as_ref().expect("no error");
        let end = outcome.diverging.expect("epoch 0 ends before 5");
        assert_eq!((end.epoch, end.end_offset), (0, 0));
        assert!(shards[0].rt().now().since(begin) < Duration::from_secs(60));
    });
}

/// A read takes at most a chunk from disk: no reason to wait for what is there.
#[test]
fn given_old_records_beyond_one_read_then_min_bytes_makes_nobody_wait() {
    let world = World::new(8);
    let node = world.node("broker");
    world.block_on(&node.rt_shard(0), async {
        let shards = start(&node, 64 << 10).await;
        for _ in 0..6 {
            produce(&shards[0], 0, 900_000).await;
        }
        let begin = shards[0].rt().now();
        let all = shards[0].fetch(plan(&[0], 4_000_000)).await;
        assert!(bytes_of(&all.expect("an answer"))[0] > 0);
        assert!(shards[0].rt().now().since(begin) < Duration::from_secs(60));
        assert_eq!(reads(&shards), (0, 1), "and it was the disk's");
    });
}

/// The same with one owner and with two.
#[test]
fn given_limits_below_a_batch_then_only_the_first_partition_with_records_exceeds_them() {
    let world = World::new(9);
    let node = world.node("broker");
    world.block_on(&node.rt_shard(0), async {
        let shards = start(&node, 8 << 20).await;
        for index in 1..PARTITIONS {
            for _ in 0..3 {
                produce(&shards[0], index, 500).await;
            }
        }
        let size = batch(&shards[0], 500).len();
        let fetch = |indexes: &'static [i32], of_part: usize, of_all: usize| {
            let mut limited = plan(indexes, 1);
            limited.bytes_max = of_all;
            for part in &mut limited.parts {
                part.bytes_max = of_part;
            }
            let shard = shards[0].clone();
            async move { bytes_of(&shard.fetch(limited).await.expect("an answer")) }
        };
        for limit in [0, 1, size - 1] {
            assert_eq!(fetch(&[0, 1, 2, 3], limit, 1 << 20).await, [0, size, 0, 0]);
            assert_eq!(fetch(&[0, 1, 2, 3], 1 << 20, limit).await, [0, size, 0, 0]);
            assert_eq!(fetch(&[1, 3], limit, 1 << 20).await, [size, 0]);
            assert_eq!(fetch(&[3, 1], 1 << 20, limit).await, [size, 0]);
        }
        let two = 2 * size;
        assert_eq!(
            fetch(&[0, 1, 2, 3], two + 1, 1 << 20).await,
            [0, two, two, two]
        );
        assert_eq!(
            fetch(&[3, 2, 1], 1 << 20, 4 * size).await,
            [3 * size, size, 0]
        );
        assert_eq!(fetch(&[2, 2], size, 1 << 20).await, [size, size]);
    });
}
