//! Groups over two shards in the simulator: calls that are answered elsewhere and later,
//! and what a log that Kafka wrote says.

use super::*;
use crate::config::BrokerConfig;
use crate::coordinator::records::OffsetCommitValue;
use crate::coordinator::{Caller, GroupRequest, OffsetsRecord};
use crate::metadata::{Change, Delta, PartitionImage, TopicImage, OFFSETS_TOPIC_NAME};
use crate::protocol::batch::{BatchBuilder, BatchView, Compression};
use crate::protocol::messages::{
    JoinGroupRequest, JoinGroupRequestProtocol, OffsetCommitRequest, OffsetCommitRequestPartition,
    OffsetCommitRequestTopic, OffsetFetchRequestGroup,
};
use crate::protocol::Str;
use crate::runtime::sim::World;
use crate::shard::fetch_tests;
use futures_lite::future::poll_once;
use smallvec::smallvec;
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

const COORDINATORS: i32 = 4;

/// Two shards with the topic `orders` and `__consumer_offsets`.
async fn start(node: &crate::runtime::sim::SimNode) -> Vec<Shard> {
    start_with(node, BrokerConfig::default()).await
}

async fn start_with(node: &crate::runtime::sim::SimNode, config: BrokerConfig) -> Vec<Shard> {
    let shards = fetch_tests::start_with(node, 8 << 20, config).await;
    let partition = |index| PartitionImage {
        index,
        replicas: smallvec![1],
        isr: smallvec![1],
        leader: 1,
        leader_epoch: 0,
        partition_epoch: 0,
        directories: Default::default(),
    };
    let topic = Arc::new(TopicImage {
        id: Uuid::from_u128(9),
        name: OFFSETS_TOPIC_NAME.into(),
        partitions: (0..COORDINATORS).map(partition).collect(),
        configs: [("cleanup.policy".to_owned(), "compact".to_owned())].into(),
    });
    for shard in &shards {
        let delta = Delta {
            previous: 1,
            offset: 2,
            changes: vec![Change::TopicCreated(topic.clone())],
        };
        shard.apply(delta).await;
    }
    shards
}

fn call(body: GroupRequest) -> GroupCall {
    GroupCall {
        api_version: 5,
        caller: Caller::default(),
        fresh: Uuid::from_u128(77),
        body,
    }
}

fn group(n: usize) -> Str {
    Str::from(format!("group-{n}"))
}

fn commit(group: &Str, offset: i64) -> GroupCall {
    call(GroupRequest::CommitOffsets(OffsetCommitRequest {
        group_id: group.clone(),
        topics: vec![OffsetCommitRequestTopic {
            name: "orders".into(),
            partitions: vec![OffsetCommitRequestPartition {
                committed_offset: offset,
                ..Default::default()
            }],
        }],
        ..Default::default()
    }))
}

async fn committed(shard: &Shard, group: &Str) -> i64 {
    let request = GroupRequest::FetchOffsets {
        group: OffsetFetchRequestGroup {
            group_id: group.clone(),
            topics: None,
            ..Default::default()
        },
        require_stable: false,
    };
    match shard.group(call(request)).await {
        GroupResponse::OffsetsFetched(answer) => {
            assert_eq!(answer.error_code, 0);
            let topic = answer.topics.first();
            topic.map_or(-1, |topic| topic.partitions[0].committed_offset)
        }
        other => panic!("{other:?}"),
    }
}

/// The code of the partition of a commit's answer.
fn code_of(answer: &GroupResponse) -> i16 {
    match answer {
        GroupResponse::OffsetsCommitted(answer) => answer.topics[0].partitions[0].error_code,
        other => panic!("{other:?}"),
    }
}

fn join(group: &Str) -> GroupCall {
    call(GroupRequest::Join(JoinGroupRequest {
        group_id: group.clone(),
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 10_000,
        protocol_type: "consumer".into(),
        protocols: vec![JoinGroupRequestProtocol {
            name: "range".into(),
            ..Default::default()
        }],
        // From version 4 on a member is first told its id.
        ..Default::default()
    }))
}

#[test]
fn a_commit_from_any_shard_is_seen_from_every_shard_and_commits_keep_their_order() {
    for seed in 0..8 {
        let world = World::new(seed);
        let node = world.node("broker");
        world.block_on(&node.rt_shard(0), async {
            let shards = start(&node).await;
            for n in 0..8 {
                let (group, from) = (group(n), &shards[n % 2]);
                assert_eq!(committed(from, &group).await, -1);
                let mut commits: Vec<_> = (1..=5)
                    .map(|offset| Box::pin(from.group(commit(&group, offset))))
                    .collect();
                for commit in &mut commits {
                    // In this order, and all at once.
                    assert!(poll_once(commit).await.is_none(), "it waits for the disk");
                }
                for commit in commits {
                    assert_eq!(code_of(&commit.await), 0);
                }
                for shard in &shards {
                    assert_eq!(committed(shard, &group).await, 5);
                }
            }
            let mut rows = 0;
            for shard in &shards {
                let all = shard.group_figures(100).await.offsets;
                assert!(all.is_sorted());
                let figures = shard.group_figures(1).await;
                assert_eq!(figures.offsets, all[..all.len().min(1)]);
                assert_eq!(figures.offsets_all, all.len());
                rows += figures.offsets_all;
            }
            assert_eq!(rows, 8);
            assert_eq!(shards[1].list_groups().await.expect("loaded").len(), 8);
            for shard in &shards {
                assert!(shard.0.groups.waiting.borrow().is_empty());
            }
        });
    }
}

#[test]
fn a_call_that_is_given_up_leaves_nothing_behind() {
    for seed in 0..8 {
        let world = World::new(seed);
        let node = world.node("broker");
        world.block_on(&node.rt_shard(0), async {
            let shards = start(&node).await;
            for n in 0..4 {
                for shard in &shards {
                    let mut call = join(&group(n));
                    call.api_version = 3;
                    let mut waiting = Box::pin(shard.group(call));
                    // The first member waits for others to come.
                    let polls = shard.rt().random_u64() % 3;
                    for _ in 0..polls {
                        assert!(poll_once(&mut waiting).await.is_none());
                        shard.rt().sleep(Duration::from_millis(1)).await;
                    }
                    drop(waiting);
                }
            }
            shards[0].rt().sleep(Duration::from_secs(60)).await;
            for shard in &shards {
                assert!(shard.0.groups.waiting.borrow().is_empty());
            }
            // They went by their timeouts.
            let groups = shards[0].list_groups().await.expect("loaded");
            let left: Vec<_> = groups.iter().filter(|it| it.state != "Empty").collect();
            assert!(left.iter().all(|it| it.state == "Dead"), "{left:?}");
        });
    }
}

#[test]
fn a_stop_answers_those_who_wait_and_refuses_those_who_come() {
    let world = World::new(3);
    let node = world.node("broker");
    world.block_on(&node.rt_shard(0), async {
        let shards = start(&node).await;
        let began = shards[0].rt().now();
        let mut joins = Vec::new();
        for n in 0..4 {
            let mut call = join(&group(n));
            call.api_version = 3;
            let mut waiting = Box::pin(shards[n % 2].group(call));
            assert!(poll_once(&mut waiting).await.is_none());
            joins.push(waiting);
        }
        shards[0].rt().sleep(Duration::from_millis(1)).await;
        for shard in &shards {
            shard.0.stopping.set(true);
            shard.0.stop.notify_all();
            shard.stop_groups();
        }
        let code = ErrorCode::NotCoordinator.code();
        for join in joins {
            match join.await {
                GroupResponse::Join(answer) => assert_eq!(answer.error_code, code),
                other => panic!("{other:?}"),
            }
        }
        assert!(shards[0].rt().now().since(began) < Duration::from_millis(100));
        assert_eq!(code_of(&shards[0].group(commit(&group(0), 1)).await), code);
    });
}

#[test]
fn what_could_not_be_written_is_answered_as_kafka_does_and_is_not_seen() {
    let world = World::new(3);
    let node = world.node("broker");
    world.block_on(&node.rt_shard(0), async {
        let shards = start(&node).await;
        let group = group(0);
        assert_eq!(code_of(&shards[0].group(commit(&group, 1)).await), 0);
        // More than max.message.bytes, as one batch.
        let mut large = commit(&group, 2);
        if let GroupRequest::CommitOffsets(request) = &mut large.body {
            let one = OffsetCommitRequestPartition {
                committed_metadata: Some(Str::from("m".repeat(4_000))),
                ..request.topics[0].partitions[0].clone()
            };
            request.topics[0].partitions = vec![one; 300];
        }
        let code = ErrorCode::UnknownServerError.code();
        assert_eq!(code_of(&shards[0].group(large).await), code);
        assert_eq!(committed(&shards[0], &group).await, 1);
        // A partition that fails.
        for shard in &shards {
            for named in shard.0.partitions.all_online() {
                named.partition.take_offline("a test");
            }
        }
        let code = ErrorCode::CoordinatorNotAvailable.code();
        assert_eq!(code_of(&shards[0].group(commit(&group, 3)).await), code);
    });
}

#[test]
fn a_commit_that_takes_too_long_is_answered_with_an_error_and_not_seen() {
    let world = World::new(3);
    let node = world.node("broker");
    world.block_on(&node.rt_shard(0), async {
        let config = BrokerConfig {
            offsets_commit_timeout_ms: 0,
            ..BrokerConfig::default()
        };
        let shards = start_with(&node, config).await;
        let code = ErrorCode::CoordinatorNotAvailable.code();
        for n in 0..4 {
            let answer = shards[0].group(commit(&group(n), 1)).await;
            assert_eq!(code_of(&answer), code);
            assert_eq!(committed(&shards[0], &group(n)).await, -1);
        }
        // The records are written all the same.
        shards[0].rt().sleep(Duration::from_secs(1)).await;
        let partitions = shards.iter().flat_map(|it| it.0.partitions.all_online());
        let own = partitions.filter(|it| &*it.topic == OFFSETS_TOPIC_NAME);
        let written: i64 = own.map(|it| it.partition.numbers().high_watermark).sum();
        assert_eq!(written, 4);
        assert_eq!(committed(&shards[1], &group(0)).await, -1);
    });
}

/// The log of a coordinator whose producers had transactions, compressed batches, and
/// groups of a protocol that is not known.
#[test]
fn a_log_of_transactions_and_unknown_records_is_replayed() {
    let value = |offset| OffsetCommitValue {
        offset,
        ..Default::default()
    };
    let record = |topic: &'static str, offset| {
        OffsetsRecord::offset(&"g".into(), &topic.into(), 0, Some(&value(offset))).unwrap()
    };
    let batch = |base: i64, transaction: Option<i64>, records: &[OffsetsRecord]| {
        let mut batch = BatchBuilder::new().base_offset(base);
        batch = match transaction {
            Some(id) => batch.producer(id, 0, 0).transactional(true),
            None => batch.compression(Compression::Lz4),
        };
        for record in records {
            batch.push(0, Some(&record.key), record.value.as_deref());
        }
        BatchView::parse(batch.build()).unwrap()
    };
    let marker = |base: i64, id: i64, kind: u8| {
        let mut batch = BatchBuilder::new().base_offset(base).producer(id, 0, -1);
        batch = batch.transactional(true).control(true);
        batch.push(0, Some(&[0, 0, 0, kind]), Some(&[0; 6]));
        BatchView::parse(batch.build()).unwrap()
    };
    let unknown = OffsetsRecord {
        key: vec![0, 3, 0, 1, b'g'].into(),
        value: None,
    };
    let mut coordinator = Coordinator::new(0, GroupSettings::default());
    let mut loaded = load::Loaded::default();
    let batches = [
        batch(
            0,
            None,
            &[record("a", 1), unknown, record("b", 1), record("c", 1)],
        ),
        batch(4, Some(7), &[record("a", 2), record("b", 2)]),
        batch(6, Some(8), &[record("c", 2)]),
        batch(7, None, &[record("b", 3)]),
        marker(8, 7, 1),
        marker(9, 8, 0),
        // Of a kind that is none of these two.
        marker(10, 9, 2),
    ];
    for batch in &batches {
        loaded.replay(batch, &mut coordinator).expect("it is sound");
    }
    let now = Now {
        mono: Mono::default(),
        wall_ms: 0,
    };
    coordinator.loaded(now);
    let committed = coordinator.committed();
    let committed: Vec<_> = committed
        .map(|it| (it.topic.to_owned(), it.offset))
        .collect();
    let expected = [("a", 2), ("b", 3), ("c", 1)].map(|(topic, offset)| (topic.to_owned(), offset));
    assert_eq!(committed, expected);
    assert_eq!(loaded.unknown, 1);
    let broken = OffsetsRecord {
        key: vec![0, 1, 9].into(),
        value: None,
    };
    assert!(loaded
        .replay(&batch(11, None, &[broken]), &mut coordinator)
        .is_err());
}
