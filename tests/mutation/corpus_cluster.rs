//! Good messages of the APIs that ask about, and move, what a cluster has: directories,
//! leaders, reassignments, the quorum, quotas, users and ACLs.

use super::{requests, responses, Frame};
use highwater::protocol::messages::*;
use highwater::protocol::Str;
use uuid::Uuid;

pub fn frames(out: &mut Vec<Frame>) {
    requests(out, |_| DescribeLogDirsRequest {
        topics: Some(vec![DescribableLogDirTopic {
            topic: "topic".into(),
            partitions: vec![0, 1],
        }]),
    });
    responses(out, |version| DescribeLogDirsResponse {
        results: vec![DescribeLogDirsResult {
            log_dir: "/data".into(),
            topics: vec![DescribeLogDirsTopic {
                name: "topic".into(),
                partitions: vec![DescribeLogDirsPartition::default(); 2],
            }],
            total_bytes: if version >= 4 { 1 << 40 } else { -1 },
            ..Default::default()
        }],
        ..Default::default()
    });
    requests(out, |version| ListConfigResourcesRequest {
        resource_types: if version >= 1 { vec![2, 4] } else { vec![] },
    });
    responses(out, |version| ListConfigResourcesResponse {
        config_resources: vec![
            ConfigResource {
                resource_name: "topic".into(),
                resource_type: if version >= 1 { 2 } else { 16 },
            };
            2
        ],
        ..Default::default()
    });
    requests(out, |_| DescribeQuorumRequest {
        topics: vec![DescribeQuorumTopic {
            topic_name: "__cluster_metadata".into(),
            partitions: vec![DescribeQuorumPartition::default(); 2],
        }],
    });
    responses(out, describe_quorum_response);
    requests(out, |version| ElectLeadersRequest {
        election_type: i8::from(version >= 1),
        topic_partitions: Some(vec![ElectLeadersTopic {
            topic: "topic".into(),
            partitions: vec![0, 1],
        }]),
        timeout_ms: 1000,
    });
    responses(out, |_| ElectLeadersResponse {
        replica_election_results: vec![ReplicaElectionResult {
            topic: "topic".into(),
            partition_result: vec![ElectLeadersPartitionResult::default(); 2],
        }],
        ..Default::default()
    });
    reassignments(out);
    requests(out, |_| AlterReplicaLogDirsRequest {
        dirs: vec![AlterReplicaLogDir {
            path: "/data".into(),
            topics: vec![AlterReplicaLogDirTopic {
                name: "topic".into(),
                partitions: vec![0, 1],
            }],
        }],
    });
    responses(out, |_| AlterReplicaLogDirsResponse {
        results: vec![AlterReplicaLogDirTopicResult {
            topic_name: "topic".into(),
            partitions: vec![AlterReplicaLogDirPartitionResult::default(); 2],
        }],
        ..Default::default()
    });
    quotas_and_users(out);
    acls(out);
}

fn describe_quorum_response(version: i16) -> DescribeQuorumResponse {
    let why = |text: &'static str| (version >= 2).then(|| Str::from_static(text));
    let voter = QuorumReplicaState {
        replica_id: 1,
        replica_directory_id: if version >= 2 {
            Uuid::from_u128(5)
        } else {
            Uuid::nil()
        },
        log_end_offset: 9,
        ..Default::default()
    };
    let node = QuorumNode {
        node_id: 1,
        listeners: vec![QuorumListener {
            name: "PLAINTEXT".into(),
            host: "localhost".into(),
            port: 9092,
        }],
    };
    DescribeQuorumResponse {
        error_message: why("why").or_else(|| Some(Str::default())),
        topics: vec![DescribeQuorumTopicResult {
            topic_name: "__cluster_metadata".into(),
            partitions: vec![DescribeQuorumPartitionResult {
                error_message: why("too").or_else(|| Some(Str::default())),
                current_voters: vec![voter.clone(); 2],
                observers: vec![voter],
                ..Default::default()
            }],
        }],
        nodes: if version >= 2 { vec![node; 2] } else { vec![] },
        ..Default::default()
    }
}

fn reassignments(out: &mut Vec<Frame>) {
    requests(out, |_| AlterPartitionReassignmentsRequest {
        topics: vec![ReassignableTopic {
            name: "topic".into(),
            partitions: vec![
                ReassignablePartition {
                    partition_index: 0,
                    replicas: Some(vec![1, 2, 3]),
                };
                2
            ],
        }],
        ..Default::default()
    });
    responses(out, |_| AlterPartitionReassignmentsResponse {
        responses: vec![ReassignableTopicResponse {
            name: "topic".into(),
            partitions: vec![ReassignablePartitionResponse::default(); 2],
        }],
        ..Default::default()
    });
    requests(out, |_| ListPartitionReassignmentsRequest {
        timeout_ms: 1000,
        topics: Some(vec![ListPartitionReassignmentsTopics {
            name: "topic".into(),
            partition_indexes: vec![0, 1],
        }]),
    });
    responses(out, |_| ListPartitionReassignmentsResponse {
        topics: vec![OngoingTopicReassignment {
            name: "topic".into(),
            partitions: vec![
                OngoingPartitionReassignment {
                    partition_index: 0,
                    replicas: vec![1, 2],
                    adding_replicas: vec![2],
                    removing_replicas: vec![1],
                };
                2
            ],
        }],
        ..Default::default()
    });
}

fn quotas_and_users(out: &mut Vec<Frame>) {
    requests(out, |_| DescribeClientQuotasRequest {
        components: vec![
            ClientQuotaFilter {
                entity_type: "user".into(),
                match_type: 0,
                _match: Some("somebody".into()),
            };
            2
        ],
        strict: true,
    });
    responses(out, |_| DescribeClientQuotasResponse {
        entries: Some(vec![ClientQuotaEntry {
            entity: vec![ClientQuotaEntity::default(); 2],
            values: vec![ClientQuotaValue {
                key: "consumer_byte_rate".into(),
                value: 1000.5,
            }],
        }]),
        ..Default::default()
    });
    requests(out, |_| DescribeUserScramCredentialsRequest {
        users: Some(vec![
            ScramUserName {
                name: "somebody".into(),
            };
            2
        ]),
    });
    responses(out, |_| DescribeUserScramCredentialsResponse {
        results: vec![DescribeUserScramCredentialsResult {
            user: "somebody".into(),
            credential_infos: vec![ScramCredentialInfo::default(); 2],
            ..Default::default()
        }],
        ..Default::default()
    });
}

fn acls(out: &mut Vec<Frame>) {
    requests(out, |_| DescribeAclsRequest {
        resource_name_filter: Some("topic".into()),
        principal_filter: None,
        ..Default::default()
    });
    responses(out, |_| DescribeAclsResponse {
        resources: vec![DescribeAclsResource {
            resource_name: "topic".into(),
            acls: vec![AclDescription::default(); 2],
            ..Default::default()
        }],
        ..Default::default()
    });
    requests(out, |_| CreateAclsRequest {
        creations: vec![AclCreation::default(); 2],
    });
    responses(out, |_| CreateAclsResponse {
        results: vec![AclCreationResult::default(); 2],
        ..Default::default()
    });
    requests(out, |_| DeleteAclsRequest {
        filters: vec![DeleteAclsFilter::default(); 2],
    });
    responses(out, |_| DeleteAclsResponse {
        filter_results: vec![DeleteAclsFilterResult {
            matching_acls: vec![DeleteAclsMatchingAcl::default(); 2],
            ..Default::default()
        }],
        ..Default::default()
    });
}
