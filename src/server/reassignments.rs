//! AlterPartitionReassignments and ListPartitionReassignments (KIP-455).
//!
//! There is one broker: the only valid assignment of a partition is the one that it has,
//! to which a reassignment changes nothing, so none is ever under way.

use super::respond::{shown, Answer, Asked, BadRequest, Messages};
use crate::metadata::Image;
use crate::protocol::messages::{
    AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse, ReassignablePartition,
    ReassignablePartitionResponse, ReassignableTopicResponse,
};
use crate::protocol::{ErrorCode, Str};
use crate::shard::Shard;

/// Answers AlterPartitionReassignments.
pub(super) async fn alter(
    shard: &Shard,
    asked: Asked,
    request: AlterPartitionReassignmentsRequest,
) -> Result<Answer, BadRequest> {
    let image = shard.image();
    let messages = Messages::of(request.topics.iter().map(|topic| topic.partitions.len()));
    let topics = request.topics.into_iter().map(|topic| {
        let partitions = topic.partitions.iter().map(|partition| {
            let fault = check(image.as_ref(), &topic.name, partition).err();
            let (code, message) = fault.unzip();
            ReassignablePartitionResponse {
                partition_index: partition.partition_index,
                error_code: code.unwrap_or(ErrorCode::None).code(),
                error_message: message.and_then(|message| messages.say(|| Str::from(message))),
            }
        });
        let partitions = partitions.collect();
        ReassignableTopicResponse {
            name: topic.name,
            partitions,
        }
    });
    Ok(asked.answer(&AlterPartitionReassignmentsResponse {
        allow_replication_factor_change: request.allow_replication_factor_change,
        error_message: None,
        responses: topics.collect(),
        ..Default::default()
    })?)
}

fn check(
    image: Option<&Image>,
    topic: &str,
    asked: &ReassignablePartition,
) -> Result<(), (ErrorCode, String)> {
    let unknown = |message| (ErrorCode::UnknownTopicOrPartition, message);
    let found = image.and_then(|image| Some((image, image.topic(topic)?)));
    let (image, found) =
        found.ok_or_else(|| unknown(format!("Unable to find a topic named {}.", shown(topic))))?;
    let index = asked.partition_index;
    let partition = usize::try_from(index);
    let partition = partition
        .ok()
        .and_then(|place| found.partitions.get(place))
        .ok_or_else(|| unknown(format!("Unable to find partition {topic}:{index}.")))?;
    let Some(replicas) = &asked.replicas else {
        return Err((
            ErrorCode::NoReassignmentInProgress,
            "No partition reassignment is in progress.".to_owned(),
        ));
    };
    let invalid = |message| (ErrorCode::InvalidReplicaAssignment, message);
    let mut sorted = replicas.clone();
    sorted.sort_unstable();
    if let Some(broker) = sorted.iter().find(|id| image.broker(**id).is_none()) {
        return Err(invalid(format!(
            "The manual partition assignment includes broker {broker}, but no such broker is registered."
        )));
    }
    if let Some(twice) = sorted.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(invalid(format!(
            "The manual partition assignment includes the broker {} more than once.",
            twice[0]
        )));
    }
    match replicas.as_slice() {
        [] => Err(invalid(
            "The manual partition assignment includes an empty replica list.".to_owned(),
        )),
        same if same == partition.replicas.as_slice() => Ok(()),
        // Only with more brokers, which can't register yet.
        _ => Err(invalid(
            "Partitions can't be moved between brokers yet.".to_owned(),
        )),
    }
}

/// Answers ListPartitionReassignments.
pub(super) async fn list(
    _: &Shard,
    asked: Asked,
    _: ListPartitionReassignmentsRequest,
) -> Result<Answer, BadRequest> {
    Ok(asked.answer(&ListPartitionReassignmentsResponse {
        error_message: None,
        ..Default::default()
    })?)
}
