//! OffsetForLeaderEpoch: where a leader epoch ended, so that a consumer can tell whether
//! its position was cut off (KIP-320).
//!
//! Who asks makes no difference, as in Kafka: a consumer too is told the LEO where the
//! epoch is the latest.

use super::lookup::Topics;
use super::respond::{Answer, Asked, BadRequest};
use crate::protocol::messages::{
    OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse, OffsetForLeaderPartitionResult,
    OffsetForLeaderTopicResult,
};
use crate::shard::{EpochEndPart, Shard};

/// Answers each partition.
pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: OffsetForLeaderEpochRequest,
) -> Result<Answer, BadRequest> {
    let all = Topics::now(shard);
    let mut response = OffsetForLeaderEpochResponse::default();
    let mut parts = Vec::new();
    let mut places = Vec::new();
    for topic in request.topics {
        let found = all.by_name(&topic.topic);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in topic.partitions {
            let mut answer = OffsetForLeaderPartitionResult {
                partition: partition.partition,
                leader_epoch: -1,
                end_offset: -1,
                ..Default::default()
            };
            match found.partition(partition.partition) {
                Ok(key) => {
                    places.push((response.topics.len(), partitions.len()));
                    parts.push(EpochEndPart {
                        key,
                        leader_epoch: partition.leader_epoch,
                        current_leader_epoch: partition.current_leader_epoch,
                    });
                }
                Err(code) => answer.error_code = code.code(),
            }
            partitions.push(answer);
        }
        response.topics.push(OffsetForLeaderTopicResult {
            topic: topic.topic,
            partitions,
        });
    }
    for ((topic, partition), result) in places.into_iter().zip(shard.epoch_ends(parts).await) {
        let answer = &mut response.topics[topic].partitions[partition];
        match result {
            Ok(Some(end)) => {
                answer.leader_epoch = end.epoch;
                answer.end_offset = end.end_offset;
            }
            // Unknown: both stay -1.
            Ok(None) => {}
            Err(code) => answer.error_code = code.code(),
        }
    }
    Ok(asked.answer(&response)?)
}
