//! Every decoder of a request's or response's body, by API: what the mutation test and
//! the fuzz target both read with.

use highwater::protocol::batch::{BatchView, Batches, Compression};
use highwater::protocol::messages::*;
use highwater::protocol::{ApiKey, DecodeError, Reader};

use bytes::Bytes;

macro_rules! decoders {
    ($($key:ident: $request:ident, $response:ident;)*) => {
        /// Decodes the body of a request.
        pub fn request(key: ApiKey, version: i16, r: &mut Reader) -> Result<(), DecodeError> {
            match key {
                ApiKey::Produce => ProduceRequest::decode(r, version).map(read_produced),
                $(ApiKey::$key => $request::decode(r, version).map(drop),)*
            }
        }

        /// Decodes the body of a response.
        pub fn response(key: ApiKey, version: i16, r: &mut Reader) -> Result<(), DecodeError> {
            match key {
                ApiKey::Produce => ProduceResponse::decode(r, version).map(drop),
                $(ApiKey::$key => $response::decode(r, version).map(drop),)*
            }
        }
    };
}

decoders! {
    Fetch: FetchRequest, FetchResponse;
    ListOffsets: ListOffsetsRequest, ListOffsetsResponse;
    Metadata: MetadataRequest, MetadataResponse;
    ApiVersions: ApiVersionsRequest, ApiVersionsResponse;
    CreateTopics: CreateTopicsRequest, CreateTopicsResponse;
    DeleteTopics: DeleteTopicsRequest, DeleteTopicsResponse;
    DeleteRecords: DeleteRecordsRequest, DeleteRecordsResponse;
    InitProducerId: InitProducerIdRequest, InitProducerIdResponse;
    OffsetForLeaderEpoch: OffsetForLeaderEpochRequest, OffsetForLeaderEpochResponse;
    DescribeConfigs: DescribeConfigsRequest, DescribeConfigsResponse;
    AlterConfigs: AlterConfigsRequest, AlterConfigsResponse;
    CreatePartitions: CreatePartitionsRequest, CreatePartitionsResponse;
    IncrementalAlterConfigs: IncrementalAlterConfigsRequest, IncrementalAlterConfigsResponse;
    DescribeCluster: DescribeClusterRequest, DescribeClusterResponse;
    DescribeProducers: DescribeProducersRequest, DescribeProducersResponse;
    DescribeTopicPartitions: DescribeTopicPartitionsRequest, DescribeTopicPartitionsResponse;
    DescribeAcls: DescribeAclsRequest, DescribeAclsResponse;
    CreateAcls: CreateAclsRequest, CreateAclsResponse;
    DeleteAcls: DeleteAclsRequest, DeleteAclsResponse;
    AlterReplicaLogDirs: AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse;
    DescribeLogDirs: DescribeLogDirsRequest, DescribeLogDirsResponse;
    ElectLeaders: ElectLeadersRequest, ElectLeadersResponse;
    AlterPartitionReassignments: AlterPartitionReassignmentsRequest, AlterPartitionReassignmentsResponse;
    ListPartitionReassignments: ListPartitionReassignmentsRequest, ListPartitionReassignmentsResponse;
    DescribeClientQuotas: DescribeClientQuotasRequest, DescribeClientQuotasResponse;
    DescribeUserScramCredentials: DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse;
    DescribeQuorum: DescribeQuorumRequest, DescribeQuorumResponse;
    ListConfigResources: ListConfigResourcesRequest, ListConfigResourcesResponse;
    FindCoordinator: FindCoordinatorRequest, FindCoordinatorResponse;
    JoinGroup: JoinGroupRequest, JoinGroupResponse;
    SyncGroup: SyncGroupRequest, SyncGroupResponse;
    Heartbeat: HeartbeatRequest, HeartbeatResponse;
    LeaveGroup: LeaveGroupRequest, LeaveGroupResponse;
    OffsetCommit: OffsetCommitRequest, OffsetCommitResponse;
    OffsetFetch: OffsetFetchRequest, OffsetFetchResponse;
    OffsetDelete: OffsetDeleteRequest, OffsetDeleteResponse;
    DescribeGroups: DescribeGroupsRequest, DescribeGroupsResponse;
    ListGroups: ListGroupsRequest, ListGroupsResponse;
    DeleteGroups: DeleteGroupsRequest, DeleteGroupsResponse;
}

/// The batches inside go through the reader of batches too; only their frame counts as
/// good or bad.
fn read_produced(request: ProduceRequest) {
    for partition in request.topic_data.iter().flat_map(|t| &t.partition_data) {
        if let Some(records) = &partition.records {
            batches(records.to_bytes());
        }
    }
}

/// Reads batches, records and headers, without decompression and beyond a wrong CRC, which would
/// hide everything else. True if all of it was good.
pub fn batches(bytes: Bytes) -> bool {
    let mut is_good = BatchView::parse_produced(bytes.clone()).is_ok();
    for batch in Batches::new(bytes) {
        let Ok(batch) = batch else {
            return false;
        };
        is_good |= batch.validate_crc().is_ok() && batch.header().validate_count().is_ok();
        if batch.header().attributes.compression() == Ok(Compression::None) {
            let scan = batch.scan(usize::MAX).expect("a known compression");
            is_good &= scan.fold(true, |is_good, record| is_good & record.is_ok());
            for record in batch.records().into_iter().flatten().flatten() {
                is_good &= record.headers.count() == record.headers.len();
            }
        }
    }
    is_good
}
