//! OffsetCommit, OffsetFetch and OffsetDelete.

use super::groups::Asker;
use super::lookup::Topics;
use super::respond::{Answer, BadRequest};
use crate::coordinator::{GroupRequest, GroupResponse};
use crate::protocol::messages::{
    OffsetCommitRequest, OffsetCommitResponse, OffsetCommitResponsePartition,
    OffsetCommitResponseTopic, OffsetDeleteRequest, OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic, OffsetFetchRequest, OffsetFetchRequestGroup,
    OffsetFetchRequestTopics, OffsetFetchResponse, OffsetFetchResponseGroup,
    OffsetFetchResponsePartition, OffsetFetchResponsePartitions, OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
};
use crate::protocol::{ErrorCode, Str};
use std::collections::{HashMap, HashSet};

/// Partitions that do not exist are refused one by one, whatever the group says to the
/// others. With none left the group is not asked, as in Kafka.
pub(super) async fn commit(
    by: Asker,
    mut request: OffsetCommitRequest,
) -> Result<Answer, BadRequest> {
    let known = Topics::now(&by.shard);
    let mut results = ByTopic::default();
    request.topics.retain_mut(|topic| {
        let found = known.by_name(&topic.name);
        topic.partitions.retain(|partition| {
            let partition_index = partition.partition_index;
            let Err(code) = found.partition(partition_index) else {
                return true;
            };
            let result = OffsetCommitResponsePartition {
                partition_index,
                error_code: code.code(),
            };
            results.add(&topic.name, [result]);
            false
        });
        !topic.partitions.is_empty()
    });
    drop(known);
    if !request.topics.is_empty() {
        let request = GroupRequest::CommitOffsets(request);
        let GroupResponse::OffsetsCommitted(response) = by.ask(request).await else {
            return Err(BadRequest::OfAnotherKind);
        };
        for topic in response.topics {
            results.add(&topic.name, topic.partitions);
        }
    }
    let topics = results.topics.into_iter();
    by.answer(&OffsetCommitResponse {
        topics: topics
            .map(|(name, partitions)| OffsetCommitResponseTopic { name, partitions })
            .collect(),
        ..Default::default()
    })
}

/// Forgets offsets. What the group says of itself is all that is answered, if it is an error.
pub(super) async fn delete(
    by: Asker,
    mut request: OffsetDeleteRequest,
) -> Result<Answer, BadRequest> {
    let known = Topics::now(&by.shard);
    let mut results = ByTopic::default();
    request.topics.retain_mut(|topic| {
        let found = known.by_name(&topic.name);
        topic.partitions.retain(|partition| {
            let partition_index = partition.partition_index;
            let Err(code) = found.partition(partition_index) else {
                return true;
            };
            let result = OffsetDeleteResponsePartition {
                partition_index,
                error_code: code.code(),
            };
            results.add(&topic.name, [result]);
            false
        });
        !topic.partitions.is_empty()
    });
    drop(known);
    let request = GroupRequest::DeleteOffsets(request);
    let GroupResponse::OffsetsDeleted(mut response) = by.ask(request).await else {
        return Err(BadRequest::OfAnotherKind);
    };
    if response.error_code == ErrorCode::None.code() {
        for topic in std::mem::take(&mut response.topics) {
            results.add(&topic.name, topic.partitions);
        }
        let topics = results.topics.into_iter();
        response.topics = topics
            .map(|(name, partitions)| OffsetDeleteResponseTopic { name, partitions })
            .collect();
    }
    by.answer(&response)
}

/// Offsets of several groups, of one below version 8.
pub(super) async fn fetch(by: Asker, request: OffsetFetchRequest) -> Result<Answer, BadRequest> {
    if by.version() < 8 {
        return fetch_one(by, request).await;
    }
    let groups = fetched(&by, request.groups, request.require_stable).await?;
    by.answer(&OffsetFetchResponse {
        groups,
        ..Default::default()
    })
}

async fn fetch_one(by: Asker, request: OffsetFetchRequest) -> Result<Answer, BadRequest> {
    let topics = request.topics.map(|topics| {
        let topics = topics.into_iter().map(|topic| OffsetFetchRequestTopics {
            name: topic.name,
            partition_indexes: topic.partition_indexes,
        });
        topics.collect::<Vec<_>>()
    });
    let named = (by.version() < 2).then(|| topics.clone().unwrap_or_default());
    let group = OffsetFetchRequestGroup {
        group_id: request.group_id,
        topics,
        ..Default::default()
    };
    let mut groups = fetched(&by, vec![group], request.require_stable).await?;
    let group = groups.pop().unwrap_or_default();
    by.answer(&match named {
        Some(named) if group.error_code != 0 => refused_each(named, group.error_code),
        _ => OffsetFetchResponse {
            error_code: group.error_code,
            topics: group.topics.into_iter().map(topic_of_one_group).collect(),
            ..Default::default()
        },
    })
}

/// Version 1 has no place for an error but each partition that was asked for.
fn refused_each(named: Vec<OffsetFetchRequestTopics>, error_code: i16) -> OffsetFetchResponse {
    let refused = |partition_index| OffsetFetchResponsePartition {
        partition_index,
        committed_offset: NO_OFFSET,
        error_code,
        ..Default::default()
    };
    let topics = named.into_iter().map(|topic| OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partition_indexes.into_iter().map(refused).collect(),
    });
    OffsetFetchResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}

fn topic_of_one_group(topic: OffsetFetchResponseTopics) -> OffsetFetchResponseTopic {
    OffsetFetchResponseTopic {
        name: topic.name,
        partitions: topic.partitions.into_iter().map(of_one_group).collect(),
    }
}

fn of_one_group(partition: OffsetFetchResponsePartitions) -> OffsetFetchResponsePartition {
    OffsetFetchResponsePartition {
        partition_index: partition.partition_index,
        committed_offset: partition.committed_offset,
        committed_leader_epoch: partition.committed_leader_epoch,
        metadata: partition.metadata,
        error_code: partition.error_code,
    }
}

async fn fetched(
    by: &Asker,
    groups: Vec<OffsetFetchRequestGroup>,
    require_stable: bool,
) -> Result<Vec<OffsetFetchResponseGroup>, BadRequest> {
    let groups = groups.into_iter().map(|mut group| {
        let id = group.group_id.clone();
        each_once(&mut group);
        let request = GroupRequest::FetchOffsets {
            group,
            require_stable,
        };
        (id, request)
    });
    by.ask_each(
        groups,
        |answer| match answer {
            GroupResponse::OffsetsFetched(group) => Some((bytes_of(&group), group)),
            _ => None,
        },
        |group_id, code| OffsetFetchResponseGroup {
            group_id,
            error_code: code.code(),
            ..Default::default()
        },
    )
    .await
}

/// A partition is answered once, however often it is named: its metadata, which may be long,
/// is copied for each answer. (Kafka answers it as often.)
fn each_once(group: &mut OffsetFetchRequestGroup) {
    let mut seen = HashSet::new();
    for topic in group.topics.iter_mut().flatten() {
        let name = &topic.name;
        let indexes = &mut topic.partition_indexes;
        indexes.retain(|index| seen.insert((name.clone(), *index)));
    }
}

/// About what it takes in memory and on the wire.
fn bytes_of(group: &OffsetFetchResponseGroup) -> usize {
    let of_partition = |partition: &OffsetFetchResponsePartitions| {
        size_of::<OffsetFetchResponsePartitions>()
            + partition.metadata.as_ref().map_or(0, |text| text.len())
    };
    let topics = group.topics.iter().map(|topic| {
        let partitions = topic.partitions.iter().map(of_partition);
        size_of_val(topic) + topic.name.len() + partitions.sum::<usize>()
    });
    size_of_val(group) + group.group_id.len() + topics.sum::<usize>()
}

/// Results under their topics, each topic once.
struct ByTopic<P> {
    topics: Vec<(Str, Vec<P>)>,
    places: HashMap<Str, usize>,
}

impl<P> Default for ByTopic<P> {
    fn default() -> Self {
        ByTopic {
            topics: Vec::new(),
            places: HashMap::new(),
        }
    }
}

impl<P> ByTopic<P> {
    fn add(&mut self, topic: &Str, results: impl IntoIterator<Item = P>) {
        let place = *self.places.entry(topic.clone()).or_insert_with(|| {
            self.topics.push((topic.clone(), Vec::new()));
            self.topics.len() - 1
        });
        self.topics[place].1.extend(results);
    }
}

/// Where no offset is committed.
const NO_OFFSET: i64 = -1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn in_version_one_each_partition_says_what_is_wrong_with_the_group() {
        let named = vec![OffsetFetchRequestTopics {
            name: "t".into(),
            partition_indexes: vec![3, 1],
        }];
        let response = refused_each(named, 14);
        let mut w = crate::protocol::Writer::new();
        response.encode(&mut w, 1).unwrap();
        assert_eq!(&*response.topics[0].name, "t");
        let partitions = response.topics[0].partitions.iter();
        let said: Vec<_> = partitions
            .map(|p| (p.partition_index, p.committed_offset, p.error_code))
            .collect();
        assert_eq!(said, [(3, -1, 14), (1, -1, 14)]);
    }

    #[test]
    fn results_of_one_topic_stand_together() {
        let mut results = ByTopic::default();
        for (topic, partitions) in [("a", vec![1]), ("b", vec![2, 3]), ("a", vec![4])] {
            results.add(&topic.into(), partitions);
        }
        let expected = [("a".into(), vec![1, 4]), ("b".into(), vec![2, 3])];
        assert_eq!(results.topics, expected);
    }
}
