//! ListOffsets.

use super::produce::has_partition;
use super::respond::{Answer, Asked, BadRequest};
use crate::protocol::messages::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use crate::protocol::ErrorCode;
use crate::shard::{ListOffsetsPart, PartitionKey, Shard};
use std::collections::HashSet;

/// Answers each partition; one that is named twice gets INVALID_REQUEST, as in Kafka.
pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: ListOffsetsRequest,
) -> Result<Answer, BadRequest> {
    let image = shard.image();
    let mut response = ListOffsetsResponse::default();
    let mut parts = Vec::new();
    let mut places = Vec::new();
    let mut seen = HashSet::new();
    for topic in &request.topics {
        let found = image.as_ref().and_then(|image| image.topic(&topic.name));
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let index = partition.partition_index;
            let mut answer = ListOffsetsPartitionResponse {
                partition_index: index,
                timestamp: -1,
                offset: -1,
                leader_epoch: -1,
                ..Default::default()
            };
            match found {
                Some(found) if has_partition(found.partitions.len(), index) => {
                    let key = PartitionKey {
                        topic_id: found.id,
                        index,
                    };
                    if seen.insert(key) {
                        places.push((response.topics.len(), partitions.len()));
                        parts.push(ListOffsetsPart {
                            key,
                            timestamp: partition.timestamp,
                            current_leader_epoch: partition.current_leader_epoch,
                        });
                    } else {
                        answer.error_code = ErrorCode::InvalidRequest.code();
                    }
                }
                _ => answer.error_code = ErrorCode::UnknownTopicOrPartition.code(),
            }
            partitions.push(answer);
        }
        response.topics.push(ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions,
        });
    }
    for ((topic, partition), result) in places.into_iter().zip(shard.list_offsets(parts).await) {
        let answer = &mut response.topics[topic].partitions[partition];
        match result {
            Ok(listed) => {
                answer.timestamp = listed.timestamp;
                answer.offset = listed.offset;
                if asked.api_version >= 4 {
                    answer.leader_epoch = listed.leader_epoch;
                }
            }
            Err(code) => answer.error_code = code.code(),
        }
    }
    Ok(asked.answer(&response)?)
}
