//! From a frame to the code that answers it.

use super::respond::{Answer, Asked};
use super::{api_versions, fetch, list_offsets, metadata, produce, topics};
use crate::protocol::codec::{DecodeError, EncodeError, Reader};
use crate::protocol::messages::{
    ApiVersionsRequest, CreateTopicsRequest, DeleteTopicsRequest, FetchRequest,
    ListOffsetsRequest, MetadataRequest, ProduceRequest,
};
use crate::protocol::{ApiKey, Message, RequestHeader};
use crate::shard::Shard;
use bytes::Bytes;
use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

/// A request that was started.
pub(super) enum Started {
    /// It finishes in its own time; `None` means that the connection is to be closed.
    Pipelined(Pin<Box<dyn Future<Output = Option<Answer>>>>),
    /// It may run when everything before it is answered.
    Barrier(Pin<Box<dyn Future<Output = Result<Answer, BadRequest>>>>),
}

/// A request that no answer can be given to: the connection is closed, as Kafka does.
#[derive(Debug, thiserror::Error)]
pub(super) enum BadRequest {
    #[error("the request can't be read: {0}")]
    Decode(#[from] DecodeError),
    #[error("the answer can't be expressed in the version asked for: {0}")]
    Encode(#[from] EncodeError),
    #[error("API key {0} is not served")]
    UnknownApi(i16),
    #[error("{api:?} version {version} is not served; it is served from {min} to {max}")]
    UnsupportedVersion {
        api: ApiKey,
        version: i16,
        min: i16,
        max: i16,
    },
}

/// Decodes a frame and starts what it asks for. Produce and Fetch have taken their
/// place at the owners when this returns.
pub(super) async fn start(
    shard: &Shard,
    peer: SocketAddr,
    frame: Bytes,
) -> Result<Started, BadRequest> {
    let mut reader = Reader::new(frame);
    let header = RequestHeader::decode(&mut reader)?;
    let api =
        ApiKey::from_code(header.api_key).ok_or(BadRequest::UnknownApi(header.api_key))?;
    let asked = Asked {
        api_version: header.api_version,
        correlation_id: header.correlation_id,
    };
    tracing::trace!(%peer, ?api, version = header.api_version, correlation = header.correlation_id, "request");
    shard.counters().requests.add(1);
    let versions = api.advertised_versions();
    if !versions.contains(&header.api_version) {
        if api == ApiKey::ApiVersions {
            // KIP-511: the newest client learns what to downgrade to from a v0 answer.
            return Ok(barrier(async move { api_versions::unsupported(asked) }));
        }
        return Err(BadRequest::UnsupportedVersion {
            api,
            version: header.api_version,
            min: *versions.start(),
            max: *versions.end(),
        });
    }
    let shard = shard.clone();
    Ok(match api {
        ApiKey::Produce if header.api_version < *ProduceRequest::VERSIONS.start() => {
            barrier(async move { produce::too_old(asked) })
        }
        ApiKey::Produce => {
            let request: ProduceRequest = body(&mut reader, asked)?;
            Started::Pipelined(produce::start(&shard, asked, request).await)
        }
        ApiKey::Fetch => {
            let request: FetchRequest = body(&mut reader, asked)?;
            Started::Pipelined(Box::pin(fetch::run(shard, asked, request)))
        }
        ApiKey::ListOffsets => {
            let request: ListOffsetsRequest = body(&mut reader, asked)?;
            barrier(async move { list_offsets::run(&shard, asked, request).await })
        }
        ApiKey::Metadata => {
            let request: MetadataRequest = body(&mut reader, asked)?;
            barrier(async move { metadata::run(&shard, asked, request).await })
        }
        ApiKey::ApiVersions => {
            let request: ApiVersionsRequest = body(&mut reader, asked)?;
            barrier(async move { api_versions::run(asked, request) })
        }
        ApiKey::CreateTopics => {
            let request: CreateTopicsRequest = body(&mut reader, asked)?;
            barrier(async move { topics::create(&shard, asked, request).await })
        }
        ApiKey::DeleteTopics => {
            let request: DeleteTopicsRequest = body(&mut reader, asked)?;
            barrier(async move { topics::delete(&shard, asked, request).await })
        }
    })
}

fn body<M: Message>(reader: &mut Reader, asked: Asked) -> Result<M, BadRequest> {
    let message = M::decode(reader, asked.api_version)?;
    reader.finish()?;
    Ok(message)
}

fn barrier(work: impl Future<Output = Result<Answer, BadRequest>> + 'static) -> Started {
    Started::Barrier(Box::pin(work))
}
