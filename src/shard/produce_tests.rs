//! Produce over two shards in the simulator: the order of offsets, and what an answer says
//! when the time is over.

use super::fetch_tests::{batch, key, start, LONG, PARTITIONS};
use super::messages::ProducePart;
use crate::partition::Acks;
use crate::protocol::batch::{BatchBuilder, Compression};
use crate::protocol::ErrorCode;
use crate::runtime::sim::World;
use bytes::Bytes;
use std::time::Duration;

/// Small on the way, and MiBs to validate: other tasks run in between.
fn large_batch(now_ms: i64) -> Bytes {
    let mut builder = BatchBuilder::new().compression(Compression::Zstd);
    for _ in 0..16 {
        builder.push(now_ms, None, Some(&vec![7; 1 << 20]));
    }
    builder.build()
}

#[test]
fn given_a_large_batch_when_others_follow_then_offsets_are_in_the_order_of_requests() {
    for seed in 0..4 {
        let world = World::new(seed);
        let node = world.node("broker");
        world.block_on(&node.rt_shard(0), async {
            let shards = start(&node, 8 << 20).await;
            let now_ms = shards[0].rt().wall_clock_ms();
            let large = large_batch(now_ms);
            for (from, index) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let mut waits = Vec::new();
                for records in [
                    batch(&shards[0], 10),
                    large.clone(),
                    batch(&shards[0], 20),
                    batch(&shards[0], 30),
                ] {
                    let part = ProducePart {
                        key: key(index),
                        records,
                    };
                    waits.push(
                        shards[from]
                            .start_produce(vec![part], Acks::All, LONG)
                            .await,
                    );
                }
                let mut offsets = Vec::new();
                for wait in waits {
                    offsets.push(wait.await.remove(0).expect("taken").base_offset);
                }
                let first = offsets[0];
                assert_eq!(offsets, [first, first + 1, first + 17, first + 18]);
            }
        });
    }
}

#[test]
fn given_one_partition_that_waits_when_time_is_over_then_those_behind_it_are_answered_as_done() {
    let mut overtakers = 0;
    for micros in (0..60).map(|n| n * 500) {
        let world = World::new(9);
        let node = world.node("broker");
        world.block_on(&node.rt_shard(0), async {
            let shards = start(&node, 8 << 20).await;
            let mut keys: Vec<_> = (0..PARTITIONS).map(key).collect();
            keys.sort_by_key(|key| shards[0].owner(key));
            let parts = keys.iter().map(|key| ProducePart {
                key: *key,
                records: batch(&shards[0], 10),
            });
            let timeout = Duration::from_micros(micros);
            let done = shards[0].start_produce(parts.collect(), Acks::All, timeout);
            let results = done.await.await;
            let codes: Vec<_> = results
                .iter()
                .map(|result| result.as_ref().map_or_else(|e| e.code, |_| ErrorCode::None))
                .collect();
            for (n, key) in keys.iter().enumerate() {
                assert!([ErrorCode::None, ErrorCode::RequestTimedOut].contains(&codes[n]));
                let is_before_a_done_one = (n + 1..keys.len()).any(|later| {
                    shards[0].owner(&keys[later]) == shards[0].owner(key)
                        && codes[later] == ErrorCode::None
                });
                if codes[n] == ErrorCode::RequestTimedOut && is_before_a_done_one {
                    overtakers += 1;
                }
            }
        });
    }
    assert!(overtakers > 0, "no later batch was ever done first");
}
