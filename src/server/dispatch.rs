//! From a frame to the code that answers it.

use super::registry::Open;
use super::respond::{Answer, Asked, BadRequest};
use super::{
    api_versions, configs, delete_records, describe_cluster, describe_producers,
    describe_topic_partitions, fetch, init_producer_id, list_offsets, metadata,
    offset_for_leader_epoch, produce, topics,
};
use crate::protocol::messages::{
    AlterConfigsRequest, ApiVersionsRequest, CreatePartitionsRequest, CreateTopicsRequest,
    DeleteRecordsRequest, DeleteTopicsRequest, DescribeClusterRequest, DescribeConfigsRequest,
    DescribeProducersRequest, DescribeTopicPartitionsRequest, FetchRequest,
    IncrementalAlterConfigsRequest, InitProducerIdRequest, LegacyProduceRequest,
    ListOffsetsRequest, MetadataRequest, OffsetForLeaderEpochRequest, ProduceRequest,
};
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
    Barrier(Pin<Box<dyn Future<Output = Result<Answer, BadRequest>>>>),
}

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
    let shard = shard.clone();
    Ok(match api {
        ApiKey::Produce => {
            let request: ProduceRequest = body(&mut reader, asked, decoded)?;
            // In a place of its own: a connection at rest holds no room for it.
            let starting = Box::pin(produce::start(&shard, asked, request));
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
        ApiKey::ListOffsets => {
            let request: ListOffsetsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { list_offsets::run(&shard, asked, request).await })
        }
        ApiKey::Metadata => {
            let request: MetadataRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { metadata::run(&shard, asked, request).await })
        }
        ApiKey::ApiVersions => {
            let request: ApiVersionsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { api_versions::run(asked, request) })
        }
        ApiKey::CreateTopics => {
            let request: CreateTopicsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { topics::create(&shard, asked, request).await })
        }
        ApiKey::DeleteRecords => {
            let request: DeleteRecordsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { delete_records::run(&shard, asked, request).await })
        }
        ApiKey::DeleteTopics => {
            let request: DeleteTopicsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { topics::delete(&shard, asked, request).await })
        }
        ApiKey::CreatePartitions => {
            let request: CreatePartitionsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { topics::create_partitions(&shard, asked, request).await })
        }
        ApiKey::DescribeConfigs => {
            let request: DescribeConfigsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { configs::describe(&shard, asked, request).await })
        }
        ApiKey::AlterConfigs => {
            let request: AlterConfigsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { configs::alter(&shard, asked, request).await })
        }
        ApiKey::IncrementalAlterConfigs => {
            let request: IncrementalAlterConfigsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { configs::alter_incrementally(&shard, asked, request).await })
        }
        ApiKey::InitProducerId => {
            let request: InitProducerIdRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { init_producer_id::run(&shard, asked, request).await })
        }
        ApiKey::DescribeProducers => {
            let request: DescribeProducersRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { describe_producers::run(&shard, asked, request).await })
        }
        ApiKey::DescribeCluster => {
            let request: DescribeClusterRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { describe_cluster::run(&shard, asked, &request) })
        }
        ApiKey::DescribeTopicPartitions => {
            let request: DescribeTopicPartitionsRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { describe_topic_partitions::run(&shard, asked, &request) })
        }
        ApiKey::OffsetForLeaderEpoch => {
            let request: OffsetForLeaderEpochRequest = body(&mut reader, asked, decoded)?;
            barrier(async move { offset_for_leader_epoch::run(&shard, asked, request).await })
        }
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
