//! The calls about a group, each made to the group's coordinator.
//!
//! A coordinator that moves or loads is asked again until the connection's patience ends; any other error is the
//! caller's.

use super::{BrokerConnection, Call, ClientError, Cluster, PartitionKey};
use crate::protocol::messages::*;
use crate::protocol::{ApiKey, ErrorCode, Str};
use std::cell::Cell;
use std::collections::BTreeMap;
use std::time::Duration;

/// One group, and who coordinates it.
pub struct GroupClient {
    cluster: Cluster,
    group: Str,
    /// How long a coordinator may be away.
    patience: Duration,
    coordinator: Cell<Option<i32>>,
}

/// A committed offset.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The offset of the next record to be read.
    pub offset: i64,
    /// What the committer wrote beside it.
    pub metadata: String,
}

/// Who commits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Membership {
    /// The group's generation.
    pub generation: i32,
    /// The member's id.
    pub member_id: Str,
}

impl Membership {
    /// Who is no member: it may commit while the group is empty.
    pub fn none() -> Membership {
        Membership {
            generation: -1,
            member_id: Str::default(),
        }
    }
}

impl GroupClient {
    /// A group by its name; nothing is asked yet.
    pub fn new(cluster: Cluster, group: &str, patience: Duration) -> GroupClient {
        GroupClient {
            cluster,
            group: Str::from(group.to_owned()),
            patience,
            coordinator: Cell::new(None),
        }
    }

    /// The group's name.
    pub fn name(&self) -> &Str {
        &self.group
    }

    /// Calls the coordinator. `code` finds the error in an answer: one that says that the coordinator is elsewhere, or
    /// not ready, is asked again.
    pub async fn call<Q: Call>(
        &self,
        request: &Q,
        code: impl Fn(&Q::Response) -> i16,
    ) -> Result<Q::Response, ClientError> {
        let deadline = self.cluster.rt().now() + self.patience;
        loop {
            let answer = match self.connection().await {
                Ok(connection) => connection.call(request).await,
                Err(error) => Err(error),
            };
            let is_late = self.cluster.rt().now() >= deadline;
            match answer {
                Ok(answer) if is_late || !is_elsewhere(code(&answer)) => return Ok(answer),
                Err(error) if is_late || !may_come_back(&error) => return Err(error),
                _ => {}
            }
            self.coordinator.set(None);
            self.cluster.rt().sleep(RETRY_PAUSE).await;
        }
    }

    /// A connection to the coordinator, which is looked for if it is not known.
    pub async fn connection(&self) -> Result<BrokerConnection, ClientError> {
        if let Some(known) = self.coordinator.get() {
            return self.cluster.node(known).await;
        }
        let connection = self.cluster.any().await?;
        let by_list = connection.version_of(ApiKey::FindCoordinator)? >= 4;
        let key = self.group.clone();
        let request = FindCoordinatorRequest {
            coordinator_keys: if by_list {
                vec![key.clone()]
            } else {
                Vec::new()
            },
            key: if by_list { Str::default() } else { key },
            key_type: 0,
        };
        let answer = connection.call(&request).await?;
        let found = match by_list {
            true => answer.coordinators.into_iter().next().unwrap_or_default(),
            false => Coordinator {
                node_id: answer.node_id,
                error_code: answer.error_code,
                error_message: answer.error_message,
                ..Default::default()
            },
        };
        ClientError::check(found.error_code, found.error_message.as_deref(), || {
            format!("find the coordinator of group {}", self.group)
        })?;
        // Learn where the brokers are.
        self.cluster.metadata(Some(&[]), false).await?;
        self.coordinator.set(Some(found.node_id));
        self.cluster.node(found.node_id).await
    }

    /// What the group has committed: of these partitions, or all that there is.
    pub async fn committed(
        &self,
        partitions: Option<&[PartitionKey]>,
    ) -> Result<BTreeMap<PartitionKey, CommittedOffset>, ClientError> {
        let topics = partitions.map(|partitions| {
            let mut topics: BTreeMap<Str, Vec<i32>> = BTreeMap::new();
            for (topic, partition) in partitions {
                topics.entry(topic.clone()).or_default().push(*partition);
            }
            topics
        });
        let by_group = self.connection().await?.version_of(ApiKey::OffsetFetch)? >= 8;
        let request = match by_group {
            true => OffsetFetchRequest {
                groups: vec![OffsetFetchRequestGroup {
                    group_id: self.group.clone(),
                    topics: topics.map(|topics| {
                        let topic = |(name, partition_indexes)| OffsetFetchRequestTopics {
                            name,
                            partition_indexes,
                        };
                        topics.into_iter().map(topic).collect()
                    }),
                    ..Default::default()
                }],
                require_stable: true,
                ..Default::default()
            },
            false => OffsetFetchRequest {
                group_id: self.group.clone(),
                topics: topics.map(|topics| {
                    let topic = |(name, partition_indexes)| OffsetFetchRequestTopic {
                        name,
                        partition_indexes,
                    };
                    topics.into_iter().map(topic).collect()
                }),
                ..Default::default()
            },
        };
        let doing = || format!("read the offsets of group {}", self.group);
        let answer = self
            .call(&request, |answer: &OffsetFetchResponse| {
                answer
                    .groups
                    .first()
                    .map_or(answer.error_code, |group| group.error_code)
            })
            .await?;
        let code = answer
            .groups
            .first()
            .map_or(answer.error_code, |group| group.error_code);
        ClientError::check(code, None, doing)?;
        let mut committed = BTreeMap::new();
        let mut keep = |topic: &Str, partition, offset, metadata: Option<Str>, code| {
            ClientError::check(code, None, doing)?;
            if offset >= 0 {
                let metadata = metadata.map(|text| text.to_string()).unwrap_or_default();
                committed.insert(
                    (topic.clone(), partition),
                    CommittedOffset { offset, metadata },
                );
            }
            Ok::<(), ClientError>(())
        };
        for topic in answer.groups.into_iter().flat_map(|group| group.topics) {
            for p in topic.partitions {
                keep(
                    &topic.name,
                    p.partition_index,
                    p.committed_offset,
                    p.metadata,
                    p.error_code,
                )?;
            }
        }
        for topic in answer.topics {
            for p in topic.partitions {
                keep(
                    &topic.name,
                    p.partition_index,
                    p.committed_offset,
                    p.metadata,
                    p.error_code,
                )?;
            }
        }
        Ok(committed)
    }

    /// Commits offsets. The error is that of the first partition that has one.
    pub async fn commit(
        &self,
        membership: &Membership,
        offsets: &BTreeMap<PartitionKey, i64>,
    ) -> Result<(), ClientError> {
        let mut topics: BTreeMap<Str, Vec<OffsetCommitRequestPartition>> = BTreeMap::new();
        for ((topic, partition), offset) in offsets {
            let partition = OffsetCommitRequestPartition {
                partition_index: *partition,
                committed_offset: *offset,
                ..Default::default()
            };
            topics.entry(topic.clone()).or_default().push(partition);
        }
        let topic = |(name, partitions)| OffsetCommitRequestTopic { name, partitions };
        let request = OffsetCommitRequest {
            group_id: self.group.clone(),
            generation_id_or_member_epoch: membership.generation,
            member_id: membership.member_id.clone(),
            topics: topics.into_iter().map(topic).collect(),
            ..Default::default()
        };
        let first_error = |answer: &OffsetCommitResponse| {
            let partitions = answer.topics.iter().flat_map(|topic| &topic.partitions);
            let mut codes = partitions.map(|partition| partition.error_code);
            codes.find(|code| *code != 0).unwrap_or(0)
        };
        let answer = self.call(&request, first_error).await?;
        ClientError::check(first_error(&answer), None, || {
            format!("commit offsets of group {}", self.group)
        })
    }
}

/// Whether an answer says that the coordinator is another one, or is not ready.
fn is_elsewhere(code: i16) -> bool {
    matches!(
        ErrorCode::from_code(code),
        Some(
            ErrorCode::NotCoordinator
                | ErrorCode::CoordinatorNotAvailable
                | ErrorCode::CoordinatorLoadInProgress
        )
    )
}

fn may_come_back(error: &ClientError) -> bool {
    match error {
        ClientError::Refused { code, .. } => is_elsewhere(*code),
        error => error.is_retriable(),
    }
}

const RETRY_PAUSE: Duration = Duration::from_millis(200);
