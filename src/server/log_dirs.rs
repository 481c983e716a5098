//! DescribeLogDirs and AlterReplicaLogDirs: the one data directory, what it holds, and the
//! room in it.
//!
//! A partition that is offline has no log whose size is known, so it is left out.

use super::lookup::Topics;
use super::respond::{Answer, Asked, BadRequest};
use crate::metadata::Image;
use crate::protocol::messages::{
    AlterReplicaLogDirPartitionResult, AlterReplicaLogDirTopicResult, AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse, DescribableLogDirTopic, DescribeLogDirsPartition,
    DescribeLogDirsRequest, DescribeLogDirsResponse, DescribeLogDirsResult, DescribeLogDirsTopic,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::{PartitionKey, Shard};
use std::collections::{BTreeMap, BTreeSet};

/// Answers DescribeLogDirs. Partitions that do not exist are left out, as in Kafka, and one
/// that is named twice is answered once.
pub(super) async fn describe(
    shard: &Shard,
    asked: Asked,
    request: DescribeLogDirsRequest,
) -> Result<Answer, BadRequest> {
    let wanted = match (shard.image(), request.topics) {
        (None, _) => BTreeMap::new(),
        (Some(image), None) => all_partitions(&image),
        (Some(_), Some(topics)) => those_that_exist(&Topics::now(shard), topics),
    };
    let keys: Vec<PartitionKey> = wanted.values().flatten().copied().collect();
    let mut sizes = shard.log_sizes(keys).await.into_iter();
    let mut topics = Vec::with_capacity(wanted.len());
    for (name, keys) in wanted {
        let sized = keys.into_iter().zip(sizes.by_ref());
        let partitions: Vec<_> = sized
            .filter_map(|(key, size)| Some(partition(key, size.ok()?)))
            .collect();
        if !partitions.is_empty() {
            let name = Str::from(name);
            topics.push(DescribeLogDirsTopic { name, partitions });
        }
    }
    let mut result = DescribeLogDirsResult {
        log_dir: Str::from(shard.data_dir().display().to_string()),
        topics,
        ..Default::default()
    };
    match shard.rt().dir(shard.data_dir()).space().await {
        Ok(space) => {
            result.total_bytes = clamp(space.total_bytes);
            result.usable_bytes = clamp(space.usable_bytes);
        }
        Err(error) => {
            tracing::warn!(%error, "the room on the data directory's file system is unknown");
        }
    }
    Ok(asked.answer(&DescribeLogDirsResponse {
        results: vec![result],
        ..Default::default()
    })?)
}

fn all_partitions(image: &Image) -> BTreeMap<String, Vec<PartitionKey>> {
    let topics = image.topics().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| PartitionKey {
            topic_id: topic.id,
            index: partition.index,
        });
        (topic.name.to_string(), partitions.collect())
    });
    topics.collect()
}

fn those_that_exist(
    known: &Topics,
    asked: Vec<DescribableLogDirTopic>,
) -> BTreeMap<String, Vec<PartitionKey>> {
    let mut wanted: BTreeMap<String, BTreeSet<PartitionKey>> = BTreeMap::new();
    for topic in asked {
        let found = known.by_name(&topic.topic);
        let partitions = topic.partitions.into_iter();
        let keys = partitions.filter_map(|index| found.partition(index).ok());
        wanted
            .entry(topic.topic.to_string())
            .or_default()
            .extend(keys);
    }
    let wanted = wanted.into_iter();
    wanted
        .map(|(name, keys)| (name, keys.into_iter().collect()))
        .collect()
}

fn partition(key: PartitionKey, size: u64) -> DescribeLogDirsPartition {
    DescribeLogDirsPartition {
        partition_index: key.index,
        partition_size: clamp(size),
        // What is written is never behind the high watermark.
        offset_lag: 0,
        is_future_key: false,
    }
}

fn clamp(bytes: u64) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

/// Answers AlterReplicaLogDirs: every replica lies in the one directory already, so a move
/// there is done, and a move to any other is LOG_DIR_NOT_FOUND.
pub(super) async fn alter(
    shard: &Shard,
    asked: Asked,
    request: AlterReplicaLogDirsRequest,
) -> Result<Answer, BadRequest> {
    let known = Topics::now(shard);
    let data_dir = shard.data_dir();
    let mut results: BTreeMap<Str, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for dir in request.dirs {
        let is_ours = data_dir.as_os_str() == dir.path.as_str();
        for topic in dir.topics {
            let found = known.by_name(&topic.name);
            let partitions = topic.partitions.into_iter().map(|partition_index| {
                let code = match (is_ours, found.partition(partition_index)) {
                    (false, _) => ErrorCode::LogDirNotFound,
                    (true, Ok(_)) => ErrorCode::None,
                    (true, Err(code)) => code,
                };
                AlterReplicaLogDirPartitionResult {
                    partition_index,
                    error_code: code.code(),
                }
            });
            results
                .entry(topic.name.clone())
                .or_default()
                .extend(partitions);
        }
    }
    let results = results.into_iter();
    Ok(asked.answer(&AlterReplicaLogDirsResponse {
        results: results
            .map(|(topic_name, partitions)| AlterReplicaLogDirTopicResult {
                topic_name,
                partitions,
            })
            .collect(),
        ..Default::default()
    })?)
}
