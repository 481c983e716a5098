//! Every message and version against `kafka-protocol`, which is generated from Kafka's
//! own schema: our bytes are decoded and encoded there and must come back the same,
//! the fields must have the same names and values in the same order, and its bytes
//! must decode here to the value that we began with.

use std::fmt::Debug;

use bytes::{Bytes, BytesMut};
use kafka_protocol::messages as oracle;
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion};
use proptest::prelude::*;

use super::*;
use crate::protocol::codec::sample::{Sample, Source};
use crate::protocol::codec::{EncodeError, Reader, Writer};
use crate::protocol::{ErrorCode, RequestHeader, ResponseHeader};

macro_rules! against_the_oracle {
    ($($test:ident: $message:ident;)*) => {
        proptest! {
            #![proptest_config(ProptestConfig::with_cases(64))]
            $(
                #[test]
                fn $test(drawn in prop::collection::vec(any::<u8>(), 0..600)) {
                    for version in $message::VERSIONS {
                        if version >= oracle_from::<$message>() {
                            check::<$message, oracle::$message>(&drawn, version);
                        }
                    }
                    check_older::<$message, oracle::$message>(&drawn);
                }
            )*
        }
    };
}

against_the_oracle! {
    produce_request: ProduceRequest;
    produce_response: ProduceResponse;
    fetch_request: FetchRequest;
    fetch_response: FetchResponse;
    list_offsets_request: ListOffsetsRequest;
    list_offsets_response: ListOffsetsResponse;
    metadata_request: MetadataRequest;
    metadata_response: MetadataResponse;
    api_versions_request: ApiVersionsRequest;
    api_versions_response: ApiVersionsResponse;
    create_topics_request: CreateTopicsRequest;
    create_topics_response: CreateTopicsResponse;
    delete_topics_request: DeleteTopicsRequest;
    delete_topics_response: DeleteTopicsResponse;
    delete_records_request: DeleteRecordsRequest;
    delete_records_response: DeleteRecordsResponse;
    init_producer_id_request: InitProducerIdRequest;
    init_producer_id_response: InitProducerIdResponse;
    offset_for_leader_epoch_request: OffsetForLeaderEpochRequest;
    offset_for_leader_epoch_response: OffsetForLeaderEpochResponse;
    describe_configs_request: DescribeConfigsRequest;
    describe_configs_response: DescribeConfigsResponse;
    alter_configs_request: AlterConfigsRequest;
    alter_configs_response: AlterConfigsResponse;
    create_partitions_request: CreatePartitionsRequest;
    create_partitions_response: CreatePartitionsResponse;
    incremental_alter_configs_request: IncrementalAlterConfigsRequest;
    incremental_alter_configs_response: IncrementalAlterConfigsResponse;
    describe_cluster_request: DescribeClusterRequest;
    describe_cluster_response: DescribeClusterResponse;
    describe_producers_request: DescribeProducersRequest;
    describe_producers_response: DescribeProducersResponse;
    describe_topic_partitions_request: DescribeTopicPartitionsRequest;
    describe_topic_partitions_response: DescribeTopicPartitionsResponse;
    find_coordinator_request: FindCoordinatorRequest;
    find_coordinator_response: FindCoordinatorResponse;
    join_group_request: JoinGroupRequest;
    join_group_response: JoinGroupResponse;
    sync_group_request: SyncGroupRequest;
    sync_group_response: SyncGroupResponse;
    heartbeat_request: HeartbeatRequest;
    heartbeat_response: HeartbeatResponse;
    leave_group_request: LeaveGroupRequest;
    leave_group_response: LeaveGroupResponse;
    offset_commit_request: OffsetCommitRequest;
    offset_commit_response: OffsetCommitResponse;
    offset_fetch_request: OffsetFetchRequest;
    offset_fetch_response: OffsetFetchResponse;
    offset_delete_request: OffsetDeleteRequest;
    offset_delete_response: OffsetDeleteResponse;
    describe_groups_request: DescribeGroupsRequest;
    describe_groups_response: DescribeGroupsResponse;
    list_groups_request: ListGroupsRequest;
    list_groups_response: ListGroupsResponse;
    delete_groups_request: DeleteGroupsRequest;
    delete_groups_response: DeleteGroupsResponse;
    alter_partition_reassignments_request: AlterPartitionReassignmentsRequest;
    alter_partition_reassignments_response: AlterPartitionReassignmentsResponse;
    alter_replica_log_dirs_request: AlterReplicaLogDirsRequest;
    alter_replica_log_dirs_response: AlterReplicaLogDirsResponse;
    create_acls_request: CreateAclsRequest;
    create_acls_response: CreateAclsResponse;
    delete_acls_request: DeleteAclsRequest;
    delete_acls_response: DeleteAclsResponse;
    describe_acls_request: DescribeAclsRequest;
    describe_acls_response: DescribeAclsResponse;
    describe_client_quotas_request: DescribeClientQuotasRequest;
    describe_client_quotas_response: DescribeClientQuotasResponse;
    describe_log_dirs_request: DescribeLogDirsRequest;
    describe_log_dirs_response: DescribeLogDirsResponse;
    describe_quorum_request: DescribeQuorumRequest;
    describe_quorum_response: DescribeQuorumResponse;
    describe_user_scram_credentials_request: DescribeUserScramCredentialsRequest;
    describe_user_scram_credentials_response: DescribeUserScramCredentialsResponse;
    elect_leaders_request: ElectLeadersRequest;
    elect_leaders_response: ElectLeadersResponse;
    list_config_resources_request: ListConfigResourcesRequest;
    list_config_resources_response: ListConfigResourcesResponse;
    list_partition_reassignments_request: ListPartitionReassignmentsRequest;
    list_partition_reassignments_response: ListPartitionReassignmentsResponse;
}

/// The first version that the oracle has: it dropped Produce 0-2 as Kafka 4 did.
fn oracle_from<M: Message>() -> i16 {
    match M::KEY {
        ApiKey::Produce => 3,
        _ => *M::VERSIONS.start(),
    }
}

/// A value of the last version is refused, or loses a field, in an older version exactly where
/// the oracle does so.
fn check_older<M, O>(drawn: &[u8])
where
    M: Message + Sample,
    O: Encodable + Decodable,
{
    let last = *M::VERSIONS.end();
    let value = M::sample(&mut Source(drawn), M::context(last));
    let mut w = Writer::new();
    value.encode_versioned(&mut w, last).unwrap();
    let theirs_value = O::decode(&mut Bytes::from(w.finish().concat()), last).unwrap();
    for version in oracle_from::<M>()..last {
        let mut w = Writer::new();
        let ours = value.encode_versioned(&mut w, version);
        let mut theirs = BytesMut::new();
        let what = format!("{} version {version}: {value:?}", M::NAME);
        match (theirs_value.encode(&mut theirs, version), ours) {
            (Ok(()), Ok(())) => assert_eq!(w.finish().concat(), theirs, "{what}"),
            // The oracle writes a null whether the version allows it or not; Kafka does not.
            (Ok(()), Err(EncodeError::NullNotAllowed { .. })) | (Err(_), Err(_)) => {}
            // The oracle leaves tagged structs out without a word, which Kafka does not.
            (Ok(()), Err(EncodeError::NotInVersion { .. })) if M::KEY == ApiKey::Fetch => {}
            (theirs, ours) => panic!("{theirs:?}, but {ours:?}: {what}"),
        }
    }
}

fn check<M, O>(drawn: &[u8], version: i16)
where
    M: Message + Sample,
    O: Encodable + Decodable + HeaderVersion + Debug,
{
    let value = M::sample(&mut Source(drawn), M::context(version));
    let what = format!("{} version {version}: {value:?}", M::NAME);

    let mut w = Writer::new();
    value.encode_versioned(&mut w, version).expect(&what);
    let ours: Bytes = w.finish().concat().into();

    let mut rest = ours.clone();
    let theirs_value = O::decode(&mut rest, version).expect(&what);
    assert!(rest.is_empty(), "{} bytes not read; {what}", rest.len());
    assert_eq!(
        fields(&format!("{value:?}")),
        fields(&format!("{theirs_value:?}")),
        "{what}"
    );

    let mut theirs = BytesMut::new();
    theirs_value.encode(&mut theirs, version).expect(&what);
    let theirs = theirs.freeze();
    assert_eq!(ours, theirs, "{what}");

    let back = M::decode_versioned(&mut Reader::new(theirs), version).expect(&what);
    assert_eq!(back, value, "{what}");

    let is_flexible = match M::IS_REQUEST {
        true => M::KEY.request_header_is_flexible(version) as i16 + 1,
        false => M::KEY.response_header_is_flexible(version) as i16,
    };
    assert_eq!(O::header_version(version), is_flexible, "header of {what}");
}

/// Debug output without what differs by design: the names of types, brackets, and the
/// oracle's list of unknown tagged fields and its fields of versions that are unstable.
fn fields(debug: &str) -> String {
    let unstable = [
        "enable_2_pc: false",
        "keep_prepared_txn: false",
        "ongoing_txn_producer_id: -1",
        "ongoing_txn_producer_epoch: -1",
        "topic_id: 00000000-0000-0000-0000-000000000000",
    ];
    let mut text = debug.replace("unknown_tagged_fields: {}", "");
    for field in unstable {
        text = text.replace(field, "");
    }
    let mut out = String::new();
    let mut word = String::new();
    let mut is_quoted = false;
    for c in text.chars().chain(" ".chars()) {
        if !is_quoted && (c.is_alphanumeric() || c == '_') {
            word.push(c);
            continue;
        }
        let is_type_name = word.starts_with(char::is_uppercase) && word != "None";
        if !is_type_name {
            out.push_str(&word);
        }
        word.clear();
        is_quoted ^= c == '"';
        if is_quoted || !"()[], ".contains(c) {
            out.push(c);
        }
    }
    out
}

#[test]
fn the_comparison_of_fields_sees_a_difference() {
    assert_eq!(
        fields("A { b: C(1), d: Some(\"x y\") }"),
        fields("E { b: 1, d: Some(F(\"x y\")), unknown_tagged_fields: {} }")
    );
    assert_ne!(fields("A { b: 1, c: 2 }"), fields("A { c: 1, b: 2 }"));
    assert_ne!(fields("A { b: None }"), fields("A { b: Some(\"\") }"));
    assert_ne!(fields("A { b: \"xy\" }"), fields("A { b: \"x y\" }"));
}

#[test]
fn defaults_are_the_oracles() {
    macro_rules! same {
        ($($ours:ty, $theirs:ty;)*) => {$(
            assert_eq!(
                fields(&format!("{:?}", <$ours>::default())),
                fields(&format!("{:?}", <$theirs>::default()))
            );
        )*};
    }
    same! {
        ProduceRequest, oracle::ProduceRequest;
        TopicProduceData, oracle::produce_request::TopicProduceData;
        PartitionProduceData, oracle::produce_request::PartitionProduceData;
        ProduceResponse, oracle::ProduceResponse;
        PartitionProduceResponse, oracle::produce_response::PartitionProduceResponse;
        BatchIndexAndErrorMessage, oracle::produce_response::BatchIndexAndErrorMessage;
        ProduceNodeEndpoint, oracle::produce_response::NodeEndpoint;
        FetchRequest, oracle::FetchRequest;
        FetchTopic, oracle::fetch_request::FetchTopic;
        FetchPartition, oracle::fetch_request::FetchPartition;
        ForgottenTopic, oracle::fetch_request::ForgottenTopic;
        FetchResponse, oracle::FetchResponse;
        PartitionData, oracle::fetch_response::PartitionData;
        FetchNodeEndpoint, oracle::fetch_response::NodeEndpoint;
        ListOffsetsRequest, oracle::ListOffsetsRequest;
        ListOffsetsPartition, oracle::list_offsets_request::ListOffsetsPartition;
        ListOffsetsResponse, oracle::ListOffsetsResponse;
        ListOffsetsPartitionResponse, oracle::list_offsets_response::ListOffsetsPartitionResponse;
        MetadataRequest, oracle::MetadataRequest;
        MetadataRequestTopic, oracle::metadata_request::MetadataRequestTopic;
        MetadataResponse, oracle::MetadataResponse;
        MetadataResponseBroker, oracle::metadata_response::MetadataResponseBroker;
        MetadataResponseTopic, oracle::metadata_response::MetadataResponseTopic;
        MetadataResponsePartition, oracle::metadata_response::MetadataResponsePartition;
        ApiVersionsRequest, oracle::ApiVersionsRequest;
        ApiVersionsResponse, oracle::ApiVersionsResponse;
        CreateTopicsRequest, oracle::CreateTopicsRequest;
        CreatableTopic, oracle::create_topics_request::CreatableTopic;
        CreatableTopicConfig, oracle::create_topics_request::CreatableTopicConfig;
        CreateTopicsResponse, oracle::CreateTopicsResponse;
        CreatableTopicResult, oracle::create_topics_response::CreatableTopicResult;
        CreatableTopicConfigs, oracle::create_topics_response::CreatableTopicConfigs;
        DeleteTopicsRequest, oracle::DeleteTopicsRequest;
        DeleteTopicState, oracle::delete_topics_request::DeleteTopicState;
        DeleteTopicsResponse, oracle::DeleteTopicsResponse;
        DeletableTopicResult, oracle::delete_topics_response::DeletableTopicResult;
        DeleteRecordsRequest, oracle::DeleteRecordsRequest;
        DeleteRecordsTopic, oracle::delete_records_request::DeleteRecordsTopic;
        DeleteRecordsPartition, oracle::delete_records_request::DeleteRecordsPartition;
        DeleteRecordsResponse, oracle::DeleteRecordsResponse;
        DeleteRecordsTopicResult, oracle::delete_records_response::DeleteRecordsTopicResult;
        DeleteRecordsPartitionResult, oracle::delete_records_response::DeleteRecordsPartitionResult;
        InitProducerIdRequest, oracle::InitProducerIdRequest;
        InitProducerIdResponse, oracle::InitProducerIdResponse;
        OffsetForLeaderEpochRequest, oracle::OffsetForLeaderEpochRequest;
        OffsetForLeaderTopic, oracle::offset_for_leader_epoch_request::OffsetForLeaderTopic;
        OffsetForLeaderPartition, oracle::offset_for_leader_epoch_request::OffsetForLeaderPartition;
        OffsetForLeaderEpochResponse, oracle::OffsetForLeaderEpochResponse;
        OffsetForLeaderTopicResult, oracle::offset_for_leader_epoch_response::OffsetForLeaderTopicResult;
        OffsetForLeaderPartitionResult, oracle::offset_for_leader_epoch_response::EpochEndOffset;
        DescribeConfigsRequest, oracle::DescribeConfigsRequest;
        DescribeConfigsResource, oracle::describe_configs_request::DescribeConfigsResource;
        DescribeConfigsResponse, oracle::DescribeConfigsResponse;
        DescribeConfigsResult, oracle::describe_configs_response::DescribeConfigsResult;
        DescribeConfigsResourceResult, oracle::describe_configs_response::DescribeConfigsResourceResult;
        DescribeConfigsSynonym, oracle::describe_configs_response::DescribeConfigsSynonym;
        AlterConfigsRequest, oracle::AlterConfigsRequest;
        AlterConfigsResource, oracle::alter_configs_request::AlterConfigsResource;
        AlterableConfig, oracle::alter_configs_request::AlterableConfig;
        AlterConfigsResponse, oracle::AlterConfigsResponse;
        AlterConfigsResourceResponse, oracle::alter_configs_response::AlterConfigsResourceResponse;
        CreatePartitionsRequest, oracle::CreatePartitionsRequest;
        CreatePartitionsTopic, oracle::create_partitions_request::CreatePartitionsTopic;
        CreatePartitionsAssignment, oracle::create_partitions_request::CreatePartitionsAssignment;
        CreatePartitionsResponse, oracle::CreatePartitionsResponse;
        CreatePartitionsTopicResult, oracle::create_partitions_response::CreatePartitionsTopicResult;
        IncrementalAlterConfigsRequest, oracle::IncrementalAlterConfigsRequest;
        IncrementalAlterConfigsResource, oracle::incremental_alter_configs_request::AlterConfigsResource;
        IncrementalAlterableConfig, oracle::incremental_alter_configs_request::AlterableConfig;
        IncrementalAlterConfigsResponse, oracle::IncrementalAlterConfigsResponse;
        IncrementalAlterConfigsResourceResponse, oracle::incremental_alter_configs_response::AlterConfigsResourceResponse;
        DescribeClusterRequest, oracle::DescribeClusterRequest;
        DescribeClusterResponse, oracle::DescribeClusterResponse;
        DescribeClusterBroker, oracle::describe_cluster_response::DescribeClusterBroker;
        DescribeProducersRequest, oracle::DescribeProducersRequest;
        DescribeProducersTopic, oracle::describe_producers_request::TopicRequest;
        DescribeProducersResponse, oracle::DescribeProducersResponse;
        DescribeProducersTopicResult, oracle::describe_producers_response::TopicResponse;
        DescribeProducersPartitionResult, oracle::describe_producers_response::PartitionResponse;
        DescribeProducersState, oracle::describe_producers_response::ProducerState;
        DescribeTopicPartitionsRequest, oracle::DescribeTopicPartitionsRequest;
        DescribeTopicPartitionsTopic, oracle::describe_topic_partitions_request::TopicRequest;
        DescribeTopicPartitionsCursor, oracle::describe_topic_partitions_request::Cursor;
        DescribeTopicPartitionsResponse, oracle::DescribeTopicPartitionsResponse;
        DescribeTopicPartitionsResponseTopic, oracle::describe_topic_partitions_response::DescribeTopicPartitionsResponseTopic;
        DescribeTopicPartitionsResponsePartition, oracle::describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition;
        FindCoordinatorRequest, oracle::FindCoordinatorRequest;
        FindCoordinatorResponse, oracle::FindCoordinatorResponse;
        Coordinator, oracle::find_coordinator_response::Coordinator;
        JoinGroupRequest, oracle::JoinGroupRequest;
        JoinGroupRequestProtocol, oracle::join_group_request::JoinGroupRequestProtocol;
        JoinGroupResponse, oracle::JoinGroupResponse;
        JoinGroupResponseMember, oracle::join_group_response::JoinGroupResponseMember;
        SyncGroupRequest, oracle::SyncGroupRequest;
        SyncGroupRequestAssignment, oracle::sync_group_request::SyncGroupRequestAssignment;
        SyncGroupResponse, oracle::SyncGroupResponse;
        HeartbeatRequest, oracle::HeartbeatRequest;
        HeartbeatResponse, oracle::HeartbeatResponse;
        LeaveGroupRequest, oracle::LeaveGroupRequest;
        MemberIdentity, oracle::leave_group_request::MemberIdentity;
        LeaveGroupResponse, oracle::LeaveGroupResponse;
        MemberResponse, oracle::leave_group_response::MemberResponse;
        OffsetCommitRequest, oracle::OffsetCommitRequest;
        OffsetCommitRequestTopic, oracle::offset_commit_request::OffsetCommitRequestTopic;
        OffsetCommitRequestPartition, oracle::offset_commit_request::OffsetCommitRequestPartition;
        OffsetCommitResponse, oracle::OffsetCommitResponse;
        OffsetCommitResponseTopic, oracle::offset_commit_response::OffsetCommitResponseTopic;
        OffsetCommitResponsePartition, oracle::offset_commit_response::OffsetCommitResponsePartition;
        OffsetFetchRequest, oracle::OffsetFetchRequest;
        OffsetFetchRequestTopic, oracle::offset_fetch_request::OffsetFetchRequestTopic;
        OffsetFetchRequestGroup, oracle::offset_fetch_request::OffsetFetchRequestGroup;
        OffsetFetchRequestTopics, oracle::offset_fetch_request::OffsetFetchRequestTopics;
        OffsetFetchResponse, oracle::OffsetFetchResponse;
        OffsetFetchResponseTopic, oracle::offset_fetch_response::OffsetFetchResponseTopic;
        OffsetFetchResponsePartition, oracle::offset_fetch_response::OffsetFetchResponsePartition;
        OffsetFetchResponseGroup, oracle::offset_fetch_response::OffsetFetchResponseGroup;
        OffsetFetchResponseTopics, oracle::offset_fetch_response::OffsetFetchResponseTopics;
        OffsetFetchResponsePartitions, oracle::offset_fetch_response::OffsetFetchResponsePartitions;
        OffsetDeleteRequest, oracle::OffsetDeleteRequest;
        OffsetDeleteRequestTopic, oracle::offset_delete_request::OffsetDeleteRequestTopic;
        OffsetDeleteRequestPartition, oracle::offset_delete_request::OffsetDeleteRequestPartition;
        OffsetDeleteResponse, oracle::OffsetDeleteResponse;
        OffsetDeleteResponseTopic, oracle::offset_delete_response::OffsetDeleteResponseTopic;
        OffsetDeleteResponsePartition, oracle::offset_delete_response::OffsetDeleteResponsePartition;
        DescribeGroupsRequest, oracle::DescribeGroupsRequest;
        DescribeGroupsResponse, oracle::DescribeGroupsResponse;
        DescribedGroup, oracle::describe_groups_response::DescribedGroup;
        DescribedGroupMember, oracle::describe_groups_response::DescribedGroupMember;
        ListGroupsRequest, oracle::ListGroupsRequest;
        ListGroupsResponse, oracle::ListGroupsResponse;
        ListedGroup, oracle::list_groups_response::ListedGroup;
        DeleteGroupsRequest, oracle::DeleteGroupsRequest;
        DeleteGroupsResponse, oracle::DeleteGroupsResponse;
        DeletableGroupResult, oracle::delete_groups_response::DeletableGroupResult;
    }
}

#[test]
fn headers_are_the_oracles() {
    for &key in ApiKey::DECLARED {
        for version in key.decoded_versions() {
            for client_id in [None, Some("me")] {
                let ours = RequestHeader {
                    api_key: key.code(),
                    api_version: version,
                    correlation_id: 77,
                    client_id: client_id.map(Into::into),
                };
                let mut w = Writer::new();
                ours.encode(&mut w).unwrap();
                let bytes: Bytes = w.finish().concat().into();
                let header_version = 1 + i16::from(key.request_header_is_flexible(version));
                let theirs = oracle::RequestHeader::decode(&mut bytes.clone(), header_version);
                let mut again = BytesMut::new();
                theirs.unwrap().encode(&mut again, header_version).unwrap();
                assert_eq!(bytes, again.freeze());
            }
            let mut w = Writer::new();
            ResponseHeader { correlation_id: 77 }.encode(&mut w, key, version);
            let bytes: Bytes = w.finish().concat().into();
            let header_version = i16::from(key.response_header_is_flexible(version));
            let mut rest = bytes.clone();
            let theirs = oracle::ResponseHeader::decode(&mut rest, header_version).unwrap();
            assert_eq!((theirs.correlation_id, rest.len()), (77, 0));
        }
    }
}

#[test]
fn ranges_are_within_the_oracles() {
    for &key in ApiKey::DECLARED {
        let theirs = oracle::ApiKey::try_from(key.code()).unwrap();
        assert_eq!(format!("{key:?}"), format!("{theirs:?}").replace("Key", ""));
        let range = theirs.valid_versions();
        // Their last version is unstable in Kafka 4.1.
        let is_unstable = matches!(
            key,
            ApiKey::InitProducerId | ApiKey::OffsetCommit | ApiKey::OffsetFetch
        );
        let last = range.max - i16::from(is_unstable);
        assert_eq!(key.decoded_versions(), range.min..=last, "{key:?}");
    }
}

#[test]
fn error_codes_are_the_oracles() {
    use kafka_protocol::error::{ParseResponseErrorCode, ResponseError};
    for code in ErrorCode::ALL {
        let Some(theirs) = code.code().err() else {
            assert_eq!(*code, ErrorCode::None);
            continue;
        };
        assert_eq!(format!("{code:?}"), format!("{theirs:?}"));
        // Retriable since Kafka 3.0 (KIP-691), which the oracle's table has missed.
        if *code != ErrorCode::ConcurrentTransactions {
            assert_eq!(code.is_retriable(), theirs.is_retriable(), "{code:?}");
        }
    }
    let next = ErrorCode::ALL.len() as i16 - 1;
    assert_eq!(next.err(), Some(ResponseError::Unknown(next)));
}

/// Produce 0-2 by hand, as the oracle no longer has them.
#[test]
fn produce_before_three_is_answered_for_each_partition() {
    let mut w = Writer::new();
    w.put_i16(1); // acks
    w.put_i32(1500); // timeout
    w.put_i32(1); // topics
    w.put_i16(1);
    w.put_slice(b"t");
    w.put_i32(2); // partitions
    for partition in [0, 3] {
        w.put_i32(partition);
        w.put_i32(2); // bytes of the message set
        w.put_slice(&[1, 2]);
    }
    let bytes: Bytes = w.finish().concat().into();
    for version in 0..=2 {
        ProduceRequest::decode(&mut Reader::new(bytes.clone()), version).unwrap_err();
        let request = LegacyProduceRequest::decode(&mut Reader::new(bytes.clone()), version);
        let mut w = Writer::new();
        request
            .unwrap()
            .unsupported()
            .encode(&mut w, version)
            .unwrap();

        let mut expected = Writer::new();
        expected.put_i32(1);
        expected.put_i16(1);
        expected.put_slice(b"t");
        expected.put_i32(2);
        for partition in [0, 3] {
            expected.put_i32(partition);
            expected.put_i16(35);
            expected.put_i64(-1);
            if version >= 2 {
                expected.put_i64(-1); // log append time
            }
        }
        if version >= 1 {
            expected.put_i32(0); // throttle time
        }
        assert_eq!(
            w.finish().concat(),
            expected.finish().concat(),
            "version {version}"
        );
    }
}
