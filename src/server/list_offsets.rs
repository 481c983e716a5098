//! ListOffsets.

use super::lookup::Topics;
use super::respond::{Answer, Asked, BadRequest};
use crate::partition::{Reader, EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP};
use crate::protocol::messages::{
    ListOffsetsPartitionResponse, ListOffsetsRequest, ListOffsetsResponse, ListOffsetsTopicResponse,
};
use crate::protocol::ErrorCode;
use crate::shard::{ListOffsetsPart, PartitionKey, Shard};
use std::collections::HashMap;

/// Answers each partition; one that is named twice gets INVALID_REQUEST wherever it is
/// named, as in Kafka. The timeout (version 10) is for tiered storage, of which there
/// is none.
pub(super) async fn run(
    shard: &Shard,
    asked: Asked,
    request: ListOffsetsRequest,
) -> Result<Answer, BadRequest> {
    let all = Topics::now(shard);
    let reader = reader_of(&request);
    let mut response = ListOffsetsResponse::default();
    let mut parts: Vec<ListOffsetsPart> = Vec::new();
    let mut places = Vec::new();
    let mut seen: HashMap<PartitionKey, usize> = HashMap::new();
    for topic in &request.topics {
        let found = all.by_name(&topic.name);
        let mut partitions = Vec::with_capacity(topic.partitions.len());
        for partition in &topic.partitions {
            let checked = check(partition.timestamp, asked.api_version).and(reader);
            let part = found.partition(partition.partition_index).and_then(|key| {
                Ok(ListOffsetsPart {
                    key,
                    timestamp: partition.timestamp,
                    current_leader_epoch: partition.current_leader_epoch,
                    reader: checked?,
                })
            });
            let place = (response.topics.len(), partitions.len());
            let mut answer = ListOffsetsPartitionResponse {
                partition_index: partition.partition_index,
                timestamp: -1,
                offset: -1,
                leader_epoch: -1,
                ..Default::default()
            };
            match part {
                Ok(part) => {
                    *seen.entry(part.key).or_default() += 1;
                    places.push(place);
                    parts.push(part);
                }
                Err(code) => answer.error_code = code.code(),
            }
            partitions.push(answer);
        }
        response.topics.push(ListOffsetsTopicResponse {
            name: topic.name.clone(),
            partitions,
        });
    }
    let (mut once, mut once_places) = (Vec::new(), Vec::new());
    for (part, place) in parts.into_iter().zip(places) {
        if seen[&part.key] == 1 {
            once.push(part);
            once_places.push(place);
        } else {
            let answer = &mut response.topics[place.0].partitions[place.1];
            answer.error_code = ErrorCode::InvalidRequest.code();
        }
    }
    for ((topic, partition), result) in once_places.into_iter().zip(shard.list_offsets(once).await)
    {
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

/// How far the asker sees: only consumers are held back.
fn reader_of(request: &ListOffsetsRequest) -> Result<Reader, ErrorCode> {
    match (request.replica_id, request.isolation_level) {
        (CONSUMER_ID, 0) => Ok(Reader::Consumer),
        (CONSUMER_ID, 1) => Ok(Reader::ReadCommitted),
        (CONSUMER_ID, _) => Err(ErrorCode::InvalidRequest),
        _ => Ok(Reader::Replica),
    }
}

/// Each of the marks that stand for no time came with a version of its own.
fn check(timestamp: i64, api_version: i16) -> Result<(), ErrorCode> {
    let from_version = match timestamp {
        0.. => 0,
        LATEST | EARLIEST => 1,
        MAX_TIMESTAMP => 7,
        EARLIEST_LOCAL => 8,
        LATEST_TIERED => 9,
        _ => return Err(ErrorCode::UnsupportedVersion),
    };
    if api_version >= from_version {
        Ok(())
    } else {
        Err(ErrorCode::UnsupportedVersion)
    }
}

/// The replica id of a consumer.
const CONSUMER_ID: i32 = -1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_mark_is_understood_from_its_version_on() {
        for (timestamp, from_version) in [(0, 1), (-1, 1), (-2, 1), (-3, 7), (-4, 8), (-5, 9)] {
            for version in 1..=10 {
                let known = check(timestamp, version).is_ok();
                assert_eq!(known, version >= from_version, "{timestamp} in v{version}");
            }
        }
        for unknown in [-6, -7, i64::MIN] {
            assert_eq!(check(unknown, 10), Err(ErrorCode::UnsupportedVersion));
        }
    }
}
