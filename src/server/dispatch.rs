//! From a frame to the code that answers it.

use super::groups::Asker;
use super::registry::Open;
use super::respond::{Answer, Asked, BadRequest};
use super::{
    acls, api_versions, client_quotas, config_resources, configs, delete_records, describe_cluster,
    describe_producers, describe_quorum, describe_topic_partitions, elect_leaders, fetch,
    find_coordinator, group_admin, group_membership, group_offsets, init_producer_id, list_offsets,
    log_dirs, metadata, offset_for_leader_epoch, produce, reassignments, scram_credentials, topics,
};
use crate::protocol::messages::*;
use crate::protocol::{ApiKey, Message, Reader, RequestHeader, UnservedApi};
use crate::runtime::local::Permit;
use crate::shard::Shard;
use bytes::Bytes;
use std::future::Future;
use std::pin::Pin;

/// A request that was started.
pub(super) enum Started {
    /// It finishes in its own time; `None` means that the connection is to be closed.
    Pipelined(Pin<Box<dyn Future<Output = Option<Answer>>>>),
    /// It may run when everything before it is answered.
    Barrier(Work),
    /// The same, but it may wait for long: it is dropped when its peer has gone.
    Waiting(Work),
}

/// What gives the one answer that a connection works on.
pub(super) type Work = Pin<Box<dyn Future<Output = Result<Answer, BadRequest>>>>;

/// Decodes a frame and starts what it asks for. When this returns a produce has taken
/// its place at the owners, and a fetch its place among the connection's fetches: what
/// a fetch sees of a later produce is decided by when its owner reads.
pub(super) async fn start(
    shard: &Shard,
    open: &Open,
    frame: Bytes,
    decoded: &mut Option<Permit>,
) -> Result<Started, BadRequest> {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader)?;
    let asked = Asked {
        api_version: header.api_version,
        correlation_id: header.correlation_id,
    };
    tracing::trace!(peer = %open.peer, api = header.api_key, version = header.api_version, correlation = header.correlation_id, "request");
    shard.counters().request(header.api_key);
    let api = match header.served() {
        Ok(api) => api,
        Err(UnservedApi::UnsupportedVersion {
            key: ApiKey::ApiVersions,
            ..
        }) => return Ok(barrier(async move { api_versions::downgrade(asked) })),
        Err(UnservedApi::UnsupportedVersion {
            key: ApiKey::Produce,
            version,
        }) if ApiKey::Produce.served_versions().contains(&version) => {
            let request: LegacyProduceRequest = body(&mut reader, asked, decoded)?;
            return Ok(Started::Pipelined(produce::too_old(asked, &request)));
        }
        Err(unserved) => return Err(unserved.into()),
    };
    let asker = || Asker::new(shard.clone(), asked, header.client_id.clone(), open.peer);
    let shard = shard.clone();
    // An API of which one request is answered before the next is looked at.
    macro_rules! run {
        ($request:ty, $run:path) => {{
            let request: $request = body(&mut reader, asked, decoded)?;
            barrier(async move { $run(&shard, asked, request).await })
        }};
    }
    // The same about groups: who asks matters.
    macro_rules! ask {
        ($request:ty, $run:path) => {{
            let request: $request = body(&mut reader, asked, decoded)?;
            Started::Barrier(Box::pin($run(asker(), request)))
        }};
    }
    // An answer that waits for other members.
    macro_rules! wait {
        ($request:ty, $run:path) => {{
            let request: $request = body(&mut reader, asked, decoded)?;
            Started::Waiting(Box::pin($run(asker(), request)))
        }};
    }
    Ok(match api {
        ApiKey::Produce => {
            let request: ProduceRequest = body(&mut reader, asked, decoded)?;
            // In a place of its own: a connection at rest holds no room for it.
            let starting = Box::pin(produce::start(
                &shard,
                asked,
                header.client_id.as_deref(),
                request,
            ));
            Started::Pipelined(starting.await)
        }
        ApiKey::Fetch => {
            let request: FetchRequest = body(&mut reader, asked, &mut None)?;
            if let Some(permit) = decoded {
                // Its lists live on as what is read and answered.
                permit.shrink_to(reader.decoded_bytes() as u64 * fetch::LISTS);
            }
            let (turn, hurry) = (open.fetch_turns.next(&open.backlog), open.hurry.clone());
            let sessions = open.fetch_sessions.clone();
            let run = fetch::run(shard, sessions, asked, request, turn, hurry);
            Started::Pipelined(Box::pin(run))
        }
        ApiKey::ListOffsets => run!(ListOffsetsRequest, list_offsets::run),
        ApiKey::Metadata => run!(MetadataRequest, metadata::run),
        ApiKey::ApiVersions => run!(ApiVersionsRequest, api_versions::run),
        ApiKey::CreateTopics => run!(CreateTopicsRequest, topics::create),
        ApiKey::DeleteRecords => run!(DeleteRecordsRequest, delete_records::run),
        ApiKey::DeleteTopics => run!(DeleteTopicsRequest, topics::delete),
        ApiKey::CreatePartitions => run!(CreatePartitionsRequest, topics::create_partitions),
        ApiKey::DescribeConfigs => run!(DescribeConfigsRequest, configs::describe),
        ApiKey::AlterConfigs => run!(AlterConfigsRequest, configs::alter),
        ApiKey::IncrementalAlterConfigs => {
            run!(IncrementalAlterConfigsRequest, configs::alter_incrementally)
        }
        ApiKey::InitProducerId => run!(InitProducerIdRequest, init_producer_id::run),
        ApiKey::DescribeProducers => run!(DescribeProducersRequest, describe_producers::run),
        ApiKey::DescribeCluster => run!(DescribeClusterRequest, describe_cluster::run),
        ApiKey::DescribeTopicPartitions => run!(
            DescribeTopicPartitionsRequest,
            describe_topic_partitions::run
        ),
        ApiKey::OffsetForLeaderEpoch => {
            run!(OffsetForLeaderEpochRequest, offset_for_leader_epoch::run)
        }
        ApiKey::FindCoordinator => run!(FindCoordinatorRequest, find_coordinator::run),
        ApiKey::JoinGroup => wait!(JoinGroupRequest, group_membership::join),
        ApiKey::SyncGroup => wait!(SyncGroupRequest, group_membership::sync),
        ApiKey::Heartbeat => ask!(HeartbeatRequest, group_membership::heartbeat),
        ApiKey::LeaveGroup => ask!(LeaveGroupRequest, group_membership::leave),
        ApiKey::OffsetCommit => ask!(OffsetCommitRequest, group_offsets::commit),
        ApiKey::OffsetFetch => ask!(OffsetFetchRequest, group_offsets::fetch),
        ApiKey::OffsetDelete => ask!(OffsetDeleteRequest, group_offsets::delete),
        ApiKey::DescribeGroups => ask!(DescribeGroupsRequest, group_admin::describe),
        ApiKey::ListGroups => ask!(ListGroupsRequest, group_admin::list),
        ApiKey::DeleteGroups => ask!(DeleteGroupsRequest, group_admin::delete),
        ApiKey::DescribeAcls => run!(DescribeAclsRequest, acls::describe),
        ApiKey::CreateAcls => run!(CreateAclsRequest, acls::create),
        ApiKey::DeleteAcls => run!(DeleteAclsRequest, acls::delete),
        ApiKey::AlterReplicaLogDirs => run!(AlterReplicaLogDirsRequest, log_dirs::alter),
        ApiKey::DescribeLogDirs => run!(DescribeLogDirsRequest, log_dirs::describe),
        ApiKey::ElectLeaders => run!(ElectLeadersRequest, elect_leaders::run),
        ApiKey::AlterPartitionReassignments => {
            run!(AlterPartitionReassignmentsRequest, reassignments::alter)
        }
        ApiKey::ListPartitionReassignments => {
            run!(ListPartitionReassignmentsRequest, reassignments::list)
        }
        ApiKey::DescribeClientQuotas => run!(DescribeClientQuotasRequest, client_quotas::describe),
        ApiKey::DescribeUserScramCredentials => run!(
            DescribeUserScramCredentialsRequest,
            scram_credentials::describe
        ),
        ApiKey::DescribeQuorum => run!(DescribeQuorumRequest, describe_quorum::run),
        ApiKey::ListConfigResources => run!(ListConfigResourcesRequest, config_resources::list),
    })
}

/// Decodes the body. Bytes behind it are passed over, as in Kafka: librdkafka sends
/// some behind Metadata and ListOffsets requests.
fn body<M: Message>(
    reader: &mut Reader,
    asked: Asked,
    decoded: &mut Option<Permit>,
) -> Result<M, BadRequest> {
    let request = M::decode_prefix(reader, asked.api_version)?;
    if let Some(permit) = decoded {
        permit.shrink_to(reader.decoded_bytes() as u64);
    }
    Ok(request)
}

fn barrier(work: impl Future<Output = Result<Answer, BadRequest>> + 'static) -> Started {
    Started::Barrier(Box::pin(work))
}
