//! Good messages of the group APIs.

use bytes::Bytes;
use highwater::protocol::messages::*;
use highwater::protocol::Str;

const GROUP: Str = Str::from_static("group");
const MEMBER: Str = Str::from_static("client-0123");
const TOPIC: Str = Str::from_static("topic");

/// From that version on members can have names of their own.
fn instance(version: i16, since: i16) -> Option<Str> {
    (version >= since).then(|| "instance".into())
}

fn text(text: &'static [u8]) -> Bytes {
    Bytes::from_static(text)
}

pub fn find_coordinator_request(version: i16) -> FindCoordinatorRequest {
    let is_batch = version >= 4;
    FindCoordinatorRequest {
        key: if is_batch { "".into() } else { GROUP },
        key_type: i8::from(version >= 1),
        coordinator_keys: vec![GROUP; if is_batch { 3 } else { 0 }],
    }
}

pub fn find_coordinator_response(version: i16) -> FindCoordinatorResponse {
    let coordinator = Coordinator {
        key: GROUP,
        host: "localhost".into(),
        error_message: None,
        ..Default::default()
    };
    let is_batch = version >= 4;
    FindCoordinatorResponse {
        host: if is_batch {
            "".into()
        } else {
            "localhost".into()
        },
        error_message: (version % 2 == 1).then(|| "NONE".into()),
        coordinators: vec![coordinator; if is_batch { 2 } else { 0 }],
        ..Default::default()
    }
}

pub fn join_group_request(version: i16) -> JoinGroupRequest {
    let protocol = |name: &'static str| JoinGroupRequestProtocol {
        name: name.into(),
        metadata: text(b"\0\x01 subscription"),
    };
    JoinGroupRequest {
        group_id: GROUP,
        session_timeout_ms: 10_000,
        rebalance_timeout_ms: 60_000,
        member_id: MEMBER,
        group_instance_id: instance(version, 5),
        protocol_type: "consumer".into(),
        protocols: vec![protocol("range"), protocol("roundrobin")],
        reason: Some("why".into()),
    }
}

pub fn join_group_response(version: i16) -> JoinGroupResponse {
    let member = JoinGroupResponseMember {
        member_id: MEMBER,
        group_instance_id: instance(version, 5),
        metadata: text(b"metadata"),
    };
    JoinGroupResponse {
        generation_id: 3,
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        leader: MEMBER,
        member_id: MEMBER,
        members: vec![member; 3],
        ..Default::default()
    }
}

pub fn sync_group_request(version: i16) -> SyncGroupRequest {
    let assignment = SyncGroupRequestAssignment {
        member_id: MEMBER,
        assignment: text(b"assignment"),
    };
    SyncGroupRequest {
        group_id: GROUP,
        generation_id: 3,
        member_id: MEMBER,
        group_instance_id: instance(version, 3),
        protocol_type: Some("consumer".into()),
        protocol_name: Some("range".into()),
        assignments: vec![assignment; 3],
    }
}

pub fn sync_group_response(_: i16) -> SyncGroupResponse {
    SyncGroupResponse {
        protocol_type: Some("consumer".into()),
        protocol_name: None,
        assignment: text(b"assignment"),
        ..Default::default()
    }
}

pub fn heartbeat_request(version: i16) -> HeartbeatRequest {
    HeartbeatRequest {
        group_id: GROUP,
        generation_id: 3,
        member_id: MEMBER,
        group_instance_id: instance(version, 3),
    }
}

pub fn heartbeat_response(_: i16) -> HeartbeatResponse {
    HeartbeatResponse {
        error_code: 27,
        ..Default::default()
    }
}

pub fn leave_group_request(version: i16) -> LeaveGroupRequest {
    let names_one = version < 3;
    let member = MemberIdentity {
        member_id: MEMBER,
        group_instance_id: Some("instance".into()),
        reason: None,
    };
    LeaveGroupRequest {
        group_id: GROUP,
        member_id: if names_one { MEMBER } else { "".into() },
        members: vec![member; if names_one { 0 } else { 3 }],
    }
}

pub fn leave_group_response(version: i16) -> LeaveGroupResponse {
    let names_one = version < 3;
    LeaveGroupResponse {
        members: vec![MemberResponse::default(); if names_one { 0 } else { 3 }],
        ..Default::default()
    }
}

pub fn offset_commit_request(version: i16) -> OffsetCommitRequest {
    let partition = |metadata| OffsetCommitRequestPartition {
        partition_index: 1,
        committed_offset: 1 << 40,
        committed_leader_epoch: 5,
        committed_metadata: metadata,
    };
    OffsetCommitRequest {
        group_id: GROUP,
        generation_id_or_member_epoch: 3,
        member_id: MEMBER,
        group_instance_id: instance(version, 7),
        retention_time_ms: 1000,
        topics: vec![OffsetCommitRequestTopic {
            name: TOPIC,
            partitions: vec![partition(None), partition(Some("metadata".into()))],
        }],
    }
}

pub fn offset_commit_response(_: i16) -> OffsetCommitResponse {
    OffsetCommitResponse {
        topics: vec![OffsetCommitResponseTopic {
            name: TOPIC,
            partitions: vec![OffsetCommitResponsePartition::default(); 3],
        }],
        ..Default::default()
    }
}

pub fn offset_fetch_request(version: i16) -> OffsetFetchRequest {
    if version < 8 {
        let topic = OffsetFetchRequestTopic {
            name: TOPIC,
            partition_indexes: vec![0, 1, 2],
        };
        return OffsetFetchRequest {
            group_id: GROUP,
            topics: (version % 2 == 1).then(|| vec![topic; 2]),
            require_stable: version >= 7,
            ..Default::default()
        };
    }
    let topic = OffsetFetchRequestTopics {
        name: TOPIC,
        partition_indexes: vec![0, 1, 2],
    };
    let group = |topics| OffsetFetchRequestGroup {
        group_id: GROUP,
        topics,
        ..Default::default()
    };
    OffsetFetchRequest {
        groups: vec![group(None), group(Some(vec![topic; 2]))],
        require_stable: true,
        ..Default::default()
    }
}

pub fn offset_fetch_response(version: i16) -> OffsetFetchResponse {
    if version < 8 {
        let partition = OffsetFetchResponsePartition {
            metadata: Some("metadata".into()),
            ..Default::default()
        };
        return OffsetFetchResponse {
            topics: vec![OffsetFetchResponseTopic {
                name: TOPIC,
                partitions: vec![partition; 2],
            }],
            ..Default::default()
        };
    }
    let partition = OffsetFetchResponsePartitions {
        metadata: None,
        ..Default::default()
    };
    let group = OffsetFetchResponseGroup {
        group_id: GROUP,
        topics: vec![OffsetFetchResponseTopics {
            name: TOPIC,
            partitions: vec![partition; 2],
        }],
        ..Default::default()
    };
    OffsetFetchResponse {
        groups: vec![group; 2],
        ..Default::default()
    }
}

pub fn offset_delete_request(_: i16) -> OffsetDeleteRequest {
    OffsetDeleteRequest {
        group_id: GROUP,
        topics: vec![OffsetDeleteRequestTopic {
            name: TOPIC,
            partitions: vec![OffsetDeleteRequestPartition { partition_index: 1 }; 3],
        }],
    }
}

pub fn offset_delete_response(_: i16) -> OffsetDeleteResponse {
    OffsetDeleteResponse {
        topics: vec![OffsetDeleteResponseTopic {
            name: TOPIC,
            partitions: vec![OffsetDeleteResponsePartition::default(); 3],
        }],
        ..Default::default()
    }
}

pub fn describe_groups_request(version: i16) -> DescribeGroupsRequest {
    DescribeGroupsRequest {
        groups: vec![GROUP; 3],
        include_authorized_operations: version >= 3,
    }
}

pub fn describe_groups_response(version: i16) -> DescribeGroupsResponse {
    let member = DescribedGroupMember {
        member_id: MEMBER,
        group_instance_id: instance(version, 4),
        client_id: "client".into(),
        client_host: "/127.0.0.1".into(),
        member_metadata: text(b"metadata"),
        member_assignment: text(b"assignment"),
    };
    let group = DescribedGroup {
        error_message: (version >= 6).then(|| "why".into()),
        group_id: GROUP,
        group_state: "Stable".into(),
        members: vec![member; 2],
        ..Default::default()
    };
    DescribeGroupsResponse {
        groups: vec![group; 2],
        ..Default::default()
    }
}

pub fn list_groups_request(version: i16) -> ListGroupsRequest {
    ListGroupsRequest {
        states_filter: vec!["Stable".into(); if version >= 4 { 2 } else { 0 }],
        types_filter: vec!["classic".into(); if version >= 5 { 2 } else { 0 }],
    }
}

pub fn list_groups_response(_: i16) -> ListGroupsResponse {
    let group = ListedGroup {
        group_id: GROUP,
        protocol_type: "consumer".into(),
        group_state: "Stable".into(),
        group_type: "classic".into(),
    };
    ListGroupsResponse {
        groups: vec![group; 3],
        ..Default::default()
    }
}

pub fn delete_groups_request(_: i16) -> DeleteGroupsRequest {
    DeleteGroupsRequest {
        groups_names: vec![GROUP; 3],
    }
}

pub fn delete_groups_response(_: i16) -> DeleteGroupsResponse {
    DeleteGroupsResponse {
        results: vec![DeletableGroupResult::default(); 3],
        ..Default::default()
    }
}
