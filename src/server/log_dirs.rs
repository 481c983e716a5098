//! DescribeLogDirs and AlterReplicaLogDirs: the data directories, what they hold, and the
//! room in them.
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
use crate::shard::{LogSize, PartitionKey, Shard};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

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
    let dirs = shard.data_dirs();
    let mut held: Vec<Vec<DescribeLogDirsTopic>> = vec![Vec::new(); dirs.len()];
    for (name, keys) in wanted {
        for (key, size) in keys.into_iter().zip(sizes.by_ref()) {
            let Ok(LogSize { bytes, dir }) = size else {
                continue;
            };
            let topics = &mut held[dir];
            if topics.last().is_none_or(|topic| *topic.name != *name) {
                topics.push(DescribeLogDirsTopic {
                    name: Str::from(name.clone()),
                    partitions: Vec::new(),
                });
            }
            let topic = topics.last_mut().expect("it was just put there");
            topic.partitions.push(partition(key, bytes));
        }
    }
    let mut results = Vec::with_capacity(dirs.len());
    for ((path, offline), topics) in dirs.into_iter().zip(held) {
        let log_dir = Str::from(path.display().to_string());
        results.push(match offline {
            // As Kafka: what is there is not known.
            Some(_) => DescribeLogDirsResult {
                error_code: ErrorCode::KafkaStorageError.code(),
                log_dir,
                ..Default::default()
            },
            None => with_space(shard, &path, log_dir, topics).await,
        });
    }
    Ok(asked.answer(&DescribeLogDirsResponse {
        results,
        ..Default::default()
    })?)
}

async fn with_space(
    shard: &Shard,
    path: &Path,
    log_dir: Str,
    topics: Vec<DescribeLogDirsTopic>,
) -> DescribeLogDirsResult {
    let mut result = DescribeLogDirsResult {
        log_dir,
        topics,
        ..Default::default()
    };
    match shard.rt().dir(path).space().await {
        Ok(space) => {
            result.total_bytes = clamp(space.total_bytes);
            result.usable_bytes = clamp(space.usable_bytes);
        }
        Err(error) => {
            tracing::warn!(%error, "the room on a data directory's file system is unknown");
        }
    }
    result
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

/// Answers AlterReplicaLogDirs. No replica moves between directories here, so one that is
/// asked to stay is done, INVALID_REQUEST is for a move, and LOG_DIR_NOT_FOUND for a
/// directory that this broker does not have.
pub(super) async fn alter(
    shard: &Shard,
    asked: Asked,
    request: AlterReplicaLogDirsRequest,
) -> Result<Answer, BadRequest> {
    let known = Topics::now(shard);
    let dirs = shard.data_dirs();
    let mut results: BTreeMap<Str, Vec<AlterReplicaLogDirPartitionResult>> = BTreeMap::new();
    for asked_dir in request.dirs {
        let is_it = |(path, _): &(PathBuf, _)| path.as_os_str() == asked_dir.path.as_str();
        let dir = dirs.iter().position(is_it);
        for topic in asked_dir.topics {
            let found = known.by_name(&topic.name);
            let answers = results.entry(topic.name.clone()).or_default();
            for partition_index in topic.partitions {
                let code = match (dir, found.partition(partition_index)) {
                    (None, _) => ErrorCode::LogDirNotFound,
                    (Some(_), Err(code)) => code,
                    (Some(dir), Ok(key)) => match shard.log_sizes(vec![key]).await[0] {
                        Ok(size) if size.dir == dir => ErrorCode::None,
                        Ok(_) => ErrorCode::InvalidRequest,
                        Err(code) => code,
                    },
                };
                answers.push(AlterReplicaLogDirPartitionResult {
                    partition_index,
                    error_code: code.code(),
                });
            }
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
