//! What a coordinator is asked, and what it answers.

use crate::protocol::messages::{
    DescribedGroup, HeartbeatRequest, HeartbeatResponse, JoinGroupRequest, JoinGroupResponse,
    LeaveGroupRequest, LeaveGroupResponse, OffsetCommitRequest, OffsetCommitResponse,
    OffsetCommitResponsePartition, OffsetCommitResponseTopic, OffsetDeleteRequest,
    OffsetDeleteResponse, OffsetFetchRequestGroup, OffsetFetchResponseGroup, SyncGroupRequest,
    SyncGroupResponse,
};
use crate::protocol::{ErrorCode, Str};
use crate::runtime::Mono;
use uuid::Uuid;

/// Names a call that waits for its answer. The shard chooses it; no two calls of one
/// coordinator have the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Who calls.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Caller {
    /// The client id of the request's header; empty if it has none.
    pub client_id: Str,
    /// The peer's address as Kafka prints it: `/127.0.0.1`.
    pub client_host: String,
}

/// A call to a group's coordinator.
#[derive(Debug, Clone, PartialEq)]
pub struct GroupCall {
    /// The version of the request, which decides a few rules.
    pub api_version: i16,
    /// Who calls.
    pub caller: Caller,
    /// Randomness, should a member id be needed: `<client id>-<uuid>`.
    pub fresh: Uuid,
    /// What is asked.
    pub body: GroupRequest,
}

/// What is asked of a group's coordinator.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum GroupRequest {
    Join(JoinGroupRequest),
    Sync(SyncGroupRequest),
    Heartbeat(HeartbeatRequest),
    Leave(LeaveGroupRequest),
    /// Its topics and partitions exist: the caller has looked.
    CommitOffsets(OffsetCommitRequest),
    FetchOffsets {
        group: OffsetFetchRequestGroup,
        require_stable: bool,
    },
    DeleteOffsets(OffsetDeleteRequest),
    /// The group of this id.
    Describe(Str),
    /// The group of this id.
    DeleteGroup(Str),
}

/// The answer to a [`GroupRequest`], of the same kind.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub enum GroupResponse {
    Join(JoinGroupResponse),
    Sync(SyncGroupResponse),
    Heartbeat(HeartbeatResponse),
    Leave(LeaveGroupResponse),
    OffsetsCommitted(OffsetCommitResponse),
    OffsetsFetched(OffsetFetchResponseGroup),
    OffsetsDeleted(OffsetDeleteResponse),
    Described(DescribedGroup),
    GroupDeleted(ErrorCode),
}

/// The time of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    /// For timeouts.
    pub mono: Mono,
    /// For what is written, in ms since the Unix epoch.
    pub wall_ms: i64,
}

impl GroupRequest {
    /// The group that it is about.
    pub fn group_id(&self) -> &Str {
        match self {
            GroupRequest::Join(request) => &request.group_id,
            GroupRequest::Sync(request) => &request.group_id,
            GroupRequest::Heartbeat(request) => &request.group_id,
            GroupRequest::Leave(request) => &request.group_id,
            GroupRequest::CommitOffsets(request) => &request.group_id,
            GroupRequest::FetchOffsets { group, .. } => &group.group_id,
            GroupRequest::DeleteOffsets(request) => &request.group_id,
            GroupRequest::Describe(group) | GroupRequest::DeleteGroup(group) => group,
        }
    }

    /// The answer that says just `error`. As in Kafka, a heartbeat to a coordinator that
    /// loads is answered without an error: the member is to carry on.
    pub fn refused(&self, _api_version: i16, error: ErrorCode) -> GroupResponse {
        let error_code = error.code();
        match self {
            GroupRequest::Join(request) => GroupResponse::Join(JoinGroupResponse {
                error_code,
                // It may be kept while the call waits.
                member_id: request.member_id.detached(),
                ..Default::default()
            }),
            GroupRequest::Sync(_) => GroupResponse::Sync(SyncGroupResponse {
                error_code,
                ..Default::default()
            }),
            GroupRequest::Heartbeat(_) => GroupResponse::Heartbeat(HeartbeatResponse {
                error_code: match error {
                    ErrorCode::CoordinatorLoadInProgress => ErrorCode::None.code(),
                    _ => error_code,
                },
                ..Default::default()
            }),
            GroupRequest::Leave(_) => GroupResponse::Leave(LeaveGroupResponse {
                error_code,
                ..Default::default()
            }),
            GroupRequest::CommitOffsets(request) => {
                GroupResponse::OffsetsCommitted(commit_refused(request, error_code))
            }
            GroupRequest::FetchOffsets { group, .. } => {
                GroupResponse::OffsetsFetched(OffsetFetchResponseGroup {
                    group_id: group.group_id.clone(),
                    error_code,
                    ..Default::default()
                })
            }
            GroupRequest::DeleteOffsets(_) => GroupResponse::OffsetsDeleted(OffsetDeleteResponse {
                error_code,
                ..Default::default()
            }),
            GroupRequest::Describe(group) => GroupResponse::Described(DescribedGroup {
                error_code,
                group_id: group.clone(),
                ..Default::default()
            }),
            GroupRequest::DeleteGroup(_) => GroupResponse::GroupDeleted(error),
        }
    }
}

impl GroupResponse {
    /// What was to be answered once an append had succeeded, which has failed.
    pub(super) fn failed(self, error: ErrorCode) -> GroupResponse {
        let error_code = error.code();
        match self {
            GroupResponse::Join(answer) => GroupResponse::Join(JoinGroupResponse {
                error_code,
                member_id: answer.member_id,
                ..Default::default()
            }),
            GroupResponse::Sync(_) => GroupResponse::Sync(SyncGroupResponse {
                error_code,
                ..Default::default()
            }),
            GroupResponse::Heartbeat(_) => GroupResponse::Heartbeat(HeartbeatResponse {
                error_code,
                ..Default::default()
            }),
            GroupResponse::Leave(_) => GroupResponse::Leave(LeaveGroupResponse {
                error_code,
                ..Default::default()
            }),
            GroupResponse::OffsetsCommitted(mut answer) => {
                let topics = answer.topics.iter_mut();
                for partition in topics.flat_map(|topic| &mut topic.partitions) {
                    partition.error_code = error_code;
                }
                GroupResponse::OffsetsCommitted(answer)
            }
            GroupResponse::OffsetsFetched(answer) => {
                GroupResponse::OffsetsFetched(OffsetFetchResponseGroup {
                    group_id: answer.group_id,
                    error_code,
                    ..Default::default()
                })
            }
            GroupResponse::OffsetsDeleted(_) => {
                GroupResponse::OffsetsDeleted(OffsetDeleteResponse {
                    error_code,
                    ..Default::default()
                })
            }
            GroupResponse::Described(answer) => GroupResponse::Described(DescribedGroup {
                error_code,
                group_id: answer.group_id,
                ..Default::default()
            }),
            GroupResponse::GroupDeleted(_) => GroupResponse::GroupDeleted(error),
        }
    }
}

fn commit_refused(request: &OffsetCommitRequest, error_code: i16) -> OffsetCommitResponse {
    let topics = request
        .topics
        .iter()
        .map(|topic| OffsetCommitResponseTopic {
            name: topic.name.clone(),
            partitions: topic
                .partitions
                .iter()
                .map(|partition| OffsetCommitResponsePartition {
                    partition_index: partition.partition_index,
                    error_code,
                })
                .collect(),
        });
    OffsetCommitResponse {
        topics: topics.collect(),
        ..Default::default()
    }
}
