//! ElectLeaders (KIP-183, KIP-460).
//!
//! Each partition has one replica, which is its preferred leader and leads: no election
//! is ever needed, neither of the preferred leader nor an unclean one.

use super::respond::{shown, Answer, Asked, BadRequest, Messages};
use crate::metadata::Image;
use crate::protocol::messages::{
    ElectLeadersPartitionResult, ElectLeadersRequest, ElectLeadersResponse, ReplicaElectionResult,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;

pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: ElectLeadersRequest,
) -> Result<Answer, BadRequest> {
    let image = shard.image();
    let known_type = matches!(request.election_type, PREFERRED | UNCLEAN);
    // Asked for all, Kafka leaves out those that need no election.
    let topics = request.topic_partitions.unwrap_or_default();
    let messages = Messages::of(topics.iter().map(|topic| topic.partitions.len()));
    let results = topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|&partition_id| {
            let (code, message) = match known_type {
                true => outcome(image.as_ref(), &topic.topic, partition_id),
                false => (
                    ErrorCode::InvalidRequest,
                    format!("Unknown election type {}.", request.election_type),
                ),
            };
            ElectLeadersPartitionResult {
                partition_id,
                error_code: code.code(),
                error_message: messages.say(|| Str::from(message)),
            }
        });
        let partition_result = partitions.collect();
        ReplicaElectionResult {
            topic: topic.topic,
            partition_result,
        }
    });
    let error_code = match known_type {
        true => ErrorCode::None,
        false => ErrorCode::InvalidRequest,
    };
    Ok(asked.answer(&ElectLeadersResponse {
        error_code: error_code.code(),
        replica_election_results: results.collect(),
        ..Default::default()
    })?)
}

fn outcome(image: Option<&Image>, topic: &str, partition: i32) -> (ErrorCode, String) {
    let unknown = |message| (ErrorCode::UnknownTopicOrPartition, message);
    let Some(found) = image.and_then(|image| image.topic(topic)) else {
        return unknown(format!("No such topic as {}", shown(topic)));
    };
    match usize::try_from(partition) {
        Ok(place) if place < found.partitions.len() => (
            ErrorCode::ElectionNotNeeded,
            "Leader election not needed for topic partition.".to_owned(),
        ),
        _ => unknown(format!("No such partition as {topic}-{partition}")),
    }
}

const PREFERRED: i8 = 0;
const UNCLEAN: i8 = 1;
