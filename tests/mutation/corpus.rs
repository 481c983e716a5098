//! Good frames to begin with: every message in every version, with something in every
//! field, and batches.

#[path = "corpus_admin.rs"]
mod admin;
#[path = "corpus_cluster.rs"]
mod cluster;
#[path = "corpus_groups.rs"]
mod groups;

use bytes::Bytes;
use highwater::protocol::batch::{compress, BatchBuilder, Compression};
use highwater::protocol::messages::*;
use highwater::protocol::{request_frame, response_frame, ApiKey, Message, Records, Str, Writer};
use uuid::Uuid;

/// What reads the bytes.
#[derive(Debug, Clone, Copy)]
pub enum Kind {
    /// A request with its header, which says the rest.
    Request,
    /// The body of a request of this API and version; of a request that is not served too.
    RequestBody(ApiKey, i16),
    /// A response to this API and version, with its header.
    Response(ApiKey, i16),
    /// Record batches.
    Batches,
}

/// A good frame, without its length.
pub struct Frame {
    pub kind: Kind,
    pub bytes: Bytes,
}

/// All frames.
pub fn frames() -> Vec<Frame> {
    let mut out = Vec::new();
    requests(&mut out, produce_request);
    requests(&mut out, legacy_produce_request);
    requests(&mut out, fetch_request);
    requests(&mut out, list_offsets_request);
    requests(&mut out, metadata_request);
    requests(&mut out, api_versions_request);
    requests(&mut out, create_topics_request);
    requests(&mut out, delete_topics_request);
    requests(&mut out, admin::delete_records_request);
    requests(&mut out, admin::init_producer_id_request);
    requests(&mut out, admin::offset_for_leader_epoch_request);
    requests(&mut out, admin::describe_configs_request);
    requests(&mut out, admin::alter_configs_request);
    requests(&mut out, admin::create_partitions_request);
    requests(&mut out, admin::incremental_alter_configs_request);
    requests(&mut out, admin::describe_cluster_request);
    requests(&mut out, admin::describe_producers_request);
    requests(&mut out, admin::describe_topic_partitions_request);
    requests(&mut out, groups::find_coordinator_request);
    requests(&mut out, groups::join_group_request);
    requests(&mut out, groups::sync_group_request);
    requests(&mut out, groups::heartbeat_request);
    requests(&mut out, groups::leave_group_request);
    requests(&mut out, groups::offset_commit_request);
    requests(&mut out, groups::offset_fetch_request);
    requests(&mut out, groups::offset_delete_request);
    requests(&mut out, groups::describe_groups_request);
    requests(&mut out, groups::list_groups_request);
    requests(&mut out, groups::delete_groups_request);
    cluster::frames(&mut out);
    responses(&mut out, produce_response);
    responses(&mut out, fetch_response);
    responses(&mut out, list_offsets_response);
    responses(&mut out, metadata_response);
    responses(&mut out, api_versions_response);
    responses(&mut out, create_topics_response);
    responses(&mut out, delete_topics_response);
    responses(&mut out, admin::delete_records_response);
    responses(&mut out, admin::init_producer_id_response);
    responses(&mut out, admin::offset_for_leader_epoch_response);
    responses(&mut out, admin::describe_configs_response);
    responses(&mut out, admin::alter_configs_response);
    responses(&mut out, admin::create_partitions_response);
    responses(&mut out, admin::incremental_alter_configs_response);
    responses(&mut out, admin::describe_cluster_response);
    responses(&mut out, admin::describe_producers_response);
    responses(&mut out, admin::describe_topic_partitions_response);
    responses(&mut out, groups::find_coordinator_response);
    responses(&mut out, groups::join_group_response);
    responses(&mut out, groups::sync_group_response);
    responses(&mut out, groups::heartbeat_response);
    responses(&mut out, groups::leave_group_response);
    responses(&mut out, groups::offset_commit_response);
    responses(&mut out, groups::offset_fetch_response);
    responses(&mut out, groups::offset_delete_response);
    responses(&mut out, groups::describe_groups_response);
    responses(&mut out, groups::list_groups_response);
    responses(&mut out, groups::delete_groups_response);
    // Often, as all record bytes go through one reader.
    for _ in 0..20 {
        let two = [batch(), batch()].concat();
        for bytes in [batch(), two.into()] {
            let kind = Kind::Batches;
            out.push(Frame { kind, bytes });
        }
    }
    out
}

/// Compressed records.
pub fn compressed() -> Vec<(Compression, Bytes)> {
    let text: Vec<u8> = (0..3000u32).map(|i| (i * i / 50 % 251) as u8).collect();
    (1..)
        .map_while(Compression::from_code)
        .flat_map(|codec| {
            [&text[..], &text[..20]].map(|input| (codec, compress(codec, input).unwrap().into()))
        })
        .collect()
}

fn requests<M: Message>(out: &mut Vec<Frame>, make: fn(i16) -> M) {
    for version in M::VERSIONS {
        let client: Str = "client".into();
        let chunks = request_frame(7, Some(&client), version, &make(version)).unwrap();
        let bytes = Bytes::from(chunks.concat()).slice(4..);
        if ApiKey::from_code(M::KEY.code()).is_some() {
            let kind = Kind::Request;
            out.push(Frame { kind, bytes });
        }
        if M::KEY.decoded_versions().contains(&version) {
            let mut w = Writer::new();
            make(version).encode_versioned(&mut w, version).unwrap();
            let kind = Kind::RequestBody(M::KEY, version);
            let bytes = w.finish().concat().into();
            out.push(Frame { kind, bytes });
        }
    }
}

fn responses<M: Message>(out: &mut Vec<Frame>, make: fn(i16) -> M) {
    for version in M::VERSIONS {
        let chunks = response_frame(7, version, &make(version)).unwrap();
        let bytes = Bytes::from(chunks.concat()).slice(4..);
        let kind = Kind::Response(M::KEY, version);
        out.push(Frame { kind, bytes });
    }
}

fn batch() -> Bytes {
    let mut builder = BatchBuilder::new().producer(9, 1, 4);
    builder.push(1000, Some(b"key 0"), Some(b"a value"));
    builder.push_with_headers(1030, None, Some(b"v"), &[("h", Some(b"x")), ("n", None)]);
    builder.push(1010, Some(b"k2"), None);
    builder.build()
}

fn id() -> Uuid {
    Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)
}

fn produce_request(version: i16) -> ProduceRequest {
    let partition = |index| PartitionProduceData {
        index,
        records: Some(Records::from(batch())),
    };
    ProduceRequest {
        transactional_id: (version % 2 == 0).then(|| "transaction".into()),
        acks: -1,
        timeout_ms: 1500,
        topic_data: vec![
            TopicProduceData {
                name: "topic".into(),
                topic_id: id(),
                partition_data: vec![partition(0), partition(1)],
            },
            TopicProduceData {
                partition_data: vec![PartitionProduceData {
                    index: 3,
                    records: None,
                }],
                ..Default::default()
            },
        ],
    }
}

fn legacy_produce_request(_: i16) -> LegacyProduceRequest {
    LegacyProduceRequest {
        acks: 1,
        timeout_ms: 1500,
        topic_data: vec![LegacyTopicProduceData {
            name: "topic".into(),
            partition_data: vec![PartitionProduceData::default(); 3],
        }],
    }
}

fn produce_response(_: i16) -> ProduceResponse {
    let partition = |index| PartitionProduceResponse {
        index,
        error_code: 6,
        base_offset: 1 << 40,
        record_errors: vec![BatchIndexAndErrorMessage {
            batch_index: 2,
            batch_index_error_message: Some("no key".into()),
        }],
        error_message: Some("what is wrong".into()),
        current_leader: ProduceLeaderIdAndEpoch {
            leader_id: 2,
            leader_epoch: 5,
        },
        ..Default::default()
    };
    ProduceResponse {
        responses: vec![TopicProduceResponse {
            name: "topic".into(),
            topic_id: id(),
            partition_responses: vec![partition(0), partition(1)],
        }],
        throttle_time_ms: 1,
        node_endpoints: vec![ProduceNodeEndpoint {
            node_id: 2,
            host: "host".into(),
            port: 9092,
            rack: Some("rack".into()),
        }],
    }
}

fn fetch_request(version: i16) -> FetchRequest {
    let partition = |partition| FetchPartition {
        partition,
        fetch_offset: 55,
        last_fetched_epoch: if version >= 12 { 4 } else { -1 },
        partition_max_bytes: 1 << 20,
        replica_directory_id: id(),
        high_watermark: 50,
        ..Default::default()
    };
    let forgotten = ForgottenTopic {
        topic: "gone".into(),
        topic_id: id(),
        partitions: vec![1, 2, 3],
    };
    FetchRequest {
        cluster_id: Some("cluster".into()),
        replica_id: if version <= 14 { 3 } else { -1 },
        replica_state: match version {
            15.. => ReplicaState {
                replica_id: 3,
                replica_epoch: 9,
            },
            _ => ReplicaState::default(),
        },
        max_wait_ms: 500,
        min_bytes: 1,
        isolation_level: 1,
        topics: vec![FetchTopic {
            topic: "topic".into(),
            topic_id: id(),
            partitions: vec![partition(0), partition(1)],
        }],
        forgotten_topics_data: if version >= 7 {
            vec![forgotten]
        } else {
            vec![]
        },
        rack_id: "rack".into(),
        ..Default::default()
    }
}

fn fetch_response(version: i16) -> FetchResponse {
    let mut partition = PartitionData {
        high_watermark: 60,
        last_stable_offset: 59,
        aborted_transactions: (version % 2 == 0).then(|| {
            vec![AbortedTransaction {
                producer_id: 4,
                first_offset: 56,
            }]
        }),
        records: Some(Records::from(batch())),
        ..Default::default()
    };
    if version >= 12 {
        partition.diverging_epoch.epoch = 3;
        partition.current_leader.leader_id = 2;
        partition.snapshot_id.end_offset = 7;
        partition.preferred_read_replica = 1;
    }
    FetchResponse {
        session_id: if version >= 7 { 8 } else { 0 },
        responses: vec![FetchableTopicResponse {
            topic: "topic".into(),
            topic_id: id(),
            partitions: vec![partition.clone(), partition],
        }],
        node_endpoints: vec![FetchNodeEndpoint {
            host: "host".into(),
            ..Default::default()
        }],
        ..Default::default()
    }
}

fn list_offsets_request(version: i16) -> ListOffsetsRequest {
    let partition = ListOffsetsPartition {
        timestamp: -1,
        ..Default::default()
    };
    ListOffsetsRequest {
        isolation_level: (version >= 2) as i8,
        topics: vec![ListOffsetsTopic {
            name: "topic".into(),
            partitions: vec![partition; 3],
        }],
        timeout_ms: 1000,
        ..Default::default()
    }
}

fn list_offsets_response(_: i16) -> ListOffsetsResponse {
    ListOffsetsResponse {
        topics: vec![ListOffsetsTopicResponse {
            name: "topic".into(),
            partitions: vec![ListOffsetsPartitionResponse::default(); 3],
        }],
        ..Default::default()
    }
}

fn metadata_request(version: i16) -> MetadataRequest {
    let topic = MetadataRequestTopic {
        topic_id: id(),
        name: Some("topic".into()),
    };
    MetadataRequest {
        topics: match version {
            13 => None,
            _ => Some(vec![topic; 4]),
        },
        include_topic_authorized_operations: version >= 8,
        ..Default::default()
    }
}

fn metadata_response(version: i16) -> MetadataResponse {
    let partition = MetadataResponsePartition {
        leader_id: 1,
        leader_epoch: 6,
        replica_nodes: vec![1, 2, 3],
        isr_nodes: vec![1, 2],
        offline_replicas: vec![3],
        ..Default::default()
    };
    MetadataResponse {
        brokers: vec![
            MetadataResponseBroker {
                host: "host".into(),
                rack: Some("rack".into()),
                ..Default::default()
            };
            3
        ],
        cluster_id: Some("cluster".into()),
        topics: vec![
            MetadataResponseTopic {
                name: (version < 12).then(|| "topic".into()),
                topic_id: id(),
                partitions: vec![partition; 2],
                ..Default::default()
            };
            2
        ],
        ..Default::default()
    }
}

fn api_versions_request(_: i16) -> ApiVersionsRequest {
    ApiVersionsRequest {
        client_software_name: "software".into(),
        client_software_version: "1.0".into(),
    }
}

fn api_versions_response(_: i16) -> ApiVersionsResponse {
    ApiVersionsResponse {
        supported_features: vec![SupportedFeatureKey {
            name: "feature".into(),
            ..Default::default()
        }],
        finalized_features_epoch: 3,
        finalized_features: vec![FinalizedFeatureKey::default()],
        zk_migration_ready: true,
        ..highwater::protocol::api::api_versions_response()
    }
}

fn create_topics_request(_: i16) -> CreateTopicsRequest {
    let topic = CreatableTopic {
        name: "topic".into(),
        num_partitions: -1,
        replication_factor: -1,
        assignments: vec![CreatableReplicaAssignment {
            partition_index: 0,
            broker_ids: vec![1, 2, 3],
        }],
        configs: vec![CreatableTopicConfig {
            name: "cleanup.policy".into(),
            value: None,
        }],
    };
    CreateTopicsRequest {
        topics: vec![topic; 2],
        ..Default::default()
    }
}

fn create_topics_response(_: i16) -> CreateTopicsResponse {
    let topic = CreatableTopicResult {
        name: "topic".into(),
        topic_id: id(),
        error_message: Some("why".into()),
        topic_config_error_code: 29,
        configs: Some(vec![CreatableTopicConfigs {
            name: "cleanup.policy".into(),
            value: Some("delete".into()),
            ..Default::default()
        }]),
        ..Default::default()
    };
    CreateTopicsResponse {
        topics: vec![topic; 2],
        ..Default::default()
    }
}

fn delete_topics_request(version: i16) -> DeleteTopicsRequest {
    let topic = DeleteTopicState {
        name: None,
        topic_id: id(),
    };
    DeleteTopicsRequest {
        topics: if version >= 6 { vec![topic; 3] } else { vec![] },
        topic_names: vec!["topic".into(), "other".into()],
        timeout_ms: 1000,
    }
}

fn delete_topics_response(version: i16) -> DeleteTopicsResponse {
    let topic = DeletableTopicResult {
        name: (version < 6).then(|| "topic".into()),
        topic_id: id(),
        error_code: 3,
        error_message: Some("why".into()),
    };
    DeleteTopicsResponse {
        responses: vec![topic; 3],
        ..Default::default()
    }
}
