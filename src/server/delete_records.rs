//! DeleteRecords.

use super::lookup::Topics;
use super::respond::{Answer, Asked, BadRequest};
use crate::metadata::is_internal_topic;
use crate::protocol::messages::{
    DeleteRecordsPartitionResult, DeleteRecordsRequest, DeleteRecordsResponse,
    DeleteRecordsTopicResult,
};
use crate::protocol::ErrorCode;
use crate::shard::{DeleteRecordsPart, Shard};
use std::collections::HashMap;
use std::time::Duration;

/// Answers each partition once. Of one that is named twice the last offset counts, as in
/// Kafka.
pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: DeleteRecordsRequest,
) -> Result<Answer, BadRequest> {
    let known = Topics::now(shard);
    let mut response = DeleteRecordsResponse::default();
    let mut topics: HashMap<String, usize> = HashMap::new();
    // Where the answer of each partition stands: topic, partition, index among the parts.
    let mut places: HashMap<(usize, i32), (usize, Option<usize>)> = HashMap::new();
    let mut parts: Vec<DeleteRecordsPart> = Vec::new();
    for topic in &request.topics {
        let found = known.by_name(&topic.name);
        let at = *topics.entry(topic.name.to_string()).or_insert_with(|| {
            response.topics.push(DeleteRecordsTopicResult {
                name: topic.name.clone(),
                partitions: Vec::new(),
            });
            response.topics.len() - 1
        });
        for partition in &topic.partitions {
            let index = partition.partition_index;
            if let Some((_, part)) = places.get(&(at, index)) {
                if let Some(part) = part {
                    parts[*part].offset = partition.offset;
                }
                continue;
            }
            let key = match is_internal_topic(&topic.name) {
                true => Err(ErrorCode::InvalidTopicException),
                false => found.partition(index),
            };
            let answers = &mut response.topics[at].partitions;
            let mut answer = DeleteRecordsPartitionResult {
                partition_index: index,
                low_watermark: -1,
                error_code: 0,
            };
            let part = match key {
                Ok(key) => {
                    let offset = partition.offset;
                    parts.push(DeleteRecordsPart { key, offset });
                    Some(parts.len() - 1)
                }
                Err(code) => {
                    answer.error_code = code.code();
                    None
                }
            };
            places.insert((at, index), (answers.len(), part));
            answers.push(answer);
        }
    }
    let timeout = Duration::from_millis(i64::from(request.timeout_ms).max(TIMEOUT_MS_MIN) as u64);
    let results = shard.delete_records(parts, timeout).await;
    for ((topic, _), (partition, part)) in places {
        let Some(part) = part else { continue };
        let answer = &mut response.topics[topic].partitions[partition];
        match &results[part] {
            Ok(log_start) => answer.low_watermark = *log_start,
            Err(code) => answer.error_code = code.code(),
        }
    }
    Ok(asked.answer(&response)?)
}

/// The answer waits for the disk, which a client that asks for no waiting at all (it means
/// other replicas) has to allow for.
const TIMEOUT_MS_MIN: i64 = 1_000;
