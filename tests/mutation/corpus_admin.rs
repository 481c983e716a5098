//! Good messages of the APIs that administer, and of those that ask about producers
//! and epochs.

use highwater::protocol::messages::*;
use uuid::Uuid;

fn id() -> Uuid {
    Uuid::from_u128(0x0123_4567_89ab_cdef_0123_4567_89ab_cdef)
}

pub fn delete_records_request(_: i16) -> DeleteRecordsRequest {
    let partition = |partition_index, offset| DeleteRecordsPartition {
        partition_index,
        offset,
    };
    DeleteRecordsRequest {
        topics: vec![DeleteRecordsTopic {
            name: "topic".into(),
            partitions: vec![partition(0, 5), partition(1, -1)],
        }],
        timeout_ms: 1000,
    }
}

pub fn delete_records_response(_: i16) -> DeleteRecordsResponse {
    DeleteRecordsResponse {
        throttle_time_ms: 1,
        topics: vec![DeleteRecordsTopicResult {
            name: "topic".into(),
            partitions: vec![DeleteRecordsPartitionResult::default(); 3],
        }],
    }
}

pub fn init_producer_id_request(version: i16) -> InitProducerIdRequest {
    let has_id = version >= 3;
    InitProducerIdRequest {
        transactional_id: (version % 2 == 0).then(|| "transaction".into()),
        transaction_timeout_ms: 60_000,
        producer_id: if has_id { 4000 } else { -1 },
        producer_epoch: if has_id { 3 } else { -1 },
    }
}

pub fn init_producer_id_response(_: i16) -> InitProducerIdResponse {
    InitProducerIdResponse {
        producer_id: 4000,
        producer_epoch: 4,
        ..Default::default()
    }
}

pub fn offset_for_leader_epoch_request(version: i16) -> OffsetForLeaderEpochRequest {
    let partition = OffsetForLeaderPartition {
        partition: 1,
        current_leader_epoch: 7,
        leader_epoch: 5,
    };
    OffsetForLeaderEpochRequest {
        replica_id: if version >= 3 { 2 } else { -2 },
        topics: vec![OffsetForLeaderTopic {
            topic: "topic".into(),
            partitions: vec![partition; 2],
        }],
    }
}

pub fn offset_for_leader_epoch_response(_: i16) -> OffsetForLeaderEpochResponse {
    OffsetForLeaderEpochResponse {
        topics: vec![OffsetForLeaderTopicResult {
            topic: "topic".into(),
            partitions: vec![OffsetForLeaderPartitionResult::default(); 2],
        }],
        ..Default::default()
    }
}

pub fn describe_configs_request(version: i16) -> DescribeConfigsRequest {
    let resource = |keys| DescribeConfigsResource {
        resource_type: 2,
        resource_name: "topic".into(),
        configuration_keys: keys,
    };
    DescribeConfigsRequest {
        resources: vec![
            resource(None),
            resource(Some(vec!["cleanup.policy".into(), "retention.ms".into()])),
        ],
        include_synonyms: true,
        include_documentation: version >= 3,
    }
}

pub fn describe_configs_response(_: i16) -> DescribeConfigsResponse {
    let synonym = DescribeConfigsSynonym {
        name: "log.cleanup.policy".into(),
        value: Some("delete".into()),
        source: 5,
    };
    let config = DescribeConfigsResourceResult {
        name: "cleanup.policy".into(),
        value: None,
        synonyms: vec![synonym; 2],
        documentation: Some("what it does".into()),
        ..Default::default()
    };
    DescribeConfigsResponse {
        results: vec![DescribeConfigsResult {
            error_message: None,
            resource_name: "topic".into(),
            configs: vec![config; 2],
            ..Default::default()
        }],
        ..Default::default()
    }
}

pub fn alter_configs_request(_: i16) -> AlterConfigsRequest {
    let config = |value: Option<&'static str>| AlterableConfig {
        name: "retention.ms".into(),
        value: value.map(Into::into),
    };
    AlterConfigsRequest {
        resources: vec![AlterConfigsResource {
            resource_type: 2,
            resource_name: "topic".into(),
            configs: vec![config(None), config(Some("1000"))],
        }],
        validate_only: true,
    }
}

pub fn alter_configs_response(_: i16) -> AlterConfigsResponse {
    AlterConfigsResponse {
        responses: vec![
            AlterConfigsResourceResponse {
                error_code: 40,
                error_message: Some("why".into()),
                ..Default::default()
            };
            2
        ],
        ..Default::default()
    }
}

pub fn create_partitions_request(version: i16) -> CreatePartitionsRequest {
    let assignment = CreatePartitionsAssignment {
        broker_ids: vec![1, 2, 3],
    };
    CreatePartitionsRequest {
        topics: vec![CreatePartitionsTopic {
            name: "topic".into(),
            count: 4,
            assignments: (version % 2 == 0).then(|| vec![assignment; 2]),
        }],
        timeout_ms: 1000,
        validate_only: false,
    }
}

pub fn create_partitions_response(_: i16) -> CreatePartitionsResponse {
    CreatePartitionsResponse {
        results: vec![
            CreatePartitionsTopicResult {
                name: "topic".into(),
                error_code: 37,
                error_message: Some("why".into()),
            };
            2
        ],
        ..Default::default()
    }
}

pub fn incremental_alter_configs_request(_: i16) -> IncrementalAlterConfigsRequest {
    let config = |config_operation, value: Option<&'static str>| IncrementalAlterableConfig {
        name: "retention.ms".into(),
        config_operation,
        value: value.map(Into::into),
    };
    IncrementalAlterConfigsRequest {
        resources: vec![IncrementalAlterConfigsResource {
            resource_type: 4,
            resource_name: "1".into(),
            configs: vec![config(0, Some("1000")), config(1, None)],
        }],
        validate_only: true,
    }
}

pub fn incremental_alter_configs_response(_: i16) -> IncrementalAlterConfigsResponse {
    IncrementalAlterConfigsResponse {
        responses: vec![
            IncrementalAlterConfigsResourceResponse {
                error_message: Some("why".into()),
                ..Default::default()
            };
            2
        ],
        ..Default::default()
    }
}

pub fn describe_cluster_request(version: i16) -> DescribeClusterRequest {
    DescribeClusterRequest {
        include_cluster_authorized_operations: true,
        endpoint_type: if version >= 1 { 2 } else { 1 },
        include_fenced_brokers: version >= 2,
    }
}

pub fn describe_cluster_response(version: i16) -> DescribeClusterResponse {
    let broker = DescribeClusterBroker {
        broker_id: 1,
        host: "host".into(),
        port: 9092,
        rack: Some("rack".into()),
        is_fenced: version >= 2,
    };
    DescribeClusterResponse {
        error_message: Some("why".into()),
        cluster_id: "cluster".into(),
        brokers: vec![broker; 3],
        ..Default::default()
    }
}

pub fn describe_producers_request(_: i16) -> DescribeProducersRequest {
    DescribeProducersRequest {
        topics: vec![DescribeProducersTopic {
            name: "topic".into(),
            partition_indexes: vec![0, 1, 2],
        }],
    }
}

pub fn describe_producers_response(_: i16) -> DescribeProducersResponse {
    let partition = DescribeProducersPartitionResult {
        error_message: Some("why".into()),
        active_producers: vec![DescribeProducersState::default(); 3],
        ..Default::default()
    };
    DescribeProducersResponse {
        topics: vec![DescribeProducersTopicResult {
            name: "topic".into(),
            partitions: vec![partition; 2],
        }],
        ..Default::default()
    }
}

pub fn describe_topic_partitions_request(_: i16) -> DescribeTopicPartitionsRequest {
    DescribeTopicPartitionsRequest {
        topics: vec![
            DescribeTopicPartitionsTopic {
                name: "topic".into(),
            };
            3
        ],
        response_partition_limit: 100,
        cursor: Some(DescribeTopicPartitionsCursor {
            topic_name: "topic".into(),
            partition_index: 1,
        }),
    }
}

pub fn describe_topic_partitions_response(_: i16) -> DescribeTopicPartitionsResponse {
    let partition = DescribeTopicPartitionsResponsePartition {
        replica_nodes: vec![1, 2, 3],
        isr_nodes: vec![1, 2],
        eligible_leader_replicas: Some(vec![3]),
        last_known_elr: None,
        offline_replicas: vec![3],
        ..Default::default()
    };
    DescribeTopicPartitionsResponse {
        topics: vec![DescribeTopicPartitionsResponseTopic {
            name: Some("topic".into()),
            topic_id: id(),
            partitions: vec![partition; 2],
            ..Default::default()
        }],
        next_cursor: Some(DescribeTopicPartitionsCursor::default()),
        ..Default::default()
    }
}
